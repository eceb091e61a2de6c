"""Sources that hold the operation, or only the answer: are they told apart?"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest

from latentcode.probes.common.harness import Question, Reading, evaluate
from latentcode.probes.common.labels import make_target
from latentcode.probes.common.logistic import Known, known_beside, log_posteriors
from latentcode.probes.common.statistics import chance
from latentcode.probes.decoding import METRICS, score, tables_of
from latentcode.tasks.pairs import Pair

Tables = dict[str, pd.DataFrame]
N = 1_500
PAIR = Pair("a->b", "", None)


def drawn(seed: int, n: int = N) -> pd.DataFrame:
    """Return problems with two rules and two operands: the answer is a + b or a - b, modulo 4."""
    rng = np.random.default_rng(seed)
    a, b, rule = rng.integers(4, size=(3, n)) % [[4], [4], [2]]
    return pd.DataFrame({
        "rule": np.array(["sum", "difference"])[rule], "operand_1": a, "operand_2": b,
        "answer": np.where(rule == 0, a + b, a - b) % 4})


Asked = tuple[Question, dict[tuple[str, str], list[Known]], list[pd.DataFrame]]


@pytest.fixture(scope="module")
def asked() -> Asked:
    frames = [drawn(0), drawn(1), drawn(2, 20_000)]
    rng = np.random.default_rng(3)
    groups, clusters = rng.integers(20, size=N), rng.integers(10, size=N)
    targets = {name: make_target(*frames[:2], name, PAIR) for name in ("rule", "answer")}
    known = known_beside(targets, frames, groups, 0)
    assert set(known) == {"rule"}
    question = Question({(name, "a->b"): target for name, target in targets.items()}, groups,
                        [clusters], 1, 200, 0)
    return question, {("rule", "a->b"): known["rule"]}, frames


def answers(x: np.ndarray, x_heldout: np.ndarray, asked: Asked, widths: list[int]) -> Tables:
    readings = [Reading("row", "trained", 0, "a->b", [x, x_heldout], "row", width=width)
                for width in widths]
    outcomes, = evaluate(readings, asked[0], partial(score, metrics=METRICS, known=asked[1]),
                         ["row", "shuffled row"])
    return tables_of(outcomes, readings)


def gains(x: np.ndarray, x_heldout: np.ndarray, asked: Asked) -> dict[str, float]:
    given = answers(x, x_heldout, asked, [16])["given"]
    return given[given["features"] == "row"].set_index("given")["gain"].to_dict()


def one_hot(values: pd.Series) -> np.ndarray:
    return np.eye(4)[pd.factorize(values, sort=True)[0]]


def test_the_answer_is_no_operation(asked: Asked) -> None:
    *_, (train, heldout, _) = asked
    answer = gains(one_hot(train["answer"]), one_hot(heldout["answer"]), asked)
    assert max(answer.values()) < 0.01
    rule = gains(one_hot(train["rule"]), one_hot(heldout["rule"]), asked)
    assert rule["answer"] > 0.6
    # With the operands, sum and difference come out the same half of the time: log 2 / 2 nats.
    assert rule["answer and operands"] == pytest.approx(np.log(2) / 2, abs=0.04)


def test_operands_tell_the_rule_given_the_answer_but_not_given_both(
    asked: Asked,
) -> None:
    *_, (train, heldout, _) = asked
    cells = [np.eye(16)[4 * frame["operand_1"] + frame["operand_2"]][:, :, None]
             * one_hot(frame["answer"])[:, None] for frame in (train, heldout)]
    found = gains(*(c.reshape(N, -1) for c in cells), asked)
    assert found["answer"] > 0.2
    assert found["answer and operands"] < 0.01


def test_what_holds_nothing_has_no_score(asked: Asked) -> None:
    found = answers(np.zeros((N, 0)), np.zeros((N, 0)), asked, [16, 128])
    for table, value in ((found["table"], "value"), (found["given"], "gain")):
        assert table[value].isna().all()
        assert set(table["width"]) == {16, 128}
        assert set(table["features"]) == {"row", "shuffled row"}
    assert (found["table"]["dimensions"] == 0).all()
    assert found["per_class"].empty


def test_shuffled_labels_and_noise_score_as_nothing(
    asked: Asked,
) -> None:
    *_, (train, heldout, _) = asked
    found = answers(one_hot(train["answer"]), one_hot(heldout["answer"]), asked, [4])
    table = found["table"].query("metric == 'accuracy'").set_index(["features", "label"])["value"]
    assert table["row", "answer"] == 1.0
    assert table["shuffled row", "answer"] < 0.5
    assert table["row", "rule"] == pytest.approx(0.5, abs=0.05)
    shuffled = found["given"].set_index("features").loc["shuffled row"]
    assert (shuffled["gain"] < 0.01).all()


def test_the_best_constant_answers_balanced_accuracy() -> None:
    heldout = pd.DataFrame({"rule": ["a"] * 3 + ["b"] * 7})
    target = make_target(heldout, heldout, "rule", PAIR)
    assert chance(target.heldout, "balanced_accuracy") == 0.5


def test_posteriors_are_counted() -> None:
    train, counted = drawn(0, 50), drawn(1, 50_000)
    target = make_target(train, train, "rule", PAIR)
    (found,) = log_posteriors("rule", ["answer", "operand_1", "operand_2"], target, counted,
                              [train])
    same = (train["operand_1"] + train["operand_2"]) % 4 == (
        train["operand_1"] - train["operand_2"]) % 4
    true = np.exp(found)[target.train]
    np.testing.assert_allclose(true[same], 0.5, atol=0.05)
    np.testing.assert_allclose(true[~same], 1.0, atol=0.01)
