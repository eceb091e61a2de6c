"""`latentcode knn-purity` on a run that was hardly trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from latentcode.cli import main
from latentcode.probes.knn_purity import KNNPurityResult


def test_separation(
    sraven: Callable[[str, int], str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    refused: Callable[..., str],
) -> None:
    run, out = sraven("softmax", 0), tmp_path / "knn-purity"
    main(["knn-purity", run, "--n", "200", "--out", str(out)])
    printed = capsys.readouterr().out
    assert "of other combinations" in printed
    assert f"wrote result {out}" in printed
    result = KNNPurityResult.load(out)
    assert {"rule", "target", "combination"} <= set(result.settings["labels"])
    assert (out / "figure.png").stat().st_size > 1_000
    assert "exists already" in refused("knn-purity", run, "--out", out)
    assert "unknown label 'colour'" in refused(
        "knn-purity", run, "--labels", "colour", "--n", "50", "--out", tmp_path / "x")
