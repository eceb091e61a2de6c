"""`latentcode zoo list | verify | check | text`: models and texts to work with."""

from __future__ import annotations

import sys
from collections.abc import Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, TypeVar

import tyro

from latentcode.cli.check_model import CheckModel
from latentcode.cli.options import default_is
from latentcode.cli.text import Text
from latentcode.errors import LatentCodeError

T = TypeVar("T", bound=Sized)


@dataclass(frozen=True)
class List:
    """Print a table of the models: task, kind, size and metrics on every split.

    Example: latentcode zoo list
    """

    def run(self) -> None:
        from latentcode import zoo
        from latentcode.runs import named

        table = _some(zoo.list_models()).drop(columns="summary").dropna(axis="columns", how="all")
        formats = {"parameters": "{:,}".format, "megabytes": "{:.1f}".format}
        print(table.rename_axis(None).to_string(
            formatters=formats, float_format="{:.3f}".format, na_rep=""))
        print(f"a page about each: {named.ZOO}/NAME/README.md")


@dataclass(frozen=True)
class Verify:
    """Check that models are what their cards say: files, metrics on every split, codes.

    Example: latentcode zoo verify sraven-hyla --n 1000

    If one is not, the exit status is 1 and the output says what differs. Needs no network and
    writes nothing.
    """

    names: tyro.conf.Positional[
        Annotated[tuple[str, ...], default_is("all of the zoo")]] = field(default=())
    """Models, or folders of zoo entries."""
    n: Annotated[int | None, default_is("as in the card; about half a minute per model")] = None
    """Number of instances of each split. With fewer than the card's, metrics may differ by four
    standard errors more."""

    def run(self) -> None:
        from latentcode import zoo
        from latentcode.progress import bar
        from latentcode.runs import named

        failed = False
        for name in self.names or tuple(map(str, _some(named.all_folders()))):
            title = f"evaluating {Path(name).name.removeprefix(named.ZOO_PREFIX)}"
            with bar(title) as progress:
                found = zoo.verify(name, n=self.n, progress=progress)
            failed = failed or bool(found.problems)
            print(found, file=sys.stderr if found.problems else sys.stdout, flush=True)
        if failed:
            raise SystemExit(1)


@dataclass(frozen=True)
class Zoo:
    """List or verify the models of the library, check a language model, write texts.

    Example: latentcode zoo list
    """

    SUBCOMMANDS: ClassVar[dict[str, type]] = {
        "list": List, "verify": Verify, "check": CheckModel, "text": Text}
    command: (Annotated[List, tyro.conf.subcommand("list")]
              | Annotated[Verify, tyro.conf.subcommand("verify")]
              | Annotated[CheckModel, tyro.conf.subcommand("check")]
              | Annotated[Text, tyro.conf.subcommand("text")])

    def run(self) -> None:
        self.command.run()


def _some(models: T) -> T:
    """Return the models of the zoo, or raise an error if there are none."""
    if len(models) == 0:
        raise LatentCodeError("this installation of latentcode has no models in its zoo")
    return models
