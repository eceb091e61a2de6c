"""`latentcode separation` on a run that was hardly trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from latentcode.cli import main
from latentcode.probes.separation import SeparationResult


def test_separation(
    sraven: Callable[[str, int], str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    refused: Callable[..., str],
) -> None:
    run, out = sraven("softmax", 0), tmp_path / "separation"
    main(["separation", run, "--n", "200", "--out", str(out)])
    printed = capsys.readouterr().out
    assert "of other combinations" in printed
    assert f"wrote result {out}" in printed
    result = SeparationResult.load(out)
    assert {"rule", "target", "combination"} <= set(result.settings["labels"])
    assert (out / "figure.png").stat().st_size > 1_000
    assert "exists already" in refused("separation", run, "--out", out)
    assert "unknown label 'colour'" in refused(
        "separation", run, "--labels", "colour", "--n", "50", "--out", tmp_path / "x")
