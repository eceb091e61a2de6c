"""A study as data: which runs are asked which questions, and the page of what was found.

    # experiments/studies/NAME/study.yaml
    title: What does the code tell along the layers?
    out: experiments/results/NAME
    runs:
      known: [experiments/results/runs/sraven_known/seed=*]
      zoo: [logic-hyla]
    ask:
      decoding:
        question: decode
        of: [known, zoo]
        settings: {n_train: 2048, n_heldout: 1024}
    figures: [decoding]

`study("NAME").run()`, or `latentcode study NAME`, asks every run every question, keeps each result
in the folder `work` (so that an interrupted study goes on), writes their tables to `out/tables`,
judges the claims in `experiments/evidence/claims/NAME.yaml` (`statements`), and renders the
template `README.md.jinja2` beside the YAML to `out/README.md` (`pages`). What is truly a study's
own is Python that the YAML names as `module:function`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

import latentcode
from latentcode.config import to_dict
from latentcode.config.fields import later
from latentcode.config.reading import convert, from_dict, parse_yaml
from latentcode.errors import (
    ArtifactError,
    ConfigError,
    RunError,
    UnknownNameError,
    check,
    check_choice,
)
from latentcode.experiments.evidence.keeping import Measured, kept, key_of
from latentcode.experiments.evidence.pages import ROOT, check_template, render
from latentcode.experiments.evidence.statements import (
    Statement,
    check_columns,
    judged,
    read_statements,
)
from latentcode.experiments.evidence.writing import csv_of, write_study, write_tables
from latentcode.figures.markdown import with_results
from latentcode.files.migrations import CURRENT
from latentcode.files.storage import read_json, write_text
from latentcode.models.config import kind_of
from latentcode.probes.common.results import TableResult
from latentcode.probes.saved import RESULTS
from latentcode.progress import bar
from latentcode.runs import Run
from latentcode.runs.named import load_run

STUDIES = Path(__file__).parents[1] / "studies"
FILE, TEMPLATE, PAGE, RECORD = "study.yaml", "README.md.jinja2", "README.md", "study"
FROM = "from"
"""Key of the record: the names of the runs, by group, as the YAML gave them."""
QUESTIONS: tuple[str, ...] = (
    "align", "attribute", "check_model", "das", "decode", "intervene", "knn_purity", "project",
    "similarity", "topography", "value_networks")
"""Questions by the names of their functions."""
NAMING = ("task", "kind", "run", "seed")
"""Columns that name a run; they stand before those of a result."""
CHECKPOINT = "checkpoint"
"""Column of the step that was asked, where several are."""
Tables = Mapping[str, pd.DataFrame]
Call = tuple[list[Run], dict[str, Any]]
"""The runs that are asked, and what with beside the settings."""
Answered = tuple[list[Run], Any]
"""The runs that were asked, and what came of it, of the kind of its question (`Asked.kind`)."""


@dataclass(frozen=True)
class Asked:
    """A question that is put to some runs."""

    question: str
    """One of `QUESTIONS`; or `module:function`, which takes a run and returns the result of one, or
    tables by name (annotated as `dict[str, pd.DataFrame]`)."""
    settings: dict[str, Any]
    """Arguments of its function."""
    of: tuple[str, ...] = later(())
    """The groups of runs that are asked; default: all."""
    together: bool = later(False)
    """Whether the runs are asked as one list, as `topography` and `align` are."""
    task: dict[str, Any] | None = later(None)  # noqa: RUF009
    """Fields of the task that are others in the problems than in the runs' training, such as
    `{inputs: fixed_query}`; `{}`: none is. Default: the problems that the question chooses."""
    steps: tuple[int, ...] = later(())
    """Checkpoints that are asked, where a run has them; default: the newest."""
    into: str = later("")
    """What its tables are called; several of one kind may go into the same. Default: the name of
    what is asked."""
    columns: tuple[str, ...] = later(())
    """Settings that are columns of its tables, too, after those that name the run."""

    @cached_property
    def function(self) -> Callable[..., TableResult]:
        """The function that answers it."""
        if ":" in self.question:
            return imported(self.question)
        check_choice("question", self.question, QUESTIONS)
        found: Callable[..., TableResult] = getattr(latentcode, self.question)
        return found

    @cached_property
    def kind(self) -> type[TableResult | Measured]:
        """The kind of its result."""
        kinds: dict[str, type[TableResult | Measured]] = {
            **{kind.__name__: kind for kind in RESULTS}, "dict[str, pd.DataFrame]": Measured}
        name = str(inspect.signature(self.function).return_annotation)
        check_choice(f"what {self.question} returns", name, kinds)
        return kinds[name]

    @property
    def record(self) -> dict[str, Any]:
        """What its tables depend on, beside the runs."""
        return {"question": self.question, "settings": self.settings,
                **({} if self.task is None else {"task": self.task}),
                **({"steps": list(self.steps)} if self.steps else {})}

    @property
    def text(self) -> dict[str, Any]:
        """The text of the module of a function of the study's own, or the version of the format of
        its result: another may find something else, or more."""
        if ":" in self.question:
            return {"text": inspect.getsource(import_module(self.function.__module__))}
        kind: Any = self.kind
        return {"format": CURRENT[kind.FORMAT]}

    def of_run(self, run: Run) -> list[dict[str, Any]]:
        """Return the arguments beside its settings that a run is asked with, once per checkpoint;
        `ConfigError` for a field that its task does not have."""
        task = {} if self.task is None else {
            "problems": from_dict(type(run.config.task), {**to_dict(run.config.task), **self.task},
                                  "task")}
        return [task | at for at in ([{"step": step} for step in self.steps
                                      if step in run.checkpoints()] if self.steps else [{}])]

    def answer(self, of: list[Run], **more: Any) -> TableResult | Measured:
        """Ask; `more` but for what the function does not take."""
        asked = [of] if self.together else of
        found = self.function(*asked, **self.settings, **_taken(self.function, **more))
        return Measured(found) if isinstance(found, dict) else found

    def check(self, where: str) -> None:
        """Raise `UnknownNameError` for a setting that its function does not take; `ConfigError` for
        checkpoints or other problems where it takes none."""
        taken = inspect.signature(self.function).parameters
        for key, given, name in (("steps", bool(self.steps), "step"),
                                 ("task", self.task is not None, "problems")):
            check(not given or name in taken, f"{where} has {key}, but {self.question} takes no "
                  f"{name}; expected none", ConfigError)
        if not any(one.kind is one.VAR_KEYWORD for one in taken.values()):
            for name in self.settings:
                check_choice(f"setting in {where}", name, list(taken)[1:])
        for name in self.columns:
            check_choice(f"columns in {where}", name, self.settings)


@dataclass(frozen=True)
class Plan:
    """What the YAML says. `ConfigError` names the key that is wrong."""

    title: str
    """What it asks."""
    out: str
    """Folder of the page, its tables and figures, from the checkout."""
    runs: dict[str, tuple[str, ...]]
    """Group -> run folders (patterns with `*`, from the checkout), or models of the zoo. Without
    any, every question is asked once, of what its function makes in the folder `work`."""
    ask: dict[str, Asked]
    """Name of the tables -> what is asked."""
    tables: str | None = later(None)
    """`module:function` from `Found` to tables by name; default: every table of every result."""
    figures: tuple[str, ...] = later(())
    """Names in `ask`, whose results' pictures are kept; or `module:function` from the tables (and
    `found`, if it takes it) to figures by file name."""
    shown: str | None = later(None)
    """`module:function` from the tables to further values that the template is given."""
    group: str | None = later(None)
    """Column of the tables that has the group of a row's runs, so that some groups can be asked
    alone."""
    within: str = later("")
    """A page, from the checkout, of which the study's is what stands between its two marks
    (`latentcode.figures.markdown`); default: a page of its own, README.md in `out`."""
    apart: bool = later(False)
    """Whether every group of runs is asked by itself and has a page of its own, in `out/GROUP`."""

    def __post_init__(self) -> None:
        for name, asked in self.ask.items():
            for group in asked.of:
                check_choice(f"group of runs in ask.{name}", group, self.runs)
            asked.check(f"ask.{name}")
        for name in self.figures:
            if ":" not in name:
                check_choice("figures", name, self.ask)


@dataclass(frozen=True)
class Study:
    """One study; see the module."""

    name: str
    """Its folder's."""
    plan: Plan
    """What is asked of which runs."""
    folder: Path
    """Where the YAML lies, and its template."""
    root: Path
    """Where paths start from: the checkout."""

    @cached_property
    def claims(self) -> tuple[Statement, ...]:
        """Its claims, which were written down beforehand; none where there is no file of a list."""
        path = self.folder / "claims.yaml"
        if not path.is_file() and self.folder.resolve().parent == STUDIES.resolve():
            path = Path(__file__).parent / "claims" / f"{self.name}.yaml"
        if not path.is_file() or not isinstance(
                parse_yaml(path.read_text(encoding="utf-8"), path.name), list):
            return ()
        return read_statements(path)

    def parts(self, out: Path | None = None, only: Sequence[str] = ()) -> list[Study]:
        """Return the studies that have a page each: itself, or one per group (`Plan.apart`).

        out   their folder; default: the plan's
        only  the groups that have one; default: all

        `UnknownNameError` for a group that the plan does not have.
        """
        for group in only:
            check_choice("group of runs", group, self.plan.runs)
        plan = self.plan if out is None else replace(self.plan, out=str(out.resolve()))
        if not plan.apart:
            return [replace(self, plan=plan)]
        found = []
        for group, names in plan.runs.items():
            ask = {name: replace(asked, of=()) for name, asked in plan.ask.items()
                   if not asked.of or group in asked.of}
            if not only or group in only:
                found.append(replace(self, plan=replace(
                    plan, runs={group: names}, out=f"{plan.out}/{group}", ask=ask,
                    figures=tuple(name for name in plan.figures if ":" in name or name in ask))))
        return found

    def opened(self, only: Sequence[str] = ()) -> dict[str, list[Run]]:
        """Return the runs of each group, or of some; `RunError` for a pattern that fits none."""
        return {group: [run for name in names for run in self._runs(name)]
                for group, names in self.plan.runs.items() if not only or group in only}

    def _runs(self, name: str) -> list[Run]:
        if "/" not in name or name.startswith("hf://"):
            return [load_run(name)]
        folders = sorted(path.parent for path in self.root.glob(f"{name}/config.yaml"))
        check(bool(folders), f"runs {name} of study {self.name} are not in {self.root}; expected "
              "folders of runs", RunError)
        return [Run.open(folder) for folder in folders]

    def check(self) -> None:
        """Raise what can be known to be wrong before anything is computed."""
        check_template(self.folder / TEMPLATE)
        plan, claims = self.plan, self.claims
        if plan.tables is None and Measured not in (asked.kind for asked in plan.ask.values()):
            check_columns(claims, {
                key: [*NAMING, *([CHECKPOINT] if asked.steps else []), *asked.columns,
                      *asked.kind.COLUMNS[of]]
                for name, asked in plan.ask.items() if not issubclass(asked.kind, Measured)
                for of, key in _named(asked.into or name, asked.kind).items()})
        for name in filter(None, (plan.tables, plan.shown, *plan.figures)):
            if ":" in name:
                imported(name)

    def run(self, work: Path | None = None, out: Path | None = None,
            only: Sequence[str] = ()) -> Path:
        """Ask what was not asked yet, and write the page; return its path.

        work  folder where single results are kept; default: `runs/studies/NAME`
        only  groups of runs that are asked; rows of the others stay as `out` has them

        Raises what is wrong with the study before anything is computed.
        """
        began = time.monotonic()
        work, out = work or Path("runs/studies") / self.name, out or self.root / self.plan.out
        self.check()
        if only:
            self._check_extends(out, only)
        runs = self.opened(only)
        calls = {name: self._calls(name, runs) for name in self.plan.ask}
        found = Found(self.plan, runs, {name: self._asked(name, of, work)
                                        for name, of in calls.items()}, {
            name: [more["step"] for _, more in calls[name]]
            for name, asked in self.plan.ask.items() if asked.steps})
        tables = (imported(self.plan.tables) if self.plan.tables else all_tables)(found)
        record, every = self.record(found), tables
        if only:
            tables, record = self._extended(out, tables, record, only)
            every = {**tables_in(out), **{name: _read(StringIO(csv_of(table)))
                                      for name, table in tables.items()}}
        if self.claims:
            tables = {**tables, "verdicts": judged(self.claims, every)}
            every = {**every, "verdicts": tables["verdicts"]}
        figures = found.figures(every)
        # Until all is written, nothing says what the tables of the folder are of.
        (out / f"{RECORD}.json").unlink(missing_ok=True)
        write_tables(out, tables)
        write_study(out, RECORD, {**record, "tables": sorted({*every, *tables})}, figures)
        page = self._rendered(out)
        print(f"{(time.monotonic() - began) / 60:.1f} minutes; wrote {page}")
        return page

    @property
    def settings(self) -> dict[str, Any]:
        """What is asked, and how, as the record has it."""
        return {name: asked.record for name, asked in self.plan.ask.items()}

    def record(self, found: Found) -> dict[str, Any]:
        """Return what the tables were made of: settings, with those of every result and what to be
        careful about, and runs with their configurations."""
        return {"command": f"latentcode study {self.name}", "ask": self.settings,
                "results": {name: [{**(naming(of[0]) if len(of) == 1 else {}),
                                    "settings": dict(result.settings),
                                    "caveats": list(result.caveats)} for of, result in results
                                   if isinstance(result, TableResult)]
                            for name, results in found.results.items()},
                FROM: {group: list(self.plan.runs[group]) for group in found.runs},
                "runs": [{"group": group, "name": run.name, "id": run.id,
                          "step": max(run.checkpoints(), default=0), "config": to_dict(run.config)}
                         for group, run in {run.id: (group, run) for group, of in found.runs.items()
                                            for run in of}.values()]}

    def _check_extends(self, out: Path, only: Sequence[str]) -> None:
        check(self.plan.group is not None, f"study {self.name} has no column of groups; expected "
              "all of its runs to be asked", ConfigError)
        for group in only:
            check_choice("group of runs", group, self.plan.runs)
        self._check_made(out, only)

    def _extended(
        self, out: Path, tables: Tables, record: dict[str, Any], only: Sequence[str]
    ) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
        """Return tables and record with what `out` has of other groups before them."""
        column, whole, old = self.plan.group, dict(tables), read_json(out / f"{RECORD}.json")
        for name, table in tables.items():
            path = out / "tables" / f"{name}.csv"
            if column in table and path.exists():
                there, text = (pd.read_csv(file, dtype=str, keep_default_na=False)
                               for file in (path, StringIO(csv_of(table))))
                whole[name] = pd.concat([there[~there[column].isin(only)], text],
                                        ignore_index=True)
        others = [run for run in old["runs"] if run["group"] not in only]
        named, before = {run["name"] for run in others}, old.get("results", {})
        results = {name: [*(one for one in before.get(name, ())
                            if one.get("run") in named), *of]
                   for name, of in record["results"].items()}
        record = {**record, "runs": [*others, *record["runs"]], "results": {**before, **results}}
        if FROM in old:
            return whole, {**record, FROM: {**old[FROM], **record[FROM]}}
        return whole, {key: value for key, value in record.items() if key != FROM}

    def write_page(self, out: Path | None = None) -> Path:
        """Judge the claims on the tables that `out` holds, render the page, and return its path.

        `ArtifactError` where these are of other settings or runs than the study has now.
        """
        out = out or self.root / self.plan.out
        self._check_made(out)
        if self.claims:
            tables = tables_in(out, read_json(out / f"{RECORD}.json").get("tables"))
            tables.pop("verdicts", None)
            write_tables(out, {"verdicts": judged(self.claims, tables)})
        return self._rendered(out)

    def _rendered(self, out: Path) -> Path:
        write_text(self.page_at(out), self.page(out))
        return self.page_at(out)

    def page_at(self, out: Path) -> Path:
        """Return where the page of the tables in a folder is."""
        return self.root / self.plan.within if self.plan.within else out / PAGE

    def _check_made(self, out: Path, only: Sequence[str] = ()) -> None:
        """only  groups that are asked anew; what `out` has of them does not matter"""
        record = read_json(out / f"{RECORD}.json")
        made = record.get("ask")
        check(made == self.settings, f"tables in {out} were made with {made}; expected "
              f"{self.settings}: run the study again", ArtifactError)
        now = {group: list(names) for group, names in self.plan.runs.items()}
        of = record.get(FROM, now)  # older records do not have it
        if only:
            both = [group for group in of if group in now and group not in only]
            of, now = ({group: side[group] for group in both} for side in (of, now))
        check(of == now, f"tables in {out} are of runs {of}; expected {now}: run the study again",
              ArtifactError)

    def page(self, out: Path) -> str:
        """Return the page of the tables in a folder, with what stands around it."""
        record = read_json(out / f"{RECORD}.json")
        # Others are left of what the study asked once.
        tables = tables_in(out, record.get("tables"))
        more = imported(self.plan.shown)(tables) if self.plan.shown else {}
        page = render(self.folder / TEMPLATE, self.root, study=self, tables=tables, folder=out,
                      record=record, **more)
        return with_results(self.page_at(out).read_text(encoding="utf-8"), page) if (
            self.plan.within) else page

    def _calls(self, name: str, runs: Mapping[str, Sequence[Run]]) -> list[Call]:
        asked = self.plan.ask[name]
        if not self.plan.runs:
            return [([], {})]
        # A run of several groups is asked once.
        chosen = list({run.id: run for group in runs if not asked.of or group in asked.of
                       for run in runs[group]}.values())
        together = [chosen] if chosen else []
        return [(of, more) for of in (together if asked.together else [[run] for run in chosen])
                for more in asked.of_run(of[0])]

    def _asked(self, name: str, calls: Sequence[Call], work: Path) -> list[Answered]:
        asked, found = self.plan.ask[name], []
        for number, (of, more) in enumerate(calls, 1):
            told = f"{name} of {'all runs' if asked.together else of[0].name}" if of else name
            at = {"step": more["step"]} if "step" in more else {}
            folder = work / "-".join([name, *(run.name for run in of[:1]),
                                      key_of(of, asked.record | asked.text | at)])
            print(f"{number} of {len(calls)}, {told}", *at.values(), flush=True)
            found.append((of, kept(folder, asked.kind, partial(
                asked.answer, of, progress=bar(told), work=work, **more))))
        return found


