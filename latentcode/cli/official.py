"""`latentcode official import | export | parity`: to and from the official code."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from latentcode.cli.options import RunName, default_is
from latentcode.config import TaskConfig
from latentcode.errors import LatentCodeError
from latentcode.models.config import ModelConfig


@dataclass(frozen=True)
class Parity:
    """Are the outputs of our models those of the official code?

    Example: latentcode official parity official.npz

    The exit status is 1 if a number differs by more than its
    tolerance or a file is damaged.
    """

    files: tyro.conf.Positional[
        Annotated[tuple[Path, ...], tyro.conf.arg(help_behavior_hint="(required)")]]
    """Files in .npz format, of weights, inputs and outputs, or of optimiser steps."""

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
class Import:
    """Turn weights of the official code into a run folder.

    Example: latentcode official import weights.npz --out runs/official

    The .npz holds config_json and the parameters under their Flax paths. The official state.pkl
    is a pickle and is not read; the error message says how to convert it.
    """

    file: tyro.conf.Positional[Path]
    """Official weights, in .npz format."""
    out: Path
    """Folder for the run."""
    problem: Annotated[Literal["logic", "sraven"] | None,
                       default_is("inferred from the model's dimensions")] = None
    """Task that the model was trained on."""
    n_terms: Annotated[int | None, default_is("2")] = None
    """Fuzzy logic: number of terms."""
    unpermuted: bool = False
    """SRAVEN: the features were not permuted."""
    ood_fraction: Annotated[float | None, default_is("the paper's")] = None
    """Share of the combinations to hold out, in a new draw."""
    held_out: Annotated[Path | None, default_is("a new draw")] = None
    """JSON list of the combinations (lists of indices) that were held out of training."""
    step: Annotated[int | None, default_is("as in the file, or 0")] = None
    """Number of updates done."""
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
        if hasattr(run.config.task, "held_out") and not known["held_out_known"]:
            print("held-out combinations are not in the file: `ood` is a new draw, and the model "
                  "may have been trained on it; pass the original ones with --held-out")
        print(f"wrote run {run.path}")

    def _task(self, model: ModelConfig) -> TaskConfig:
        """Return the task inferred from the model's dimensions, with the values that are given."""
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
class Export:
    """Write a run's weights in the official code's layout.

    Example: latentcode official export runs/hyla --out weights.npz
    """

    path: tyro.conf.Positional[RunName]
    out: Path
    """File to write, in .npz format."""
    step: Annotated[int | None, default_is("the newest")] = None
    """Checkpoint."""
    overwrite: bool = False
    """Replace an existing file."""

    def run(self) -> None:
        from latentcode.official.files import export_flax
        from latentcode.runs.named import load_run

        out = export_flax(load_run(self.path), self.out, step=self.step, overwrite=self.overwrite)
        print(f"wrote weights {out}")


@dataclass(frozen=True)
class Official:
    """Take weights from the official code and back, or compare the outputs of both.

    Example: latentcode official import weights.npz --out runs/official
    """

    SUBCOMMANDS: ClassVar[dict[str, type]] = {
        "import": Import, "export": Export, "parity": Parity}
    command: (Annotated[Import, tyro.conf.subcommand("import")]
              | Annotated[Export, tyro.conf.subcommand("export")]
              | Annotated[Parity, tyro.conf.subcommand("parity")])

    def run(self) -> None:
        self.command.run()
