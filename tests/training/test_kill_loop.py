"""Does a run that is killed 50 times at random end as if nothing had happened?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT, environment

SCRIPT = Path(__file__).with_name("kill_loop.py")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_fifty_kills_and_fifty_resumptions(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--out", str(tmp_path / "log.json")], cwd=ROOT,
        env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "log.json").read_text())
    assert result == json.loads(done.stdout)
    assert (result["kills"], result["resumes"]) == (50, 50)
    assert {"metrics.jsonl", "config.yaml", *(
        f"checkpoints/step_0000600/{name}" for name in (
            "model.safetensors", "optimizer.safetensors", "rng.safetensors", "state.json")),
    } <= set(result["equal"])
    assert all(result["equal"].values()), result["equal"]
    assert result["unexpected_files"] == result["stale_files"] == []
    # The kills struck while something was going on: at many places, and in the middle of writes.
    steps = [line["step"] for line in result["log"]]
    known = [step for step in steps if step is not None]
    assert known == sorted(known)
    assert len(set(known)) >= 10
    assert any(line["stale"] for line in result["log"])
