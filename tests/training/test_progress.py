"""A bar on a terminal, lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from latentcode.metrics import Metric
from latentcode.progress import Display
from latentcode.training.progress import TrainingProgress


@pytest.mark.parametrize("terminal", [False, True])
def test_the_loss_and_the_metrics_are_shown(terminal: bool) -> None:
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
    shown = out.getvalue()
    for part in ("loss 0.25", "r2: train 0.750, ood 0.500", "stopped [here]"):
        assert part in shown
    assert ("1000/1000" in shown) == terminal
    assert ("step 500 of 1,000" in shown) == (not terminal)
    assert terminal or len(shown.splitlines()) == 3  # one an evaluation
