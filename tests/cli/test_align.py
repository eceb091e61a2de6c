"""`latentcode align` on runs that were hardly trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.cli import main
from latentcode.probes.alignment import AlignmentResult


def test_align(runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "alignment"
    main(["align", *runs[:2], "--n-train", "200", "--n-heldout", "200", "--layers", "1",
          "--out", str(out)])
    printed = capsys.readouterr().out
    assert "matched, scaled" in printed
    assert "Run softmax1 was trained on" in printed
    result = AlignmentResult.load(out)
    assert set(result.transfer["source"]) == {"code", "residual", "untrained"}


def test_runs_that_cannot_be_aligned(
    run: lc.Run, runs: list[str], tmp_path: Path, refused: Callable[..., str]
) -> None:
    for given, message in (
        ([runs[0]], "1 run is given; expected 2"),
        ([runs[0], runs[0]], "expected different names"),
        ([runs[0], run.path], "expected runs of one task"),
    ):
        assert message in refused("align", *given, "--out", tmp_path / "x")
    assert not (tmp_path / "x").exists()
