"""Bars on a terminal, lines elsewhere, nothing on request."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from latentcode import progress
from latentcode.progress import Bar, Display


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


def test_elsewhere_lines() -> None:
    screen = Screen(terminal=False)
    work(Display(console=screen.console))
    assert screen.text() == "a line\nsaid [aloud] :x:\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_if_not_wanted(terminal: bool) -> None:
    screen = Screen(terminal)
    work(Display(enabled=False, console=screen.console))
    assert screen.text() == ""


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
