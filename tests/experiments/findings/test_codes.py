"""The study of codes beside their controls runs on small runs, and its verdicts need every run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import latentcode as lc
from latentcode.experiments.findings import codes


def differences(**above: float) -> pd.DataFrame:
    return pd.DataFrame([
        {"kind": "hyla", "label": "rule", "pair": "a", "layer": 1, "run": f"run {number}",
         "against": against, "quantity": "accuracy", "value": value, "low": value - 0.05}
        for against, value in above.items() for number in range(3)])


@pytest.mark.parametrize(("above", "beginnings", "every"), [
    ({"untrained": 0.2, "shuffled": 0.3, "residual": 0.2}, "met", "met"),
    ({"untrained": 0.2, "shuffled": 0.3, "residual": -0.2}, "met", "refuted"),
    ({"untrained": 0.08, "shuffled": 0.3, "residual": 0.2}, "undecided", "undecided"),
    ({"untrained": 0.0, "shuffled": 0.3, "residual": 0.2}, "refuted", "refuted")])
def test_a_code_tells_what_no_control_does(
    above: dict[str, float], beginnings: str, every: str
) -> None:
    (row,) = codes.verdicts(differences(**above)).to_dict("records")
    assert (row["against untrained and shuffled"], row["against all"]) == (beginnings, every)
    assert row["above residual"] == pytest.approx(above["residual"])


def test_patches_have_their_control_at_the_same_place() -> None:
    patches = codes.patches(4)
    places = {(patch.value, str(patch.where), patch.layers, patch.site) for patch in patches}
    assert len(places) == len(patches) == 16
    assert all(("control", *place) in places for value, *place in places if value == "interchange")


@pytest.mark.slow
def test_runs_are_measured_from_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [lc.train(lc.preset("smoke", "logic", kind), tmp_path / kind, progress=False)
            for kind in ("hyla", "softmax")]
    codes.main(tuple(str(run.path) for run in runs), tmp_path / "out", n=120)
    tables = {path.stem: pd.read_csv(path) for path in (tmp_path / "out").glob("*.csv")}
    assert set(tables["scores"]["features"]) >= {"code", "untrained", "shuffled", "residual"}
    assert set(tables["told"]["against all"]) <= {"undecided"}  # one run of a kind
    assert set(tables["differences"]["against"]) >= set(codes.CONTROLS)
    assert "alignment" not in tables
    assert "against untrained and shuffled" in capsys.readouterr().out
