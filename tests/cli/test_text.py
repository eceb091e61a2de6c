"""`latentcode text`: what it writes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from latentcode.cli import main


def test_spans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    text = tmp_path / "text"
    main(["zoo", "text", "spans", str(text)])
    assert f"wrote 8,000 documents to {text}" in capsys.readouterr().out
    assert "exists already" in refused("zoo", "text", "spans", text)
