"""`latentcode project` on a small run, then on its codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import latentcode as lc
from latentcode.cli import main
from latentcode.probes.projection import ProjectionResult


def test_project_a_run_then_its_codes(
    run: lc.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    main(["project", str(run.path), "--method", "pca", "--splits", "ood", "train", "--n", "60",
          "--out", str(tmp_path / "of_run")])
    assert f"wrote result {tmp_path / 'of_run'}" in capsys.readouterr().out
    table = pd.read_parquet(tmp_path / "of_run" / "coordinates.parquet")
    assert {"projection_x", "projection_y", "term_1", "term_2", "combination"} <= set(table)
    assert table.groupby(["split", "layer"]).size().eq(60).all()
    settings = json.loads((tmp_path / "of_run" / "projection.json").read_text())["settings"]
    assert settings["method"]["name"] == "pca"
    assert settings["labels"] == ["term_1", "term_2"]
    assert {"trustworthiness", "points"} <= set(settings["quality"][0])
    assert (tmp_path / "cache").is_dir()

    for split in ("ood", "train"):
        main(["extract", str(run.path), "--split", split, "--n", "80", "--inputs",
              "fixed_context", "--out", str(tmp_path / split)])
    main(["project", str(tmp_path / "ood"), str(tmp_path / "train"), "--method", "pca", "--labels",
          "term_1", "--n", "60", "--out", str(tmp_path / "of_codes")])
    first, second = (ProjectionResult.load(tmp_path / name) for name in ("of_run", "of_codes"))
    pd.testing.assert_frame_equal(first.quality, second.quality)  # the same codes


def test_no_choice_is_silently_ignored(
    run: lc.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    out, taken, codes = (tmp_path / name for name in ("x", "taken", "codes"))
    taken.mkdir()
    (taken / "projection.json").write_text("{}")
    main(["extract", str(run.path), "--n", "20", "--out", str(codes)])
    for arguments, message in (
        ([run.path, "--method", "pca", "--perplexity", "3"], "unknown setting of pca 'perplexity'"),
        ([codes], "labels are missing"),
        ([codes, "--labels", "term_1", "--splits", "train"], "have their own split"),
        ([codes, run.path, "--labels", "term_1"], "2 folders are given"),
        ([run.path, "--n", "0"], "--n is 0"),
        ([codes, "--labels", "rule"], "unknown label 'rule'"),
        ([codes, "--labels", "term_1"], "perplexity is 30 for 20 points"),
        ([], "MODEL is missing"),
    ):
        assert message in refused("project", *arguments, "--out", out)
    assert "exists already" in refused("project", codes, "--labels", "term_1", "--out", taken)
    assert not out.exists()
