"""What do the codes of trained runs say, and what do they cause? Every probe, over kinds and seeds.

    latentcode sweep --preset small --task sraven --axis kind=hyla,softmax,linear \
        --axis training.seed+task.split_seed=[0,0],[1,1],[2,2] --out runs/kinds_sraven
    python -m latentcode.experiments.studies.codes_study --runs runs/kinds_sraven \
        --out experiments/results/codes/sraven

decodes the labels with all controls, compares mean codes, correlates distances of codes and of
tasks, aligns the seeds, and writes codes back, for every run of a folder. Each result is kept in a
folder of its own under `results/` of the runs, named by what determines it; what is there already
is not computed again, so that an interrupted study goes on. What it comes to is written to `out`:
`README.md`, `tables/` (means over runs, and all runs with their intervals) and `figures/` (of the
first run of each kind).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
import tyro

from latentcode.config import to_dict
from latentcode.errors import RunError, check
from latentcode.figures.style import Figure, style
from latentcode.files.provenance import environment
from latentcode.files.storage import replace_file, write_json
from latentcode.models.config import kind_of
from latentcode.probes.alignment import align
from latentcode.probes.alignment.result import AlignmentResult
from latentcode.probes.common.results import FIGURE, TableResult
from latentcode.probes.decoding.of_run import decode
from latentcode.probes.decoding.result import DecodingResult
from latentcode.probes.interventions import InterventionResult, intervene
from latentcode.probes.interventions.figure import draw_rates, name_of
from latentcode.probes.interventions.result import PLACE
from latentcode.probes.similarity import similarity
from latentcode.probes.similarity.result import ALL, SimilarityResult
from latentcode.probes.topography import topography
from latentcode.probes.topography.result import TopographyResult
from latentcode.progress import bar
from latentcode.runs import Run
from latentcode.tasks import make_counterfactuals, make_task

R = TypeVar("R", bound=TableResult)


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
        for name, table in tables.items():
            with whole_file(self.out / "tables" / f"{name}.csv") as temporary:
                table.to_csv(temporary, index=False, float_format="%.4g")
        for name, figure in drawn(runs, found, tables).items():
            with whole_file(self.out / "figures" / f"{name}.png") as temporary:
                figure.savefig(temporary, dpi=110, format="png")
        with whole_file(self.out / "README.md") as temporary:
            temporary.write_text(page(tables, runs), encoding="utf-8")
        write_json(self.out / "study.json", {
            "settings": {"n": self.n, "n_probe": self.n_probe, "device": self.device},
            "runs": [{"name": run.name, "id": run.id, "config": to_dict(run.config)}
                     for run in runs],
            "environment": environment(self.device)})
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
                intervene, run, n=self.n, device=device, progress=bar("writing codes back")))
        distances = kept(work / f"topography-{key_of(runs, sizes)}", TopographyResult, partial(
            topography, runs, n=self.n_probe, device=device,
            progress=bar("comparing distances")))
        compared, alignment = two_of_each_kind(runs), None
        if len(compared) > 1:
            folder = work / f"alignment-{key_of(compared, sizes)}"
            alignment = kept(folder, AlignmentResult, partial(
                align, compared, device=device, progress=bar("aligning runs")))
        return Results(decoded, similar, caused, distances, alignment)


@dataclass(frozen=True)
class Results:
    """What was found, by the names of the runs."""

    decoded: Mapping[str, DecodingResult]
    similar: Mapping[str, SimilarityResult]
    caused: Mapping[str, InterventionResult]
    topography: TopographyResult
    alignment: AlignmentResult | None


def summarised(runs: Sequence[Run], found: Results) -> dict[str, pd.DataFrame]:
    """Return the tables of a study, by name."""
    decoding = {name: result.table for name, result in found.decoded.items()}
    caused = {name: result.table for name, result in found.caused.items()}
    tables = {
        "runs": _described(runs),
        "decoding": _over_seeds(
            decoding, runs, ["layer", "pair", "label", "source", "metric"], ["value", "chance"]),
        "decoding_per_run": _per_run(decoding),
        "concentration": _over_seeds(
            {name: _whole(result) for name, result in found.similar.items()}, runs,
            ["layer", "pair", "source", "measure"], ["value"]),
        "topography": found.topography.table.groupby(
            ["kind", "layer", "label", "source", "distance", "metric"],
            sort=False)["rho"].agg(["mean", "min", "max", "count"]).reset_index(),
        "topography_per_run": found.topography.table,
        "generalization": found.topography.correlation,
        "interventions": _over_seeds(
            {name: _best_head(table) for name, table in caused.items()}, runs,
            [*PLACE, "metric"], ["value", "n"]),
        "interventions_per_run": _per_run(caused)}
    if found.alignment is not None:
        tables["alignment"] = found.alignment.summary()
    return tables


def drawn(
    runs: Sequence[Run], found: Results, tables: Mapping[str, pd.DataFrame]
) -> dict[str, Figure]:
    """Return the figures of a study, by name: of all runs, and of the first run of each kind."""
    kinds = kinds_of(runs)
    figures = {"switching": switching_figure(tables["interventions"], kinds),
               "topography": found.topography.figure()}
    if len(found.topography.correlation):
        figures["generalization"] = found.topography.generalization_figure()
    if found.alignment is not None:
        figures |= {"alignment": found.alignment.figure(),
                    "transfer": found.alignment.transfer_figure()}
    for kind in kinds:
        first = next(run.name for run in runs if kind_of(run.config.model) == kind)
        figures |= {f"{kind}-decoding": found.decoded[first].figure(),
                    f"{kind}-cosines": found.similar[first].figure(),
                    f"{kind}-heads": found.similar[first].concentration_figure()}
        figures |= {f"{kind}-{'interventions' if name == FIGURE else name.removesuffix('.png')}":
                    figure for name, figure in found.caused[first].figures().items()}
    return figures


def kinds_of(runs: Sequence[Run]) -> list[str]:
    """Return the attention kinds of some runs, each once."""
    return list(dict.fromkeys(kind_of(run.config.model) for run in runs))


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """As `replace_file`, in a folder that need not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as temporary:
        yield temporary


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


