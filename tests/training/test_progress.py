"""A bar on a terminal, lines elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from latentcode.metrics import Metric
from latentcode.progress import Display
from latentcode.training.progress import TrainingProgress


def show(terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    with Display(console=console) as display:
        progress = TrainingProgress(display, 1_000, 0, "r2")
        for step in (500, 1_000):
            progress.advance(step)
            progress.metrics("train", {"training_loss": Metric(0.25, 0.1, 3)})
            progress.metrics("train", {"r2": Metric(0.75, 0.1, 3), "loss": Metric(0.5, 0.1, 3)})
            progress.metrics("ood", {"r2": Metric(0.5, 0.1, 3)})
            progress.evaluated()
        display.say("stopped [here]")
    return out.getvalue()


def test_elsewhere_one_line_per_evaluation() -> None:
    lines = show(terminal=False).splitlines()
    assert lines[0].startswith("step 500 of 1,000  loss 0.25  r2: train 0.750, ood 0.500  0:00:0")
    assert lines[1].endswith("0:00:00 left")
    assert lines[2:] == ["stopped [here]"]


def test_on_a_terminal_a_bar_with_loss_and_metrics() -> None:
    shown = show(terminal=True)
    for part in ("1000/1000", "loss 0.25", "r2: train 0.750, ood 0.500", "stopped [here]"):
        assert part in shown
    assert "step 500 of" not in shown
