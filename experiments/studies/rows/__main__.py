"""Do rows say the operation, its operands or the answer, in which models, and from when on?

    python -m latentcode.experiments.studies.rows --out experiments/results/rows \
        --checkpoints RUNS_WITH_MILESTONES --work WORK

decodes from codes, rows, all codes, values and residual streams (`decode`) of the SRAVEN models
that know every rule and of the fuzzy-logic models of the zoo, with one context and with one query
for all instances, and along the milestones of the first seeds. Each result is kept in the folder
`work`, so that an interrupted study can be resumed. What is written to `out`: `README.md`,
`tables/` and `figures/`; `--page-only` writes page and figures of the tables that are there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
import tyro

from latentcode.errors import RunError, check
from latentcode.experiments.evidence.keeping import kept
from latentcode.experiments.evidence.writing import write_figures, write_study, write_tables
from latentcode.experiments.studies.rows.jobs import METRICS, Job, jobs
from latentcode.experiments.studies.rows.page import drawn, page
from latentcode.experiments.studies.rows.tables import joined
from latentcode.files.storage import write_text
from latentcode.probes.decoding import DecodingResult, decode
from latentcode.progress import bar


@dataclass(frozen=True)
class Study:
    """Decode rows of every model, and write the page."""

    out: Path
    """Folder of the page, its tables and its figures."""
    work: Path
    """Folder in which the result of each model is kept."""
    sraven: Path = Path("experiments/results/runs/sraven_known")
    """Folder of the SRAVEN models that know every rule."""
    checkpoints: Path = Path("experiments/results/runs/sraven_known")
    """Folder of the same runs with more of their checkpoints."""
    n: int = 4_096
    """Instances that probes are fitted on, and that they are scored on."""
    processes: int = 1
    """Processes that fit probes side by side."""
    page_only: bool = False
    """Compute nothing: write the page and the figures of the tables that `out` holds."""

    def run(self) -> None:
        asked = jobs(self.sraven, self.checkpoints)
        tables = self._tables() if self.page_only else self._computed(asked)
        write_text(self.out / "README.md", page(tables, asked))
        figures = {f"figures/{name}": figure for name, figure in drawn(tables, asked).items()}
        if self.page_only:
            write_figures(self.out, figures)
        else:
            write_study(self.out, "study", {"settings": {"n": self.n}, "jobs": [
                {"name": job.name, "run_id": job.run.id, **job.about} for job in asked]}, figures)
        print(f"wrote {self.out / 'README.md'}")

    def _computed(self, asked: Sequence[Job]) -> dict[str, pd.DataFrame]:
        found = []
        for job in asked:
            began = time.monotonic()
            result = kept(self.work / job.name, DecodingResult, partial(
                decode, job.run, n_train=self.n, n_heldout=self.n, n_jobs=self.processes,
                beyond_answer=True, metrics=METRICS, progress=bar("fitting probes"), **job.how))
            print(f"{job.name}: {time.monotonic() - began:.0f} s", flush=True)
            found.append((job, result))
        tables = joined(found)
        write_tables(self.out, tables)
        return tables

    def _tables(self) -> dict[str, pd.DataFrame]:
        folder = self.out / "tables"
        check((folder / "scores.csv").is_file(), f"{self.out} holds no tables", RunError)
        kinds = {"layer": str, "inputs": str}
        tables = {name: pd.read_csv(folder / f"{name}.csv", dtype=kinds).fillna({"inputs": ""})
                  for name in ("scores", "given")}
        # They hold four digits, which tell how many of n were right: the page rounds that share,
        # and not a number that is rounded already.
        scores = tables["scores"]
        hits = scores["metric"] == "accuracy"
        scores.loc[hits, "value"] = (scores.loc[hits, "value"] * self.n).round() / self.n
        return tables


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study from the command line."""
    tyro.cli(Study, args=arguments, prog="python -m latentcode.experiments.studies.rows").run()


if __name__ == "__main__":
    main()
