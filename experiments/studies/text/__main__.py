"""Do codes of language models tell of copying, and do they cause it?

    python -m latentcode.experiments.studies.text \
        --runs experiments/results/runs/spans_small/* --work WORK --out experiments/results/spans
    python -m latentcode.experiments.studies.text \
        --runs RUNS/fig6_small/seed=* --work WORK --out experiments/results/text

reads the codes of the induction pair and others of every run (with all controls), writes them back
from sources that would copy another token, and asks where enough instances count whether what comes
is the operation or the answer. The runs are those of the grid `fig6_small`, which
`python -m latentcode.experiments.paper.long_runs` trains. What was computed is kept in `work`, so
that an interrupted study goes on. Its outcome is written to `out`: a page, `tables/` and a figure.
Where the criteria are met follows from `experiments/evidence/claims/text.yaml`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import tyro

from latentcode.config import LanguageConfig, to_dict
from latentcode.errors import LatentCodeError, RunError, check
from latentcode.experiments.evidence.writing import write_study, write_tables
from latentcode.experiments.studies.operation.tables import check_sanity
from latentcode.experiments.studies.text.measuring import Measured, measure
from latentcode.experiments.studies.text.page import drawn, page
from latentcode.experiments.studies.text.verdicts import (
    copying,
    kinds_apart,
    moving,
    places_said,
    statements,
    telling,
)
from latentcode.files.storage import write_text
from latentcode.models.config import kind_of
from latentcode.runs import Run
from latentcode.runs.named import load_run


@dataclass(frozen=True)
class Study:
    """Read and write the codes of language models."""

    runs: tuple[str, ...]
    """Runs of one text, or their folders."""
    work: Path
    """Folder where the results of single runs are kept."""
    out: Path
    """Folder of the page, its tables and its figure."""
    n: int = 400
    """Instances drawn for interventions of each run."""
    n_probe: int = 2_048
    """Instances that probes are fitted on; half as many are scored."""
    seed: int = 0
    """Of the instances."""

    def run(self) -> None:
        began = time.monotonic()
        runs = checked([load_run(name) for name in self.runs])
        found = [(run, measure(run, self.work, self.n, self.n_probe, self.seed)) for run in runs]
        tables = tables_of(found, self.n)
        write_tables(self.out, tables)
        write_text(self.out / "README.md", page(tables, _text_of(runs[0])))
        write_study(self.out, "study", {
            "settings": {"n": self.n, "n_probe": self.n_probe, "seed": self.seed},
            "runs": [{"name": run.name, "id": run.id, "config": to_dict(run.config)}
                     for run in runs]}, {"figures/text.png": drawn(tables)})
        print(f"{(time.monotonic() - began) / 60:.1f} minutes; wrote {self.out / 'README.md'}")


def checked(runs: Sequence[Run]) -> Sequence[Run]:
    """Return the runs; `RunError` unless all are of one text, differ in their names, and no kind
    has a seed twice."""
    texts = {getattr(run.config.task, "revision", None) for run in runs}
    check(len(texts) == 1 and None not in texts, f"the runs are of the texts {texts}; expected "
          "language models of one text", RunError)
    names = [run.name for run in runs]
    check(len(set(names)) == len(names), f"the runs are called {', '.join(names)}; expected "
          "different names, by which tables tell them apart", RunError)
    seeds = [(kind_of(run.config.model), run.config.training.seed) for run in runs]
    check(len(set(seeds)) == len(seeds), f"the runs are {seeds}; expected one of each kind and "
          "seed", RunError)
    return runs


def tables_of(found: Sequence[tuple[Run, Measured]], n: int) -> Mapping[str, pd.DataFrame]:
    """Return the tables of the study, by name: what was measured, and where the criteria are met.

    n  instances that were drawn for interventions

    `ProbeError` where codes and values of all layers do not bring the source's answer.
    """
    def joined(part: Any) -> pd.DataFrame:
        parts = [table.assign(**_about(run)) for run, measured in found
                 if (table := part(measured)) is not None and len(table)]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    runs = pd.DataFrame([{
        "kind": kind_of(run.config.model), "seed": run.config.training.seed,
        "updates": run.checkpoints()[-1],
        "perplexity": run.latest().loc["perplexity", "test"],
        "n": n,
        "pairs": 0 if measured.moved is None else measured.moved.settings["n_known"],
        "known": 0 if measured.written is None else measured.written.settings["n_known"],
        "known elsewhere": 0 if measured.moved_from is None
        else measured.moved_from.settings["n_known"]}
        for run, measured in found])
    measured = {
        "losses": joined(lambda one: one.losses),
        "scores": joined(lambda one: one.decoded.table),
        "streams": joined(lambda one: one.streams.table),
        "flips": joined(lambda one: one.moved and one.moved.table),
        "classes": joined(lambda one: one.written and one.written.classes),
        "comparisons": joined(lambda one: one.written and one.written.contrasts.table),
        "elsewhere_classes": joined(lambda one: one.moved_from and one.moved_from.classes),
        "elsewhere_comparisons": joined(
            lambda one: one.moved_from and one.moved_from.contrasts.table)}
    for results in ({run.name: one.written for run, one in found},
                    {run.name: one.moved_from for run, one in found}):
        asked = {name: result for name, result in results.items() if result is not None}
        check_sanity([run for run, _ in found if run.name in asked], asked)
    return {
        "runs": runs, "copying": copying(measured["losses"]),
        "telling": telling(measured["scores"]), "kinds": kinds_apart(measured["scores"]),
        "moving": moving(measured["flips"]),
        "statements": statements(measured["comparisons"], runs, measured["streams"].assign(
            part="language", inputs="")),
        "places": places_said(measured["elsewhere_comparisons"], runs),
        **measured}


def _text_of(run: Run) -> str:
    assert isinstance(run.config.task, LanguageConfig)
    return run.config.task.text


def _about(run: Run) -> dict[str, Any]:
    return {"task": run.config.task.name, "kind": kind_of(run.config.model), "run": run.name,
            "seed": run.config.training.seed}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study from the command line."""
    study = tyro.cli(Study, args=arguments, prog="python -m latentcode.experiments.studies.text")
    try:
        study.run()
    except LatentCodeError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
