"""A run killed at any moment resumes and ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import ROOT, environment

SCRIPT = Path(__file__).with_name("kill_and_resume.py")

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


def kill_at(folder: Path, *moments: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), *map(str, moments)], cwd=ROOT,
        env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.slow
def test_killed_now_and_then(tmp_path: Path) -> None:
    result = kill_at(tmp_path, *range(3, 100, 24))
    assert result["failures"] == []
    assert result["tried"] >= 3


@pytest.mark.slow
def test_killed_at_every_write(tmp_path: Path) -> None:
    result = kill_at(tmp_path)
    assert result["failures"] == []
    assert result["tried"] == result["calls"] > 60
