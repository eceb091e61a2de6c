"""`latentcode similarity | topography | align` on runs that were hardly trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.cli import main
from latentcode.probes.alignment.result import AlignmentResult
from latentcode.probes.similarity.result import SimilarityResult
from latentcode.probes.topography.result import TopographyResult

LITTLE = {"steps": 4, "warmup_steps": 1, "eval_every": 4}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return two kinds with two seeds, whose splits differ too."""
    folder = tmp_path_factory.mktemp("runs")
    paths = []
    for kind in ("softmax", "hyla"):
        for seed in range(2):
            config = lc.preset("smoke", "sraven", kind)
            config = replace(config, task=replace(config.task, split_seed=seed),
                             training=replace(config.training, seed=seed, **LITTLE))
            run = lc.train(config, folder / f"{kind}{seed}", progress=False)
            paths.append(str(run.path))
    return paths


def test_similarity(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "similarity"
    main(["similarity", runs[0], "--label", "rule", "--n", "300", "--out", str(out)])
    printed = capsys.readouterr().out
    assert "participation_ratio" in printed
    assert f"wrote result {out}" in printed
    result = SimilarityResult.load(out)
    assert result.settings["label"] == "rule"
    assert set(result.concentration["source"]) == {"code", "residual", "untrained"}
    assert (out / "figure.png").stat().st_size > 1_000
    for arguments, message in (
        (["similarity", runs[0], "--out", str(out)], "exists already"),
        (["similarity", runs[0], "--label", "colour", "--n", "50", "--out", str(tmp_path / "x")],
         "unknown label 'colour'")):
        with pytest.raises(SystemExit):
            main(arguments)
        assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_topography_across_runs(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_align(runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "alignment"
    main(["align", *runs[:2], "--n-train", "200", "--n-heldout", "200", "--layers", "1",
          "--out", str(out)])
    printed = capsys.readouterr().out
    assert "matched, scaled" in printed
    assert "Run softmax1 was trained on" in printed
    result = AlignmentResult.load(out)
    assert set(result.transfer["source"]) == {"code", "residual", "untrained"}
    for arguments, message in (
        (["align", runs[0], "--out", str(tmp_path / "x")], "1 run is given; expected two"),
        (["align", runs[0], runs[0], "--out", str(tmp_path / "x")], "expected different names")):
        with pytest.raises(SystemExit):
            main(arguments)
        assert message in capsys.readouterr().err


def test_runs_of_different_tasks_are_not_aligned(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = lc.preset("smoke", "logic", "softmax")
    other = lc.train(replace(config, training=replace(config.training, **LITTLE)),
                     tmp_path / "logic", progress=False)
    with pytest.raises(SystemExit):
        main(["align", runs[0], str(other.path), "--out", str(tmp_path / "x")])
    assert "expected runs of one task" in capsys.readouterr().err
    main(["topography", str(other.path), "--n", "200", "--layers", "1", "--labels", "terms",
          "--out", str(tmp_path / "topography")])
    assert "literals" in capsys.readouterr().out
