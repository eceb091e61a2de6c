"""Training leaves out what changes nothing: losses, gradients, random streams and hooks agree.

Tokens that the task does not read have no last block, and tokens that are the same vector have
their first queries, keys and values computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_training import float64
from torch import Tensor, nn

from latentcode.config import RunConfig
from latentcode.devices import make_generator
from latentcode.errors import ConfigError
from latentcode.models import blocks
from latentcode.models.config import ATTENTION_KINDS
from latentcode.models.transformer import HookedTransformer
from latentcode.presets import preset
from latentcode.tasks import Batch, make_task
from latentcode.tasks.logic.task import FuzzyLogic
from latentcode.tasks.sraven.task import Sraven, tokenize
from latentcode.training import evaluate, train
from latentcode.training.ensemble import Ensemble
from latentcode.training.state import TrainingState

EXACT = 1e-12
SPARED: dict[str, Any] = {"read": 2, "one_hot": True}
TASKS = {"logic": FuzzyLogic, "sraven": Sraven}


def config_of(task: str, kind: str, **model: Any) -> RunConfig:
    config = preset("smoke", task, kind)
    return replace(config, model=replace(config.model, **model))


def sampled(kind: str = "hyla") -> tuple[RunConfig, Batch]:
    config = config_of("sraven", kind)
    return config, make_task(config.task).sample("train", 4, make_generator(0, "batch"))


def compute_everything(monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    monkeypatch.setattr(TASKS[task], "n_read", None)
    monkeypatch.setattr("latentcode.tasks.sraven.task.Batch", lambda *a, one_hot: Batch(*a))


def gradients(
    config: RunConfig, read: int | None, one_hot: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return loss and gradients of one batch in training mode, dropout drawn from one seed."""
    task = make_task(config.task)
    batch = task.sample("train", 24, make_generator(0, "batch"))
    model = HookedTransformer(config.model, seed=3).double().train()
    noise = make_generator(1, "weights")
    for parameter in model.parameters():  # biases and tables too must matter
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=noise)
    logits = model(batch.inputs.double(), generator=make_generator(2, "dropout"), read=read,
                   one_hot=one_hot)
    loss = task.loss(logits, batch)
    loss.backward()
    return loss.detach(), {name: torch.zeros_like(p) if p.grad is None else p.grad
                           for name, p in model.named_parameters()}


def check_equal(config: RunConfig) -> None:
    task = make_task(config.task)
    assert task.n_read < config.task.n_tokens
    one_hot = task.name == "sraven"
    assert task.sample("train", 1, make_generator(0, "batch")).one_hot == one_hot
    whole, spared = gradients(config, None, False), gradients(config, task.n_read, one_hot)
    assert abs(whole[0] - spared[0]) <= EXACT
    for name, gradient in whole[1].items():
        assert (gradient - spared[1][name]).abs().max() <= EXACT, name


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", ATTENTION_KINDS)
@pytest.mark.parametrize("form", ["shared", "independent"])
def test_loss_and_every_gradient_are_those_of_the_full_pass(
    task: str, kind: str, form: str
) -> None:
    check_equal(config_of(task, kind, attention_dropout=0.3, attention_dropout_form=form))


@pytest.mark.parametrize("model", [
    {"positions": "rotary"}, {"positions": "none"}, {"n_layers": 1}, {"causal": True},
    {"feedforward": "swiglu"}], ids=str)
def test_other_architectures_too(model: dict[str, Any]) -> None:
    check_equal(config_of("sraven", "hyla", attention_dropout=0.2, **model))


