"""What can be opened: the models of the zoo, and runs and codes below the folders given.

Nothing outside those folders is opened, whatever a link or a URL says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from latentcode.errors import ArtifactError, check
from latentcode.runs.run import zoo_folders

ROOTS = "LATENTCODE_EXPLORE"
"""Environment variable with the folders that the explorer may read, as a JSON list."""
GIVEN = "LATENTCODE_EXPLORE_GIVEN"
"""Environment variable that says that somebody has named these folders: what is in them is what he
came for."""
DEPTH = 5
"""How far below a given folder runs and codes are looked for: from a checkout to its results."""
MOST_FOLDERS = 5_000
"""Most folders that are searched, in case somebody starts the explorer in a large one."""

PROJECT = ("pyproject.toml", "setup.py")
"""What makes a folder one of source code."""
NOT_OF_PROJECT = ("tests", "build", "dist")
"""Folders of source code that hold no runs of anybody: those in tests are made to be read there."""
ENVIRONMENT = "pyvenv.cfg"
"""What makes a folder an environment of Python, whatever its name."""
FIRST = "sraven-"
"""How the names of the models that are listed first begin."""
MARKERS: dict[str, Literal["run", "codes"]] = {
    "provenance.json": "run", "codes.safetensors": "codes"}


@dataclass(frozen=True)
class Entry:
    """One of the things that can be opened; each has codes.

    key   what the URL calls it: the name in the zoo, or the path as the list shows it
    path  its folder
    kind  `zoo` and `run` can compute more, `codes` holds what it holds
    """

    key: str
    path: Path
    kind: Literal["zoo", "run", "codes"]


def allowed_folders() -> tuple[Path, ...]:
    """Return the folders that the server was started with."""
    return tuple(Path(folder) for folder in json.loads(os.environ.get(ROOTS, "[]")))


def catalog(roots: Sequence[Path], *, own_first: bool = False) -> list[Entry]:
    """Return all that can be chosen, each once: the zoo, then what is below the folders.

    The zoo begins with a model that is asked for by its name, and else with the task whose problems
    can be drawn: the explorer opens on it. Of what is below the folders, runs come first, those
    without weights last of them, then codes, each by name.

    own_first  what is below the folders comes before the zoo
    """
    asked = {root.resolve() for root in roots}
    zoo = sorted(zoo_folders().items(), key=lambda item: (
        item[1].resolve() not in asked, not item[0].startswith(FIRST)))
    known = {path.resolve() for _, path in zoo}
    below: dict[Path, Entry] = {}
    for root in roots:
        for path, kind in runs_and_codes(root):
            if path.resolve() not in known:
                below.setdefault(path.resolve(), Entry(_key(path, root, roots), path, kind))
    of_zoo = [Entry(name, path, "zoo") for name, path in zoo]
    own = sorted(below.values(), key=lambda entry: (
        entry.kind != "run", entry.kind == "run" and not (entry.path / "checkpoints").is_dir()))
    return own + of_zoo if own_first else of_zoo + own


def is_given() -> bool:
    """Whether somebody has named the folders that the server was started with."""
    return bool(os.environ.get(GIVEN))


def find_entry(key: str, roots: Sequence[Path]) -> Entry:
    """Return the entry that a name of the zoo or a path stands for.

    A path is absolute, or as the list shows it. `ArtifactError` says what is wrong with one that
    lies outside the folders, does not exist, holds neither a run nor codes, or has a link in it
    that leads out of the folders.
    """
    zoo = zoo_folders()
    if key in zoo:
        return Entry(key, zoo[key], "zoo")
    try:
        return _find_below(key, roots)
    except (OSError, RuntimeError, ValueError) as error:
        # No system has such a path: too long, with a null character, with links in a circle.
        raise ArtifactError(f"{key[:80]!r} is not a path that can be opened: {error}") from None


def _find_below(key: str, roots: Sequence[Path]) -> Entry:
    """Return the entry at a path; see `find_entry`."""
    asked = Path(key).expanduser()
    tried = [asked] if asked.is_absolute() else [
        root.parent / key for root in roots] + [root / key for root in roots]
    inside = [(path, root) for path in tried for root in roots if is_below(path, [root])]
    existing = [(path, root) for path, root in inside if path.is_dir()]
    # Written as one in a folder, and leading out of all of them.
    written = [Path(os.path.normpath(path)) for path in tried]
    check(bool(existing) or not any(
        os.path.lexists(path) and any(path.is_relative_to(root) for root in roots)
        and not is_below(path, roots) for path in written),
          f"{key} is a link, or below one, that leads outside the folders that the explorer was "
          "started with; expected a folder inside them, or `latentcode explore FOLDER` with the "
          "folder that the link leads to", ArtifactError)
    if not inside:
        where = ", ".join(map(str, roots)) or "none"
        raise ArtifactError(f"{key} is not a model of the zoo and lies outside the folders that "
                            f"the explorer was started with ({where}); expected one inside them, "
                            "or `latentcode explore FOLDER` with another folder")
    if not existing:
        raise ArtifactError(f"folder {key} does not exist")
    path, root = existing[0]
    for marker, kind in MARKERS.items():
        if (path / marker).is_file():
            check_links(path.resolve(), roots)
            return Entry(_key(path, root, roots), path.resolve(), kind)
    raise ArtifactError(f"{key} holds neither a run (provenance.json) nor codes "
                        "(codes.safetensors)")


def is_below(path: Path, roots: Sequence[Path]) -> bool:
    """Whether a path, with all links followed, lies in one of the folders."""
    return any(path.resolve().is_relative_to(root.resolve()) for root in roots)


def check_links(folder: Path, roots: Sequence[Path]) -> None:
    """Raise `ArtifactError` for a link anywhere in a folder that leads out of the folders given."""
    waiting = [folder]
    while waiting:
        for inside in list(os.scandir(waiting.pop())):
            if inside.is_symlink():
                check(is_below(Path(inside), roots), f"{inside.path} is a link that leads outside "
                      "the folders that the explorer was started with; expected files inside "
                      "them, or `latentcode explore FOLDER` with another folder", ArtifactError)
            elif inside.is_dir():
                waiting.append(Path(inside))


def _key(path: Path, root: Path, roots: Sequence[Path]) -> str:
    """Return the path relative to the folder that holds the root: short, and always the same.

    The whole path where the short one is another folder, below a root of the same name.
    """
    key = path.resolve().relative_to(root.resolve().parent)
    named = (other.resolve().parent / key for other in roots)
    same = next(found for found in named if found.is_dir()) == path.resolve()
    return str(key if same else path.resolve())


def runs_and_codes(root: Path) -> Iterator[tuple[Path, Literal["run", "codes"]]]:
    """Yield the runs and codes in and below a folder, by name.

    Links are not followed, and what belongs to a project and not to a person is left out.
    """
    visited = 0
    waiting = [(root, 0)]
    while waiting and visited < MOST_FOLDERS:
        folder, depth = waiting.pop()
        visited += 1
        try:
            if (folder / ENVIRONMENT).is_file():
                continue
            kind = next((kind for marker, kind in MARKERS.items()
                         if (folder / marker).is_file()), None)
            left_out = NOT_OF_PROJECT if any((folder / name).is_file() for name in PROJECT) else ()
            inner = [Path(inside) for inside in os.scandir(folder)
                     if inside.is_dir(follow_symlinks=False) and not inside.name.startswith(".")
                     and inside.name not in left_out]
        except OSError:
            continue  # a folder that may not be read has nothing to offer
        if kind is not None:
            yield folder, kind
        elif depth < DEPTH:
            waiting += [(path, depth + 1) for path in sorted(inner, reverse=True)]
