"""The study of codes runs from end to end, keeps what it has, and says what it was asked."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import latentcode as lc
from latentcode.errors import RunError
from latentcode.experiments.evidence.keeping import key_of
from latentcode.experiments.studies.codes_study.__main__ import main, open_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "runs"
    for kind in ("hyla", "linear"):
        lc.train(lc.preset("smoke", "sraven", kind), folder / kind, progress=False)
    return folder


@pytest.mark.slow
def test_study(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    main(["--runs", str(runs), "--out", str(out), "--n", "300", "--n-probe", "300"])
    page = (out / "README.md").read_text()
    for heading in ("The models", "Which labels", "How many heads", "close codes", "the same?",
                    "What is caused"):
        assert heading in page
    assert "| hyla |" in page
    assert "interchange: row, layers 0" in page
    table = pd.read_csv(out / "tables" / "interventions.csv", dtype={"layers": str})
    identity = table[(table["patch"] == "identity") & (table["metric"] == "unchanged")]
    assert set(identity["kind"]) == {"hyla", "linear"}
    assert (identity["value"] == 1.0).all()
    work = runs / "results"
    (folder,) = work.glob("linear-*")
    linear = lc.InterventionResult.load(folder / "interventions")
    whole, single = (linear.table[
        (linear.table["patch"] == "interchange") & (linear.table["metric"] == "flip")
        & (linear.table["heads"] == "all").eq(every)] for every in (True, False))
    mine = table[(table["kind"] == "linear") & (table["patch"] == "interchange")
                 & (table["metric"] == "flip")].set_index("heads")["value"]
    assert len(single) == 4
    assert mine["best one"] == pytest.approx(single["value"].max(), abs=1e-3)
    rates, mine = whole, mine["all"]
    assert mine.tolist() == pytest.approx(rates["value"].tolist(), abs=1e-3)
    names = {path.stem for path in (out / "figures").iterdir()}
    assert names >= {"flips", "alignment", "hyla-interventions", "linear-cosines"}
    # Nothing is computed twice; what was deleted comes back the same.
    (hyla,), (topography,) = work.glob("hyla-*"), work.glob("topography-*")
    before = (hyla / "decoding" / "table.csv").stat().st_mtime_ns
    for file in topography.iterdir():
        file.unlink()
    topography.rmdir()
    main(["--runs", str(runs), "--out", str(out), "--n", "300", "--n-probe", "300"])
    assert (hyla / "decoding" / "table.csv").stat().st_mtime_ns == before
    assert topography.is_dir()
    assert (out / "README.md").read_text() == page
    # Another setting, or another run of the same name, is another result.
    run = lc.Run.open(runs / "hyla")
    assert hyla.name == f"hyla-{key_of([run], {'n': 300, 'n_probe': 300})}"
    assert key_of([run], {"n": 400, "n_probe": 300}) != hyla.name.split("-")[1]


def test_a_folder_without_runs_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not exist; expected a folder of runs"):
        open_runs(tmp_path / "nothing")
    with pytest.raises(RunError, match="holds no trained run"):
        open_runs(tmp_path)
