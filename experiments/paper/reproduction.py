"""A figure or table of the paper: the runs that it shows, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from latentcode.config import flatten, to_dict
from latentcode.experiments.paper.claims import Claim, Excess, Setting, load_claims
from latentcode.experiments.paper.runs import PUBLISHED, KnownRuns, split_seed
from latentcode.experiments.paper.verdicts import COLUMNS, evidence
from latentcode.figures.style import PALETTE, Figure
from latentcode.files.storage import replace_file
from latentcode.models.config import kind_of
from latentcode.probes.common.results import TableResult
from latentcode.runs import Run

R = TypeVar("R", bound=TableResult)
KIND_TITLES: Mapping[str, str] = {"softmax": "softmax", "linear": "linear", "hyla": "HYLA"}
"""The three main kinds, in the paper's order, as they are written."""
KIND_STYLES: Mapping[str, tuple[str, str]] = {
    "softmax": (PALETTE[0], "o"), "linear": (PALETTE[1], "s"), "hyla": (PALETTE[2], "^")}
"""Colour and marker of each."""
KINDS = f"kind={','.join(KIND_TITLES)}"
"""The kinds as an axis of a setting."""
NO_RUNS: Mapping[str, tuple[Setting, ...]] = {"paper": (), "small": (), "smoke": ()}
"""What figures and tables show that ask no model."""
MEASURED = PUBLISHED / "measured"
"""What was measured of published runs without weights."""
WITHOUT_RUNS = ("tabA2-", "figA9-", "tabA3-", "figA1-no-additional-parameters")
"""How claims begin that are about the task or the settings, and need no trained model."""


@dataclass(frozen=True)
class Findings:
    """What a figure or table says, of the runs that are there.

    summary   what the numbers say, in one to three sentences
    tables    name -> every number, a row each; kept as CSV and in result.json
    figures   name -> picture, in the paper's arrangement
    evidence  claim -> values by which it is judged (`verdicts.COLUMNS`)
    notes     what a reader must know, a sentence each
    raw       name -> longer tables that lie behind the pictures; kept as CSV alone
    """

    summary: str
    tables: Mapping[str, pd.DataFrame]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    evidence: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    raw: Mapping[str, pd.DataFrame] = field(default_factory=dict)


