"""A figure or table of the paper: the runs that it shows, and what they say."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from latentcode import __version__
from latentcode.config import flatten, to_dict
from latentcode.errors import LatentCodeError, check_choice
from latentcode.experiments.paper.claims import RESULTS, Claim, Setting, load_claims
from latentcode.experiments.paper.runs import PUBLISHED, KnownRuns, split_seed
from latentcode.experiments.paper.verdicts import evidence
from latentcode.figures.style import Figure
from latentcode.files.storage import replace_file
from latentcode.models.config import kind_of
from latentcode.probes.common.results import TableResult
from latentcode.runs import Run

R = TypeVar("R", bound=TableResult)
KIND_TITLES: Mapping[str, str] = {"softmax": "softmax", "linear": "linear", "hyla": "HYLA"}
"""The three main kinds, in the paper's order, as they are written."""
KINDS = f"kind={','.join(KIND_TITLES)}"
"""These as an axis of a setting."""
TOGETHER: Mapping[str, str] = {name: module for module, names in {
    "curves": ("fig2c", "figA3", "fig4", "figA4", "fig5c", "fig5d", "figA5"),
    "planes": ("fig2d", "figA2", "fig5ab", "figA6", "figA7"), "decoded": ("fig2b", "fig5f"),
    "ablations": ("tabA1", "nonlinearity")}.items() for name in names}
"""Results that share a module below `reproductions`, and its name; others have one of theirs."""
NO_RUNS: Mapping[str, tuple[Setting, ...]] = {"paper": (), "small": (), "smoke": ()}
"""What figures and tables show that ask no model."""
MEASURED = "measured"
"""Below published runs: what was measured of those without weights."""
WITHOUT_RUNS = ("tabA2-", "figA9-", "tabA3-", "figA1-no-additional-parameters")
"""How claims begin that are about the task or the settings, and need no trained model."""


class OutOfTime(LatentCodeError):
    """The budget is used up; what was measured is kept."""


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


def reproduction(name: str) -> Reproduction:
    """Return a figure or table by name; `UnknownNameError` lists the names."""
    check_choice("result", name, RESULTS)
    module = import_module(
        f"latentcode.experiments.paper.reproductions.{TOGETHER.get(name, name)}")
    found: Mapping[str, Reproduction] = {one.name: one for one in module.REPRODUCTIONS}
    return found[name]


@dataclass(frozen=True)
class Work:
    """What a measurement works with.

    preset    `paper`, `small` or `smoke`
    known     the runs that were found
    folder    where the measurements of single runs are kept
    deadline  time (as `time.time`) after which no measurement is begun
    claims    the claims that are judged: those of the result at `paper`, else none
    say       told of every measurement that is begun, as each can take minutes
    """

    preset: str
    known: KnownRuns
    folder: Path
    device: str = "cpu"
    deadline: float | None = None
    claims: tuple[Claim, ...] = ()
    say: Callable[[str], None] | None = None

    @property
    def is_smoke(self) -> bool:
        """Whether this is a test, in which a few instances are enough."""
        return self.preset == "smoke"

    def size(self, n: int, smoke: int) -> int:
        """Return n, or `smoke` in a test."""
        return smoke if self.is_smoke else n

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
        folder = self._place([run], function, arguments)
        if not (folder / kind.marker()).exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            self._in_time(partial(function, run, device=self.device, **arguments),
                          f"{function.__name__}, {run.name}").save(folder, figures=False)
        return kind.load(folder)

    def table(
        self, run: Run, function: Callable[..., pd.DataFrame], **arguments: Any
    ) -> pd.DataFrame:
        """Return the table `function(run, **arguments)`, which is computed once for a run."""
        published = PUBLISHED / MEASURED / measured_name(run, function, arguments)
        if published.exists():
            return pd.read_parquet(published)
        return self._kept_table(self._place([run], function, arguments),
                                partial(function, run, device=self.device, **arguments),
                                f"{function.__name__}, {run.name}")

    def task_table(self, function: Callable[..., pd.DataFrame], **arguments: Any) -> pd.DataFrame:
        """Return the table `function(**arguments)`, which needs no run and is computed once."""
        return self._kept_table(self._place([], function, arguments),
                                partial(function, **arguments), function.__name__)

    def _kept_table(
        self, place: Path, compute: Callable[[], pd.DataFrame], what: str
    ) -> pd.DataFrame:
        path = place.with_suffix(".parquet")
        if not path.exists():
            found = self._in_time(compute, what)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as temporary:
                found.to_parquet(temporary, index=False)
        return pd.read_parquet(path)

    def _place(
        self, runs: Sequence[Run], function: Callable[..., Any], arguments: Mapping[str, Any]
    ) -> Path:
        # Another version of the library may measure something else.
        what = [[(run.id, run.checkpoints()[-1]) for run in runs], function.__qualname__,
                {key: repr(value) for key, value in arguments.items()}, __version__]
        digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:8]
        return self.folder / f"{function.__name__}-{digest}"

    def _in_time(self, compute: Callable[[], Any], what: str) -> Any:
        if self.deadline is not None and time.time() >= self.deadline:
            raise OutOfTime("the budget is used up; the same command continues")
        if self.say is not None:
            self.say(f"measuring {what.replace('_', ' ')}")
        return compute()


def measured_name(
    run: Run, function: Callable[..., Any], arguments: Mapping[str, Any] | None = None
) -> str:
    """Return the file below `MEASURED` that holds `function(run, **arguments)`.

    Whatever becomes of the function: what it measured cannot be measured again without weights.
    """
    said = "".join(f"-{key}={value}" for key, value in (arguments or {}).items())
    return f"{function.__name__}{said}-{run.id}-{run.checkpoints()[-1]}.parquet"


def about(member: str, run: Run) -> dict[str, Any]:
    """Return the columns that name a run in every table."""
    return {"member": member, "kind": kind_of(run.config.model), "run": run.name,
            "seed": run.config.training.seed, "split_seed": split_seed(run.config)}


def final_metrics(
    work: Work, settings: Iterable[Setting], fields: Sequence[str] = ()
) -> pd.DataFrame:
    """Return the last evaluation of every run: a row per split and metric, with standard error.

    fields  of the configurations, as further columns: `task.n_examples` makes one of `n_examples`
    """
    names = [name.rpartition(".")[2] for name in fields]
    rows = []
    for member, run in work.runs_of(settings):
        config = flatten(to_dict(run.config))
        known = {**about(member, run), "id": run.id,
                 **{name: config[field] for name, field in zip(names, fields, strict=True)}}
        rows += [{**known, "split": row["split"], "metric": row["metric"], "value": row["mean"],
                  "se": row["se"], "n": row["n"]}
                 for row in run.newest_metrics().to_dict("records")]
    return pd.DataFrame(rows, columns=[
        "member", "kind", "run", "seed", "split_seed", "id", *names, "split", "metric", "value",
        "se", "n"])


def metric_evidence(work: Work, claim: Claim, metric: str, split: str) -> pd.DataFrame:
    """Return the values by which a claim is judged: a metric of all runs of its setting."""
    table = final_metrics(work, [claim.setting])
    chosen = table[(table["split"] == split) & (table["metric"] == metric)]
    return evidence({str(key): value for key, value in row.items()} for row in chosen[
        ["member", "run", "seed", "split_seed", "value"]].to_dict("records"))
