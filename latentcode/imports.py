"""Files of users that register names: imported because somebody asked for them, by name.

Nothing that is read, a run for instance, ever decides what is imported. Processes that this one
starts (workers, the explorer's server) are told what was asked for here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb

from latentcode.errors import ConfigError, LatentCodeError, check
from latentcode.sources import Import

IMPORTS = "LATENTCODE_IMPORTS"
"""Environment variable that tells the explorer's server what to import, as a JSON list."""

_asked: list[Import] = []


def import_file(name: str) -> None:
    """Import a file such as `my_tasks.py`, or a module such as `my_package.tasks`.

    The folder of the file, or the present one for a module, comes last on `sys.path`.
    `ConfigError` names the file, where in it something went wrong, and what.
    """
    path = Path(name)
    if path.suffix != ".py":
        import_again([(name, str(Path.cwd()))])
        return
    check(path.is_file(), f"cannot import {name}: there is no such file")
    check(path.stem.isidentifier(), f"cannot import {name}: expected a file whose name is that of "
          "a module, such as my_tasks.py")
    _look_in(str(path.resolve().parent))
    found = find_spec(path.stem)
    origin = None if found is None else found.origin
    mine = origin is not None and Path(origin).exists() and path.samefile(origin)
    check(mine, f"cannot import {name}: {path.stem} is the name of another module ({origin}); "
          "expected a file of another name")
    import_again([(path.stem, str(path.resolve().parent))])


def asked_for() -> tuple[Import, ...]:
    """Return what was imported here, for a process that this one starts."""
    return tuple(_asked)


def import_again(asked: Iterable[Sequence[str]]) -> None:
    """Import modules from their folders, as the process that started this one did."""
    for module, folder in asked:
        if (module, folder) in _asked:
            continue
        _look_in(folder)
        try:
            import_module(module)
        except (Exception, SystemExit) as error:
            raise ConfigError(f"cannot import {module}: {_told(error, folder)}") from None
        _asked.append((module, folder))


def in_environment() -> dict[str, str]:
    """Return the variable that `import_from_environment` reads in a process started with it."""
    return {IMPORTS: json.dumps(_asked)}


def import_from_environment() -> None:
    """Import what the process that started this one has put into the environment."""
    import_again(json.loads(os.environ.get(IMPORTS, "[]")))


def _look_in(folder: str) -> None:
    if folder not in sys.path:
        sys.path.append(folder)


def _told(error: BaseException, folder: str) -> str:
    """Return the last line of an error, and where in the user's files it was raised."""
    said = (str(error).splitlines() or [""])[-1]
    if not isinstance(error, LatentCodeError):
        said = f"{type(error).__name__}: {said}"
    lines = [f"{Path(frame.filename).name}, line {frame.lineno}: "
             for frame in extract_tb(error.__traceback__)
             if Path(frame.filename).is_relative_to(folder)]
    return f"{lines[-1] if lines else ''}{said}"
