"""`latentcode similarity` on a run that was hardly trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from latentcode.cli import main
from latentcode.probes.similarity import SimilarityResult


def test_similarity(
    sraven: Callable[[str, int], str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    refused: Callable[..., str],
) -> None:
    run, out = sraven("softmax", 0), tmp_path / "similarity"
    main(["similarity", run, "--label", "rule", "--n", "300", "--out", str(out)])
    printed = capsys.readouterr().out
    assert "participation_ratio" in printed
    assert f"wrote result {out}" in printed
    result = SimilarityResult.load(out)
    assert result.settings["label"] == "rule"
    assert set(result.concentration["features"]) == {"code", "residual", "untrained"}
    assert (out / "figure.png").stat().st_size > 1_000
    assert "exists already" in refused("similarity", run, "--out", out)
    assert "unknown label 'colour'" in refused(
        "similarity", run, "--label", "colour", "--n", "50", "--out", tmp_path / "x")
    assert not (tmp_path / "x").exists()
