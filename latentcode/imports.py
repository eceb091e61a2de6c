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
        check(all(part.isidentifier() for part in name.split(".")), f"cannot import {name}: "
              "expected a file such as my_tasks.py, or a module such as my_package.tasks")
        _look_in(str(Path.cwd()))
        _import_from(name, str(_found_in(name) or Path.cwd()), name)
        return
    check(path.is_file(), f"cannot import {name}: there is no such file")
    check(path.stem.isidentifier(), f"cannot import {name}: expected a file whose name is that of "
          "a module, such as my_tasks.py")
    _import_from(path.stem, str(path.resolve().parent), path.name)


def asked_for() -> tuple[Import, ...]:
    """Return what was imported here, for a process that this one starts."""
    return tuple(_asked)


def import_again(asked: Iterable[Sequence[str]]) -> None:
    """Import modules from their folders, as the process that started this one did."""
    for module, folder in asked:
        _import_from(module, folder, module)


def in_environment() -> dict[str, str]:
    """Return the variable that `import_from_environment` reads in a process started with it."""
    return {IMPORTS: json.dumps(_asked)}


def import_from_environment() -> None:
    """Import what the process that started this one has put into the environment."""
    import_again(json.loads(os.environ.get(IMPORTS, "[]")))


def _import_from(module: str, folder: str, called: str) -> None:
    """Import a module of a folder, unless another one goes by its name."""
    if (module, folder) in _asked:
        return
    _look_in(folder)
    found = _found_in(module)
    check(found is None or (found.exists() and found.samefile(folder)),
          f"cannot import {called}: {module} is the name of another module, in {found}; expected a "
          "file of another name")
    try:
        import_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"cannot import {called}: {_told(error, folder)}") from None
    _asked.append((module, folder))


def _found_in(module: str) -> Path | None:
    """Return the folder in which Python finds a module or its package; None where it is in none."""
    spec = find_spec(module.partition(".")[0])
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0]).parent
    return Path(spec.origin).parent if spec.has_location and spec.origin else None


def _look_in(folder: str) -> None:
    if folder not in sys.path:
        sys.path.append(folder)


def _told(error: BaseException, folder: str) -> str:
    """Return what an error says, in one line, and where in the user's files it was raised."""
    said = " ".join(str(error).split())
    if not isinstance(error, LatentCodeError):
        said = f"{type(error).__name__}: {said}"
    paths = [(Path(frame.filename), frame.lineno) for frame in extract_tb(error.__traceback__)]
    lines = [f"{path.name}, line {line}: " for path, line in paths
             if path.is_relative_to(folder) and "site-packages" not in path.parts]
    return f"{lines[-1] if lines else ''}{said}"
