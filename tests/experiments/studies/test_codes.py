"""The study of codes runs from end to end and keeps what it has; its tables are its results'."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import latentcode as lc
from latentcode.errors import RunError
from latentcode.experiments.evidence.study import study
from latentcode.experiments.studies.codes.tables import best_head


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "runs"
    for kind in ("hyla", "linear"):
        lc.train(lc.preset("smoke", "sraven", kind), folder / kind, progress=False)
    return folder


@pytest.mark.slow
def test_study(runs: Path, tmp_path: Path) -> None:
    plan = study("codes").plan
    small = replace(plan, runs={"smoke": ("runs/*",)}, ask={
        name: replace(asked, settings={key: min(value, 300) for key, value in
                                       asked.settings.items()})
        for name, asked in plan.ask.items()})
    (mine,) = replace(study("codes"), plan=small, root=runs.parent).parts(tmp_path / "results")
    out, work = tmp_path / "results" / "smoke", tmp_path / "work"
    page = mine.run(work).read_text(encoding="utf-8")
    assert "interchange: row, layers 0" in page
    table = pd.read_csv(out / "tables" / "interventions.csv", dtype={"layers": str})
    identity = table[(table["patch"] == "identity") & (table["metric"] == "unchanged")]
    assert set(identity["kind"]) == {"hyla", "linear"}
    assert (identity["value"] == 1.0).all()
    (folder,) = work.glob("interventions-linear-*")
    whole, single = (of[(of["patch"] == "interchange") & (of["metric"] == "flip")
                        & (of["heads"] == "all").eq(every)] for every in (True, False)
                     for of in [lc.InterventionResult.load(folder).table])
    ours = table[(table["kind"] == "linear") & (table["patch"] == "interchange")
                 & (table["metric"] == "flip")].set_index("heads")["value"]
    assert len(single) == 4
    assert ours["best one"] == pytest.approx(single["value"].max(), abs=1e-3)
    assert ours["all"].tolist() == pytest.approx(whole["value"].tolist(), abs=1e-3)
    assert {path.stem for path in (out / "figures").iterdir()} == {
        "flips", "hyla-cosines", "linear-cosines"}


def test_of_single_heads_the_one_that_flips_most_is_kept() -> None:
    table = pd.DataFrame({"heads": ["all", "0", "0", "1", "1"], "metric": [
        "flip", "flip", "unchanged", "flip", "unchanged"], "value": [0.9, 0.2, 0.7, 0.3, 0.6]})
    kept = best_head(table)
    assert kept["heads"].tolist() == ["all", "best one", "best one"]
    assert kept["value"].tolist() == [0.9, 0.3, 0.6]
    assert best_head(table[:1])["heads"].tolist() == ["all"]


def test_a_folder_without_runs_is_one_error(tmp_path: Path) -> None:
    (mine, *_) = replace(study("codes"), root=tmp_path).parts()
    with pytest.raises(RunError, match="runs/kinds_sraven"):
        mine.run(tmp_path / "work")
    assert not (tmp_path / "work").exists()
