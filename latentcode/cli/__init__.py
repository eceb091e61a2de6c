"""The command line: `latentcode train | extract | decode | ...`, one file per question.

Commands are dataclasses, and tyro makes their options from the fields, those of the configuration
included (`parsing.py`); what is wrong with the words is told by `mistakes.py`. Rooms are imported
when a command runs, so that `latentcode --help` imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from latentcode.cli.align import Align
from latentcode.cli.attribute import Attribute
from latentcode.cli.check_model import CheckModel
from latentcode.cli.das import DAS
from latentcode.cli.decode import Decode
from latentcode.cli.demo import Demo
from latentcode.cli.explore import Explore
from latentcode.cli.extract import Extract
from latentcode.cli.failures import SIGPIPE, flush, of_this_machine, open_streams
from latentcode.cli.intervene import Intervene
from latentcode.cli.knn_purity import KNNPurity
from latentcode.cli.mistakes import in_flags
from latentcode.cli.official import ExportFlax, ImportFlax, Parity
from latentcode.cli.options import take_imports
from latentcode.cli.overview import overview
from latentcode.cli.parsing import parse
from latentcode.cli.project import Project
from latentcode.cli.prompts import DecodePrompts, ExtractPrompts, IntervenePrompts
from latentcode.cli.push import Push
from latentcode.cli.reproduce import Report, Reproduce
from latentcode.cli.show import Show
from latentcode.cli.similarity import Similarity
from latentcode.cli.sweep import Sweep
from latentcode.cli.text import Text
from latentcode.cli.topography import Topography
from latentcode.cli.train import Train, train_with_defaults
from latentcode.cli.value_networks import ValueNetworks
from latentcode.cli.zoo import Zoo
from latentcode.errors import LatentCodeError

COMMANDS: dict[str, type] = {
    "train": Train, "extract": Extract, "decode": Decode,
    "project": Project, "knn-purity": KNNPurity, "similarity": Similarity,
    "topography": Topography, "align": Align, "value-networks": ValueNetworks,
    "intervene": Intervene, "attribute": Attribute, "das": DAS, "show": Show,
    "explore": Explore, "zoo": Zoo, "push": Push, "sweep": Sweep, "demo": Demo,
    "text": Text, "reproduce": Reproduce, "report": Report,
    "extract-prompts": ExtractPrompts, "decode-prompts": DecodePrompts,
    "intervene-prompts": IntervenePrompts, "check-model": CheckModel,
    "import-flax": ImportFlax, "export-flax": ExportFlax, "parity": Parity}
"""Every command by its name, in the order in which `latentcode --help` lists them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error that a user can act on is one line and exit status 2."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    open_streams()
    try:
        try:
            _parsed(take_imports(arguments)).run()
        finally:
            flush()
    except LatentCodeError as error:
        _stop(2, f"error: {in_flags(str(error), arguments)}", error)
    except BrokenPipeError:
        raise SystemExit(SIGPIPE) from None
    except (MemoryError, OSError, RuntimeError) as error:
        message = of_this_machine(error)
        if message is None:
            raise  # a mistake of ours, whose traceback says where
        _stop(2, f"error: {message}", error)
    except KeyboardInterrupt as interruption:
        # Where an interruption has a message, training has shown it already.
        _stop(130, "" if interruption.args else "interrupted", interruption)


def _parsed(arguments: Sequence[str]) -> Any:
    """Return the command that the arguments call; `SystemExit` where they ask for help."""
    name, words = next(iter(arguments), ""), arguments[1:]
    if name == "help" and words:
        name, words = words[0], ["--help"]
    if name in ("-h", "--help", "help", ""):
        print(overview(COMMANDS))
        raise SystemExit(0 if name else 2)
    if name in ("-V", "--version"):
        from latentcode import __version__

        print(f"latentcode {__version__}")
        raise SystemExit(0)
    called: Any = COMMANDS.get(name.replace("_", "-"))
    if called is None:
        raise LatentCodeError(_unknown(name))
    prog = f"latentcode {name}"
    if called is Train:  # whose flags depend on its words
        train, default = train_with_defaults(arguments)
        return parse(train, words, prog, default)
    # To leave an option out is what None stands for; a configuration may need the word.
    return parse(called, words, prog, disallow_none=True)


def _unknown(name: str) -> str:
    what = "option" if name.startswith("-") else "command"
    close = get_close_matches(name, [*COMMANDS, "--help", "--version"], n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    return f"unknown {what} {name!r}{meant} (latentcode --help lists all)"


def _stop(status: int, line: str, error: BaseException) -> NoReturn:
    """End with one line: what happened, and what was noted of it, such as how to go on."""
    said = "; ".join(filter(None, (line, *getattr(error, "__notes__", ()))))
    if said:
        print(" ".join(said.split()), file=sys.stderr)
    raise SystemExit(status) from None


__all__ = ["COMMANDS", "main"]
