"""Do the cells of the study's page show what the results hold?"""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import numpy as np
import pandas as pd
import pytest

import latentcode as lc
from latentcode.experiments.evidence.found import Found, csv_of
from latentcode.experiments.evidence.study import study
from latentcode.experiments.studies.rows import tables as tables_of
from latentcode.experiments.studies.rows.figures import drawn
from latentcode.experiments.studies.rows.tables import cells, joined, shown
from latentcode.probes.common.results import where


@pytest.mark.slow
def test_the_page_shows_the_results(
    smoke_run: Callable[[str, str], lc.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables_of, "N", 200)
    run = smoke_run("sraven", "hyla")
    how: dict[str, Any] = {"features": ("code", "residual"), "layers": (0, 1), "widths": (128,),
                           "n_train": 200, "n_heldout": 200}
    last, half = lc.decode(run, **how), lc.decode(run, step=15, controls=False, **how)
    tables = joined(Found(study("rows").plan, {"first": [run]}, {
        "sraven": [([run], last)], "milestones": [([run], half)], "uniform": []}))
    found = shown({name: pd.read_csv(StringIO(csv_of(table))) for name, table in tables.items()})
    cell = cells(where(found["scores"], part="sraven"), ("features", "layer"), "label",
                 "value").set_index(["features", "layer"])["rule"]
    row = last.table[(last.table["layer"] == 1) & (last.table["metric"] == "accuracy")
                     & (last.table["label"] == "rule")].set_index("features")["value"]
    assert cell["residual", "1"] == " / ".join(
        f"{row[f'{model}residual']:.2f}" for model in ("", "untrained ", "shuffled "))
    assert cell["code", "0"] == "nothing to read"
    steps = found["over_steps"](found["moments"]).set_index(["features", "label"])
    assert steps.loc[("residual", "rule"), 30] == pytest.approx(row["residual"], abs=1e-4)
    assert list(steps.columns) == ["kind", 0, 15, 30]
    assert tables["runs"]["step"].tolist() == [30]
    assert list(drawn(tables)) == ["milestones.png"]


def test_cells_say_how_seeds_differ_and_what_could_not_be_read() -> None:
    table = pd.DataFrame({
        "kind": ["hyla"] * 6 + ["linear"] * 2, "label": "rule", "chance": [0.5] * 6 + [1.0] * 2,
        "model": ["trained"] * 3 + ["untrained"] * 3 + ["trained"] * 2,
        "value": [0.25, 0.75, np.nan, 0.125, 0.25, 0.0, np.nan, np.nan]})
    assert cells(table, ["kind"], "label", "value")["rule"].tolist() == [
        "0.50 (0.25 to 0.75), 2 of 3 seeds / 0.12 / –", "the same for all"]
