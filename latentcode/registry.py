"""Names that users can add to: what each stands for, and what is said of one that is unknown."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Generic, TypeVar

from latentcode.errors import ConfigError, UnknownNameError, check
from latentcode.sources import Source, caller

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

        `ConfigError` for a name that is taken, or that is not of lower-case letters, digits and
        underscores.
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
