"""`latentcode zoo list | check | text`: models and texts to work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import tyro

from latentcode.cli.check_model import CheckModel
from latentcode.cli.text import Text
from latentcode.errors import LatentCodeError


@dataclass(frozen=True)
class List:
    """Print a table of the models: task, kind, size and metrics on every split.

    Example: latentcode zoo list
    """

    def run(self) -> None:
        from latentcode import zoo
        from latentcode.runs import named

        models = zoo.list_models()
        if len(models) == 0:
            raise LatentCodeError("this installation of latentcode has no models in its zoo")
        table = models.drop(columns="summary").dropna(axis="columns", how="all")
        formats = {"parameters": "{:,}".format, "megabytes": "{:.1f}".format}
        print(table.rename_axis(None).to_string(
            formatters=formats, float_format="{:.3f}".format, na_rep=""))
        print(f"a page about each: {named.ZOO}/NAME/README.md")


@dataclass(frozen=True)
class Zoo:
    """List the models of the library, check a language model, write texts.

    Example: latentcode zoo list
    """

    SUBCOMMANDS: ClassVar[dict[str, type]] = {
        "list": List, "check": CheckModel, "text": Text}
    command: (Annotated[List, tyro.conf.subcommand("list")]
              | Annotated[CheckModel, tyro.conf.subcommand("check")]
              | Annotated[Text, tyro.conf.subcommand("text")])

    def run(self) -> None:
        self.command.run()
