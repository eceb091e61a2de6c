"""`latentcode parity | import-flax | export-flax`: to and from the official code."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import tyro

from latentcode.cli.opening import RunName, open_run
from latentcode.config import TASKS, TaskConfig
from latentcode.errors import LatentCodeError
from latentcode.models.config import ModelConfig


@dataclass(frozen=True)
class Parity:
    """Do our models give the official numbers? Compare files of the official code's outputs.

    Exit status 1 when a number differs by more than its tolerance or a file is damaged.
    """

    files: tyro.conf.Positional[tuple[Path, ...]]
    """Files in .npz format: weights, inputs and outputs, or optimiser steps."""

    def run(self) -> None:
        if not self.files:
            raise LatentCodeError("no file is given; expected at least one .npz")
        from latentcode.official.parity import compare_all, table

        reports = compare_all(self.files)
        print(table(reports))
        for unread in dict.fromkeys(report.unread for report in reports if report.unread):
            files = [report.file for report in reports if report.unread == unread]
            print(f"not looked at: {', '.join(unread)} (in {files[0]}"
                  + (f" and {len(files) - 1} more)" if len(files) > 1 else ")"))
        problems = [problem for report in reports for problem in report.problems]
        agreeing = sum(report.agrees for report in reports)
        print(f"{agreeing} of {len(reports)} files agree within tolerance")
        for problem in problems:
            print(f"error: {problem}", file=sys.stderr)
        if problems:
            raise SystemExit(1)


@dataclass(frozen=True)
class ImportFlax:
    """Make a run folder of weights of the official code.

    The .npz holds config_json and the parameters under their Flax paths. The official state.pkl
    is a pickle and is not read; the error for it says how to convert it.
    """

    file: tyro.conf.Positional[Path]
    """Official weights, in .npz format."""
    out: Path
    """Folder of the run."""
    problem: Literal["logic", "sraven"] | None = None
    """The task that the model was trained on; default: what its dimensions tell."""
    n_terms: int | None = None
    """Fuzzy logic: number of terms; default: 2."""
    unpermuted: bool = False
    """SRAVEN: the features were not permuted."""
    ood_fraction: float | None = None
    """Share of the combinations held out, drawn anew; default: the paper's."""
    held_out: Path | None = None
    """JSON list of the combinations (lists of indices) that the model was trained without."""
    step: int | None = None
    """Number of updates done; default: what the file says, or 0."""
    overwrite: bool = False
    """Replace a run that the folder already holds."""

    def run(self) -> None:
        from latentcode.official.files import import_flax

        run = import_flax(self.file, self.out, task=self._task, step=self.step,
                          overwrite=self.overwrite)
        print(run)
        known = run.imported or {}
        if not known["training_known"]:
            print("training settings are not in the file: config.yaml holds the paper's")
        if run.config.task.name in TASKS and not known["held_out_known"]:
            print("held-out combinations are not in the file: `ood` is a fresh draw, in which the "
                  "model may have been trained; give its own with --held-out")
        print(f"wrote run {run.path}")

    def _task(self, model: ModelConfig) -> TaskConfig:
        """Return the task that the model's dimensions tell, with the values that are given."""
        from latentcode.official.files import infer_task, read_held_out

        task: Any = infer_task(model, self.problem)
        given: dict[str, Any] = {
            "n_terms": self.n_terms, "permuted": False if self.unpermuted else None,
            "ood_fraction": self.ood_fraction,
            "held_out": None if self.held_out is None else read_held_out(self.held_out)}
        given = {name: value for name, value in given.items() if value is not None}
        for name in given:
            if not hasattr(task, name):
                raise LatentCodeError(f"{name} is given, but task {task.name!r} has no such field")
        return replace(task, **given)


@dataclass(frozen=True)
class ExportFlax:
    """Write the weights of a run in the layout of the official code."""

    path: tyro.conf.Positional[RunName]
    out: Path
    """The file, in .npz format."""
    step: int | None = None
    """The checkpoint; default: the newest."""
    overwrite: bool = False
    """Replace a file of that name."""

    def run(self) -> None:
        from latentcode.official.files import export_flax

        out = export_flax(open_run(self.path), self.out, step=self.step, overwrite=self.overwrite)
        print(f"wrote weights {out}")


__all__ = ["ExportFlax", "ImportFlax", "Parity"]