@dataclass(frozen=True)
class Reproduction:
    """A figure or table of the paper.

    name     one of `RESULTS`
    title    what it shows, as its caption says
    shows    preset -> the settings whose runs it shows; none where no run is needed
    measure  what the runs say; called with those that are finished
    """

    name: str
    title: str
    shows: Mapping[str, tuple[Setting, ...]]
    measure: Callable[[Work], Findings]

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What the paper claims there."""
        return tuple(claim for claim in load_claims() if claim.result == self.name)

    def settings(self, preset: str) -> tuple[Setting, ...]:
        """Return the settings whose runs are shown, or judged, at a preset.

        Claims are judged at `paper` alone, each on the runs of its own setting.
        """
        judged = [claim.setting for claim in self.claims if needs_runs(claim)]
        return (*self.shows[preset], *(judged if preset == "paper" else ()))


def by_preset(
    task: str, *, kinds: str = KINDS, paper: Sequence[str] = (), small: Sequence[str] = (),
    smoke: Sequence[str] = (),
) -> dict[str, tuple[Setting, ...]]:
    """Return preset -> the setting of some kinds, and of further axes at each of them."""
    return {preset: (Setting(preset, task, (kinds, *axes)),) for preset, axes in (
        ("paper", paper), ("small", small), ("smoke", smoke))}


def needs_runs(claim: Claim) -> bool:
    """Whether a claim is about trained models, and not about the task or the settings alone."""
    return not claim.id.startswith(WITHOUT_RUNS)


@dataclass(frozen=True)
class Work:
    """What a measurement works with.

    preset  `paper`, `small` or `smoke`
    known   the runs that were found
    folder  where the measurements of single runs are kept
    claims  the claims that are judged: those of the result at `paper`, else none
    say     told of every measurement that is begun, as each can take minutes
    """

    preset: str
    known: KnownRuns
    folder: Path
    device: str = "cpu"
    claims: tuple[Claim, ...] = ()
    say: Callable[[str], None] = print

    def size(self, n: int, smoke: int) -> int:
        """Return n, or `smoke` in a test."""
        return smoke if self.preset == "smoke" else n

    def runs_of(self, settings: Setting | Iterable[Setting]) -> Iterator[tuple[str, Run]]:
        """Yield (member, finished run) of settings, in the order of their grids; a run once."""
        seen: set[str] = set()
        for setting in (settings,) if isinstance(settings, Setting) else settings:
            for member, runs in self.known.of_setting(setting).items():
                for run in runs:
                    if run.id not in seen:
                        seen.add(run.id)
                        yield member, run

    def measured(
        self, run: Run, function: Callable[..., R], kind: type[R], **arguments: Any
    ) -> R:
        """Return `function(run, **arguments)`, which is computed once for a run.

        kind  what it returns
        """
        folder = self.folder / measured_name(run, function, arguments)
        if not (folder / kind.marker()).exists():
            self._announce(function, run)
            function(run, device=self.device, **arguments).save(folder, figures=False)
        return kind.load(folder)

    def table(
        self, run: Run | None, function: Callable[..., pd.DataFrame], **arguments: Any
    ) -> pd.DataFrame:
        """Return the table `function(run, **arguments)`, which is computed once for a run.

        Without a run it is `function(**arguments)`.
        """
        name = f"{measured_name(run, function, arguments)}.parquet"
        if (MEASURED / name).exists():
            return pd.read_parquet(MEASURED / name)
        path = self.folder / name
        if not path.exists():
            self._announce(function, run)
            measured = (function(**arguments) if run is None
                        else function(run, device=self.device, **arguments))
            with replace_file(path) as temporary:
                measured.to_parquet(temporary, index=False)
        return pd.read_parquet(path)

    def _announce(self, function: Callable[..., Any], run: Run | None) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.say("measuring " + function.__name__.replace("_", " ")
                 + ("" if run is None else f", {run.name}"))


def measured_name(
    run: Run | None, function: Callable[..., Any], arguments: Mapping[str, Any]
) -> str:
    """Return the name under which `function(run, **arguments)` is kept.

    Whatever becomes of the function: what it measured of a published run cannot be measured again
    without weights.
    """
    words = [function.__name__, *(f"{key}={value}" for key, value in arguments.items())]
    if run is not None:
        words += [run.id, str(run.checkpoints()[-1])]
    return "-".join(words)


def about(member: str, run: Run) -> dict[str, Any]:
    """Return the columns that name a run in every table."""
    return {"member": member, "kind": kind_of(run.config.model), "run": run.name,
            "seed": run.config.training.seed, "split_seed": split_seed(run.config)}


def final_metrics(
    work: Work, settings: Iterable[Setting], split: str, metric: str, fields: Sequence[str] = ()
) -> pd.DataFrame:
    """Return a metric of every run at its last evaluation, with its standard error; a row each.

    fields  of the configurations, as further columns: `task.n_examples` makes one of `n_examples`
    """
    names = [name.rpartition(".")[2] for name in fields]
    rows = []
    for member, run in work.runs_of(settings):
        config = flatten(to_dict(run.config))
        axes = {name: config[field] for name, field in zip(names, fields, strict=True)}
        newest = run.newest_metrics()
        chosen = newest[(newest["split"] == split) & (newest["metric"] == metric)]
        rows += [{**about(member, run), "id": run.id, **axes, "split": split, "metric": metric,
                  "value": row["mean"], "se": row["se"], "n": row["n"]}
                 for row in chosen.to_dict("records")]
    return pd.DataFrame(rows, columns=[
        "member", "kind", "run", "seed", "split_seed", "id", *names, "split", "metric", "value",
        "se", "n"])


def metric_evidence(work: Work, claim: Claim, metric: str, split: str) -> pd.DataFrame:
    """Return the values by which a claim is judged: a metric of all runs of its setting."""
    return value_evidence(final_metrics(work, [claim.setting], split, metric))


def value_evidence(table: pd.DataFrame) -> pd.DataFrame:
    """Return evidence of the `value` of each run alone, of a table with a row per run."""
    return as_evidence(
        table[["member", "run", "seed", "split_seed", "value"]].to_dict("records"))


def as_evidence(rows: Iterable[Mapping[Any, Any]], **more: str) -> pd.DataFrame:
    """Return evidence, of rows that may say more of a run than evidence does.

    more  columns that all rows have, such as the control
    """
    return evidence({name: row[name] for name in COLUMNS if name in row} | more for row in rows)


def controls_of(claim: Claim) -> tuple[str, ...]:
    """Return what is subtracted from the quantity of a claim that is judged by an excess."""
    assert isinstance(claim.rule, Excess), claim.id
    return claim.rule.controls
