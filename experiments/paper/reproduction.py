"""A figure or table of the paper: the runs that it shows, their scores, and words for these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from latentcode.config import flatten, to_dict
from latentcode.experiments.paper.claims import Claim, Excess, Setting, load_claims
from latentcode.experiments.paper.runs import PUBLISHED, KnownRuns, split_seed
from latentcode.experiments.paper.sraven_answers import fresh_instances
from latentcode.experiments.paper.verdicts import evidence
from latentcode.figures.style import PALETTE, Figure
from latentcode.files.storage import replace_file
from latentcode.models.config import kind_of
from latentcode.probes.common.results import TableResult, where
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
METRIC = {"logic": "r2", "sraven": "accuracy"}
"""What each task is judged by."""
LEARNT = 0.5
"""Of R² or accuracy on `test`: a model below has not learnt its task."""
KNOWN = 0.90
"""A model knows its rules where it is right about each in at least this share of held-out
instances (`claims.yaml`)."""
FOR_CEILING = 8_000
"""Instances from which a ceiling is estimated: a standard error of 0.003 for M = 4, K = 8."""
LETTERS_PER_INCH = 12
"""Of the heading of a figure."""
NOTHING = "No run of these settings is finished."
ONE_SETTING = "One setting for every row, where the paper takes the best of the grid of Table A3."
RUN = ["member", "kind", "run", "seed", "split_seed"]
"""Columns that name a run in every table."""


@dataclass(frozen=True)
class Findings:
    """What a figure or table says, of the runs that are there.

    Attributes:
        summary: What the numbers say, in one to three sentences.
        tables: Name -> every number, a row each; kept as CSV and in result.json.
        figures: Name -> picture, in the paper's arrangement.
        evidence: Claim -> values by which it is judged (`verdicts.COLUMNS`).
        notes: What a reader must know, a sentence each.
        raw: Name -> longer tables that lie behind the pictures; kept as CSV alone.
    """

    summary: str
    tables: Mapping[str, pd.DataFrame]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    evidence: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    raw: Mapping[str, pd.DataFrame] = field(default_factory=dict)


@dataclass(frozen=True)
class Reproduction:
    """A figure or table of the paper, one of `RESULTS`.

    Attributes:
        name: Its name.
        title: What it shows, as its caption says.
        shows: Preset -> the settings whose runs it shows; none where no run is needed.
        measure: What the runs say; called with those that are finished.
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
        """Return the settings whose runs are shown, or at `paper` judged, each claim by its own."""
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

    Attributes:
        preset: `paper`, `small` or `smoke`.
        known: The runs that were found.
        folder: Where the measurements of single runs are kept.
        device: `cpu` or `cuda`.
        claims: The claims that are judged: those of the result at `paper`, else none.
        say: Called with a line on every measurement that is begun, as each can take minutes.
    """

    preset: str
    known: KnownRuns
    folder: Path
    device: str = "cpu"
    claims: tuple[Claim, ...] = ()
    say: Callable[[str], None] = print

    def runs_of(self, settings: Setting | Iterable[Setting]) -> Iterator[tuple[str, Run]]:
        """Yield (member, finished run) of settings, in the order of their grids; a run once."""
        seen: set[str] = set()
        for setting in (settings,) if isinstance(settings, Setting) else settings:
            for member, config in setting.grid.members().items():
                for run in self.known.of(config):
                    if run.id not in seen:
                        seen.add(run.id)
                        yield member, run

    def measured(
        self, run: Run, function: Callable[..., R], kind: type[R], **arguments: Any
    ) -> R:
        """Return `function(run, **arguments)`, of class `kind`, which is computed once for a run.
        """
        folder = self.folder / self._name(run, function, arguments)
        if not (folder / kind.marker()).exists():
            self._begin(run, function)
            function(run, device=self.device, **arguments).save(folder, figures=False)
        return kind.load(folder)

    def table(
        self, run: Run | None, function: Callable[..., pd.DataFrame], **arguments: Any
    ) -> pd.DataFrame:
        """Return the table `function(run, **arguments)`, which is computed once for a run.

        Without a run it is `function(**arguments)`.
        """
        name = f"{self._name(run, function, arguments)}.parquet"
        if (MEASURED / name).exists():
            return pd.read_parquet(MEASURED / name)
        path = self.folder / name
        if not path.exists():
            self._begin(run, function)
            measured = (function(**arguments) if run is None
                        else function(run, device=self.device, **arguments))
            with replace_file(path) as temporary:
                measured.to_parquet(temporary, index=False)
        return pd.read_parquet(path)

    def _begin(self, run: Run | None, function: Callable[..., Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.say("measuring " + function.__name__.replace("_", " ")
                 + ("" if run is None else f", {run.name}"))

    def _name(
        self, run: Run | None, function: Callable[..., Any], arguments: Mapping[str, Any]
    ) -> str:
        # Whatever becomes of the function: what it measured of a published run cannot be measured
        # again without weights.
        words = [function.__name__, *(f"{key}={value}" for key, value in arguments.items())]
        return "-".join(words if run is None else [*words, run.id, str(run.checkpoints()[-1])])


def about(member: str, run: Run) -> dict[str, Any]:
    """Return the columns `RUN` of a run."""
    return {"member": member, "kind": kind_of(run.config.model), "run": run.name,
            "seed": run.config.training.seed, "split_seed": split_seed(run.config)}


def joined(parts: Iterable[tuple[str, Run, pd.DataFrame]]) -> pd.DataFrame:
    """Return tables of (member, run) below each other, with the columns that name the run."""
    return pd.concat([table.assign(**about(member, run)) for member, run, table in parts],
                     ignore_index=True)


def final_metrics(
    work: Work, settings: Iterable[Setting], split: str, metric: str, fields: Sequence[str] = ()
) -> pd.DataFrame:
    """Return a metric of every run at its last evaluation, with its standard error; a row each.

    The `fields` of the configurations are columns, too: `task.n_examples` makes `n_examples`.
    """
    names = {name.rpartition(".")[2]: name for name in fields}
    rows = []
    for member, run in work.runs_of(settings):
        config = flatten(to_dict(run.config))
        axes = {name: config[field] for name, field in names.items()}
        rows += [{**about(member, run), "id": run.id, **axes, **row, "value": row["mean"]}
                 for row in where(run.newest_metrics(), split=split,
                                  metric=metric).to_dict("records")]
    return pd.DataFrame(rows, columns=[
        *RUN, "id", *names, "split", "metric", "value", "se", "n"])


def metric_evidence(work: Work, claim: Claim, metric: str, split: str) -> pd.DataFrame:
    """Return the values by which a claim is judged: a metric of all runs of its setting."""
    return value_evidence(final_metrics(work, [claim.setting], split, metric))


def value_evidence(table: pd.DataFrame) -> pd.DataFrame:
    """Return evidence of the `value` of each run alone, of a table with a row per run."""
    return evidence(table[["member", "run", "seed", "split_seed", "value"]].to_dict("records"))


def controls_of(claim: Claim) -> tuple[str, ...]:
    """Return what is subtracted from the quantity of a claim that is judged by an excess."""
    assert isinstance(claim.rule, Excess), claim.id
    return claim.rule.controls


def scores(
    work: Work, settings: Sequence[Setting], split: str, metric: str, fields: Sequence[str] = ()
) -> pd.DataFrame:
    """Return a metric of every run at its last update, a row each.

    The `fields` of the configuration, the axes of the figure, are columns, too. `instances` is how
    many the run was trained on; accuracies on SRAVEN have a `ceiling`, that of the Bayes-optimal
    solver who knows the rules, over all their combinations.
    """
    every = dict.fromkeys([*fields, "task.name", "training.steps", "training.batch_size"])
    problems = ("n_features", "n_values", "permuted")
    of_sraven = bool(settings) and settings[0].task == "sraven"
    if of_sraven:
        every |= dict.fromkeys(f"task.{axis}" for axis in problems)
    table = final_metrics(work, settings, split, metric, list(every))
    table["instances"] = table["steps"] * table["batch_size"]
    if of_sraven and metric == "accuracy":
        n = 200 if work.preset == "smoke" else FOR_CEILING
        table["ceiling"] = [
            work.table(None, fresh_instances, n=n, **{axis: row[axis] for axis in problems})[
                "solved"].mean() for row in table.to_dict("records")]
    return table.rename(columns={"name": "task"}).drop(columns="batch_size")


def learning(work: Work, settings: Iterable[Setting]) -> tuple[str, tuple[str, ...]]:
    """Return what stands above a figure, and its notes: what its models are, and how many of them
    have not learnt their task, by their score on combinations of training.

    Nothing stands above it where the models are published ones that learnt.
    """
    heading, notes = [], [ONE_SETTING]
    if work.preset != "paper":
        heading = [f"reduced models (preset {work.preset})"]
        notes = [f"Reduced models and tasks (preset {work.preset}): the numbers do not compare "
                 "with the paper's, and say nothing about which kind of attention is better."]
    values = pd.concat([final_metrics(work, [setting], "test", METRIC[setting.task])
                        for setting in settings]).drop_duplicates("id")["value"]
    n_unlearnt = int((values < LEARNT).sum())
    if n_unlearnt:
        heading.append(f"{n_unlearnt} of {len(values)} models have not learnt the task")
        notes.append(f"{heading[-1]}: they reach less than {LEARNT} on fresh instances of the "
                     "combinations of training.")
    return "; ".join(heading), tuple(notes)


def count(n: int, noun: str) -> str:
    """Return `one run` or `3 runs`."""
    return f"one {noun}" if n == 1 else f"{n:,} {noun}s"


def sentences(*parts: str) -> str:
    """Join those that say something, each once."""
    return " ".join(dict.fromkeys(filter(None, parts)))


def nothing(models: str) -> Findings:
    """Return the findings where no run of some models has finished."""
    return Findings(f"No run of {models} has finished.", {})


def of_kinds(table: pd.DataFrame, quantity: str) -> str:
    """Say what each kind of attention scores, on average or from the lowest to the highest cell.

    The table has a row per run; runs of the same `member` differ in their seeds alone.
    """
    if table.empty:
        return NOTHING
    kinds = []
    for kind, title in KIND_TITLES.items():
        rows = where(table, kind=kind)
        means = rows.groupby("member")["value"].mean()
        # Of small numbers, such as losses, two digits.
        values = dict.fromkeys(f"{value:.3f}" if abs(value) >= 0.02 else f"{value:.2g}"
                               for value in (means.min(), means.max()))
        cells = f"{count(len(means), 'setting')}, " if len(means) > 1 else ""
        if len(rows):
            kinds.append(f"{title} {' to '.join(values)} ({cells}{count(len(rows), 'run')})")
    return f"{quantity}: {', '.join(kinds)}."


def beside_ceiling(table: pd.DataFrame) -> str:
    """Say what the Bayes-optimal solver reaches on the tasks of `scores`; nothing without them."""
    if table.empty or "ceiling" not in table:
        return ""
    ends = dict.fromkeys(f"{value:.2f}" for value in table["ceiling"].agg(["min", "max"]))
    return f"The Bayes-optimal solver reaches {' to '.join(ends)}, over all combinations of rules."


def per_kind(table: pd.DataFrame, *, runs: bool = True) -> str:
    """Say the mean value of each kind, as in `softmax 0.28, HYLA 0.27 (one run of each)`.

    The table has a row per run, with `kind` and `value`; `runs`: say how many there are, too.
    """
    means = table.groupby("kind")["value"].mean()
    kinds = ", ".join(f"{title} {means[kind]:.2f}" for kind, title in KIND_TITLES.items()
                      if kind in means)
    return f"{kinds} ({n_runs(table)})" if runs else kinds


def n_runs(table: pd.DataFrame) -> str:
    """Say how many runs a table has of each kind, a row per run."""
    numbers = table.groupby("kind").size()
    if numbers.nunique() == 1:
        return count(int(numbers.iloc[0]), "run") + " of each" * (len(numbers) > 1)
    return ", ".join(f"{title} {count(int(numbers[kind]), 'run')}"
                     for kind, title in KIND_TITLES.items() if kind in numbers)


def least_known(run: Run) -> tuple[str, float]:
    """Return the rule that a model is least often right about on `ood`, and how often it is."""
    metrics = where(run.newest_metrics(), split="ood").set_index("metric")["mean"]
    of_rules = metrics[metrics.index.str.startswith("feature_accuracy[")]
    least = str(of_rules.idxmin())
    return least.removeprefix("feature_accuracy[")[:-1], float(of_rules[least])


def knows_rules(run: Run) -> bool:
    """Whether a model is right about each rule in at least `KNOWN` of held-out instances."""
    return least_known(run)[1] >= KNOWN


def caveat(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the note that some models do not know their rules, where it is so."""
    ignorant = [(run, *least_known(run)) for run in runs if not knows_rules(run)]
    if not ignorant:
        return ()
    worst, rule, share = min(ignorant, key=lambda known: known[2])
    return (f"{len(ignorant)} model(s) do not know every rule (least: {rule} right in {share:.2f} "
            f"of held-out instances, {worst.name}): this says nothing about kinds of attention.",)


def titled(runs: Iterable[Run]) -> str:
    """Return what the title of a figure says where some models do not know their rules."""
    return "" if all(map(knows_rules, runs)) else "not all models know their rules"
