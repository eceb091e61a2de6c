"""The errors that a newcomer meets first, word for word: `first_errors.txt` is to be read aloud.

After a command (`$`) or a line of Python (`>>>`) stands all that it says.
"""

from __future__ import annotations

import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.cli import main

LINES = Path(__file__).with_name("first_errors.txt").read_text(encoding="utf-8").split("\n")
ERRORS = {line: said for line, said in pairwise(LINES)
          if line.startswith(("$ ", ">>> "))}


@pytest.fixture
def newcomer(run: lc.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder as a newcomer may have it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run.path, "runs/hyla")
    Path("notes.txt").write_text("nothing of ours\n")
    Path("broken.yaml").write_text("task:\n  name: logic\n   n_terms: 2\n")
    Path("lacking.yaml").write_text("task: {name: logic}\n")


def said_of(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a line, and return all that is said of it."""
    if line.startswith("$ latentcode "):
        with pytest.raises(SystemExit) as stopped:
            main(shlex.split(line)[2:])
        assert stopped.value.code == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        return printed.err.removesuffix("\n")
    with pytest.raises(lc.LatentCodeError) as raised:
        eval(line.removeprefix(">>> "), {"lc": lc})
    return f"{type(raised.value).__name__}: {raised.value}"


@pytest.mark.parametrize("line", ERRORS)
@pytest.mark.usefixtures("newcomer")
def test_what_a_newcomer_is_told(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path().rglob("*"))
    assert said_of(line, capsys) == ERRORS[line]
    assert sorted(Path().rglob("*")) == before


def test_the_list_is_whole() -> None:
    assert len(ERRORS) >= 30
    assert [*(text for pair in ERRORS.items() for text in pair), ""] == LINES
    assert max(map(len, ERRORS.values())) <= 200
