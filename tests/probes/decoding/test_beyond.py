"""Sources that hold the operation, or only the answer: are they told apart?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from latentcode.probes.common.bootstrap import resample
from latentcode.probes.common.labels import indicated
from latentcode.probes.rows.given import log_posteriors
from latentcode.probes.rows.labels import targets_of
from latentcode.probes.rows.probing import Questions, Reading, answers, known_beside
from latentcode.probes.rows.scores import nulls

N = 1_500


def drawn(seed: int, n: int = N) -> pd.DataFrame:
    """Return problems with two rules and two operands: the answer is a + b or a - b, modulo 4."""
    rng = np.random.default_rng(seed)
    a, b, rule = rng.integers(4, size=(3, n)) % [[4], [4], [2]]
    return pd.DataFrame({
        "rule": np.array(["sum", "difference"])[rule], "operand_1": a, "operand_2": b,
        "answer": np.where(rule == 0, a + b, a - b) % 4})


@pytest.fixture(scope="module")
def asked() -> tuple[Questions, list[pd.DataFrame]]:
    frames = [drawn(0), drawn(1), drawn(2, 20_000)]
    rng = np.random.default_rng(3)
    groups, clusters = rng.integers(20, size=N), rng.integers(10, size=N)
    targets = targets_of(["rule", "answer"], frames[0], frames[1])
    questions = Questions(targets, [], groups, clusters, resample(10, 200, rng))
    return replace(questions, known=known_beside(questions, frames, 0)), frames


def gains(x: np.ndarray, x_heldout: np.ndarray, questions: Questions) -> dict[str, float]:
    place = {"layer": "0", "features": "row", "model": "trained", "size": 4, "dimensions": 4}
    _, given = answers(Reading(place, [16], x, x_heldout), questions, 0)
    return {row["given"]: row["gain"] for row in given if row["model"] == "trained"}


def one_hot(values: pd.Series) -> np.ndarray:
    return np.eye(4)[pd.factorize(values, sort=True)[0]]


def test_the_answer_is_no_operation(asked: tuple[Questions, list[pd.DataFrame]]) -> None:
    questions, (train, heldout, _) = asked
    answer = gains(one_hot(train["answer"]), one_hot(heldout["answer"]), questions)
    assert max(answer.values()) < 0.01
    rule = gains(one_hot(train["rule"]), one_hot(heldout["rule"]), questions)
    assert rule["answer"] > 0.6
    # With the operands, sum and difference come out the same half of the time: log 2 / 2 nats.
    assert rule["answer and operands"] == pytest.approx(np.log(2) / 2, abs=0.04)


def test_operands_tell_the_rule_given_the_answer_but_not_given_both(
    asked: tuple[Questions, list[pd.DataFrame]],
) -> None:
    questions, (train, heldout, _) = asked
    cells = [np.eye(16)[4 * frame["operand_1"] + frame["operand_2"]][:, :, None]
             * one_hot(frame["answer"])[:, None] for frame in (train, heldout)]
    found = gains(*(c.reshape(N, -1) for c in cells), questions)
    assert found["answer"] > 0.2
    assert found["answer and operands"] < 0.01


def test_what_holds_nothing_has_no_score(asked: tuple[Questions, list[pd.DataFrame]]) -> None:
    place = {"layer": "0", "features": "pair", "model": "trained", "size": 4, "dimensions": 0}
    table, given = answers(Reading(place, [16, 128], np.zeros((N, 0)), np.zeros((N, 0))),
                           asked[0], 0)
    assert {row["status"] for row in table + given} == {
        "the features do not vary: nothing to read"}
    assert all(np.isnan(row["value"]) for row in table)
    assert {row["width"] for row in table} == {16, 128}


def test_shuffled_labels_and_noise_score_as_nothing(
    asked: tuple[Questions, list[pd.DataFrame]],
) -> None:
    questions, (train, heldout, _) = asked
    place = {"layer": "0", "features": "row", "model": "trained", "size": 4, "dimensions": 4}
    table, _ = answers(Reading(place, [4], one_hot(train["answer"]), one_hot(heldout["answer"])),
                       questions, 0)
    scores = {(row["model"], row["label"], row["metric"]): row["value"] for row in table}
    assert scores["trained", "answer", "accuracy"] == 1.0
    assert scores["trained", "answer", "log_loss"] < 0.02
    assert scores["shuffled", "answer", "accuracy"] < 0.5
    assert scores["trained", "rule", "log_loss"] == pytest.approx(np.log(2), abs=0.02)


def test_nulls_are_the_training_priors_and_the_best_constants() -> None:
    train = pd.DataFrame({"rule": ["a"] * 6 + ["b"] * 4})
    heldout = pd.DataFrame({"rule": ["a"] * 3 + ["b"] * 7})
    found = nulls(indicated("rule", ["rule"], False, train, heldout))
    assert found["accuracy"] == pytest.approx((0.3, 0.7))
    assert found["balanced_accuracy"] == (0.5, 0.5)
    assert found["log_loss"] == pytest.approx((
        -0.3 * np.log(0.6) - 0.7 * np.log(0.4), -0.3 * np.log(0.3) - 0.7 * np.log(0.7)))
    pairs = pd.DataFrame({"term_1": ["a", "a"], "term_2": ["b", "c"]})
    group = nulls(indicated("terms", ["term_1", "term_2"], True, pairs, pairs))
    assert group["f1"] == pytest.approx(((1 + 0.5 + 0.5) / 3, (1 + 2 * 0.5 / 1.5 * 2) / 3))


def test_posteriors_are_counted() -> None:
    train, counted = drawn(0, 50), drawn(1, 50_000)
    target = indicated("rule", ["rule"], False, train, train)
    (found,) = log_posteriors("rule", ["answer", "operand_1", "operand_2"], target, counted,
                              [train])
    same = (train["operand_1"] + train["operand_2"]) % 4 == (
        train["operand_1"] - train["operand_2"]) % 4
    true = np.exp(found)[target.train]
    np.testing.assert_allclose(true[same], 0.5, atol=0.05)
    np.testing.assert_allclose(true[~same], 1.0, atol=0.01)