def key_of(runs: Sequence[Run], settings: Mapping[str, object]) -> str:
    """Return a few letters that another run, checkpoint or setting would change."""
    text = json.dumps([[(run.id, run.checkpoints()[-1]) for run in runs], dict(settings)])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def kept(folder: Path, kind: type[R], compute: Callable[[], R]) -> R:
    """Return the result that a folder holds, or compute it and put it there."""
    if not (folder / kind.marker()).exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        compute().save(folder)
    return kind.load(folder)


def _described(runs: Sequence[Run]) -> pd.DataFrame:
    rows = []
    for run in runs:
        task, latest = make_task(run.config.task), run.latest()
        rows.append({
            "run": run.name, "kind": kind_of(run.config.model), "step": run.checkpoints()[-1],
            **{f"{task.headline}, {split}": latest.loc[task.headline, split]
               for split in ("test", "ood") if split in latest}})
    return pd.DataFrame(rows)


def _whole(result: SimilarityResult) -> pd.DataFrame:
    """Return the concentration of all instances of a run."""
    return result.concentration[result.concentration["class"] == ALL]


def _per_run(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([table.assign(run=name) for name, table in tables.items()],
                     ignore_index=True)


def _best_head(table: pd.DataFrame) -> pd.DataFrame:
    """Return an intervention table with, of single heads, the one that switches most alone.

    Heads have no common order over runs, so the same head of two runs is not the same thing.
    """
    single = (table["heads"] != "all") & (table["metric"] == "switch")
    if not single.any():
        return table
    best = table[single].sort_values("value", kind="stable")["heads"].iloc[-1]
    chosen = table[(table["heads"] == "all") | (table["heads"] == best)]
    return chosen.assign(heads=chosen["heads"].where(chosen["heads"] == "all", "best one"))


def _over_seeds(
    results: Mapping[str, pd.DataFrame], runs: Sequence[Run], place: list[str],
    columns: list[str],
) -> pd.DataFrame:
    """Return, per kind and place, the mean of columns over runs, and the range of the first."""
    frames = [table.assign(kind=kind_of(run.config.model))
              for run, table in zip(runs, results.values(), strict=True)]
    grouped = pd.concat(frames).groupby(["kind", *place], sort=False, dropna=False)
    table = grouped[columns].mean()
    first = grouped[columns[0]]
    table.insert(1, "min", first.min())
    table.insert(2, "max", first.max())
    table["n_runs"] = first.size()
    return table.reset_index()


def switching_figure(table: pd.DataFrame, kinds: Sequence[str]) -> Figure:
    """Return maps of the switch rate, scope x layers, means over seeds: a column per kind.

    Above for the minimal pair's codes, below for the control's.
    """
    chosen = table[(table["metric"] == "switch") & (table["site"] == "code")
                   & ~table["renormalized"] & (table["heads"] == "all")]
    layers = list(dict.fromkeys(chosen["layers"]))
    scopes = list(dict.fromkeys(chosen["scope"]))
    with style():
        figure = Figure(figsize=((0.5 * len(layers) + 1.0) * len(kinds) + 0.6,
                                 2 * (0.3 * len(scopes) + 0.8)), layout="constrained")
        grid = figure.subplots(2, len(kinds), squeeze=False, sharex=True, sharey=True)
        for row, (write, name) in enumerate((("donor", "donor"), ("same", "same constituents"))):
            for column, kind in enumerate(kinds):
                block = chosen[(chosen["kind"] == kind) & (chosen["write"] == write)]
                rates = block.pivot(index="scope", columns="layers", values="value")
                draw_rates(grid[row, column], rates.reindex(index=scopes, columns=layers))
                grid[row, column].set_title(f"{kind}: {name}")
        for axes in grid[-1]:
            axes.set_xlabel("layers")
        figure.suptitle("rate at which answers switch to the donor's", fontsize=10)
    return figure


def page(tables: Mapping[str, pd.DataFrame], runs: Sequence[Run]) -> str:
    """Return the tables that a reader wants first, as Markdown."""
    task, kinds = make_task(runs[0].config.task), kinds_of(runs)
    decoding = tables["decoding"]
    headline = decoding[decoding["metric"].isin(["accuracy", "f1"])]
    cells = headline.assign(score=_with_range(headline, "value"))
    read = cells.pivot_table(index=["kind", "label", "layer"], columns="source", values="score",
                             aggfunc="first", sort=False)
    read["chance"] = cells.groupby(["kind", "label", "layer"], sort=False)["chance"].first().map(
        "{:.2f}".format)
    caused = tables["interventions"]
    rates = caused[caused["metric"].isin(["switch", "stay"])]
    shown = rates.assign(rate=_with_range(rates, "value"))
    shown["what"] = [name_of(r) for r in shown.itertuples()]
    written = shown.pivot_table(index="what", columns=["kind", "metric"], values="rate",
                                aggfunc="first", sort=False)
    written.columns = pd.Index([": ".join(map(str, names)) for names in written.columns])
    order = [f"{kind}: {metric}" for kind in kinds for metric in ("switch", "stay")]
    topography = tables["topography"]
    follows = topography[topography["metric"] == topography["metric"].iloc[0]]
    follows = follows.assign(rho=_with_range(follows, "mean"))
    distances = follows.pivot_table(index=["kind", "label", "distance", "layer"],
                                    columns="source", values="rho", aggfunc="first", sort=False)
    heads = tables["concentration"].pivot_table(
        index=["kind", "layer", "source"], columns="measure", values="value", sort=False)
    parts = [
        f"# What the codes of {task.name} models say, and what they cause",
        "Written by `python -m latentcode.experiments.studies.codes_study`; see its module for the "
        "commands. Numbers are means over runs of a kind, where there are several with the "
        "smallest and the largest in brackets; `tables/` has them, and every run with its "
        "intervals, clustered by combination.",
        "## The models", _markdown(tables["runs"]),
        "## Which labels can be read out (held-out combinations)",
        "Logistic probes on the code, beside the residual stream that enters the layer, the code "
        "of the untrained model, and shuffled labels.", _markdown(read.reset_index()),
        "## How many heads a code uses", _markdown(heads.reset_index().round(2)),
        "## Do close tasks have close codes?",
        f"Spearman's rho of distances, {topography['metric'].iloc[0]} distance of points.",
        _markdown(distances.reset_index())]
    if "alignment" in tables:
        parts += ["## Are the codes of different runs the same?",
                  _markdown(tables["alignment"])]
    parts += [
        "## What is caused: rates at which answers switch to the donor's, and stay",
        "Of single heads (`best one`) the one that switches most is shown, chosen on these same "
        "instances: an upper bound for any head alone. In a minimal pair the donor's answer is "
        "also what its constituent answers to the instance: a switch does not tell which of the "
        "two arrived. " + " ".join(
            make_counterfactuals(make_task(runs[0].config.task)).notes),
        "![switch rates by scope and layers](figures/switching.png)",
        _markdown(written.reindex(columns=order).reset_index())]
    return "\n\n".join(parts) + "\n"


def _with_range(table: pd.DataFrame, column: str) -> list[str]:
    """Return a column's means, with the smallest and the largest where there are several runs."""
    several = table[{"value": "n_runs", "mean": "count"}[column]] > 1
    return [f"{mean:.2f} ({low:.2f} to {high:.2f})" if more else f"{mean:.2f}"
            for mean, low, high, more in zip(
                table[column], table["min"], table["max"], several, strict=True)]


def _markdown(table: pd.DataFrame) -> str:
    """Return a table as Markdown; numbers to three digits."""
    def cell(value: object) -> str:
        if isinstance(value, float | np.floating):
            return "" if np.isnan(value) else f"{value:.3g}"
        return str(value)

    lines = ["| " + " | ".join(map(str, table.columns)) + " |",
             "|" + "---|" * table.shape[1]]
    lines += ["| " + " | ".join(map(cell, row)) + " |"
              for row in table.itertuples(index=False, name=None)]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study from the command line."""
    tyro.cli(Study, args=arguments,
             prog="python -m latentcode.experiments.studies.codes_study").run()


if __name__ == "__main__":
    main()
