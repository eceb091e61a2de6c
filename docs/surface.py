"""What may others rely on? Every public name, command, option and column of a result, in one list.

    python docs/surface.py          print the list
    python docs/surface.py --write  write it to docs/surface.txt, and the rows of registered probes
                                    in docs/commands.md; a test compares both

A change of this list is a change that users notice: it belongs in CHANGELOG.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

import latentcode as lc
from latentcode.cli import COMMANDS, arguments
from latentcode.cli.questions import VERBS
from latentcode.files.formats import VERSION
from latentcode.probes.saved import RESULTS

LIST = Path(__file__).with_name("surface.txt")
COMMANDS_PAGE = Path(__file__).with_name("commands.md")


def surface() -> str:
    """Return the list, a heading with a number before each part."""
    parts = {
        "public names": sorted(lc.__all__),
        "commands": [f"latentcode {name}" for name in COMMANDS],
        # What must be given has no brackets.
        "options": [f"{words} {each.name}" if each.required else f"{words} [{each.name}]"
                    for words, taken in arguments().items() for each in taken],
        "columns of results": sorted(
            f"{kind.__name__}.{table}: {', '.join(columns)}"
            for kind in RESULTS for table, columns in kind.COLUMNS.items()),
        "version of formats": [VERSION]}
    return "\n".join(f"# {len(lines)} {title}\n" + "".join(f"{line}\n" for line in lines)
                     for title, lines in parts.items())


def commands_page() -> str:
    """Return docs/commands.md with a row for every registered probe at the end of its first table.
    """
    result = lc.ProbeResult.__name__
    rows = [f"| {verb.described.text.partition(chr(10))[0]} | `lc.{verb.name}(model)` | "
            f"`latentcode {name} MODEL` | ✓ | ✓ | ✓ | Results | `{result}` |"
            for name, verb in VERBS.items() if verb.described.returns == result]
    lines = [line for line in COMMANDS_PAGE.read_text(encoding="utf-8").split("\n")
             if not line.endswith(f"| `{result}` |")]
    end = next(i for i, line in enumerate(lines) if i and not line and lines[i - 1][:1] == "|")
    return "\n".join([*lines[:end], *rows, *lines[end:]])


def main() -> None:
    if "--write" in sys.argv[1:]:
        COMMANDS_PAGE.write_text(commands_page(), encoding="utf-8")
        LIST.write_text(surface(), encoding="utf-8")
        print(f"wrote {LIST}")
    else:
        print(surface(), end="")


if __name__ == "__main__":
    main()
