"""`latentcode decode` of several features, on a run that was hardly trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from latentcode.cli import main
from latentcode.probes.decoding import DecodingResult


@pytest.mark.slow
def test_decode_several_features(
    sraven: Callable[[str, int], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "decoding"
    main(["decode", sraven("hyla", 0), "--features", "code", "row", "--layers", "1",
          "--widths", "4", "--beyond-answer", "--labels", "rule", "--n-train", "200",
          "--n-heldout", "200", "--out", str(out)])
    assert f"wrote result {out}" in capsys.readouterr().out
    result = DecodingResult.load(out)
    assert {"code", "row", "untrained row"} <= set(result.table["features"])
    assert set(result.table["width"]) == {4}
    assert set(result.given["given"]) == {"answer", "answer and operands"}
