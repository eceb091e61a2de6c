"""Evaluation: exact means over the same instances, whatever the batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from latentcode.config import RunConfig
from latentcode.metrics import is_by_constituent
from latentcode.models.transformer import HookedTransformer
from latentcode.tasks import Batch, Task, make_task
from latentcode.training import evaluate, state

Make = Callable[..., RunConfig]


def subject(config: RunConfig) -> tuple[HookedTransformer, Task]:
    return HookedTransformer(config.model).eval(), make_task(config.task)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """Collect the batches that evaluations draw."""
    batches: list[Batch] = []
    draw = state.batches_of

    def spy(*args: Any) -> Iterator[Batch]:
        for batch in draw(*args):
            batches.append(batch)
            yield batch

    monkeypatch.setattr(state, "batches_of", spy)
    return batches


@pytest.mark.parametrize("split", ["train", "ood"])
def test_batch_size_does_not_matter(
    tiny: Make, monkeypatch: pytest.MonkeyPatch, split: str
) -> None:
    monkeypatch.setattr(state, "DRAW", 50)  # so that 130 instances take several draws
    model, task = subject(tiny())
    results = [evaluate(model, task, split, 130, seed=3, batch_size=size)
               for size in (1, 7, 50, 130)]
    for result in results[1:]:
        for name, metric in result.items():
            assert metric.mean == pytest.approx(results[0][name].mean, rel=1e-5)
            assert metric.se == pytest.approx(results[0][name].se, rel=1e-5)
            assert metric.n == (results[0][name].n if is_by_constituent(name) else 130)
    terms = [name for name in results[0] if is_by_constituent(name)]
    assert len(terms) > 1
    assert sum(results[0][name].n for name in terms) == 130 * task.config.n_terms  # type: ignore[attr-defined]


def test_means_are_over_instances_not_over_batches(tiny: Make, seen: list[Batch]) -> None:
    model, task = subject(tiny())
    metrics = evaluate(model, task, "test", 25, seed=0, batch_size=10)
    assert [len(b) for b in seen] == [10, 10, 5]
    batch = Batch.cat(seen)
    with torch.no_grad():
        errors = (model(batch.inputs)[:, -1, 0] - batch.targets[:, 0]).square().double().numpy()
    assert metrics["loss"].mean == pytest.approx(errors.mean(), rel=1e-6)
    assert metrics["loss"].se == pytest.approx(errors.std(ddof=1) / 5, rel=1e-6)


def test_same_instances_every_time_and_others_per_split_and_seed(
    tiny: Make, seen: list[Batch]
) -> None:
    model, task = subject(tiny())
    for split, seed in (("test", 0), ("test", 0), ("train", 0), ("test", 1)):
        evaluate(model, task, split, 8, seed=seed, batch_size=8)
    first, again, train, other_seed = (b.inputs for b in seen)
    assert torch.equal(first, again)
    assert not torch.equal(first, train)
    assert not torch.equal(first, other_seed)


@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_off_and_the_mode_restored(tiny: Make, training: bool) -> None:
    model, task = subject(tiny())
    model.train(training)
    first, second = (evaluate(model, task, "train", 20, seed=0) for _ in range(2))
    assert first == second
    assert model.training is training
    assert all(p.grad is None for p in model.parameters())


def test_bf16_is_close_to_float32_but_not_equal(tiny: Make) -> None:
    model, task = subject(tiny())
    exact = evaluate(model, task, "train", 200, seed=0)["loss"].mean
    rough = evaluate(model, task, "train", 200, seed=0, precision="bf16")["loss"].mean
    assert rough != exact
    assert np.isclose(rough, exact, rtol=0.05)
