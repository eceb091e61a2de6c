"""`latentcode decode-rows` on a run that was hardly trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from latentcode.cli import main
from latentcode.probes.rows import RowsResult


@pytest.mark.slow
def test_decode_rows(
    sraven: Callable[[str, int], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows"
    main(["decode-rows", sraven("hyla", 0), "--features", "pair", "row", "--layers", "1",
          "--widths", "4", "--labels", "rule", "--n-train", "200", "--n-heldout", "200",
          "--out", str(out)])
    assert f"wrote result {out}" in capsys.readouterr().out
    assert set(RowsResult.load(out).table["features"]) == {"pair", "row"}
