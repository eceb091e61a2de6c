"""`latentcode das` on a model of the zoo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from latentcode.cli import main
from latentcode.probes.das import DASResult


@pytest.mark.slow
def test_das(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    out = tmp_path / "das"
    main(["das", "logic-hyla", "--layer", "0", "--rank", "2", "--n", "60", "--n-train", "100",
          "--steps", "50", "--out", str(out)])
    assert f"wrote result {out}" in capsys.readouterr().out
    result = DASResult.load(out)
    assert list(dict.fromkeys(result.table["search"])) == [
        "trained", "shuffled", "untrained", "random", "whole"]
    assert set(result.curves["step"]) == {50}
    assert result.settings["layer"] == 0
    assert (out / "figure.png").stat().st_size > 1_000
    assert "layer 9" in refused("das", "logic-hyla", "--layer", "9", "--out", tmp_path / "x")


def test_errors(tmp_path: Path, refused: Callable[..., str]) -> None:
    for arguments, message in (
        (["--rank", "4", "2", "4"], "--rank has 4 more than once; expected it once"),
        (["--objective", "operands", "operands"], "--objective has operands more than once"),
        (["--rank", "0"], "--rank is 0; expected one or several numbers from 1 on"),
        (["--steps", "0"], "--steps is 0; expected a whole number of at least 1"),
        (["--n", "0"], "--n is 0; expected a whole number of at least 1"),
        (["--n-train", "-1"], "--n-train is -1; expected a whole number of at least 1"),
    ):
        assert message in refused("das", "logic-hyla", "--out", tmp_path / "new", *arguments)
    assert not (tmp_path / "new").exists()
