"""The options that commands share, and what a command does with what it computed.

Each group is a dataclass that commands inherit. `--help` lists shared options first, always in the
same order, and those of the command alone last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from latentcode.errors import ConfigError, ProbeError, check

if TYPE_CHECKING:
    from latentcode.codes.reader import Reader
    from latentcode.probes.common.results import TableResult
    from latentcode.progress import Progress
    from latentcode.runs import Run

Verb = tuple[Callable[..., "TableResult"], "type[TableResult]"]
"""The function that answers a question, and the class of its results."""
Split = Literal["train", "test", "ood", "unknown"]
RunName = Annotated[str, tyro.conf.arg(
    metavar="RUN", help="A run folder, a model of the zoo such as sraven-hyla, or hf://user/name.")]
"""The argument of a command that takes one run."""
RunNames = Annotated[tuple[str, ...], tyro.conf.arg(
    metavar="RUN [RUN ...]",
    help="Run folders, models of the zoo such as sraven-hyla, or hf://user/name.",
    help_behavior_hint="(required)")]
"""The argument of a command that takes several."""


def take_imports(arguments: Sequence[str]) -> list[str]:
    """Import what every `--import FILE` names, before anything else is read; return the rest."""
    from latentcode.imports import import_file

    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        flag, equals, name = word.partition("=")
        if flag != "--import":
            rest.append(word)
            continue
        name = name if equals else next(words, "")
        check(bool(name) and not name.startswith("-"), "--import names nothing; expected a file "
              "such as my_tasks.py, or a module", ConfigError)
        import_file(name)
    return rest


def default_is(text: str) -> Any:
    """Say in `--help` what an option that is left out means, where its default does not tell."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {text})")


@dataclass(frozen=True, kw_only=True)
class Saving:
    """Where the result goes."""

    out: Path
    """Folder to save the result in."""
    overwrite: bool = False
    """Replace an earlier result in that folder, finished or not."""

    def check_out(self, marker: str) -> None:
        """Raise an error if `out` cannot take the result: before the work, not after it."""
        from latentcode.files.storage import check_free

        check_free(self.out, overwrite=self.overwrite, marker=marker)

    def save_result(
        self, kind: type[TableResult], doing: str, compute: Callable[[Progress], TableResult]
    ) -> None:
        """Check the folder, compute under a progress bar, save, print, and say where it is."""
        from latentcode.progress import bar

        self.check_out(kind.marker())
        try:
            result = compute(bar(doing))
        except KeyboardInterrupt as interruption:
            interruption.add_note(f"{self.out} was not written; the same command starts again")
            raise
        result.save(self.out, overwrite=self.overwrite)
        print(result)
        print(f"wrote result {self.out}")

    def save_codes(self, reader: Reader, what: str) -> None:
        """Read codes into the folder under a progress bar, and say how many and where."""
        from latentcode.progress import bar

        reader.to_folder(self.out, overwrite=self.overwrite, progress=bar("extracting"))
        print(f"{reader.n:,} {what}, {len(reader.layers)} layers, {len(reader.pairs)} pairs")
        print(f"wrote codes {self.out}")


@dataclass(frozen=True, kw_only=True)
class Sampling(Saving):
    """Which instances, of one split."""

    split: Split = "ood"
    """Split that the instances are drawn from."""
    n: int = 4_096
    """Number of instances."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which codes of an instance."""

    pairs: Annotated[tuple[str, ...], default_is("the paper's")] = ()
    """Names of (query, key) pairs, or `all`."""
    layers: Annotated[tuple[int, ...], default_is("all")] = ()
    """Numbers of layers."""


@dataclass(frozen=True, kw_only=True)
class Seeded:
    """What is random, and where it is computed."""

    seed: int = 0
    """Seed of everything random."""
    device: str = "cpu"
    """cpu or cuda."""


@dataclass(frozen=True, kw_only=True)
class Question(Seeded, Reading, Saving):
    """A question about trained runs, whose options its verb takes as arguments, by the same names.
    """

    def verb(self) -> Verb:
        raise NotImplementedError

    def arguments(self, run: Run | None) -> dict[str, Any]:
        """Return the options that are given, apart from those of `Saving` and the run itself."""
        given = {field.name: getattr(self, field.name) for field in fields(self)
                 if field.name not in ("path", "paths", "out", "overwrite")}
        return {name: value for name, value in given.items() if value not in (None, ())}

    def ask(self, about: Run | list[Run]) -> None:
        """Ask the verb, and save and show what it answers."""
        verb, kind = self.verb()
        arguments = self.arguments(about[0] if isinstance(about, list) else about)
        self.save_result(kind, verb.__name__.replace("_", " "), lambda progress: verb(
            about, progress=progress, **arguments))


@dataclass(frozen=True, kw_only=True)
class OfRun(Question):
    """A question about one run."""

    path: tyro.conf.Positional[RunName]

    def run(self) -> None:
        from latentcode.runs.named import load_run

        self.ask(load_run(self.path))


@dataclass(frozen=True, kw_only=True)
class OfRuns(Question):
    """A question about several runs."""

    paths: tyro.conf.Positional[RunNames]
    LEAST: ClassVar[int] = 1

    def run(self) -> None:
        from latentcode.runs.named import load_run

        check(len(self.paths) >= self.LEAST, f"{len(self.paths) or 'no'} run is given; expected "
              f"{self.LEAST} or more", ProbeError)
        self.ask([load_run(path) for path in self.paths])
