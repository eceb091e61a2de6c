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

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.config import to_dict
from latentcode.config.reading import convert, parse_yaml
from latentcode.errors import ArtifactError, ConfigError, RunError, check, check_choice
from latentcode.experiments.evidence.found import (
    CHECKPOINT,
    NAMING,
    Answered,
    Found,
    Tables,
    all_tables,
    csv_of,
    names_of_tables,
    naming,
    read_csv,
    tables_in,
    write_figures,
    write_tables,
)
from latentcode.experiments.evidence.keeping import Measured, kept, key_of
from latentcode.experiments.evidence.pages import ROOT, check_template, render
from latentcode.experiments.evidence.plan import Plan, imported, whole
from latentcode.experiments.evidence.statements import (
    Statement,
    check_columns,
    judged,
    read_statements,
)
from latentcode.figures.markdown import with_results
from latentcode.files.provenance import environment
from latentcode.files.storage import read_json, write_json, write_text
from latentcode.probes.common.results import TableResult
from latentcode.progress import bar
from latentcode.runs import Run
from latentcode.runs.named import load_run

STUDIES = Path(__file__).parents[1] / "studies"
FILE, TEMPLATE, PAGE, RECORD = "study.yaml", "README.md.jinja2", "README.md", "study"
FROM = "from"
"""Key of the record: the names of the runs, by group, as the YAML gave them."""
Call = tuple[list[Run], dict[str, Any]]
"""The runs that are asked, and what with beside the settings."""


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
                for of, key in names_of_tables(asked.into or name, asked.kind).items()})
        for name in filter(None, (plan.tables, plan.shown, *plan.figures)):
            if ":" in name:
                imported(name)

    @property
    def out(self) -> Path:
        """The folder of its tables and figures."""
        return self.root / self.plan.out

    @property
    def page_path(self) -> Path:
        """Where its page is."""
        return self.root / self.plan.within if self.plan.within else self.out / PAGE

    def run(self, work: Path | None = None, only: Sequence[str] = ()) -> Path:
        """Ask what was not asked yet, and write the page; return its path.

        work  folder where single results are kept; default: `runs/studies/NAME`
        only  groups of runs that are asked; rows of the others stay as `out` has them

        Raises what is wrong with the study before anything is computed.
        """
        began = time.monotonic()
        work, out = work or Path("runs/studies") / self.name, self.out
        self.check()
        if only:
            self._check_extends(only)
        runs = self.opened(only)
        calls = {name: self._calls(name, runs) for name in self.plan.ask}
        found = Found(self.plan, runs, {name: self._asked(name, of, work)
                                        for name, of in calls.items()}, {
            name: [more["step"] for _, more in calls[name]]
            for name, asked in self.plan.ask.items() if asked.steps})
        tables = (imported(self.plan.tables) if self.plan.tables else all_tables)(found)
        record, every = self.record(found), tables
        if only:
            tables, record = self._extended(tables, record, only)
            every = {**tables_in(out), **{name: read_csv(StringIO(csv_of(table)))
                                      for name, table in tables.items()}}
        if self.claims:
            tables = {**tables, "verdicts": judged(self.claims, every)}
            every = {**every, "verdicts": tables["verdicts"]}
        figures = found.figures(every)
        # Until all is written, nothing says what the tables of the folder are of.
        (out / f"{RECORD}.json").unlink(missing_ok=True)
        write_tables(out, tables)
        write_figures(out, figures)
        write_json(out / f"{RECORD}.json", {**record, "tables": sorted({*every, *tables}),
                                            "environment": environment("cpu")})
        page = self._rendered()
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

    def _check_extends(self, only: Sequence[str]) -> None:
        check(self.plan.group is not None, f"study {self.name} has no column of groups; expected "
              "all of its runs to be asked", ConfigError)
        for group in only:
            check_choice("group of runs", group, self.plan.runs)
        self._check_made(only)

    def _extended(
        self, tables: Tables, record: dict[str, Any], only: Sequence[str]
    ) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
        """Return tables and record with what `out` has of other groups before them."""
        column, whole, old = self.plan.group, dict(tables), self._record()
        for name, table in tables.items():
            path = self.out / "tables" / f"{name}.csv"
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

    def write_page(self) -> Path:
        """Judge the claims on the tables that `out` holds, render the page, and return its path.

        `ArtifactError` where these are of other settings or runs than the study has now.
        """
        self._check_made()
        if self.claims:
            tables = tables_in(self.out, self._record().get("tables"))
            tables.pop("verdicts", None)
            write_tables(self.out, {"verdicts": judged(self.claims, tables)})
        return self._rendered()

    def _record(self) -> dict[str, Any]:
        """Return what the tables that `out` holds were made of."""
        return read_json(self.out / f"{RECORD}.json")

    def _rendered(self) -> Path:
        write_text(self.page_path, self.page())
        return self.page_path

    def _check_made(self, only: Sequence[str] = ()) -> None:
        """only  groups that are asked anew; what `out` has of them does not matter"""
        record = self._record()
        made = record.get("ask")
        check(made == self.settings, f"tables in {self.out} were made with {made}; expected "
              f"{self.settings}: run the study again", ArtifactError)
        now = {group: list(names) for group, names in self.plan.runs.items()}
        of = record.get(FROM, now)  # older records do not have it
        if only:
            both = [group for group in of if group in now and group not in only]
            of, now = ({group: side[group] for group in both} for side in (of, now))
        check(of == now, f"tables in {self.out} are of runs {of}; expected {now}: run the study "
              "again", ArtifactError)

    def page(self) -> str:
        """Return the page of the tables that `out` holds, with what stands around it."""
        record = self._record()
        # Others are left of what the study asked once.
        tables = tables_in(self.out, record.get("tables"))
        more = imported(self.plan.shown)(tables) if self.plan.shown else {}
        page = render(self.folder / TEMPLATE, self.root, study=self, tables=tables, folder=self.out,
                      record=record, **more)
        return with_results(self.page_path.read_text(encoding="utf-8"), page) if (
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
    if isinstance(data, dict) and "ask" in data:
        data["ask"] = whole(data["ask"])
    plan: Plan = convert(Plan, data, f"study {path.resolve().parent.name}")
    return Study(path.resolve().parent.name, plan, path.parent,
                 root or (Path() if own else ROOT))
