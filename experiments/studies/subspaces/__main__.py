"""Does a subspace carry the operation alone, or the operands alone? Distributed alignment search.

    python -m latentcode.experiments.studies.subspaces --sraven runs/sraven_known

60 searches and their controls in SRAVEN models that know every rule (a sweep over
`experiments/sweep/grids/sraven_known.yaml`) and in the fuzzy-logic models of the zoo: `plan.py`.
About 15 minutes of one CPU core. Writes a folder per model and place, and, after each of them, the
page of all that are there; what is there is not searched again, so that
the command rewrites the page where all of it is there. The criterion was written down
before any search: `subspace_least` in `experiments/evidence/claims/operation.yaml`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import tyro

from latentcode.experiments.studies.subspaces.page import write_page
from latentcode.experiments.studies.subspaces.plan import jobs, search
from latentcode.probes.das import DASResult


def main(
    sraven: Path = Path("runs/sraven_known"),
    out: Path = Path("experiments/results/subspaces"),
    rows: Path = Path("experiments/results/rows"),
    workers: int = 2,
    only: Sequence[str] = (),
) -> None:
    """Search, and write what was found.

    Args:
        sraven: Folder of the sweep's runs.
        out: Folder of the page and of the results.
        rows: What the study of rows wrote: how well answers are read from residual streams.
        workers: Number of processes, of one thread each.
        only: Names of single results, if not all are wanted.
    """
    wanted = [job for job in jobs() if not only or job.folder in only]
    left = [job for job in wanted if not (out / job.folder / DASResult.marker()).is_file()]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        searched = {pool.submit(search, job, sraven, out): job for job in left}
        for done in as_completed(searched):
            done.result()
            write_page(out, rows)
            print(f"wrote result {out / searched[done].folder}", flush=True)
    write_page(out, rows)


if __name__ == "__main__":
    tyro.cli(main)
