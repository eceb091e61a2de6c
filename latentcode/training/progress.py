"""How far is training, and how well does it go?"""

from __future__ import annotations

from collections.abc import Mapping

from latentcode.metrics import Metric
from latentcode.progress import Bar, Display


class TrainingProgress:
    """Shows step, training loss, the headline metric of each split and the remaining time.

    A bar has the newest of them; without bars there is one line per evaluation.
    """

    def __init__(self, display: Display, steps: int, start: int, headline: str) -> None:
        self.display, self.headline = display, headline
        self.bar = Bar(display, "", steps, done=start)
        self.loss = self.speed = ""
        self.of_split: dict[str, str] = {}

    def advance(self, step: int) -> None:
        """Move the bar."""
        self.bar.update(step)

    def metrics(self, split: str, metrics: Mapping[str, Metric]) -> None:
        """Note new metrics of a split."""
        if self.headline in metrics:
            self.of_split[split] = f"{split} {metrics[self.headline].mean:.3f}"
        if "training_loss" in metrics:
            self.loss = f"loss {metrics['training_loss'].mean:.4g}"
        self.bar.update(self.bar.done, text=self._state())

    def pace(self, measured: Mapping[str, float]) -> None:
        """Note how fast training is (see `Pace`)."""
        self.speed = f"{measured['tokens_per_second']:,.0f} tokens/s"
        if "model_flop_utilisation" in measured:
            self.speed += f" ({measured['model_flop_utilisation']:.0%} of the peak)"

    def evaluated(self) -> None:
        """All splits have new metrics."""
        self.display.line(f"step {self.bar.done:,} of {self.bar.total:,}  {self._state()}"
                          f"{self.bar.left('  ')}")

    def _state(self) -> str:
        scores = ", ".join(self.of_split.values())
        return "  ".join(part for part in (
            self.loss, scores and f"{self.headline}: {scores}", self.speed) if part)


__all__ = ["TrainingProgress"]
