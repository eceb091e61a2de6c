"""The command line: `latentcode train | extract | decode | ...`, one file per question.

Commands are dataclasses, and tyro makes their options from the fields, those of the configuration
included. Rooms are imported when a command runs, so that `latentcode --help` imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Union

import tyro

from latentcode.cli.align import Align
from latentcode.cli.decode import Decode
from latentcode.cli.demo import Demo
from latentcode.cli.explore import Explore
from latentcode.cli.extract import Extract
from latentcode.cli.intervene import Intervene
from latentcode.cli.official import ExportFlax, ImportFlax, Parity
from latentcode.cli.options import take_imports
from latentcode.cli.project import Project
from latentcode.cli.prompts import DecodePrompts, ExtractPrompts, IntervenePrompts
from latentcode.cli.show import Show
from latentcode.cli.similarity import Similarity
from latentcode.cli.sweep import Sweep
from latentcode.cli.topography import Topography
from latentcode.cli.train import Train, train_with_defaults
from latentcode.cli.value_networks import ValueNetworks
from latentcode.cli.zoo import Zoo
from latentcode.errors import LatentCodeError, UnknownNameError

COMMANDS: dict[str, type] = {
    "train": Train, "extract": Extract, "decode": Decode, "project": Project,
    "similarity": Similarity, "topography": Topography, "align": Align,
    "value-networks": ValueNetworks, "intervene": Intervene, "show": Show, "explore": Explore,
    "zoo": Zoo, "sweep": Sweep, "demo": Demo, "extract-prompts": ExtractPrompts,
    "decode-prompts": DecodePrompts, "intervene-prompts": IntervenePrompts,
    "import-flax": ImportFlax, "export-flax": ExportFlax, "parity": Parity}
"""Every command by its name, in the order in which `latentcode --help` lists them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error that a user can act on is one line and exit status 2."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _parsed(take_imports(arguments)).run()
    except LatentCodeError as error:
        _print_lines(f"error: {error}", *getattr(error, "__notes__", ()))
        raise SystemExit(2) from None
    except KeyboardInterrupt as interruption:
        _print_lines(*getattr(interruption, "__notes__", ()))
        raise SystemExit(130) from None


def _parsed(arguments: Sequence[str]) -> Any:
    """Return the command that the arguments call; where none is called, help lists them all."""
    parse = partial(tyro.cli, config=(
        tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes,
        tyro.conf.PositionalMetavarFromFieldName))
    name = next(iter(arguments), "")
    called: Any = COMMANDS.get(name)
    if called not in (None, Train):
        # To leave an option out is what None stands for; a configuration may need the word.
        called = Annotated[called, tyro.conf.DisallowNone]
        return parse(called, args=arguments[1:], prog=f"latentcode {name}")
    if called is None and name and not name.startswith("-"):
        raise UnknownNameError("command", name, COMMANDS)
    # The flags of `train` depend on its words; a list has the first line of each docstring.
    train, default = train_with_defaults(arguments if called else ())
    whole = None if called else _summary(Train)
    listed: list[Any] = [Annotated[train, tyro.conf.subcommand(
        "train", default=default, description=whole)]]
    listed += [Annotated[kind, tyro.conf.subcommand(other, description=_summary(kind))]
               for other, kind in COMMANDS.items() if kind is not Train]
    return parse(
        Union[tuple(listed)],  # noqa: UP007  (of as many types as there are)
        args=arguments, prog="latentcode",
        description="Train transformers, read the latent codes of their attention, see what the "
                    "codes say and what they cause. Every command takes --import FILE.py, a file "
                    "of your own that registers tasks or attention.")


def _summary(command: type) -> str:
    return str(command.__doc__).partition("\n")[0]


def _print_lines(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr)


__all__ = ["COMMANDS", "main"]
