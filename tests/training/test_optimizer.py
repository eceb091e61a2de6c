"""The schedule, the decay mask and AdamW are those of the official code."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from attention_cases import PROGRAMS
from hypothesis import given
from hypothesis import strategies as st

from latentcode.config import TrainingConfig
from latentcode.models.config import ModelConfig
from latentcode.models.transformer import HookedTransformer
from latentcode.training.state import (
    BETAS,
    EPSILON,
    adamw_,
    adamw_rates,
    is_decayed,
    learning_rate,
    make_optimizer,
    set_learning_rate,
)

OFFICIAL = [
    0.0, 0.0033333338797092438, 0.006666666828095913, 0.009999999776482582, 0.009887175634503365,
    0.009554359130561352, 0.009018241427838802, 0.008305704221129417, 0.007452476304024458,
    0.006501344498246908, 0.00549999950453639, 0.004498655442148447, 0.0035475222393870354,
    0.002694295020774007, 0.0019817573484033346, 0.0014456401113420725, 0.0011128244223073125,
    0.0010000000474974513, 0.0010000000474974513, 0.0010000000474974513, 0.0010000000474974513,
    0.0010000000474974513, 0.0010000000474974513, 0.0010000000474974513, 0.0010000000474974513]
"""Steps 0 to 24 of the official schedule, float32: peak 1e-2, warm-up 3, 20 steps."""

SMALL = ModelConfig(d_model=8, d_mlp=8, n_heads=2, n_layers=1, n_buckets=4, max_distance=4)


def test_schedule_is_the_official_one() -> None:
    config = TrainingConfig(learning_rate=1e-2, warmup_steps=3, steps=20)
    ours = [learning_rate(step, config) for step in range(25)]
    np.testing.assert_allclose(ours, OFFICIAL, rtol=2e-6, atol=0)


@given(steps=st.integers(3, 10_000), data=st.data())
def test_schedule_rises_to_the_peak_and_falls_to_a_tenth(steps: int, data: st.DataObject) -> None:
    warmup = data.draw(st.integers(0, (steps - 1) // 2))
    config = TrainingConfig(learning_rate=0.5, warmup_steps=warmup, steps=steps)
    assert learning_rate(0, config) == (0.0 if warmup else 0.5)
    assert learning_rate(warmup, config) == 0.5
    for step in (steps - warmup, steps, 10 * steps):
        assert learning_rate(step, config) == pytest.approx(0.05, rel=1e-12)
    middle = [learning_rate(step, config) for step in range(warmup, steps - warmup + 1)]
    assert all(a > b for a, b in pairwise(middle))


def test_decay_spares_only_one_dimensional_tensors() -> None:
    model = HookedTransformer(SMALL)
    decayed = {name for name, p in model.named_parameters() if is_decayed(p)}
    attention = {f"blocks.0.attn.{name}" for name in
                 ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "rel_pos_bias")}
    assert decayed == attention | {
        "embed.W_E", "blocks.0.mlp.W_in", "blocks.0.mlp.W_out", "unembed.W_U"}
    groups = make_optimizer(model, TrainingConfig(weight_decay=0.3)).param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert {name: decay[id(p)] for name, p in model.named_parameters()} == {
        name: 0.3 if name in decayed else 0.0 for name, _ in model.named_parameters()}


def test_updates_are_adamw_with_masked_decoupled_decay() -> None:
    config = TrainingConfig(learning_rate=1e-2, warmup_steps=3, steps=20, weight_decay=0.3)
    model = HookedTransformer(SMALL).double()
    optimizer = make_optimizer(model, config)
    rng = np.random.default_rng(0)
    weights = {n: p.detach().numpy().copy() for n, p in model.named_parameters()}
    first = {n: np.zeros_like(w) for n, w in weights.items()}
    second = {n: np.zeros_like(w) for n, w in weights.items()}
    for step in range(12):
        rate = OFFICIAL[step]
        set_learning_rate(optimizer, rate)
        for name, parameter in model.named_parameters():
            g = rng.normal(size=weights[name].shape)
            parameter.grad = torch.from_numpy(g.copy())
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g**2
            m = first[name] / (1 - 0.9 ** (step + 1))
            v = second[name] / (1 - 0.999 ** (step + 1))
            decay = 0.3 * weights[name] if weights[name].ndim != 1 else 0.0
            weights[name] = weights[name] - rate * (m / (np.sqrt(v) + 1e-8) + decay)
        optimizer.step()
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(parameter.detach().numpy(), weights[name], rtol=0, atol=1e-12)
    assert optimizer.defaults["betas"] == (0.9, 0.999)
    assert optimizer.defaults["eps"] == 1e-8


def test_the_program_of_a_gpu_updates_as_the_operators_do() -> None:
    pytest.importorskip("triton", reason="Triton is for Linux alone")
    from latentcode.training.optimizer_on_gpu import BLOCK, adamw

    draw = torch.Generator().manual_seed(0)
    shape = 3, BLOCK + 5
    plain = [torch.randn(shape, generator=draw), torch.zeros(shape), torch.zeros(shape)]
    program = [x.clone().to(PROGRAMS) for x in plain]
    decay = torch.rand(shape, generator=draw)
    configs = [TrainingConfig(learning_rate=peak, warmup_steps=1, steps=9)
               for peak in (1e-2, 3e-2, 0.0)]
    for step in range(4):
        gradients = torch.randn(shape, generator=draw)
        rates = torch.tensor([adamw_rates(step, config) for config in configs]).T[..., None]
        adamw_(plain[0], gradients, (plain[1], plain[2]), rates, decay)
        adamw(program[0], gradients.to(PROGRAMS), program[1], program[2],
              rates.contiguous().to(PROGRAMS), decay.to(PROGRAMS), *BETAS, EPSILON)
    for mine, own in zip(program, plain, strict=True):
        torch.testing.assert_close(mine.cpu(), own, rtol=2e-6, atol=1e-7)
