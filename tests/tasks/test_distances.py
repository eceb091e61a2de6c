"""Are the distances between tasks what slow code says, and named as the labels name them?"""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from latentcode.config import LogicConfig, SravenConfig
from latentcode.tasks import Task, make_task, task_distances
from latentcode.tasks.distances import edit_distance, matched_distance
from latentcode.tasks.sraven.task import RULES, answer_distances

SRAVEN = SravenConfig(n_features=3, permuted=False)
LOGIC = LogicConfig(n_variables=3, n_terms=2, n_examples=8, ood_fraction=0.4)

multisets = st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=2, max_size=5)


@settings(max_examples=50)
@given(multisets, st.integers(0, 1000))
def test_multisets_against_slow_code(rows: list[list[int]], seed: int) -> None:
    cost = np.random.default_rng(seed).random((5, 5))
    cost = cost + cost.T
    np.fill_diagonal(cost, 0.0)
    combinations = np.array(rows)
    edit, matched = edit_distance(combinations), matched_distance(combinations, cost)
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            only_one = (Counter(a) - Counter(b)) + (Counter(b) - Counter(a))
            assert edit[i, j] == sum(only_one.values())
            slow = min(np.mean([cost[x, y] for x, y in zip(a, order, strict=True)])
                       for order in permutations(b))
            assert matched[i, j] == pytest.approx(slow, abs=1e-12)


def slow_answer(rule: str, a: int, b: int, k: int) -> list[int]:
    """All answers of a rule to a context (a, b), in plain Python; none where it cannot hold."""
    if rule == "distribute-three":
        return [] if a == b else [s for s in range(k) if s not in (a, b)]
    return [{"constant": b, "+1": b + 1, "+2": b + 2, "-1": b - 1, "-2": b - 2, "sum": a + b,
             "difference": a - b}[rule] % k]


@pytest.mark.parametrize("k", [4, 5, 8])
def test_rules_against_all_contexts(k: int) -> None:
    functional, circular = answer_distances(k, 3)
    for (i, r), (j, s) in product(enumerate(RULES), repeat=2):
        if i == j:
            assert functional[i, j] == circular[i, j] == 0.0
            continue
        differs, steps = [], []
        for a, b in product(range(k), repeat=2):
            answers = list(product(slow_answer(r, a, b, k), slow_answer(s, a, b, k)))
            if answers:
                differs.append(np.mean([x != y for x, y in answers]))
                steps.append(np.mean([min((x - y) % k, (y - x) % k) for x, y in answers]))
        assert functional[i, j] == pytest.approx(np.mean(differs))
        assert circular[i, j] == pytest.approx(np.mean(steps))
    assert functional[RULES.index("sum"), RULES.index("difference")] == (
        1 - 2 / k if k % 2 == 0 else pytest.approx(1 - 1 / k))


def test_many_contexts_are_sampled_and_agree_with_the_exact_numbers(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = answer_distances(8, 4)
    monkeypatch.setattr("latentcode.tasks.sraven.task.MOST_CONTEXTS", 511)
    sampled = answer_distances(8, 4)
    np.testing.assert_allclose(sampled[0], exact[0], atol=0.08)
    assert not np.array_equal(sampled[0], exact[0])


def test_terms_and_functions_against_slow_code() -> None:
    task = make_task(LOGIC)
    x = np.random.default_rng(1).random((40_000, 3))

    def value(signs: torch.Tensor) -> np.ndarray:
        return np.where(signs.numpy(), x, 1.0 - x).min(axis=1)

    signs = task.signs  # type: ignore[attr-defined]
    terms = task_distances(task, "term_2", "ood")
    for i, j in ((0, 1), (0, 7), (3, 5)):
        assert terms["literals"].iloc[i, j] == int((signs[i] != signs[j]).sum())
        assert terms["functional"].iloc[i, j] == pytest.approx(
            np.abs(value(signs[i]) - value(signs[j])).mean(), abs=0.01)
    functions, rows = task_distances(task, "combination", "ood"), task.combinations("ood").tolist()
    for i, j in ((0, 1), (1, 3)):
        f, g = (np.maximum(value(signs[a]), value(signs[b])) for a, b in (rows[i], rows[j]))
        assert functions["functional"].iloc[i, j] == pytest.approx(np.abs(f - g).mean(), abs=0.01)
        assert functions["edit"].iloc[i, j] == len(set(rows[i]) ^ set(rows[j]))


@pytest.mark.parametrize(("task", "constituents"), [
    (make_task(SRAVEN), ("rule", "rules", "rule_1")), (make_task(LOGIC), ("terms", "term_1"))])
def test_distances_are_named_as_the_labels(task: Task, constituents: tuple[str, ...]) -> None:
    labels = task.labels(task.sample("ood", 60, torch.Generator().manual_seed(0)))
    for label in (*constituents, "combination"):
        for name, frame in task_distances(task, label, "ood").items():
            values = frame.to_numpy()
            assert (values == values.T).all(), name
            assert (values.diagonal() == 0).all()
            assert (values[~np.eye(len(values), dtype=bool)] > 0).all()
            column = label if label in labels else f"{task.constituent}_1"
            assert set(labels[column]) <= set(frame.index) == set(frame.columns)
