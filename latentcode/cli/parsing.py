"""The words of a command become its dataclass; what cannot be read is an error of one line."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stderr
from inspect import getdoc
from typing import Any, get_origin

import tyro

from latentcode.cli.mistakes import explained
from latentcode.errors import ConfigError, LatentCodeError

IMPORTS = ("With --import FILE, a file of your own that registers tasks, attention, patches or "
           "probes is imported first; it may be given several times.")
"""What every command takes, and `options.take_imports` reads."""
CONFIG = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes,
          tyro.conf.PositionalMetavarFromFieldName)


def parse(command: Any, words: Sequence[str], prog: str, default: Any = None) -> Any:
    """Return the command that words call.

    command  a dataclass, or one with its type parameters
    prog     what it is called by, such as `latentcode decode`
    default  an instance whose values are the defaults, some of which may be None, which is then a
             word, too; default: those of the class, in which None stands for what is left out

    `ConfigError`, in one line, for words that it does not take; `SystemExit` after `--help`.
    """
    drawn = io.StringIO()
    given = {} if default is None else {"default": default}
    config = (*CONFIG, tyro.conf.DisallowNone) if default is None else CONFIG
    about = f"{getdoc(get_origin(command) or command)}\n\n{IMPORTS}"
    try:
        with redirect_stderr(drawn):
            called = tyro.cli(command, args=list(words), prog=prog, description=about,
                              config=config, **given)
    except SystemExit as stopped:
        if stopped.code == 0:
            raise
        raise ConfigError(_of_a_field(stopped) or explained(command, words, prog)
                          or _undrawn(drawn.getvalue())) from None
    if getattr(called, "model", None) == ():  # tyro takes no words for several
        raise ConfigError(explained(command, words, prog) or "MODEL is missing")
    return called


def _of_a_field(stopped: BaseException) -> str | None:
    """Return what a configuration said of its fields, which tyro takes for an error of its own."""
    error: BaseException | None = stopped
    while error is not None:
        if isinstance(error, LatentCodeError):
            return str(error)
        error = error.__context__
    return None


def _undrawn(box: str) -> str:
    """Return what tyro says in a box, as one line."""
    words = [word for word in box.split() if not set(word) <= set("╭╮╰╯│─•")]
    return " ".join(words) or "the command cannot be read"


__all__ = ["parse"]
