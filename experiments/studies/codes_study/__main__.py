"""What do the codes of trained runs say, and what do they cause? Every probe, over kinds and seeds.

    latentcode sweep --preset small --task sraven --axis kind=hyla,softmax,linear \
        --axis training.seed+task.split_seed=[0,0],[1,1],[2,2] --out runs/kinds_sraven
    python -m latentcode.experiments.studies.codes_study --runs runs/kinds_sraven \
        --out experiments/results/codes/sraven

decodes the labels with all controls, compares mean codes, correlates distances of codes and of
tasks, aligns the seeds, and writes codes back, for every run of a folder. Each result is kept in a
folder of its own under `results/` of the runs, named by what determines it. What is there already
is not computed again, so that an interrupted study can be resumed. Its outcome is written to `out`:
`README.md`, `tables/` (means over runs, and all runs with their intervals) and `figures/` (of the
first run of each kind).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tyro

from latentcode.config import to_dict
from latentcode.errors import RunError, check
from latentcode.experiments.evidence.keeping import kept, key_of
from latentcode.experiments.evidence.writing import write_study
from latentcode.experiments.studies.codes_study.page import drawn, page
from latentcode.experiments.studies.codes_study.tables import Results, summarised
from latentcode.files.storage import write_text
from latentcode.models.config import kind_of
from latentcode.probes.alignment import align
from latentcode.probes.alignment.result import AlignmentResult
from latentcode.probes.decoding.of_subject import decode
from latentcode.probes.decoding.result import DecodingResult
from latentcode.probes.interventions import InterventionResult, intervene
from latentcode.probes.similarity import similarity
from latentcode.probes.similarity.result import SimilarityResult
from latentcode.probes.topography import topography
from latentcode.probes.topography.result import TopographyResult
from latentcode.progress import bar
from latentcode.runs import Run


@dataclass(frozen=True)
class Study:
    """Probe and intervene on every run of a folder."""

    runs: Path
    """Folder of run folders, such as a sweep's; whole results are kept in its folder `results`."""
    out: Path
    """Folder of the page, its tables and its figures."""
    n: int = 3_000
    """Instances drawn for the interventions on a run; those count that the model answers."""
    n_probe: int = 4_096
    """Instances that probes are fitted on, and that they are scored on."""
    device: str = "cpu"
    """cpu or cuda."""

    def run(self) -> None:
        runs, began = open_runs(self.runs), time.monotonic()
        found = self._results(runs)
        tables = summarised(runs, found)
        (self.out / "tables").mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            write_text(self.out / "tables" / f"{name}.csv",
                       table.to_csv(index=False, float_format="%.4g"))
        write_text(self.out / "README.md", page(tables, runs))
        figures = drawn(runs, found, tables)
        write_study(self.out, "study", {
            "settings": {"n": self.n, "n_probe": self.n_probe, "device": self.device},
            "runs": [{"name": run.name, "id": run.id, "config": to_dict(run.config)}
                     for run in runs]},
            {f"figures/{name}.png": figure for name, figure in figures.items()},
            device=self.device)
        print(f"{(time.monotonic() - began) / 60:.1f} minutes; wrote {self.out / 'README.md'}")

    def _results(self, runs: Sequence[Run]) -> Results:
        work, device = self.runs / "results", self.device
        decoded, similar, caused = {}, {}, {}
        sizes = {"n": self.n, "n_probe": self.n_probe}
        for run in runs:
            print(run.name, flush=True)
            folder = work / f"{run.name}-{key_of([run], sizes)}"
            decoded[run.name] = kept(folder / "decoding", DecodingResult, partial(
                decode, run, n_train=self.n_probe, n_heldout=self.n_probe, device=device,
                progress=bar("fitting probes")))
            similar[run.name] = kept(folder / "similarity", SimilarityResult, partial(
                similarity, run, n=self.n_probe, device=device,
                progress=bar("comparing codes")))
            caused[run.name] = kept(folder / "interventions", InterventionResult, partial(
                intervene, run, n=self.n, factorial=False, device=device,
                progress=bar("writing codes back")))
        distances = kept(work / f"topography-{key_of(runs, sizes)}", TopographyResult, partial(
            topography, runs, n=self.n_probe, device=device,
            progress=bar("comparing distances")))
        compared, alignment = two_of_each_kind(runs), None
        if len(compared) > 1:
            folder = work / f"alignment-{key_of(compared, sizes)}"
            alignment = kept(folder, AlignmentResult, partial(
                align, compared, device=device, progress=bar("aligning runs")))
        return Results(decoded, similar, caused, distances, alignment)


def open_runs(folder: Path) -> list[Run]:
    """Return the runs of a folder that have a checkpoint, by name; `RunError` for none."""
    check(folder.is_dir(), f"{folder} does not exist; expected a folder of runs", RunError)
    paths = sorted(path.parent for path in folder.glob("*/config.yaml"))
    runs = [run for run in map(Run.open, paths) if run.checkpoints()]
    check(len(runs) > 0, f"{folder} holds no trained run", RunError)
    return runs


def two_of_each_kind(runs: Sequence[Run]) -> list[Run]:
    """Return the first two runs of each kind: pairs of runs grow as the square of their number."""
    chosen: dict[str, list[Run]] = {}
    for run in runs:
        chosen.setdefault(kind_of(run.config.model), []).append(run)
    return [run for same in chosen.values() for run in same[:2]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study from the command line."""
    tyro.cli(Study, args=arguments,
             prog="python -m latentcode.experiments.studies.codes_study").run()


if __name__ == "__main__":
    main()
