"""Does the page about probes of one's own do what it shows, as it is written, in all its places?"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from places import ROOT

from latentcode.cli import main
from latentcode.probes.common.results import load_result
from latentcode.probes.registered import ProbeResult

PAGE = (ROOT / "docs" / "own_probe.md").read_text(encoding="utf-8")
FILE = ROOT / "experiments" / "examples" / "eigenvalues.py"
EXAMPLE, USE, ENTROPY = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
COMMANDS = re.findall(r"^latentcode (.*)$", PAGE, re.M)


@pytest.fixture
def folder(own_names: Callable[[], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    (tmp_path / "eigenvalues.py").write_text(EXAMPLE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    # What the page imports from here is gone afterwards.
    monkeypatch.setitem(sys.modules, "eigenvalues", None)
    del sys.modules["eigenvalues"]
    return tmp_path


def test_the_page_has_the_whole_example() -> None:
    assert FILE.read_text(encoding="utf-8") == EXAMPLE
    assert len(EXAMPLE.splitlines()) <= 65


@pytest.mark.slow
def test_the_lines_of_python_do_what_they_say(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(folder)
    names: dict[str, object] = {}
    exec(USE, names)
    said = capsys.readouterr().out
    assert "ProbeResult of eigenvalues: The eigenvalues of layer " in said
    assert "DecodingResult: " in said
    result = names["result"]
    assert isinstance(result, ProbeResult)
    assert result.settings["options"] == {"c": 0.3}
    assert "<img" in result._repr_html_()
    exec(ENTROPY, names)
    assert "row_entropy above shuffled labels" in capsys.readouterr().out


@pytest.mark.slow
def test_the_commands_do_what_they_say(
    folder: Path, own_names: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    said = {}
    for command in COMMANDS:
        words = shlex.split(command)
        if words[0] == "explore":
            continue
        if "--help" in words:
            with pytest.raises(SystemExit):
                main(words)
        else:
            main(words)
        said[command] = capsys.readouterr().out
        own_names()  # as a new process would
    first, helped, shown, *_ = said.values()
    assert "inverse of the penalty" in helped
    assert shown.strip() in first
    printed = re.search(r"^ProbeResult of eigenvalues: .*$", PAGE, re.M)
    assert printed is not None
    assert first.startswith(printed[0])
    beside = load_result(folder / "runs" / "first" / "results" / "eigenvalues")
    assert isinstance(beside, ProbeResult)
