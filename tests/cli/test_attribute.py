"""`latentcode attribute` on a model that knows its task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.cli import main


@pytest.mark.slow
def test_attribute(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found"
    main(["attribute", "logic-hyla", "--n", "60", "--n-patched", "8", "--sites", "value",
          "--source", "operands", "--out", str(out)])
    assert f"wrote result {out}" in capsys.readouterr().out
    result = lc.AttributionResult.load(out)
    assert result.settings["rate"] == "operands"
    assert result.maps[["layer", "key"]].to_numpy().tolist() == [
        [0, "example"], [0, "query"], [1, "example"], [1, "query"]]
    assert len(result.heads) == 4 * 8
    assert (out / "sets.png").is_file()
    main(["show", str(out)])
    # Four places are too few to correlate, and their values bring nothing.
    shown = capsys.readouterr().out
    assert "r of path" not in shown
    assert "no set is looked for" in shown


def test_errors(
    sraven: Callable[[str, int], str], tmp_path: Path, refused: Callable[..., str]
) -> None:
    for arguments, message in (
        (["--source", "rest"], "unknown source 'rest'; expected one of: interchange, operands"),
        (["--sites", "residual"], "unknown site 'residual'; expected one of: code, value"),
        (["--sites", "code", "code"], "--sites has code more than once; expected it once"),
        (["--n-patched", "2"], "--n-patched is 2; expected a whole number of at least 4"),
        (["--n", "100"], "Is it trained, and n large enough?"),
    ):
        assert message in refused("attribute", sraven("hyla", 0), "--out", tmp_path / "new",
                                  *arguments)
    assert not (tmp_path / "new").exists()
