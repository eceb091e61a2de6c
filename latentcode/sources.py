"""Where does a name that a user registers come from?"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import CodeType
from typing import Any

NOWHERE = "a notebook, a script or an interpreter"
"""What stands for a file where there is none that could be imported."""
REGISTER = frozenset({
    "latentcode.registry", "latentcode.sources", "latentcode.tasks.registry",
    "latentcode.models.registering", "latentcode.probes.interventions.patches",
    "latentcode.probes.registered", "latentcode.codes.features"})
"""Modules whose functions users call to register something."""

Import = tuple[str, str]
"""A module of the user's, and the folder that it is looked for in."""


@dataclass(frozen=True)
class Source:
    """The code that registers a name.

    file    what `--import` takes: `my_tasks.py`, or `my_package.tasks`; `NOWHERE` without one
    module  what another process imports to have the name, too; None where there is nothing
    digest  SHA-256 of the file as it was when the name was registered; None without a file
    """

    file: str
    module: Import | None = None
    digest: str | None = None


def caller() -> Source:
    """Return where the function was called from that registers something.

    It is the caller that counts, not the function that is registered: that one may come from
    anywhere, such as `torch.square`, or have no file at all.
    """
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__") in REGISTER:
        frame = frame.f_back
    return _source(frame.f_code, frame.f_globals)


def _source(code: CodeType, space: dict[str, Any]) -> Source:
    path = Path(code.co_filename)
    # A cell of a notebook has a file whose name is a number.
    if path.suffix != ".py" or not path.stem.isidentifier():
        return Source(NOWHERE)
    spec = space.get("__spec__")
    module = path.stem if spec is None else spec.name
    packaged = "." in module or path.name == "__init__.py"
    try:
        digest = sha256(path.read_bytes()).hexdigest()
    except OSError:  # the cell of another kind of notebook, or a module inside an archive
        digest = None
    # What a new process does with the main module is not up to us.
    imported = None if space.get("__name__") == "__main__" or digest is None else (
        module, str(folder_of(module, path)))
    return Source(module if packaged else path.name, imported, digest)


def folder_of(module: str, path: Path) -> Path:
    """Return the folder on `sys.path` in which a module lies whose file is `path`."""
    return path.absolute().parents[module.count(".") + (path.name == "__init__.py")]
