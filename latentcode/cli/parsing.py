"""From the words of a command to the command: tyro reads them, and its errors become one line."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import redirect_stderr
from inspect import getdoc
from typing import Any, Literal, get_origin

import tyro

from latentcode.errors import ConfigError, LatentCodeError

Split = Literal["train", "test", "ood", "unknown"]
IMPORTS = ("With --import FILE, a file of your own that registers tasks, attention, patches or "
           "probes is imported first; it may be given several times.")
"""An option of every command, which `cli.take_imports` reads."""
CONFIG = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes,
          tyro.conf.PositionalMetavarFromFieldName)


def default_is(text: str) -> Any:
    """Say in `--help` what an option that is left out means, where its default does not tell."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {text})")


def parse(command: Any, words: Sequence[str], prog: str, default: Any = None) -> Any:
    """Return the command that words call.

    Args:
        command: A dataclass, one with its type parameters, or a function.
        words: What stands after the name of the command.
        prog: The name of the command, such as `latentcode decode`.
        default: An instance whose values are the defaults, some of which may be None, which is then
            a word, too; default: those of the class, in which None stands for what is left out.

    Raises:
        ConfigError: The command does not take these words; in one line.
        SystemExit: Help was asked for.
    """
    box = io.StringIO()
    given = {} if default is None else {"default": default}
    config = (*CONFIG, tyro.conf.DisallowNone) if default is None else CONFIG
    description = f"{getdoc(get_origin(command) or command)}\n\n{IMPORTS}"
    try:
        with redirect_stderr(box):
            return tyro.cli(command, args=list(words), prog=prog, description=description,
                            config=config, **given)
    except SystemExit as stopped:
        if stopped.code == 0:
            raise
        raise ConfigError(_error_of_a_field(stopped) or in_one_line(box.getvalue())) from None


def in_one_line(box: str) -> str:
    """Return an error that tyro drew as one line: what is wrong, and which option may be meant.

    Rules separate its parts. Where the terminal has no such characters, a title stands before the
    first rule, and there is no frame.
    """
    box = re.sub(r"\x1b\[[\d;]*m", "", box)  # colours, on a terminal
    rows = [row.strip("│ ") for row in box.splitlines() if row[:1] not in ("╭", "╰")]
    parts = re.split(r"(?:^|\n)[─-]{3,}(?:\n|$)", "\n".join(rows))
    problem, *more = [" ".join(part.split()) for part in parts[0 if "╭" in box else 1:]]
    meant = next((re.findall(r"--[\w.-]+", part) for part in more if "you meant" in part), [])
    close = f"; did you mean {meant[0]}?" if meant else ""
    pointer = re.search("latentcode .*--help", more[-1]) if more else None
    return f"{problem}{close} ({pointer[0] if pointer else 'latentcode --help'} lists all options)"


def _error_of_a_field(stopped: BaseException) -> str | None:
    """Return what a configuration said of its fields, which tyro takes for an error of its own."""
    error: BaseException | None = stopped
    while error is not None:
        if isinstance(error, LatentCodeError):
            return str(error)
        error = error.__context__
    return None
