"""Runs a page of the documentation, block by block, and compares what it prints."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tyro

from latentcode.cli import main
from latentcode.experiments.examples import small_language_models

BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?",
                   re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?(?:\d+\.\d+|\bnan\b)%?")


def words_of(printed: str, block: str, measured: Collection[str] = ()) -> list[list[str]]:
    """Return the words of every line, without measured numbers, which another machine may round
    otherwise; of blocks that print measured words the first of each line.

    measured  what such blocks have in them
    """
    lines = [NUMBER.sub("", line).replace("[, ]", "").split() for line in printed.splitlines()]
    return [line[:1] if any(name in block for name in measured) else line for line in lines]


def run_commands(block: str) -> None:
    """Run the commands of a block that a page may have."""
    for line in block.replace("\\\n", " ").splitlines():
        match shlex.split(line, comments=True):
            case ["python", "-m", module, *arguments]:
                assert module == small_language_models.__name__
                tyro.cli(small_language_models.main, args=arguments,
                         config=(tyro.conf.PositionalRequiredArgs,))
            case ["latentcode", *arguments]:
                main(arguments)
            case other:
                assert not other, line


def run_page(text: str, folder: Path, measured: Collection[str] = ()) -> Mapping[str, Any]:
    """Run every block in order in a folder, and return the names that are there at the end.

    measured  as in `words_of`
    """
    names: dict[str, Any] = {"__name__": "example"}
    with contextlib.chdir(folder):
        for kind, block, shown in BLOCK.findall(text):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                if kind == "bash":
                    run_commands(block)
                else:
                    exec(block, names)
            if kind == "python":
                found, expected = (words_of(one, block, measured)
                                   for one in (printed.getvalue(), shown))
                assert found == expected, block
    return names
