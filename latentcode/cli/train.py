"""`latentcode train`: its flags are the configuration, with defaults that its words choose."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro

from latentcode.cli.commands import print_metrics
from latentcode.config import TASKS, RunConfig, TrainingConfig, load_config
from latentcode.errors import LatentCodeError
from latentcode.models.config import ModelConfig
from latentcode.presets import follow_task, preset


def default_is(text: str) -> Any:
    """Say in `--help` what an option that is left out means, where its default does not tell."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {text})")


ProblemT = TypeVar("ProblemT")
TaskT = TypeVar("TaskT")


@dataclass(frozen=True)
class Train(Generic[ProblemT, TaskT]):
    """Train a transformer on a task.

    Example: latentcode train logic --kind softmax --out runs/softmax --training.steps 500

    The result is a run folder: configuration, checkpoints, metrics.
    """

    problem: tyro.conf.Positional[ProblemT]
    """Task to train on."""
    out: Path
    """Folder for the run."""
    task: TaskT
    model: ModelConfig
    training: TrainingConfig
    preset: Annotated[Literal["paper", "small", "smoke"] | None, default_is("small"),
                      tyro.conf.DisallowNone] = None
    """Configuration that supplies every value that is not given."""
    kind: Annotated[str | None, default_is("hyla"), tyro.conf.DisallowNone] = None
    """Attention kind, a row of the paper's Table A1: softmax, linear, hyla, ..., or one that is
    registered."""
    config: Annotated[Path | None, default_is("as --preset and --kind say"),
                      tyro.conf.DisallowNone] = None
    """YAML file with a whole configuration, instead of --preset and --kind."""
    resume: bool = False
    """Continue an interrupted run from its newest checkpoint that is not damaged, to its own number
    of steps: the learning rate falls over all of them."""
    overwrite: bool = False
    """Replace a run that the folder already holds."""
    log: Annotated[tuple[Literal["tensorboard", "wandb"], ...], default_is("nowhere")] = ()
    """Where else to send metrics, besides metrics.jsonl."""

    def run(self) -> None:
        from latentcode.training import train

        task: Any = self.task
        if task.name != self.problem:
            raise LatentCodeError(f"the flags were read for task {task.name!r}; expected the task "
                                  f"as the first word: latentcode train {self.problem} ...")
        start = _starting_point(str(self.problem), self.preset, self.kind, self.config)
        # Widths and the T5 bias follow the task, unless they were given values of their own.
        fitted: dict[str, Any] = {
            name: value for name, value in follow_task(start.task, task).items()
            if getattr(self.model, name) == getattr(start.model, name)}
        config = RunConfig(task, replace(self.model, **fitted), self.training)
        run = train(config, self.out, resume=self.resume, overwrite=self.overwrite,
                    loggers=self.log)
        if not run.provenance:  # of a process that followed another one
            return
        print(run)
        print_metrics(run)
        print(f"wrote run {run.path}")


def _starting_point(
    problem: str, name: str | None, kind: str | None, path: Path | None
) -> RunConfig:
    """Return the configuration whose values the flags of `train` change."""
    if path is None:
        return preset(name or "small", problem, kind or "hyla")
    if name or kind:
        raise LatentCodeError(f"--config {path} is given together with --preset or --kind; "
                              "expected one or the other")
    config = load_config(path)
    if config.task.name != problem:
        raise LatentCodeError(f"{path} configures task {config.task.name!r}; expected {problem!r}")
    return config


def train_with_defaults(arguments: Sequence[str]) -> tuple[Any, Train[Any, Any]]:
    """Return `train` for its task, and the defaults that its preset, kind or file gives.

    The words that choose the defaults are looked up first; then tyro reads all of them.
    """
    tasks = tuple(TASKS)
    for word in arguments[1:2]:
        if not word.startswith("-"):
            TASKS.find(word)  # an unknown task is named before any of its flags
    problem = next((a for a in arguments if a in tasks), "logic")
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", nargs="?")
    parser.add_argument("--kind", nargs="?")
    parser.add_argument("--config", nargs="?", type=Path)
    chosen, _ = parser.parse_known_args(arguments)
    config = _starting_point(problem, chosen.preset, chosen.kind, chosen.config)
    default: Train[Any, Any] = Train(
        tyro.MISSING, tyro.MISSING, config.task, config.model, config.training)
    return Train[Literal[tasks], type(config.task)], default  # type: ignore[valid-type,misc]
