"""From a run to what its rows say in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import latentcode as lc
from latentcode.errors import ProbeError, UnknownNameError
from latentcode.probes.common.results import where
from latentcode.probes.rows import RowsResult, decode_rows
from latentcode.seeds import make_generator
from latentcode.tasks.logic.task import evaluate

SmokeRun = Callable[[str, str], lc.Run]


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latentcode.probes.rows.of_run.TABLE_INSTANCES", 1_000)


@pytest.mark.slow
def test_all_features_at_every_width(smoke_run: SmokeRun, tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []
    result = decode_rows(
        smoke_run("sraven", "hyla"), ["rule", "answer"], layers=[0, 1], widths=(4, 8),
        features=["pair", "codes", "residual"], n_train=300, n_heldout=200,
        progress=lambda *given: done.append(given))
    assert done[-1][0] == done[-1][1] == len(done)
    table = result.table
    assert set(table["layer"]) == {"0", "1", "all"}
    assert set(table["model"]) == {"trained", "untrained", "shuffled"}
    assert set(table["metric"]) == {"accuracy", "balanced_accuracy", "macro_f1", "log_loss"}
    # The response is blank: where it attends to itself in layer 0 nothing depends on the problem.
    blank = where(table, layer="0", features="pair", model="trained")
    assert blank["value"].isna().all()
    assert (blank["dimensions"] == 0).all()
    wide = where(table, layer="1", features="codes", width=8)
    assert (wide["dimensions"] == 8).all()
    assert (wide["size"] > 8).all()
    assert wide["value"].between(wide["low"], wide["high"]).mean() > 0.8
    assert set(result.given["given"]) == {"answer", "answer and operands"}
    assert "nothing to read" in " ".join(result.caveats)
    folder = result.save(tmp_path / "rows")
    again = RowsResult.load(folder)
    pd.testing.assert_frame_equal(again.table, table, check_dtype=False)
    pd.testing.assert_frame_equal(again.given, result.given, check_dtype=False)
    assert (folder / "figure.png").exists()
    assert (folder / "given.png").exists()


@pytest.mark.slow
def test_one_query_for_all_instances(smoke_run: SmokeRun) -> None:
    run = smoke_run("logic", "softmax")
    result = decode_rows(run, ["terms", "operand"], features="residual", layers=1, widths=8,
                            n_train=200, n_heldout=200, controls=False,
                            task=replace(run.config.task, inputs="fixed_query"))
    operand = where(result.table, label="operand")
    assert operand["value"].isna().all()
    assert set(operand["status"]) == {"the label has a single outcome in training"}
    assert set(where(result.table, label="terms")["metric"]) == {"f1"}
    assert where(result.table, label="terms")["value"].notna().all()
    assert "Without controls: untrained." in result.caveats


def test_labels_can_be_functions(smoke_run: SmokeRun) -> None:
    result = decode_rows(
        smoke_run("sraven", "hyla"), {"even": lambda batch: batch.targets[:, 0] % 2 == 0},
        features="row", layers=1, widths=4, n_train=200, n_heldout=100, controls=False)
    assert set(result.table["label"]) == {"even"}
    assert len(result.given) == 0


def test_what_cannot_be_asked_is_said(smoke_run: SmokeRun) -> None:
    run = smoke_run("sraven", "hyla")
    with pytest.raises(UnknownNameError, match="label 'rules_'"):
        decode_rows(run, ["rules_"], features="pair", n_train=50, n_heldout=50)
    with pytest.raises(ProbeError, match="n_train is 0; expected a whole number of at least 1"):
        decode_rows(run, n_train=0)
    with pytest.raises(ProbeError, match="widths is 0; expected a whole number of at least 1"):
        decode_rows(run, widths=())


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