def test_the_first_and_the_last_block_do_compute_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without which everything above would hold for a path that leaves nothing out."""
    config, batch = sampled()
    model = HookedTransformer(config.model)
    shapes: list[torch.Size] = []

    def note(x: Tensor, *_: object, **__: object) -> Tensor:
        shapes.append(x.shape)
        return x

    for block in model.blocks:
        block.mlp.forward = note  # type: ignore[method-assign]
    project = blocks.project_to_heads
    rows: list[int] = []

    def count(x: Tensor, *weights: Tensor) -> Tensor:
        rows.append(x.shape[-3] * x.shape[-2])
        return project(x, *weights)

    monkeypatch.setattr(blocks, "project_to_heads", count)
    model(batch.inputs, **SPARED)
    n = config.task.n_tokens
    assert [shape[1] for shape in shapes] == [n, 2]
    assert rows == 3 * [config.task.d_input + 1] + [4 * 2, 4 * n, 4 * n]


@float64()
@pytest.mark.parametrize("task", TASKS)
def test_a_resumed_run_and_an_ensemble_go_the_way_of_the_full_pass(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six updates with dropout: weights agree, so the stream of dropout masks went on alike."""
    monkeypatch.setattr("latentcode.tasks.sraven.task.tokenize", lambda *a: tokenize(*a).double())
    config = config_of(task, "hyla", attention_dropout=0.2)
    config = replace(config, training=replace(
        config.training, warmup_steps=0, steps=6, checkpoint_every=3, eval_every=6))

    def alone() -> list[Tensor]:
        state = TrainingState.start(config)
        for _ in range(6):
            state.update()
        return [p.detach().clone() for p in state.model.parameters()]

    def resumed() -> list[Tensor]:
        state = TrainingState.start(config)
        state.restore([train(config, tmp_path / "run", progress=False)], 3)
        for _ in range(3):
            state.update()
        return [p.detach().clone() for p in state.model.parameters()]

    def member(graphed: bool) -> list[Tensor]:
        ensemble = Ensemble([config, replace(config, training=replace(config.training, seed=4))],
                            graphed=graphed)
        for _ in range(6):
            ensemble.update()
        return [p.detach().clone() for p in ensemble.member(0).model.parameters()]

    spared = [alone(), resumed(), member(graphed=False), member(graphed=True)]
    compute_everything(monkeypatch, task)
    whole = alone()
    for weights in spared:
        for mine, other in zip(weights, whole, strict=True):
            torch.testing.assert_close(mine, other, atol=1e-10, rtol=0.0)


