"""`latentcode align` on runs that were hardly trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.cli import main
from latentcode.probes.alignment import AlignmentResult


def test_align(
    sraven: Callable[[str, int], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, out = [sraven("softmax", seed) for seed in range(2)], tmp_path / "alignment"
    main(["align", *runs, "--n-train", "200", "--n-heldout", "200", "--layers", "1",
          "--out", str(out)])
    printed = capsys.readouterr().out
    assert "matched, scaled" in printed
    assert "Run softmax1 was trained on" in printed
    result = AlignmentResult.load(out)
    assert set(result.transfer["features"]) == {"code", "residual", "untrained"}


def test_runs_that_cannot_be_aligned(
    run: lc.Run, sraven: Callable[[str, int], str], tmp_path: Path, refused: Callable[..., str]
) -> None:
    other = sraven("softmax", 0)
    for given, message in (
        ([run.path], "1 model is given: softmax; expected at least 2"),
        ([run.path, run.path], "expected different names"),
        ([run.path, other], "expected runs of one task"),
    ):
        assert message in refused("align", *given, "--out", tmp_path / "x")
    assert not (tmp_path / "x").exists()
