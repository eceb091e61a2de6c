"""SRAVEN: the loss and the measures of answers, of single rules too."""

from __future__ import annotations

import math

import pytest
import torch
from small_sraven import seeded

from latentcode.config import SravenConfig
from latentcode.metrics import Metric, is_by_constituent
from latentcode.tasks.base import Batch
from latentcode.tasks.sraven.task import RULES, Sraven


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_loss_and_scores_agree_with_a_loop(dtype: torch.dtype) -> None:
    task = Sraven(SravenConfig(n_features=2, n_values=4))
    batch = task.sample("train", 30, seeded(2))
    logits = torch.randn(30, 18, 4, generator=seeded(3)).to(dtype).requires_grad_()
    scores = task.measures(logits.detach(), batch)
    losses = []
    for b in range(30):
        expected, right = 0.0, []
        for j in range(2):
            row = logits[b, 16 + j].double()
            expected -= (row[batch.targets[b, j]] - row.exp().sum().log()).item() / 2
            right.append(int(row.argmax()) == int(batch.targets[b, j]))
        losses.append(expected)
        assert scores["loss"][b].item() == pytest.approx(expected, abs=1e-5)
        assert scores["accuracy"][b].item() == all(right)
        assert scores["feature_accuracy"][b].item() == sum(right) / 2
    loss = task.loss(logits, batch)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(sum(losses) / 30, abs=1e-5)
    loss.backward()
    assert logits.grad[:, -2:].abs().sum() > 0
    assert not logits.grad[:, :-2].any()
    metrics = task.summarize({k: v.double().numpy() for k, v in scores.items()})
    assert metrics[task.headline].n == 30


def answering(answers: torch.Tensor, n_values: int) -> torch.Tensor:
    """Return the logits [B, M, K] of a model that answers [B, M]; the tokens before are cut off."""
    return torch.nn.functional.one_hot(answers, n_values).float()


def measured(task: Sraven, logits: torch.Tensor, batch: Batch) -> dict[str, Metric]:
    scores = task.measures(logits, batch) | task.constituent_measures(logits, batch)
    return task.summarize({name: values.double().numpy() for name, values in scores.items()})


@pytest.mark.parametrize(("n_features", "grid_size"), [(1, 3), (3, 3), (4, 4), (2, 2)])
def test_accuracy_by_rule_agrees_with_a_loop(n_features: int, grid_size: int) -> None:
    task = Sraven(SravenConfig(n_features=n_features, grid_size=grid_size, n_values=5,
                               ood_fraction=0.0))
    batch = task.sample("train", 300, seeded(5))
    # Right, or any symbol: sums and differences are then confused now and then.
    answers = torch.where(torch.rand(300, n_features, generator=seeded(6)) < 0.3, batch.targets,
                          torch.randint(5, (300, n_features), generator=seeded(7)))
    found: dict[str, list[bool]] = {f"feature_accuracy[{rule}]": [] for rule in RULES}
    found |= {"wrong_as_difference[sum]": [], "wrong_as_sum[difference]": []}
    for b in range(300):
        permutations = batch.info["permutations"][b].tolist()
        for j in range(n_features):
            feature, answer = permutations[-1][j], int(answers[b, j])
            rule = RULES[int(batch.info["rules"][b, feature])]
            right = answer == int(batch.targets[b, j])
            found[f"feature_accuracy[{rule}]"].append(right)
            shown = [int(batch.info["grid"][b, -1, c, permutations[c].index(feature)])
                     for c in range(grid_size - 1)]
            if rule == "sum" and not right:
                found["wrong_as_difference[sum]"].append(
                    (shown[0] - sum(shown[1:]) - answer) % 5 == 0)
            if rule == "difference" and not right:
                found["wrong_as_sum[difference]"].append((sum(shown) - answer) % 5 == 0)
    metrics = measured(task, answering(answers, 5), batch)
    assert {name for name in metrics if is_by_constituent(name)} == set(found)
    for name, counted in found.items():
        assert metrics[name].n == len(counted) > 0
        assert metrics[name].mean == pytest.approx(sum(counted) / len(counted))
    # All tokens together are the metric of whole instances.
    by_rule = [metrics[f"feature_accuracy[{rule}]"] for rule in RULES]
    assert sum(m.n for m in by_rule) == 300 * n_features
    assert sum(m.mean * m.n for m in by_rule) / (300 * n_features) == pytest.approx(
        metrics["feature_accuracy"].mean)


def test_a_rule_without_mistakes_is_taken_for_no_other() -> None:
    task = Sraven(SravenConfig(n_features=3))
    batch = task.sample("test", 400, seeded(8))
    mistaken = measured(task, answering(batch.targets, 8), batch)["wrong_as_difference[sum]"]
    assert mistaken.n == 0
    assert math.isnan(mistaken.mean)


def test_a_rule_that_does_not_occur_has_no_metric() -> None:
    task = Sraven(SravenConfig(n_features=2, held_out=((0, 0),)))
    batch = task.sample("ood", 30, seeded(9))
    metrics = measured(task, answering(batch.targets, 8), batch)
    assert metrics["feature_accuracy[constant]"] == Metric(1.0, 0.0, 60)
    assert [name for name in metrics if is_by_constituent(name)] == ["feature_accuracy[constant]"]
