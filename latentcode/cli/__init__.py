"""The command line: `latentcode train | extract | decode | ...`.

Commands are dataclasses, and tyro makes their options from the fields (`parsing.py`). Those that
ask a question are made from the function that answers it (`asking.py`, `questions.py`); the others
have a file each. What is wrong with the words is told by `mistakes.py`. Rooms are imported when a
command runs, so that `--help` imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from latentcode.cli.asking import Verb
from latentcode.cli.explore import Explore
from latentcode.cli.failures import SIGPIPE, flush, of_this_machine, open_streams
from latentcode.cli.generate import Generate
from latentcode.cli.mistakes import Argument, arguments_of, in_flags
from latentcode.cli.options import take_imports
from latentcode.cli.overview import overview
from latentcode.cli.parsing import parse
from latentcode.cli.push import Push
from latentcode.cli.questions import VERBS, own_verbs
from latentcode.cli.reproduce import Reproduce
from latentcode.cli.show import Show
from latentcode.cli.sweep import Sweep
from latentcode.cli.train import Train, train_with_defaults
from latentcode.cli.zoo import Zoo
from latentcode.errors import LatentCodeError

COMMANDS: dict[str, type | Verb] = {
    "train": Train, **VERBS, "generate": Generate, "show": Show, "explore": Explore, "zoo": Zoo,
    "push": Push, "sweep": Sweep, "reproduce": Reproduce}
"""Every command of the library by its name, in the order in which `latentcode --help` lists them.
"""
FORMER: dict[str, str] = {
    "extract-prompts": "extract MODEL --prompts FILE",
    "decode-prompts": "decode MODEL --prompts FILE",
    "intervene-prompts": "intervene MODEL --prompts FILE",
    "decode-rows": "decode MODEL --features row --beyond-answer", "check-model": "zoo check MODEL",
    "text": "zoo text packages|spans FOLDER", "report": "reproduce --report"}
"""Commands that became part of others, and what to write in their place."""


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
    own = own_verbs(COMMANDS)
    if name == "help" and words:
        name, words = words[0], ["--help"]
    if name in ("-h", "--help", "help", ""):
        print(overview(COMMANDS, own))
        raise SystemExit(0 if name else 2)
    if name in ("-V", "--version"):
        from latentcode import __version__

        print(f"latentcode {__version__}")
        raise SystemExit(0)
    name = name.replace("_", "-")
    if name in FORMER:
        raise LatentCodeError(f"latentcode {name} is now latentcode {FORMER[name]}")
    called: Any = COMMANDS.get(name, own.get(name))
    if called is None:
        raise LatentCodeError(_unknown(name, own))
    prog = f"latentcode {name}"
    if called is Train:  # whose flags depend on its words
        train, default = train_with_defaults(arguments)
        return parse(train, words, prog, default)
    return parse(_class_of(called), words, prog)


def _class_of(called: Any) -> Any:
    return called.command if isinstance(called, Verb) else called


def arguments() -> dict[str, list[Argument]]:
    """Return what every command takes, by the words that call it, such as `zoo verify`."""
    found: dict[str, list[Argument]] = {}
    for name, called in COMMANDS.items():
        parts: Mapping[str, type] = getattr(called, "SUBCOMMANDS", {"": _class_of(called)})
        found |= {f"{name} {part}".strip(): list(arguments_of(of)) for part, of in parts.items()}
    return found


def _unknown(name: str, own: Mapping[str, Verb]) -> str:
    what = "option" if name.startswith("-") else "command"
    close = get_close_matches(name, [*COMMANDS, *own, "--help", "--version"], n=1)
    meant = f"; did you mean {close[0]}?" if close else (
        "" if name.startswith("-") else "; one of a probe of yours needs --import FILE")
    return f"unknown {what} {name!r}{meant} (latentcode --help lists all)"


def _stop(status: int, line: str, error: BaseException) -> NoReturn:
    """End with one line: what happened, and what was noted of it, such as how to go on."""
    said = "; ".join(filter(None, (line, *getattr(error, "__notes__", ()))))
    if said:
        print(" ".join(said.split()), file=sys.stderr)
    raise SystemExit(status) from None


__all__ = ["COMMANDS", "arguments", "main"]
