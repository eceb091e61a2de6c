"""Do rows say the operation, its operands or the answer, in which models, and from when on?

    python -m latentcode.experiments.studies.rows --out experiments/results/rows \
        --checkpoints RUNS_WITH_MILESTONES --work WORK

decodes pairs, rows, all codes, values and residual streams (`decode_rows`) of the SRAVEN models
that know every rule and of the fuzzy-logic models of the zoo, with one context and with one query
for all instances, and along the milestones of the first seeds. Each result is kept in the folder
`work`, so that an interrupted study can be resumed, and `--page-only` writes the page of those
that are there. What is written to `out`: `README.md`, `tables/` and `figures/`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from latentcode.errors import RunError, check
from latentcode.experiments.studies.rows.jobs import Job, jobs
from latentcode.experiments.studies.rows.page import drawn, page
from latentcode.experiments.studies.rows.tables import joined
from latentcode.experiments.studies.writing import write_study
from latentcode.files.storage import write_text
from latentcode.probes.rows import RowsResult, decode_rows
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
    """Compute nothing: write the page of the results that `work` holds."""

    def run(self) -> None:
        found: list[tuple[Job, RowsResult]] = []
        for job in jobs(self.sraven, self.checkpoints):
            folder, began = self.work / job.name, time.monotonic()
            if not folder.exists():
                if self.page_only:
                    continue
                folder.parent.mkdir(parents=True, exist_ok=True)
                decode_rows(job.run, n_train=self.n, n_heldout=self.n, n_jobs=self.processes,
                            progress=bar("fitting probes"), **job.how).save(folder, figures=False)
                print(f"{job.name}: {time.monotonic() - began:.0f} s", flush=True)
            found.append((job, RowsResult.load(folder)))
        check(len(found) > 0, f"{self.work} holds no results", RunError)
        self._write(found)

    def _write(self, found: Sequence[tuple[Job, RowsResult]]) -> None:
        tables = joined(found)
        (self.out / "tables").mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            write_text(self.out / "tables" / f"{name}.csv",
                       table.to_csv(index=False, float_format="%.4g"))
        write_text(self.out / "README.md", page(tables, found))
        write_study(self.out, "study", {
            "settings": {"n": self.n}, "jobs": [
                {"name": job.name, "run_id": job.run.id, **job.about} for job, _ in found]},
            {f"figures/{name}": figure for name, figure in drawn(tables, found).items()})
        print(f"wrote {self.out / 'README.md'}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study from the command line."""
    tyro.cli(Study, args=arguments, prog="python -m latentcode.experiments.studies.rows").run()


if __name__ == "__main__":
    main()
