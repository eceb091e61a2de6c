"""Is the server open to this machine alone, and does it say what is wrong?"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from latentcode.app import server
from latentcode.app.data.catalog import ROOTS
from latentcode.app.index import index, plotly
from latentcode.cli import COMMANDS, main
from latentcode.errors import ConfigError


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that something listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_the_script_that_is_loaded_ahead_is_streamlits() -> None:
    assert plotly().startswith("./static/js/PlotlyChart.")
    assert f'data-later="{plotly()}"' in index()
    assert files("streamlit").joinpath("static", *plotly().split("/")[1:]).is_file()


def drawn_run(folder: Path) -> Path:
    """Make a folder that is taken for a run."""
    folder.mkdir()
    (folder / "provenance.json").touch()
    return folder


class Started:
    """Stands for a server process, and notes how it was started."""

    calls: list[tuple[list[str], dict[str, str]]]

    def __init__(self, command: list[str], *, env: dict[str, str], **_: Any) -> None:
        self.calls.append((command, env))
        self.stopped = False

    def wait(self) -> int:
        return 0

    def terminate(self) -> None:
        self.stopped = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    monkeypatch.setattr(Started, "calls", [], raising=False)
    monkeypatch.setattr(subprocess, "Popen", Started)
    return Started.calls


def test_it_listens_on_this_machine_alone_with_options_of_streamlit() -> None:
    """A name that Streamlit does not know keeps the server from starting."""
    from streamlit import config

    words = server.command(8600, browser=False)
    assert "--server.address=localhost" in words
    assert "--server.port=8600" in words
    hosts = [word for word in words if word.startswith("--server.allowedHosts=")]
    assert [word.split("=")[1] for word in hosts] == ["localhost", "127.0.0.1", "::1"]
    assert "--server.headless=true" in words
    assert "--server.headless=false" in server.command(8600, browser=True)
    asked = {word.removeprefix("--").split("=")[0] for word in words if word.startswith("--")}
    assert asked <= set(config.get_config_options())


def test_the_folders_travel_as_full_paths(
    started: list[tuple[list[str], dict[str, str]]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    drawn_run(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    assert server.serve(["runs"], browser=False) == 0
    assert json.loads(started[0][1][ROOTS]) == [str(tmp_path.resolve() / "runs")]
    assert "http://localhost:" in capsys.readouterr().out
    assert server.serve(browser=False) == 0
    assert json.loads(started[1][1][ROOTS]) == [str(tmp_path.resolve())]


def test_the_next_free_port_is_found(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FIRST_PORT", taken)
    assert server.free_port() > taken
    monkeypatch.setattr(server, "PORTS", 1)
    with pytest.raises(ConfigError, match=str(taken)):
        server.free_port()


def test_what_is_wrong_is_said_before_anything_starts(
    started: list[tuple[list[str], dict[str, str]]], taken: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "run.yaml").touch()
    (tmp_path / "empty").mkdir()
    for folders, port, said in (
            ([tmp_path / "nowhere"], None, "nowhere does not exist"),
            ([drawn_run(tmp_path / "runs"), tmp_path / "empty"], None, "empty holds neither runs"),
            ([tmp_path, tmp_path / "run.yaml"], None, r"run\.yaml is a file"),
            ([tmp_path], taken, f"port {taken} is taken"),
            ([tmp_path], 0, "port is 0"), ([tmp_path], 65_536, "port is 65536")):
        with pytest.raises(ConfigError, match=said):
            server.serve(folders, port=port)
    monkeypatch.setattr(server, "find_spec", lambda name: None if name == "plotly" else name)
    with pytest.raises(ConfigError, match=r"plotly.*latentcode\[app\]"):
        server.serve([tmp_path])
    assert started == []


def test_the_command_line_starts_it(
    started: list[tuple[list[str], dict[str, str]]], tmp_path: Path,
) -> None:
    assert "explore" in COMMANDS
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    drawn_run(tmp_path / "run")
    main(["explore", str(tmp_path), "--port", str(port), "--no-browser"])
    (words, environment), = started
    assert f"--server.port={port}" in words
    assert "--server.headless=true" in words
    assert json.loads(environment[ROOTS]) == [str(tmp_path.resolve())]
