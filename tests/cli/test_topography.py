"""`latentcode topography` on runs that were hardly trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.cli import main
from latentcode.probes.topography import TopographyResult


def test_topography_across_runs(
    sraven: Callable[[str, int], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [sraven(kind, seed) for kind in ("softmax", "hyla") for seed in range(2)]
    out = tmp_path / "topography"
    main(["topography", *runs, "--n", "200", "--layers", "1", "--out", str(out)])
    assert "4 runs find a rank correlation" in capsys.readouterr().out
    result = TopographyResult.load(out)
    assert set(result.table["unit"]) == {"means", "instances"}
    assert set(result.table.loc[result.table["label"] == "combination", "distance"]) == {
        "edit", "functional", "circular"}
    assert result.runs["performance"].between(0, 1).all()
    assert set(result.correlation["scope"]) == {"all runs", "within kind"}
    assert (out / "generalization.png").exists()


def test_of_one_run(run: lc.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["topography", str(run.path), "--n", "200", "--layers", "1", "--labels", "terms",
          "--out", str(tmp_path / "topography")])
    assert "literals" in capsys.readouterr().out


def test_there_must_be_a_run(tmp_path: Path, refused: Callable[..., str]) -> None:
    assert "MODEL is missing" in refused("topography", "--out", tmp_path / "x")
