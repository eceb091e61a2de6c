"""Names: those of the library, imported at their first use, and those that users register.

A user's name stands for what a file of the user's registers under it. Such a file is imported
because somebody asked for it, by name: nothing that is read, a run for instance, ever decides what
is imported. Processes that this one starts (workers, the explorer's server) are told what was asked
for here.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb
from types import CodeType
from typing import Any, Generic, TypeVar

from latentcode.errors import ConfigError, LatentCodeError, UnknownNameError, check

PACKAGE = __name__.partition(".")[0]


def lazy_module(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package, from its `if TYPE_CHECKING:`.

    The imports there are what type checkers and readers see; each is done when its name is first
    used (PEP 562).
    """
    home = offered() if package == PACKAGE else _typed_imports(
        inspect.getsource(sys.modules[package]))

    def __getattr__(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home[name]), name)

    def __dir__() -> list[str]:
        return sorted(home)

    return __getattr__, __dir__, sorted(home)


@cache
def offered() -> dict[str, str]:
    """Return every name that `import latentcode as lc` offers, and its module; imports none."""
    typed = _typed_imports(Path(__file__).with_name("__init__.py").read_text(encoding="utf-8"))
    return {**typed, **{name: module for name, (module, _) in probes_of_one_function().items()}}


@cache
def probes_of_one_function() -> dict[str, tuple[str, str]]:
    """Return name -> module and question of the probes of the library that are one function.

    They are found in the text of `probes/`, a function NAME under `@register_probe("NAME", ...)`,
    and not imported; the question is the first line of the docstring.
    """
    probes = {}
    for path in sorted((Path(__file__).parent / "probes").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "\n@register_probe(" not in text:  # the others need not be parsed
            continue
        for function in ast.parse(text).body:
            if isinstance(function, ast.FunctionDef) and any(
                    ast.unparse(decorator).startswith("register_probe(")
                    for decorator in function.decorator_list):
                question = (ast.get_docstring(function) or "").partition("\n")[0]
                probes[function.name] = f"{PACKAGE}.probes.{path.stem}", question
    return probes


def _typed_imports(source: str) -> dict[str, str]:
    """Return name -> module of every `from module import name` under `if TYPE_CHECKING:`."""
    blocks = [node.body for node in ast.parse(source).body
              if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {alias.name: str(line.module) for block in blocks for line in block
            if isinstance(line, ast.ImportFrom) for alias in line.names}


NOWHERE = "a notebook, a script or an interpreter"
"""What stands for a file where there is none that could be imported."""
REGISTER = frozenset({
    "latentcode.registry", "latentcode.tasks.registry", "latentcode.models.registering",
    "latentcode.probes.interventions.patches", "latentcode.probes.registered",
    "latentcode.codes.features"})
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
    """Return where the function was called from that registers something: what is registered may
    come from anywhere, such as `torch.square`, or have no file at all."""
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


Value = TypeVar("Value")
NAME = re.compile(r"[a-z][a-z0-9_]*")
"""Names stand in configurations, folders and URLs."""


class Registry(Mapping[str, Value], Generic[Value]):
    """Name -> what is registered under it, in order.

    what      what its names are names of, such as "task"
    register  the function with which users add one, such as "lc.register_task"
    built_in  those that come with the library, which nothing replaces
    """

    def __init__(self, what: str, register: str, built_in: Mapping[str, Value]) -> None:
        self.what, self.register = what, register
        self._built_in = frozenset(built_in)
        self._values = dict(built_in)
        self._sources: dict[str, Source] = {}

    def add(self, name: str, value: Value, *, replace: bool = False) -> None:
        """Register a value under a name, and remember which file of the user's does so.

        replace  take the place of an earlier value, as when a cell of a notebook runs again

        `ConfigError` for a name that is taken.
        """
        self.check_name(name)
        check(name not in self._built_in,
              f"{self.what} {name!r} comes with latentcode; expected another name")
        if name in self._values and not replace:
            raise ConfigError(f"{self.what} {name!r} is registered already, in {self.file(name)}; "
                              "expected another name, or replace=True")
        self._values[name] = value
        self._sources[name] = caller()

    def check_name(self, name: object) -> None:
        """Raise `ConfigError` for what is no name, such as the function under a bare decorator."""
        check(isinstance(name, str) and NAME.fullmatch(name) is not None,
              f"the name of a {self.what} is {name!r}; expected lower-case letters, digits and "
              f"underscores, a letter first, as in {self.register}(\"name\")")

    def find(
        self, name: str, among: Collection[str] | None = None, *, what: str | None = None
    ) -> Value:
        """Return what a name stands for; `UnknownNameError` that says how one is registered.

        among  the names that can be used here; default: all
        what   what the error calls them, where they are not all of this registry
        """
        valid = self._values if among is None else among
        if not isinstance(name, str) or name not in valid:
            raise UnknownNameError(
                what or self.what, name, valid,
                f"; one of your own is registered with {self.register}, by importing the file "
                "that does so (on the command line --import FILE)")
        return self._values[name]

    def file(self, name: str) -> str | None:
        """The file in which a user registered a name; None for a name of the library."""
        source = self.source(name)
        return None if source is None else source.file

    def source(self, name: str) -> Source | None:
        """Where a user registered a name; None for a name of the library."""
        return self._sources.get(name)

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


IMPORTS = "LATENTCODE_IMPORTS"
"""Environment variable that tells the explorer's server what to import, as a JSON list."""

_imported: list[Import] = []


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
    return tuple(_imported)


def import_again(imports: Iterable[Sequence[str]]) -> None:
    """Import modules from their folders, as the process that started this one did."""
    for module, folder in imports:
        _import_from(module, folder, module)


def in_environment() -> dict[str, str]:
    """Return the variable that `import_from_environment` reads in a process started with it."""
    return {IMPORTS: json.dumps(_imported)}


def import_from_environment() -> None:
    """Import what the process that started this one has put into the environment."""
    import_again(json.loads(os.environ.get(IMPORTS, "[]")))


def _import_from(module: str, folder: str, called: str) -> None:
    """Import a module of a folder, unless another one goes by its name."""
    if (module, folder) in _imported:
        return
    _look_in(folder)
    taken = _found_in(module)
    check(taken is None or (taken.exists() and taken.samefile(folder)),
          f"cannot import {called}: {module} is the name of another module, in {taken}; expected a "
          "file of another name")
    try:
        import_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"cannot import {called}: {_told(error, folder)}") from None
    _imported.append((module, folder))


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
    text = " ".join(str(error).split())
    if not isinstance(error, LatentCodeError):
        text = f"{type(error).__name__}: {text}"
    paths = [(Path(frame.filename), frame.lineno) for frame in extract_tb(error.__traceback__)]
    lines = [f"{path.name}, line {line}: " for path, line in paths
             if path.is_relative_to(folder) and "site-packages" not in path.parts]
    return f"{lines[-1] if lines else ''}{text}"
