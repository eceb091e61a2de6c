"""The command line: `latentcode train | extract | decode | show | sweep | ...`.

Commands are dataclasses, and tyro makes their flags from the fields, those of the configuration
included. Rooms are opened when a command runs, so that `latentcode --help` imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, Union

import tyro

from latentcode.cli.experiments import Demo, Sweep
from latentcode.cli.explore import Explore
from latentcode.cli.intervene import Intervene
from latentcode.cli.official import ExportFlax, ImportFlax, Parity
from latentcode.cli.projection import Project, ValueNetworks
from latentcode.cli.prompts import DecodePrompts, ExtractPrompts, IntervenePrompts
from latentcode.cli.reading import Decode, Extract, Show
from latentcode.cli.similarity import Align, Similarity, Topography
from latentcode.cli.train import train_command
from latentcode.cli.zoo import Zoo
from latentcode.errors import LatentCodeError

COMMANDS: dict[str, type] = {
    "extract": Extract, "decode": Decode, "intervene": Intervene, "show": Show, "parity": Parity,
    "import-flax": ImportFlax, "export-flax": ExportFlax, "demo": Demo, "sweep": Sweep,
    "project": Project, "value-networks": ValueNetworks,
    "extract-prompts": ExtractPrompts, "decode-prompts": DecodePrompts,
    "intervene-prompts": IntervenePrompts,
    "similarity": Similarity, "topography": Topography, "align": Align, "zoo": Zoo,
    "explore": Explore}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error that a user can act on is one line and exit status 2."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        others = [Annotated[command, tyro.conf.subcommand(name)]
                  for name, command in COMMANDS.items()]
        # The type is made at run time, because the defaults of `train` are.
        command_type: Any = Union[(train_command(arguments), *others)]
        command = tyro.cli(
            command_type, args=arguments, prog="latentcode",
            description="Latent codes of attention: train, extract, decode, show.",
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes))
        command.run()
    except LatentCodeError as error:
        _print_lines(f"error: {error}", *getattr(error, "__notes__", ()))
        raise SystemExit(2) from None
    except KeyboardInterrupt as interruption:
        _print_lines(*getattr(interruption, "__notes__", ()))
        raise SystemExit(130) from None


def _print_lines(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr)


__all__ = ["COMMANDS", "main"]
