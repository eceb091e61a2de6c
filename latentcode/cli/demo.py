"""`latentcode demo`: a whole experiment in one command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Demo:
    """Train two small models, and ask them and two of the zoo what codes tell and cause.

    Example: latentcode demo --out runs/demo

    Trains HYLA and softmax attention on fuzzy logic, decodes their codes and those of the zoo's
    models of the published setting, writes codes of other problems into all of them, and writes
    report.html. Takes a few minutes on two CPU cores. If interrupted, the same command continues
    where it stopped.
    """

    out: Path = Path("runs/demo")
    """Folder for the runs and the report."""
    preset: Literal["small", "smoke"] = "small"
    """Size of the models that are trained, and how much is asked of all."""
    device: str = "cpu"
    """cpu or cuda."""

    def run(self) -> None:
        from latentcode.experiments.demo.demo import demo

        print(demo(self.out, preset_name=self.preset, device=self.device))
