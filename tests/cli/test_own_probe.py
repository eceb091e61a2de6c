"""`--import FILE`: a probe of one's own on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.cli import main
from latentcode.probes.common.results import load_result
from latentcode.probes.registered import ProbeResult

PROBE = '''"""Codes have a size."""
import latentcode as lc

@lc.register_probe("{name}")
def {name}(points, *, power: float = 1.0):
    """How large are codes?

    Args:
        power: Exponent.
    """
    return (abs(points.x) ** power).sum(1)
'''


@pytest.fixture
def probe_file(
    own_names: Callable[[], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], Path]:
    def written(name: str) -> Path:
        path = tmp_path / f"own_{name}.py"
        path.write_text(PROBE.format(name=name))
        return path

    monkeypatch.chdir(tmp_path)
    return written


def test_it_is_a_command(
    probe_file: Callable[[str], Path], run: lc.Run, capsys: pytest.CaptureFixture[str],
    refused: Callable[..., str],
) -> None:
    path = str(probe_file("size"))
    assert "unknown command 'size'; one of a probe of yours needs --import" in refused("size")
    words = ["size", str(run.path), "--import", path, "--n", "40", "--layers", "1"]
    main([*words, "--power", "2", "--out", "one"])
    said = capsys.readouterr().out
    found = load_result("one")
    assert isinstance(found, ProbeResult)
    assert found.settings["options"] == {"power": 2.0}
    assert "ProbeResult of size: " in said
    with pytest.raises(SystemExit):
        main(["--help", "--import", path])
    assert "  size" in capsys.readouterr().out
    assert "--powr, 2; did you mean --power?" in refused(
        *words, "--powr", "2", "--out", "two")


def test_the_name_of_a_command_is_taken(
    probe_file: Callable[[str], Path], refused: Callable[..., str]
) -> None:
    said = refused("show", "sraven-hyla", "--import", probe_file("show"))
    assert said == ("error: probe 'show' of own_show.py has the name of a command of latentcode; "
                    "expected another one")
