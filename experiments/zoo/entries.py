"""An entry of the zoo, made from a trained run.

    latentcode train sraven --kind hyla --out runs/sraven-hyla
    python -m latentcode.experiments.zoo runs/sraven-hyla --name sraven-hyla

copies the model (`Run.publish`), measures it on fresh instances of every split, and writes its card
(`latentcode.zoo.card`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tyro

from latentcode.config import LanguageConfig, LogicConfig, SravenConfig, TaskConfig
from latentcode.config.training import Precision
from latentcode.errors import ConfigError, check
from latentcode.experiments.zoo.describe import (
    KIND_TITLES,
    TASK_TITLES,
    describe_model,
    describe_task,
    describe_training,
    in_short,
    notes,
    place_of,
    training_command,
)
from latentcode.files.storage import check_free, install_folder, write_text
from latentcode.metrics import Metric
from latentcode.models.config import kind_of
from latentcode.progress import bar
from latentcode.runs import Run
from latentcode.runs.named import ZOO
from latentcode.tasks import Task, make_task
from latentcode.tasks.text.patterns import INDUCTION, PREVIOUS
from latentcode.training import evaluate
from latentcode.zoo.card import CARD, README, Card, CodesOfCard, Evaluation

SPLIT = "ood"
"""Whose codes `load_codes` reads: the held-out combinations, as in the paper's figures, or held-out
documents."""
SEED = 0
PRECISION: Precision = "float32"
TOLERANCE = 5e-4
"""Of a metric: an accuracy over 16,000 instances moves by this when 8 answers flip."""


@dataclass(frozen=True)
class Build:
    """Make an entry of the zoo from a trained run."""

    run_folder: tyro.conf.Positional[Path]
    """The run; its newest checkpoint is published."""
    name: str
    """Name of the entry, such as sraven-hyla."""
    out: Path = ZOO
    """Folder of the entries."""
    n: int = 16_000
    """Fresh instances of each split for the metrics."""
    n_codes: int = 2_000
    """Instances whose codes `load_codes` reads."""
    overwrite: bool = False
    """Replace an entry of that name."""

    def run(self) -> None:
        began = time.monotonic()
        entry = self.build()
        megabytes = sum(f.stat().st_size for f in entry.rglob("*") if f.is_file()) / 1e6
        print(f"{(time.monotonic() - began) / 60:.1f} minutes; wrote {entry}, {megabytes:.2f} MB")

    def build(self) -> Path:
        """Make the entry, all or nothing, and return its folder."""
        check(Path(self.name).name == self.name and self.name not in ("", ".", ".."),
              f"name is {self.name!r}; expected a word such as sraven-hyla", ConfigError)
        entry, source = self.out / self.name, Run.open(self.run_folder)
        check_free(entry, overwrite=self.overwrite, marker=CARD)
        task = source.config.task.name
        check(task in TASK_TITLES, f"{self.run_folder} is of task {task!r}; expected "
              f"{' or '.join(TASK_TITLES)}, whose models the zoo holds", ConfigError)
        self.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=self.out) as temporary:
            run = source.publish(Path(temporary) / self.name)
            card = self._card(run, source)
            write_text(run.path / README, card.to_markdown())
            card.write(run.path)
            install_folder(run.path, entry)
        return entry

    def _card(self, run: Run, source: Run) -> Card:
        config, step = run.config, run.checkpoints()[-1]
        task, model, kind = make_task(config.task), run.load_model(), kind_of(config.model)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        how = Evaluation(self.n, SEED, PRECISION, TOLERANCE)
        train, folder = training_command(config, self.name)
        return Card(
            name=self.name,
            summary=f"A {config.model.n_layers}-layer transformer with "
                    f"{KIND_TITLES.get(kind, kind)} attention, trained on "
                    f"{in_short(config.task)} for {step:,} updates on {place_of(source)}.",
            notes=notes(config, step, place_of(source)), task=describe_task(config.task),
            model=describe_model(config), kind=kind, headline=task.headline,
            parameters=parameters, training=describe_training(source, step),
            commands={"train": train, "build": self._command(folder)},
            evaluation=how, metrics=measured(model, task, how),
            codes=CodesOfCard(SPLIT, self.n_codes, SEED, informative_pairs(config.task)))

    def _command(self, run_folder: str) -> str:
        """Return the command that builds this entry, with all that is not the default."""
        flags: list[tuple[str, ...]] = [("--name", self.name)]
        for known in fields(self):
            value = getattr(self, known.name)
            if known.name in ("n", "n_codes") and value != known.default:
                flags.append((f"--{known.name.replace('_', '-')}", str(value)))
        return " ".join(["python -m latentcode.experiments.zoo", run_folder,
                         *(word for flag in flags for word in flag)])


def measured(model: Any, task: Task, how: Evaluation) -> dict[str, dict[str, Metric]]:
    """Return the metrics of a model on every split of its task, without those of no instances."""
    metrics = {split: evaluate(model, task, split, how.n, seed=how.seed, precision=how.precision,
                               progress=bar(f"evaluating {split}"))
               for split in task.splits}
    return {split: {name: metric for name, metric in found.items() if metric.n}
            for split, found in metrics.items()}


def informative_pairs(task: TaskConfig) -> tuple[str, ...]:
    """Return the paper's pair, and one that attends from the same query to the context.

    SRAVEN: to the last context panel of the same row, the pair that the official code reads.
    Fuzzy logic: to the last example. Text, of which the paper reads no pair: the induction pair,
    and the one to the previous token.
    """
    if isinstance(task, LanguageConfig):
        return INDUCTION, PREVIOUS
    if isinstance(task, SravenConfig):
        return "response->response", f"response->row{task.grid_size}.panel{task.grid_size - 1}"
    assert isinstance(task, LogicConfig)
    return "query->query", f"query->example.{task.n_examples - 2}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Build an entry from the command line."""
    tyro.cli(Build, args=arguments, prog="python -m latentcode.experiments.zoo",
             config=(tyro.conf.FlagCreatePairsOff,)).run()