@pytest.mark.parametrize("task", TASKS)
def test_an_evaluation_is_that_of_the_full_pass(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(task, "softmax")
    model = HookedTransformer(config.model, seed=1).double()

    def scores() -> dict[str, float]:
        found = evaluate(model, InDouble(), "test", 100, seed=0)
        return {name: metric.mean for name, metric in found.items()}

    class InDouble(TASKS[task]):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(config.task)

        def sample(self, *args: Any) -> Batch:
            batch: Batch = super().sample(*args)
            return replace(batch, inputs=batch.inputs.double())

    spared = scores()
    compute_everything(monkeypatch, task)
    assert scores() == pytest.approx(spared, abs=EXACT)


@pytest.mark.parametrize("name", [
    *HookedTransformer(preset("smoke", "sraven", "hyla").model).hook_dict])
def test_a_hook_sees_all_tokens_and_what_it_writes_counts(name: str) -> None:
    config, batch = sampled()
    model = HookedTransformer(config.model, seed=3).eval()
    seen: list[Tensor] = []

    def look(x: Tensor, hook: object) -> None:
        seen.append(x)

    def spoil(x: Tensor, hook: object) -> Tensor:
        return x + 1.0 + torch.rand(x.shape, generator=make_generator(0, "noise"))

    with torch.no_grad():
        whole = model.run_with_hooks(batch.inputs, fwd_hooks=[(name, look)])
        read = model.run_with_hooks(batch.inputs, fwd_hooks=[(name, look)], **SPARED)
        written, spared = (model.run_with_hooks(batch.inputs, fwd_hooks=[(name, spoil)], **asked)
                           for asked in ({}, SPARED))
    torch.testing.assert_close(seen[0], seen[1])
    torch.testing.assert_close(whole[:, -2:], read)
    torch.testing.assert_close(written[:, -2:], spared)
    assert (written - whole).abs().max() > 1e-3


@pytest.mark.parametrize("part", [
    lambda model: model.embed, lambda model: model.blocks[0], lambda model: model.blocks[0].ln1,
    lambda model: model.blocks[0].attn, lambda model: model.blocks[-1],
    lambda model: model.blocks[-1].mlp, lambda model: model.ln_final,
    lambda model: model.unembed], ids=[
        "embed", "first", "first ln", "first attn", "block", "mlp", "ln", "out"])
def test_so_do_hooks_of_torch(part: Callable[[HookedTransformer], nn.Module]) -> None:
    config, batch = sampled()
    model = HookedTransformer(config.model).eval()
    seen: list[tuple[Tensor, ...]] = []
    handle = part(model).register_forward_hook(
        lambda module, inputs, output: seen.append((*inputs, output)))
    assert model(batch.inputs, **SPARED).shape[1] == 2
    handle.remove()
    assert [x.shape[:2] for x in seen[0]] == 2 * [batch.inputs.shape[:2]]


@pytest.mark.parametrize("positions", ["t5", "rotary", "none"])
def test_cross_attention_counts_all_queries(positions: Any) -> None:
    config = replace(preset("smoke", "sraven", "hyla").model, cross_attention=True,
                     positions=positions, attention_dropout=0.3)
    model, noise = HookedTransformer(config).double(), make_generator(0, "noise")
    inputs = torch.randn(3, 9, config.d_input, generator=noise, dtype=torch.float64)
    context = torch.randn(3, 4, config.d_model, generator=noise, dtype=torch.float64)
    for mode in (True, False):
        whole, read = (model.train(mode)(inputs, context=context, read=read,
                                         generator=make_generator(1, "dropout"))
                       for read in (None, 2))
        torch.testing.assert_close(whole[:, -2:], read, atol=EXACT, rtol=0.0)


def test_gradients_of_the_inputs_are_those_of_every_token() -> None:
    config, batch = sampled()
    model, found = HookedTransformer(config.model).double().eval(), []
    for asked in ({}, SPARED):
        inputs = batch.inputs.double().requires_grad_()
        found.append(torch.autograd.grad(model(inputs, **asked)[:, -2:].square().sum(), inputs)[0])
    torch.testing.assert_close(*found, atol=1e-9, rtol=1e-9)


def test_a_global_hook_sees_all_tokens() -> None:
    config, batch = sampled()
    model = HookedTransformer(config.model)
    lengths: set[int] = set()

    def look(module: nn.Module, inputs: Any, output: Tensor) -> None:
        lengths.add(output.shape[1])

    handle = nn.modules.module.register_module_forward_hook(look)
    try:
        model(batch.inputs, **SPARED)
    finally:
        handle.remove()
    # 2 is the logits, which were asked for; 16 and 4 are heads, of scores and codes.
    assert lengths == {config.task.n_tokens, config.model.n_heads, 2}


def test_a_plain_call_returns_all_tokens_and_a_language_model_loses_none() -> None:
    config, batch = sampled()
    assert HookedTransformer(config.model)(batch.inputs).shape[1] == config.task.n_tokens
    language = replace(config.model, embedding="token", readout="tied", d_input=11, d_output=11,
                       causal=True)
    model, ids = HookedTransformer(language).eval(), torch.arange(9)[None]
    with torch.no_grad():
        torch.testing.assert_close(model(ids, read=2), model(ids)[:, -2:])


@pytest.mark.parametrize("permuted", [False, True])
def test_the_tokens_of_sraven_are_unit_vectors_or_zero(permuted: bool) -> None:
    config = preset("smoke", "sraven").task
    task = make_task(replace(config, permuted=permuted))
    for split in task.splits:
        batch = task.sample(split, 200, make_generator(0, split))
        assert batch.one_hot
        assert Batch.cat([batch[:3], batch.to("cpu")]).one_hot
        inputs = batch.inputs
        assert set(inputs.unique().tolist()) == {0.0, 1.0}
        assert set(inputs.sum(-1).unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("change", [
    lambda x: x + 1e-6, lambda x: 2 * x, lambda x: 1 - x, lambda x: x.roll(1, -1) + x],
    ids=["between", "longer", "several", "two"])
def test_other_tokens_that_are_called_one_hot_are_refused(
    change: Callable[[Tensor], Tensor]
) -> None:
    _, batch = sampled()
    with pytest.raises(ConfigError, match="neither a unit vector nor zero"):
        replace(batch, inputs=change(batch.inputs))
    assert replace(batch, inputs=change(batch.inputs), one_hot=False) is not None


def test_a_mask_counts_all_queries() -> None:
    config, batch = sampled("softmax")
    model = HookedTransformer(config.model).eval()
    square = (1, 1, config.task.n_tokens, config.task.n_tokens)
    mask = torch.rand(square, generator=make_generator(0, "mask")) < 0.5
    with torch.no_grad():
        torch.testing.assert_close(model(batch.inputs, mask=mask, read=2),
                                   model(batch.inputs, mask=mask)[:, -2:])
