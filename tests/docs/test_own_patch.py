"""Does the page about patches of one's own do what it shows, as it is written?"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from places import ROOT, environment

PAGE = (ROOT / "docs" / "own_patch.md").read_text(encoding="utf-8")
EXAMPLE, USE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
COMMANDS = [line for line in re.findall(r"^latentcode .*$", PAGE, re.M) if "explore" not in line]


def test_the_example_is_the_file() -> None:
    assert (ROOT / "experiments" / "examples" / "own_patch.py").read_text(
        encoding="utf-8") == EXAMPLE


@pytest.mark.slow
def test_the_page_runs_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "own_patch.py").write_text(EXAMPLE, encoding="utf-8")

    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False,
                              cwd=tmp_path, env=environment())
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = run("-c", USE.replace("n=400", "n=60"))
    assert "halfway: Halfway from its own to the source's" in said
    assert "InterventionResult" in said
    assert "BenchOutcome: instance 0" in said
    assert len(COMMANDS) == 1
    for command in COMMANDS:
        _, *words = command.split()
        run("-m", "latentcode", *words, *(["--n", "60"] if words[0] == "intervene" else []))
    table = pd.read_csv(tmp_path / "results" / "own" / "table.csv")
    assert set(table["patch"]) == {"halfway", "without_mean"}
