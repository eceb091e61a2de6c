"""`latentcode find-subspace` on a model of the zoo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from latentcode.cli import main
from latentcode.probes.subspaces import SubspaceResult


@pytest.mark.slow
def test_find_subspace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    out = tmp_path / "subspace"
    main(["find-subspace", "logic-hyla", "--layer", "0", "--rank", "2", "--n", "60", "--n-train",
          "100", "--steps", "50", "--out", str(out)])
    assert f"wrote result {out}" in capsys.readouterr().out
    result = SubspaceResult.load(out)
    assert list(dict.fromkeys(result.table["search"])) == [
        "trained", "shuffled", "untrained", "random", "whole"]
    assert set(result.curves["step"]) == {50}
    assert result.settings["layer"] == 0
    assert (out / "figure.png").stat().st_size > 1_000
    assert "layer 9" in refused("find-subspace", "logic-hyla", "--layer", "9", "--out",
                                tmp_path / "x")
