"""What the YAML of a study says: which runs, which questions with which settings, what is drawn."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

from latentcode.codes.features import FEATURES
from latentcode.config import to_dict
from latentcode.config.fields import later
from latentcode.config.reading import from_dict
from latentcode.errors import ConfigError, check, check_choice
from latentcode.experiments.evidence.keeping import Measured
from latentcode.files.migrations import CURRENT
from latentcode.probes.common.results import TableResult
from latentcode.probes.interventions.patches import PATCHES
from latentcode.probes.questions import question
from latentcode.probes.registered.registry import PROBES
from latentcode.probes.saved import RESULTS
from latentcode.runs import Run


@dataclass(frozen=True)
class Asked:
    """A question that is put to some runs; in the YAML it may be `like` another (`whole`)."""

    question: str
    """The name of its function, or of a registered probe; or `module:function`, which takes a run
    and returns the result of one, or tables by name (annotated as `dict[str, pd.DataFrame]`)."""
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
        return question(self.question)

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
        its result; and the files that register a probe, features or patches that it names: another
        may find something else, or more."""
        sources = {name: registry.source(name) for name in {self.question, *_words(self.settings)}
                   for registry in (PROBES, FEATURES, PATCHES) if registry.source(name)}
        files = {name: source.digest for name, source in sorted(sources.items()) if source}
        named = {"files": files} if files else {}
        if ":" in self.question:
            return {"text": inspect.getsource(import_module(self.function.__module__)), **named}
        kind: Any = self.kind
        return {"format": CURRENT[kind.FORMAT], **named}

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
        found = self.function(*asked, **self.settings, **taken_by(self.function, **more))
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


def whole(ask: object) -> object:
    """Return what a YAML asks, with what a question has of the one that it is `like`: its keys and,
    one by one, its settings, but for those that it gives itself.

    `UnknownNameError` for one that is not there, or is itself like another.
    """
    if not isinstance(ask, dict):
        return ask
    known = {name: one for name, one in ask.items() if isinstance(one, dict) and "like" not in one}
    found = {**ask}
    for name, one in ask.items():
        if isinstance(one, dict) and "like" in one:
            alike, own = str(one["like"]), {key: one[key] for key in one if key != "like"}
            check_choice(f"like in ask.{name}", alike, known)
            found[name] = {**known[alike], **own}
            both = [part["settings"] for part in (known[alike], own) if "settings" in part]
            if all(isinstance(settings, dict) for settings in both):
                found[name]["settings"] = {key: value for settings in both
                                           for key, value in settings.items()}
    return found


def _words(settings: Any) -> Iterator[str]:
    """Yield all text in settings."""
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, Mapping | list | tuple):
        for part in settings.values() if isinstance(settings, Mapping) else settings:
            yield from _words(part)


def imported(address: str) -> Callable[..., Any]:
    """Return what `module:function` names; `ConfigError` for what is not there."""
    module, _, name = address.partition(":")
    try:
        found: Callable[..., Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{address} cannot be imported: {error}; expected module:function"
                          ) from None
    return found


def taken_by(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Return those of some arguments that a function takes."""
    taken = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in taken}