@dataclass(frozen=True)
class Found:
    """What was answered: by the name of what was asked, the runs that were asked and the result."""

    plan: Plan
    runs: Mapping[str, Sequence[Run]]
    results: Mapping[str, Sequence[Answered]]
    steps: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Of what is asked of several checkpoints: which one each result is of."""

    def joined(self, name: str, table: str) -> pd.DataFrame:
        """Return a table of the results of `name`, after the columns that name their run; if
        several checkpoints were asked, `checkpoint` is the step of each."""
        asked = self.plan.ask[name]
        settings = {column: asked.settings[column] for column in asked.columns}

        def part(of: list[Run], result: Any, at: dict[str, int]) -> pd.DataFrame:
            own = (result.tables if isinstance(result, Measured) else result.tables())[table]
            return own.assign(**(naming(of[0]) if len(of) == 1 else {}), **at, **settings)

        # A question of a study's own says itself which step it was asked at.
        steps = [{CHECKPOINT: step} for step in self.steps.get(name, ())
                 if not issubclass(asked.kind, Measured)] or [{}] * len(self.results[name])
        parts = [part(of, result, at) for (of, result), at in zip(
            self.results[name], steps, strict=True)]
        whole = pd.concat([one for one in parts if len(one)] or parts[:1], ignore_index=True)
        first = [column for column in (*NAMING, CHECKPOINT, *settings) if column in whole]
        return whole[[*first, *(column for column in whole if column not in first)]]

    def figures(self, tables: Tables) -> dict[str, Any]:
        """Return the figures that the study keeps, by file name."""
        drawn: dict[str, Any] = {}
        for name in self.plan.figures:
            if ":" in name:
                draw = imported(name)
                drawn |= {f"figures/{file}": figure for file, figure in draw(
                    tables, **_taken(draw, found=self)).items()}
            else:
                drawn |= {f"figures/{'-'.join([name, *(run.name for run in of[:1]), file])}": figure
                          for of, result in self.results[name] if isinstance(result, TableResult)
                          for file, figure in result.figures().items()}
        return drawn


class TablesByName(dict[str, pd.DataFrame]):
    """Tables by name, which say what they are where one is not among them."""

    def __missing__(self, name: str) -> pd.DataFrame:
        raise UnknownNameError("table", name, self)


def tables_in(out: Path, names: Sequence[str] | None = None) -> TablesByName:
    """Return the tables that the folder of a study holds, or those of these names."""
    return TablesByName({path.stem: _read(path) for path in sorted((out / "tables").glob("*.csv"))
                         if names is None or path.stem in names})


def _read(file: Path | StringIO) -> pd.DataFrame:
    """Return a table as it was written: what is empty is no number, and no text is."""
    table: pd.DataFrame = pd.read_csv(file, keep_default_na=False, na_values=[""])
    return table


def naming(run: Run) -> dict[str, Any]:
    """Return the columns that name a run."""
    return {"task": run.config.task.name, "kind": kind_of(run.config.model), "run": run.name,
            "seed": run.config.training.seed}


def all_tables(found: Found) -> dict[str, pd.DataFrame]:
    """Return every table of every result: `NAME` is the first, `NAME_TABLE` the others; tables of a
    question of one's own have their names."""
    parts: dict[str, list[pd.DataFrame]] = {}
    for name, asked in found.plan.ask.items():
        if not found.results[name]:
            continue
        _, first = found.results[name][0]
        keys = (_named(asked.into or name, asked.kind) if issubclass(asked.kind, TableResult) else
                {table: table for table in first.tables})
        for table, key in keys.items():
            parts.setdefault(key, []).append(found.joined(name, table))
    return {key: pd.concat(of, ignore_index=True) for key, of in parts.items()}


