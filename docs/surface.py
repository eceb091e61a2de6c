"""What may others rely on? Every public name, command, option and column of a result, in one list.

    python docs/surface.py          print the list
    python docs/surface.py --write  write it to docs/surface.txt, which a test compares

A change of this list is a change that users notice: it belongs in CHANGELOG.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

import latentcode as lc
from latentcode.cli import COMMANDS, arguments
from latentcode.files.migrations import CURRENT
from latentcode.probes.saved import RESULTS

LIST = Path(__file__).with_name("surface.txt")


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
        "formats": sorted(f"{name} {version}" for name, version in CURRENT.items())}
    return "\n".join(f"# {len(lines)} {title}\n" + "".join(f"{line}\n" for line in lines)
                     for title, lines in parts.items())


def main() -> None:
    if "--write" in sys.argv[1:]:
        LIST.write_text(surface(), encoding="utf-8")
        print(f"wrote {LIST}")
    else:
        print(surface(), end="")


if __name__ == "__main__":
    main()
