"""Operation, operands or answer? A factorial of sources, written into every run.

    python -m latentcode.experiments.studies.operation factorial \
        --runs experiments/results/runs/sraven_known/* logic-hyla logic-linear logic-softmax \
        --work WORK --out experiments/results/operation

writes the codes, values and residual streams of sources into each run and counts whose answer comes
(`places`, `latentcode.tasks.counterfactuals.CLASSES`); for the runs of `--along` at every
checkpoint, too. What was computed is kept in `work`, so that an interrupted study goes on. Its
outcome is written to `out`: a page, `tables/` and `figures/`. Where the criteria are met follows
from `experiments/evidence/claims/operation.yaml`, which was written before the models were
measured. `context`: see there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
import tyro

from latentcode.config import to_dict
from latentcode.errors import ProbeError
from latentcode.experiments.evidence.keeping import kept, key_of
from latentcode.experiments.evidence.writing import write_study, write_tables
from latentcode.experiments.studies.operation.context import Context
from latentcode.experiments.studies.operation.page import drawn, page
from latentcode.experiments.studies.operation.places import (
    all_places,
    interventions,
    main_places,
)
from latentcode.experiments.studies.operation.tables import combined
from latentcode.files.storage import write_text
from latentcode.probes.interventions import Intervention, InterventionResult, intervene
from latentcode.progress import bar
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.tasks import make_counterfactuals, make_task


@dataclass(frozen=True)
class Study:
    """Write a factorial of sources into runs, and say which criteria they meet."""

    runs: tuple[str, ...]
    """Runs, their folders, or names of the zoo."""
    work: Path
    """Folder where the results of single runs are kept."""
    out: Path
    """Folder of the page, its tables and its figures."""
    rows: Path = Path("experiments/results/rows")
    """What the study of rows wrote: what is decoded from residual streams."""
    along: tuple[str, ...] = ()
    """Runs that are looked at along their training, too."""
    n: int = 800
    """Instances drawn for each run; those count that the model answers."""
    n_along: int = 400
    """The same for each checkpoint along a training."""
    batch_size: int = 125
    """Instances at once."""
    seed: int = 0
    """Of the instances."""

    def run(self) -> None:
        began = time.monotonic()
        runs = [load_run(name) for name in self.runs]
        whole = {run.name: self._whole(run) for run in runs}
        along = {(run.name, step): found for run in map(load_run, self.along)
                 for step in run.checkpoints() if (found := self._at(run, step)) is not None}
        scores = pd.read_csv(self.rows / "tables" / "scores.csv")
        tables = combined(runs, whole, along, scores)
        write_tables(self.out, tables)
        write_text(self.out / "README.md", page(tables))
        write_study(self.out, "study", {
            "settings": {"n": self.n, "n_along": self.n_along, "seed": self.seed},
            "runs": [{"name": run.name, "id": run.id, "step": run.checkpoints()[-1],
                      "config": to_dict(run.config)} for run in runs]},
            {f"figures/{name}.png": figure for name, figure in drawn(tables).items()})
        print(f"{(time.monotonic() - began) / 60:.1f} minutes; wrote {self.out / 'README.md'}")

    def _whole(self, run: Run) -> InterventionResult:
        task = make_counterfactuals(make_task(run.config.task))
        n_layers = run.config.model.n_layers
        return self._kept(run, None, self.n, interventions(
            task, n_layers, all_places(task, n_layers)))

    def _at(self, run: Run, step: int) -> InterventionResult | None:
        task = make_counterfactuals(make_task(run.config.task))
        n_layers = run.config.model.n_layers
        try:
            return self._kept(run, step, self.n_along, interventions(
                task, n_layers, main_places(task, n_layers), rests=False))
        except ProbeError as error:  # early in a training nothing counts
            print(error)
            return None

    def _kept(
        self, run: Run, step: int | None, n: int, written: list[Intervention]
    ) -> InterventionResult:
        key = key_of([run], {"n": n, "seed": self.seed, "step": step,
                             "batch_size": self.batch_size,
                             "interventions": list(map(str, written))})
        print(run.name, "" if step is None else step, flush=True)
        return kept(self.work / f"{run.name}-{key}", InterventionResult, partial(
            intervene, run, interventions=written, n=n, step=step, seed=self.seed,
            batch_size=self.batch_size, progress=bar("writing codes back")))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study from the command line."""
    tyro.extras.subcommand_cli_from_dict(
        {"factorial": Study, "context": Context}, args=arguments,
        prog="python -m latentcode.experiments.studies.operation").run()


if __name__ == "__main__":
    main()
