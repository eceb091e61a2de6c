"""Bars on a terminal, lines elsewhere, nothing on request."""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from rich.console import Console

import latentcode as lc
from latentcode import progress
from latentcode.progress import Bar, Display, Progress, say_doing, watched


class Screen:
    """What is shown on a terminal, or in a file."""

    def __init__(self, terminal: bool) -> None:
        self.out = io.StringIO()
        self.console = Console(file=self.out, force_terminal=terminal, width=120)

    def text(self) -> str:
        return self.out.getvalue()


def work(display: Display) -> None:
    with display:
        bar = Bar(display, "reading", 40, done=10, text="at first")
        assert bar.left() == ""
        bar.update(20, text="[later] :x:")
        assert bar.left().endswith(" left")
        bar.update(40, what="done")
        display.line("a line")
        display.say("said [aloud] :x:")


def test_on_a_terminal_a_bar_with_its_texts() -> None:
    screen = Screen(terminal=True)
    work(Display(console=screen.console))
    for part in ("done", "40/40", "[later] :x:", "said [aloud] :x:"):
        assert part in screen.text()
    assert "a line" not in screen.text()


@pytest.mark.parametrize(("terminal", "enabled", "said"), [
    (False, True, "a line\nsaid [aloud] :x:\n"), (False, False, ""), (True, False, "")])
def test_elsewhere_lines_and_nothing_if_not_wanted(
    terminal: bool, enabled: bool, said: str
) -> None:
    screen = Screen(terminal)
    work(Display(enabled=enabled, console=screen.console))
    assert screen.text() == said


def test_the_time_left_is_that_of_what_is_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    bar = Bar(Display(enabled=False), "reading", 100, done=20)
    now = 90.0
    bar.update(50)
    assert bar.left() == ", 0:02:30 left"


def test_a_command_prints_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[-1])
    update = progress.bar("reading")
    for now, done in ((1.0, 1_000), (11.0, 2_000), (12.0, 3_000), (22.0, 4_000)):
        clock.append(now)
        update(done, 4_000)
    assert capsys.readouterr().err.splitlines() == [
        "reading: 2,000 of 4,000, 0:00:20 left", "reading: 4,000 of 4,000, 0:00:00 left"]


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
    monkeypatch.setattr(progress, "_entered", [])
    # That of pytest is put back between a fixture and its test.
    monkeypatch.setattr("latentcode.progress.sys",
                        SimpleNamespace(stderr=screen.out, modules=sys.modules))
    monkeypatch.setattr(screen.out, "isatty", lambda: True, raising=False)
    return screen


def test_who_watches_sees_a_bar_unasked(screen: Screen) -> None:
    assert count_twice(3) == 3
    assert "reading, then counting" in screen.text()
    assert "\ncounting" in screen.text().replace("\r", "\n").replace("\x1b[2K", "")
    assert not progress._entered


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
    for display in (Display(), Display(enabled=False)):  # as training, with and without its bar
        with display:
            Bar(display, "training", 3)
            count(3)
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    count(3)
    assert "counting" not in screen.text()


@watched("failing")
def fail_unasked(*, progress: Progress | None = None) -> None:
    progress(1, 3)
    raise ValueError("broken")


def fail_asked() -> None:
    with progress.bar("failing") as shown:
        shown(1, 3)
        raise ValueError("broken")


@pytest.mark.parametrize("fail", [fail_unasked, fail_asked])
def test_what_fails_leaves_no_bar_behind(screen: Screen, fail: Callable[[], None]) -> None:
    with pytest.raises(ValueError, match="broken"):
        fail()
    assert "failing" in screen.text()
    assert not progress._entered


def test_in_a_notebook_one_line_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown.append(data["text/plain"])

    def show(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(data["text/plain"])
        return Handle()

    monkeypatch.setattr("IPython.display.display", show)
    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_entered", [])
    monkeypatch.setattr(progress, "CELL_EVERY", -1.0)
    count(2)
    assert shown == ["counting: 1 of 2", "counting: 2 of 2, 0:00:00 left", ""]


def test_every_public_function_with_a_progress_shows_it() -> None:
    functions = {name: getattr(lc, name) for name in lc.__all__}
    asked = {name for name, function in functions.items() if inspect.isfunction(function)
             and "Progress" in str(inspect.signature(function).parameters.get("progress", ""))}
    assert {"extract", "decode", "intervene", "attribute"} <= asked
    assert [name for name in asked if not hasattr(functions[name], "__wrapped__")] == []
