"""The surface that others rely on: public names, commands, options, columns of results, formats.

    python docs/surface.py          print the list
    python docs/surface.py --write  write it to docs/surface.txt, which a test compares

A change of this list is a change that users notice: it belongs in CHANGELOG.md. Probes that are one
function are not in it: they are found where they lie, with the options that all of them have.
"""

from __future__ import annotations

import io
import os
import re
import sys
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path
from unittest.mock import patch

import latentcode as lc
from latentcode.cli import COMMANDS, main
from latentcode.files.provenance import VERSION
from latentcode.probes.common.results import RESULTS, result_class
from latentcode.registry import probes_of_one_function

LIST = Path(__file__).with_name("surface.txt")
OPTION = re.compile(r"^(?:│ |  )(--[a-z][\w.-]*|[A-Z]+)\b", re.MULTILINE)
"""An option, or the name of a word that stands alone, in the help that tyro draws."""


def surface() -> str:
    """Return the list, a heading with a number before each part."""
    short = probes_of_one_function()
    commands = [name for name in COMMANDS if name.replace("-", "_") not in short]
    parts = {
        "public names": sorted({*lc.__all__} - {*short}),
        "commands": [f"latentcode {name}" for name in commands],
        "options": [f"{words} {option}" for words, taken in options().items() for option in taken
                    if words.partition(" ")[0] in commands],
        "columns of results": sorted(
            f"{kind.__name__}.{table}: {', '.join(columns)}"
            for kind in map(result_class, RESULTS) for table, columns in kind.COLUMNS.items()),
        "version of formats": [VERSION]}
    return "\n".join(f"# {len(lines)} {title}\n" + "".join(f"{line}\n" for line in lines)
                     for title, lines in parts.items())


@cache
def options() -> dict[str, list[str]]:
    """Return what every command takes, by its words, such as `zoo list`, from its `--help`."""
    taken = {}
    for name in COMMANDS:
        text = help_of(name)
        parts = re.search(r"^usage: .*\{([\w,-]+)\}$", text, re.MULTILINE)
        for words in [f"{name} {part}" for part in parts[1].split(",")] if parts else [name]:
            taken[words] = OPTION.findall(help_of(words))
    return taken


def help_of(words: str) -> str:
    """Return what `latentcode WORDS --help` prints."""
    printed = io.StringIO()
    with (patch.dict(os.environ, {"COLUMNS": "200"}), redirect_stdout(printed),
          suppress(SystemExit)):
        main([*words.split(), "--help"])
    return printed.getvalue()


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        LIST.write_text(surface(), encoding="utf-8")
        print(f"wrote {LIST}")
    else:
        print(surface(), end="")
