"""Are fuzzy-logic batches drawn as asked, on the device, and scored at the query alone?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from small_logic import generator
from torch import Tensor

from latentcode.config import LogicConfig
from latentcode.errors import ConfigError, SplitError
from latentcode.tasks import SPLITS
from latentcode.tasks.logic.task import SMALLEST_BASE_MSE, FuzzyLogic


def test_combinations_and_inputs_are_uniform() -> None:
    task = FuzzyLogic(LogicConfig())
    n = 20_000
    batch = task.sample("ood", n, generator())
    counts = torch.bincount(batch.combination, minlength=46).double()
    statistic = ((counts - n / 46).square() / (n / 46)).sum().item()
    assert statistic < 80.1  # 99.9 % of chi squared with 45 degrees of freedom
    x = batch.inputs[..., :4].double()
    assert x.mean().item() == pytest.approx(0.5, abs=5 * (1 / 12 / x.numel()) ** 0.5)
    assert x.var().item() == pytest.approx(1 / 12, abs=5 * (1 / 180 / x.numel()) ** 0.5)


@pytest.mark.parametrize("inputs", ["fixed_context", "fixed_query"])
def test_fixed_inputs_are_shared_and_the_others_vary(inputs: Any) -> None:
    config = LogicConfig(inputs=inputs)
    task = FuzzyLogic(config)
    batches = [task.sample(split, 16, generator(seed)) for split in SPLITS for seed in (0, 1)]
    batches.append(FuzzyLogic(replace(config, ood_fraction=0.3)).sample("ood", 16, generator(7)))

    def parts(x: Tensor) -> tuple[Tensor, Tensor]:
        context, query = x[:, :-1, :4], x[:, -1:, :4]
        return (context, query) if inputs == "fixed_context" else (query, context)

    fixed, free = parts(torch.cat([b.inputs for b in batches]))
    assert bool((fixed == fixed[0]).all())
    # Both generator seeds give the same free inputs in every split, all others differ.
    assert len(torch.unique(free.flatten(1), dim=0)) == 16 * 3
    assert len(torch.unique(fixed[0].flatten())) == fixed[0].numel()
    other, _ = parts(FuzzyLogic(replace(config, split_seed=1)).sample("ood", 1, generator()).inputs)
    assert not bool((other[0] == fixed[0]).any())


def test_kinds_of_inputs_differ_only_in_what_they_hold_fixed() -> None:
    uniform, context, query = (
        FuzzyLogic(LogicConfig(inputs=kind)).sample("train", 16, generator(5))
        for kind in ("uniform", "fixed_context", "fixed_query"))
    for batch in (context, query):
        assert torch.equal(batch.combination, uniform.combination)
    assert torch.equal(context.inputs[:, -1], uniform.inputs[:, -1])
    assert torch.equal(query.inputs[:, :-1], uniform.inputs[:, :-1])


def test_fixed_inputs_do_not_depend_on_the_length_of_the_sequence() -> None:
    def inputs(kind: Any, n_examples: int) -> Tensor:
        task = FuzzyLogic(LogicConfig(inputs=kind, n_examples=n_examples))
        return task.sample("train", 1, generator()).inputs[0, :, :4]

    torch.testing.assert_close(inputs("fixed_query", 4)[-1], inputs("fixed_query", 9)[-1])
    torch.testing.assert_close(inputs("fixed_context", 4)[:3], inputs("fixed_context", 9)[:3])


def test_fixed_inputs_are_not_the_first_numbers_of_a_stream_with_the_same_seed() -> None:
    fixed = FuzzyLogic(LogicConfig(inputs="fixed_context")).sample("train", 1, generator(1))
    stream = FuzzyLogic(LogicConfig()).sample("train", 64, generator(0))
    shared = np.intersect1d(fixed.inputs[0, :-1, :4].numpy(), stream.inputs[..., :4].numpy())
    assert len(shared) == 0


def test_build_takes_given_functions_and_inputs() -> None:
    task = FuzzyLogic(LogicConfig())
    batch = task.sample("ood", 6, generator())
    rebuilt = task.build("ood", batch.combination, batch.inputs[..., :4].clone())
    assert (rebuilt.split, rebuilt.info.keys()) == (batch.split, batch.info.keys())
    for mine, other in ((rebuilt.inputs, batch.inputs), (rebuilt.targets, batch.targets),
                        *((rebuilt.info[name], batch.info[name]) for name in batch.info)):
        assert torch.equal(mine, other)
    with pytest.raises(ConfigError, match=r"\(6, 31, 4\); expected \(6, 32, 4\)"):
        task.build("ood", batch.combination, batch.inputs[:, 1:, :4])
    with pytest.raises(SplitError):
        FuzzyLogic(LogicConfig(ood_fraction=0.0)).build(
            "ood", batch.combination, batch.inputs[..., :4])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_sampling_never_synchronises() -> None:
    task = FuzzyLogic(LogicConfig(inputs="fixed_context"))
    on_gpu = torch.Generator("cuda").manual_seed(0)
    batch = task.sample("ood", 8, on_gpu)  # copies the constants
    with pytest.warns(UserWarning, match="prototype"):
        torch.cuda.set_sync_debug_mode("error")
    try:
        task.sample("ood", 8, on_gpu)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert batch.inputs.device.type == "cuda"
    on_cpu = task.sample("ood", 8, generator())
    torch.testing.assert_close(batch.inputs[:, :-1, :4].cpu(), on_cpu.inputs[:, :-1, :4])


# --- Loss and metrics -----------------------------------------------------------------------------


def test_the_loss_reads_the_query_alone() -> None:
    task = FuzzyLogic(LogicConfig())
    batch = task.sample("train", 5, generator())
    logits = torch.randn(5, 32, 1, generator=generator(), requires_grad=True)
    loss = task.loss(logits, batch)
    loss.backward()
    error = logits.detach()[:, -1, 0] - batch.targets[:, 0]
    assert loss.item() == pytest.approx(error.square().mean().item())
    torch.testing.assert_close(logits.grad[:, -1, 0], 2 * error / 5)
    assert bool((logits.grad[:, :-1] == 0).all())


def test_scores_and_metrics() -> None:
    task = FuzzyLogic(LogicConfig())
    assert task.headline == "r2"
    batch = task.sample("ood", 200, generator())
    values = torch.cat([batch.inputs[:, :-1, -1], batch.targets], dim=1).double()
    base = values.var(dim=1, correction=0)
    logits = 0.3 * torch.randn(200, 32, 1, generator=generator())
    scores = {k: v.numpy() for k, v in task.measures(logits, batch).items()}
    error = (logits[:, -1, 0].double() - batch.targets[:, 0].double()).square()
    np.testing.assert_allclose(scores["base_mse"], base, rtol=1e-5)
    np.testing.assert_allclose(scores["loss"], error, rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(scores["r2"], 1 - error / base, rtol=1e-4, atol=1e-6)

    metrics = task.summarize(scores)
    assert list(metrics) == ["loss", "r2", "r2_pooled"]
    assert metrics["r2"].mean == pytest.approx((1 - error / base).mean().item(), rel=1e-4)
    assert metrics["r2_pooled"].mean == pytest.approx(
        (1 - error.sum() / base.sum()).item(), rel=1e-4)
    assert metrics["loss"].mean == pytest.approx(error.mean().item(), rel=1e-4)
    assert {m.n for m in metrics.values()} == {200}
    assert metrics["r2"].mean < metrics["r2_pooled"].mean < 0  # the heavy negative tail


def test_r2_by_term_agrees_with_a_loop() -> None:
    task = FuzzyLogic(LogicConfig())
    for split in task.splits:
        batch = task.sample(split, 100, generator())
        logits = 0.3 * torch.randn(100, 1, 1, generator=generator())  # the query's alone
        scores = task.measures(logits, batch) | task.constituent_measures(logits, batch)
        metrics = task.summarize({name: values.numpy() for name, values in scores.items()})
        of_term: dict[str, list[float]] = {}
        for terms, r2 in zip(batch.info["terms"].tolist(), scores["r2"].tolist(), strict=True):
            for term in terms:
                of_term.setdefault(f"r2[{task.term_symbols(term)}]", []).append(r2)
        assert set(metrics) == {"loss", "r2", "r2_pooled", *of_term}
        for name, values in of_term.items():
            assert metrics[name].n == len(values)
            assert metrics[name].mean == pytest.approx(np.mean(values), rel=1e-5)
            assert metrics[name].se == pytest.approx(
                np.std(values, ddof=1) / np.sqrt(len(values)), rel=1e-5)


def test_targets_that_do_not_vary_give_a_finite_r2() -> None:
    task = FuzzyLogic(LogicConfig())
    x = torch.full((2, 32, 4), 0.25)
    batch = task.build("train", torch.tensor([0, 1]), x)
    assert batch.info["base_mse"].tolist() == [0.0, 0.0]
    logits = torch.zeros(2, 32, 1)
    logits[0, -1] = batch.targets[0]
    r2 = task.measures(logits, batch)["r2"]
    assert r2[0] == 1.0
    assert r2[1].item() == pytest.approx(
        -batch.targets[1].item() ** 2 / SMALLEST_BASE_MSE, rel=1e-4)
