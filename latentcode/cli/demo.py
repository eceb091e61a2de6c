"""`latentcode demo`: a whole experiment in one command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Demo:
    """Train two small models, decode them, write a report.

    Example: latentcode demo --out runs/demo

    Trains HYLA and softmax attention on fuzzy logic, decodes their codes and writes report.html.
    Takes a few minutes on two CPU cores. If interrupted, the same command continues where it
    stopped.
    """

    out: Path = Path("runs/demo")
    """Folder for the runs and the report."""
    preset: Literal["small", "smoke"] = "small"
    """Size of the models."""
    device: str = "cpu"
    """cpu or cuda."""

    def run(self) -> None:
        from latentcode.experiments.demo.demo import demo

        print(demo(self.out, preset_name=self.preset, device=self.device))
