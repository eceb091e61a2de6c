"""Bars on a terminal, lines elsewhere, nothing on request."""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import latentcode as lc
from latentcode import progress
from latentcode.progress import Bar, Progress, say_doing, watched


class Screen:
    """What is shown on a terminal, in a file, or in a notebook."""

    def __init__(self, terminal: bool, **settings: Any) -> None:
        self.out = io.StringIO()
        self.console = Console(file=self.out, force_terminal=terminal, width=120, **settings)

    def text(self) -> str:
        return self.out.getvalue()


@pytest.mark.parametrize(("terminal", "enabled", "said"), [
    (True, True, ("counting", "5/40", "at first", "40/40", "[later] :x:", "said [aloud] :x:")),
    (False, True, "counting: 40 of 40, 0:00:00 left ([later] :x:)\nsaid [aloud] :x:\n"),
    (False, False, ""), (True, False, "")])
def test_bars_on_a_terminal_lines_elsewhere_and_nothing_if_not_wanted(
    terminal: bool, enabled: bool, said: str | tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(terminal)
    monkeypatch.setattr("rich.console.Console", lambda **settings: screen.console)
    bar = Bar("counting", 40, done=5, enabled=enabled, transient=False)
    bar.text = "at first"
    with bar:
        bar.text = "[later] :x:"
        bar(40, 40, line=True)
        bar.say("said [aloud] :x:")
    if isinstance(said, str):
        assert screen.text() == said
    else:
        assert [part for part in said if part not in screen.text()] == []


def test_a_command_prints_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    update = Bar("reading")  # what was done before the first call has no known pace
    for now, done in ((1.0, 1_000), (12.0, 2_000), (13.0, 3_000), (23.0, 4_000)):  # noqa: B007
        update(done, 4_000)
    assert capsys.readouterr().err.splitlines() == [
        "reading: 2,000 of 4,000, 0:00:22 left", "reading: 4,000 of 4,000, 0:00:00 left"]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_says_what_it_waits_for(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(terminal)
    monkeypatch.setattr("rich.console.Console", lambda **settings: screen.console)
    monkeypatch.setattr(progress, "SILENT", 0.0)
    with Bar("heads", transient=False) as bar:
        bar.wait("loading the model")
        if not terminal and bar._waiting is not None:
            bar._waiting.join()
        say_doing(bar, "metrics", "tokens")
        bar(5, 40)
    assert "loading the model" in screen.text()
    assert ("tokens metrics" if terminal else "heads: 5 of 40 tokens (metrics)") in screen.text()
    monkeypatch.setattr(progress, "SILENT", 60.0)  # what is quick is silent
    screen.out.truncate(0)
    with Bar("heads") as bar:
        bar.wait("loading the model")
    assert terminal or "loading" not in screen.text()


@watched("counting")
def count(n: int, *, progress: Progress | None = None) -> int:
    for i in range(n):
        if progress is not None:
            progress(i + 1, n)
    return n


@watched("reading, then counting")
def count_twice(n: int, *, progress: Progress | None = None) -> int:
    count(n)
    return count(n, progress=progress)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """What somebody sees who watches."""
    screen = Screen(terminal=True)
    monkeypatch.setattr("rich.console.Console", lambda **settings: screen.console)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_shown", [])
    # That of pytest is put back between a fixture and its test.
    monkeypatch.setattr("latentcode.progress.sys",
                        SimpleNamespace(stderr=screen.out, modules=sys.modules))
    monkeypatch.setattr(screen.out, "isatty", lambda: True, raising=False)
    return screen


def test_who_watches_sees_a_bar_unasked(screen: Screen) -> None:
    assert count_twice(3) == 3
    assert "reading, then counting" in screen.text()
    assert "\ncounting" in screen.text().replace("\r", "\n").replace("\x1b[2K", "")
    assert not progress._shown


@watched("counting")
def count_by_name(names: list[str], *, progress: Progress | None = None) -> None:
    for done, name in enumerate(names, 1):
        say_doing(progress, name)
        assert progress is not None
        progress(done, len(names) + 1)


def test_a_bar_says_what_is_being_done(screen: Screen) -> None:
    count_by_name(["apples", "pears"])
    assert "pears" in screen.text()
    told: list[int] = []
    count_by_name(["apples"], progress=lambda done, total: told.append(done))
    assert told == [1]


def test_nothing_is_drawn_in_a_pipe_or_beside_what_was_asked_for(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    count_twice(3, progress=lambda done, total: told.append(done))
    assert told == [1, 2, 3]
    with ThreadPoolExecutor(1) as pool:
        pool.submit(count, 3).result()
    monkeypatch.setenv(progress.SWITCH, "0")
    count(3)
    monkeypatch.delenv(progress.SWITCH)
    monkeypatch.setattr(screen.out, "isatty", lambda: False)
    count(3)
    assert screen.text() == ""


def test_nothing_is_drawn_at_once_or_beside_another_bar(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    for enabled in (True, False):  # as training, with and without its bar
        with Bar("training", 3, enabled=enabled):
            count(3)
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    count(3)
    assert "counting" not in screen.text()


@watched("failing")
def fail_unasked(*, progress: Progress | None = None) -> None:
    progress(1, 3)
    raise ValueError("broken")


def fail_asked() -> None:
    with Bar("failing") as shown:
        shown(1, 3)
        raise ValueError("broken")


@pytest.mark.parametrize("fail", [fail_unasked, fail_asked])
def test_what_fails_leaves_no_bar_behind(screen: Screen, fail: Callable[[], None]) -> None:
    with pytest.raises(ValueError, match="broken"):
        fail()
    assert "failing" in screen.text()
    assert not progress._shown


@pytest.mark.parametrize("widgets", [True, False])
def test_a_notebook_shows_a_bar_or_lines_where_it_has_no_widgets(
    widgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(terminal=False, force_jupyter=True)
    monkeypatch.setattr("rich.console.Console", lambda **settings: screen.console)
    monkeypatch.setattr("IPython.display.display", lambda *_: None)  # which is of a kernel
    monkeypatch.setattr(progress, "find_spec", lambda name: name if widgets else None)
    with Bar("counting", 3) as bar:
        assert (bar.bars is not None) == widgets


def test_every_public_function_with_a_progress_shows_it() -> None:
    functions = {name: getattr(lc, name) for name in lc.__all__}
    asked = {name for name, function in functions.items() if inspect.isfunction(function)
             and "Progress" in str(inspect.signature(function).parameters.get("progress", ""))}
    assert {"extract", "decode", "intervene", "attribute"} <= asked
    assert [name for name in asked if not hasattr(functions[name], "__wrapped__")] == []
