"""From a run to what rows, all codes and streams say, in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import latentcode as lc
from latentcode.devices import make_generator
from latentcode.errors import ProbeError
from latentcode.probes.common.results import where
from latentcode.probes.decoding import MODELS, DecodingResult, named, parted
from latentcode.tasks.logic.task import evaluate

SmokeRun = Callable[[str, str], lc.Run]
METRICS = ("accuracy", "balanced_accuracy")


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latentcode.probes.decoding.TABLE_INSTANCES", 1_000)


@pytest.mark.slow
def test_all_features_at_every_width(smoke_run: SmokeRun, tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []
    result = lc.decode(
        smoke_run("sraven", "hyla"), labels=["rule", "answer"], layers=[0, 1], widths=(4, 8),
        features=["code", "codes", "residual"], beyond_answer=True, metrics=METRICS, n_train=300,
        n_heldout=200, n_shuffles=2, progress=lambda *given: done.append(given))
    assert done[-1][0] == done[-1][1] == len(done)
    table = result.table
    assert set(table["layer"]) == {0, 1, "all"}
    assert set(table["features"]) == {
        "code", "untrained", "shuffled", "codes", "untrained codes", "shuffled codes", "residual",
        "untrained residual", "shuffled residual"}
    assert set(table["metric"]) == set(METRICS)
    key = ["layer", "pair", "label", "features", "width", "metric"]
    assert not table.duplicated(key).any()
    # The response is blank: where it attends to itself in layer 0 nothing depends on the problem.
    blank = where(table, layer=0, features="code")
    assert blank["value"].isna().all()
    assert (blank["dimensions"] == 0).all()
    assert where(result.given, layer=0, features="code")["gain"].isna().all()
    wide = where(table, layer=1, features="codes", width=8)
    assert (wide["dimensions"] == 8).all()
    assert (wide["size"] > 8).all()
    assert wide["value"].between(wide["low"], wide["high"]).mean() > 0.8
    assert set(result.given["given"]) == {"answer", "answer and operands"}
    assert set(result.given["label"]) == {"rule"}
    assert "No score for code, layer 0, " in " ".join(result.caveats)
    assert result.settings["train"]["step"] == result.settings["heldout"]["step"] > 0
    assert list(result.summary()) == ["pair", "width", "label", "metric", "features", "layer",
                                      "trained", "untrained", "shuffled", "chance"]
    folder = result.save(tmp_path / "decoding")
    again = DecodingResult.load(folder)
    for name, table in again.tables().items():
        pd.testing.assert_frame_equal(table, result.tables()[name], check_dtype=False)
    assert (folder / "figure.png").exists()
    assert (folder / "given.png").exists()


@pytest.mark.slow
def test_codes_read_with_other_features_are_the_same(smoke_run: SmokeRun) -> None:
    """One set of folds, penalties and columns: beside rows a code has the scores that it has alone.
    """
    run, settings = smoke_run("sraven", "hyla"), {"n_train": 300, "n_heldout": 200, "layers": [1]}
    alone = lc.decode(run, **settings)
    beside = lc.decode(run, labels=["rule"], features=["row", "code"], **settings)
    assert list(beside.table["features"].unique()) == [
        "row", "untrained row", "shuffled row", "code", "residual", "untrained", "shuffled"]
    same = beside.table[beside.table["features"].isin(alone.table["features"])]
    pd.testing.assert_frame_equal(same.reset_index(drop=True), alone.table)
    assert alone.is_of_codes
    assert not beside.is_of_codes
    reduced = lc.decode(run, widths=(16, 64), beyond_answer=True, **settings)
    assert set(reduced.table["label"]) == set(alone.table["label"]) == {"rule"}
    assert reduced.table["width"].tolist() == [16, 16, 64, 64] * 4
    assert len(reduced.given) == 2 * 4 * 2


@pytest.mark.slow
def test_one_query_for_all_instances(smoke_run: SmokeRun) -> None:
    run = smoke_run("logic", "softmax")
    how = {"features": "residual", "layers": 1, "widths": 8, "n_train": 200, "n_heldout": 200,
           "controls": False, "problems": replace(run.config.task, inputs="fixed_query")}
    with pytest.raises(ProbeError, match=r"label 'operand' .* has a single outcome in training"):
        lc.decode(run, labels=["terms", "operand"], **how)
    result = lc.decode(run, labels=["terms"], **how)
    assert set(result.table["metric"]) == {"f1"}
    assert set(result.table["features"]) == {"residual", "shuffled residual"}
    assert result.table["value"].notna().all()
    assert "Without controls: untrained." in result.caveats


def test_names_of_features_and_models_are_parted() -> None:
    names = [(features, model) for features in ("code", "row", "codes.context") for model in MODELS]
    table = parted(pd.DataFrame({"features": [named(*name) for name in names]}))
    assert list(table.itertuples(index=False, name=None)) == names


def test_what_a_row_is_asked() -> None:
    """SRAVEN by its rules; of fuzzy logic the operand is the term that is truest of the query."""
    sraven = lc.make_task(lc.SravenConfig(n_features=2, permuted=True))
    batch = sraven.sample("train", 200, make_generator(0, "test"))
    for token in range(2):
        row = sraven.row_labels(sraven.labels(batch), token)
        a, b, c = (row[name] for name in ("operand_1", "operand_2", "answer"))
        assert ((a + b) % 8 == c)[row["rule"] == "sum"].all()
        assert ((a + 1) % 8 == b)[row["rule"] == "+1"].all()
        assert (c == batch.targets[:, token].numpy()).all()
    logic = lc.make_task(lc.LogicConfig())
    problems = logic.sample("train", 100, make_generator(0, "test"))
    found = logic.row_labels(logic.labels(problems), None)
    query = problems.inputs[:, -1:, :-1]
    truth = torch.cat([evaluate(signs.expand(100, 1, -1), query) for signs in logic.signs], dim=1)
    truest = [logic.term_symbols(int(term)) for term in truth.argmax(dim=1)]
    assert found["operand"].tolist() == truest
    np.testing.assert_allclose(found["answer"], problems.targets[:, 0])
