"""What may others rely on? Every public name, command, option and column of a result, in one list.

    python docs/surface.py          print the list
    python docs/surface.py --write  write it to docs/surface.txt, which a test compares

A change of this list is a change that users notice: it belongs in CHANGELOG.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

import latentcode as lc
from latentcode.cli import COMMANDS
from latentcode.files.migrations import CURRENT
from latentcode.probes.saved import RESULTS

LIST = Path(__file__).with_name("surface.txt")


def surface() -> str:
    """Return the list, a heading with a number before each part."""
    parts = {
        "public names": sorted(lc.__all__),
        "commands": [f"latentcode {name}" for name in COMMANDS],
        "options": [f"{name} {option}" for name in COMMANDS for option in _options(name)],
        "columns of results": sorted(
            f"{kind.__name__}.{table}: {', '.join(columns)}"
            for kind in RESULTS for table, columns in kind.COLUMNS.items()),
        "formats": sorted(f"{name} {version}" for name, version in CURRENT.items())}
    return "\n".join(f"# {len(lines)} {title}\n" + "".join(f"{line}\n" for line in lines)
                     for title, lines in parts.items())


def _options(name: str) -> Iterator[str]:
    """Yield the options of a command; what must be given has no brackets."""
    for field in fields(COMMANDS[name]):
        option = f"--{field.name.replace('_', '-')}"
        given = field.default is MISSING and field.default_factory is MISSING
        yield option if given else f"[{option}]"


def main() -> None:
    if "--write" in sys.argv[1:]:
        LIST.write_text(surface(), encoding="utf-8")
        print(f"wrote {LIST}")
    else:
        print(surface(), end="")


if __name__ == "__main__":
    main()
