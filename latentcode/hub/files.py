"""Which files are shared? Those of this list, in either direction; anything else is refused.

Data in formats that hold no code: safetensors, parquet, JSON, CSV and YAML. No pickle, no script,
no hidden file, no path that leaves the folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from latentcode.errors import HubError, check
from latentcode.hub.address import Kind, described

MANIFEST = "manifest.json"
PAGE = "README.md"
"""What people read on the hub; it is made anew by each push, and not downloaded."""
OF_THE_HUB = frozenset({PAGE, ".gitattributes", "LICENSE", "LICENSE.md", "LICENSE.txt"})
"""Files that a repository may hold beside the shared ones; they are not downloaded."""
PICTURES = frozenset({".png", ".svg"})
"""Pictures of results stay where they are: their tables draw them again."""

_NAME = r"\w[\w.,=+-]*"
PATTERNS: Mapping[Kind, re.Pattern[str]] = {
    "run": re.compile(
        r"config\.yaml|(?:provenance|card)\.json|metrics\.jsonl"
        r"|checkpoints/step_\d{7,}/(?:model\.safetensors|state\.json)"
        r"|text/(?:text\.json|tokenizer\.json|excerpts\.safetensors|documents\.parquet)"
        rf"|results/(?:{_NAME}/)+{_NAME}\.(?:json|csv|parquet|safetensors)", re.ASCII),
    "codes": re.compile(r"codes\.safetensors|labels\.parquet|meta\.json")}
"""The names of the files of each kind, from the top of its folder."""
MOST_FILES = 2_000
MOST_BYTES: Mapping[bool, int] = {False: 2**28, True: 2**36}
"""How large one file may be: text that is read at once, and tables of numbers."""


def check_names(kind: Kind, sizes: Mapping[str, int], where: object) -> None:
    """Raise `HubError` unless every file may be shared.

    sizes  path from the top of the folder -> bytes
    where  the folder or the address, for messages
    """
    check(len(sizes) <= MOST_FILES, f"{where} holds {len(sizes):,} files; expected at most "
          f"{MOST_FILES:,}", HubError)
    for name, size in sizes.items():
        check(name == MANIFEST or PATTERNS[kind].fullmatch(name) is not None, f"{where} holds "
              f"{name!r}, which is no file of {described(kind)}; expected nothing else", HubError)
        most = MOST_BYTES[name.endswith((".safetensors", ".parquet"))]
        check(0 <= size <= most, f"{where} holds {name} of {size} bytes; expected "
              f"at most {most:,}", HubError)


def to_share(kind: Kind, folder: Path) -> dict[str, Path]:
    """Return the files of a folder that are pushed, by name; `HubError` for one that is refused."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))
             if path.is_file()}
    check_names(kind, {name: path.stat().st_size for name, path in files.items()}, folder)
    return files


__all__ = ["MANIFEST", "OF_THE_HUB", "PAGE", "PICTURES", "check_names", "to_share"]