def _named(name: str, kind: type[TableResult]) -> dict[str, str]:
    """Return what the tables of a result are called here; those with a row per instance are left
    out."""
    tables = [table for table in kind.COLUMNS if table not in kind.OPEN]
    return {table: name if number == 0 else f"{name}_{table}"
            for number, table in enumerate(tables)}


def imported(address: str) -> Callable[..., Any]:
    """Return what `module:function` names; `ConfigError` for what is not there."""
    module, _, name = address.partition(":")
    try:
        found: Callable[..., Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{address} cannot be imported: {error}; expected module:function"
                          ) from None
    return found


def _taken(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Return those of some arguments that a function takes."""
    taken = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in taken}


def names() -> list[str]:
    """Return the studies that come with the library."""
    return sorted(path.parent.name for path in STUDIES.glob(f"*/{FILE}"))


def study(name_or_file: str | Path, root: Path | None = None) -> Study:
    """Read a study: one that comes with the library, or a YAML file of one's own.

    root  where its paths start from; default: the checkout, or for a file of one's own the present
          folder

    `UnknownNameError` lists the names; `ConfigError` names the key of the file that is wrong.
    """
    own = Path(name_or_file).suffix in (".yaml", ".yml")
    if not own:
        check_choice("study", str(name_or_file), names())
    path = Path(name_or_file) if own else STUDIES / str(name_or_file) / FILE
    check(path.is_file(), f"study {path} does not exist", ArtifactError)
    data = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    plan: Plan = convert(Plan, data, f"study {path.resolve().parent.name}")
    return Study(path.resolve().parent.name, plan, path.parent,
                 root or (Path() if own else ROOT))


__all__ = ["Asked", "Found", "Plan", "Study", "names", "study"]
