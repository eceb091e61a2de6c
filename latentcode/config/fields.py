"""What the fields of several configurations share: checks, and defaults that came later."""

from __future__ import annotations

from dataclasses import field
from functools import cache
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints

from latentcode.errors import check_choice, check_whole
from latentcode.seeds import BELOW, checked_seed

T = TypeVar("T")
LATER, FILLED_IN = "later", "filled_in"


def later(default: T) -> T:
    """A field that older files do not have: it is left out where it has its default."""
    return field(default=default, metadata={LATER: True})


def filled_in() -> str:
    """A later field that is empty until training begins, and then says what was found."""
    return field(default="", metadata={LATER: True, FILLED_IN: True})


# Reading the claims builds hundreds of configurations of a few classes.
hints_of = cache(get_type_hints)


def check_choices(owner: str, config: object) -> None:
    """Raise `UnknownNameError` unless every field that has choices, a `Literal`, holds one."""
    for name, hint in hints_of(type(config)).items():  # type: ignore[arg-type]
        if get_origin(hint) is Literal:
            check_choice(f"{owner}.{name}", getattr(config, name), get_args(hint))


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_fields(owner: str, config: object, least: int, *names: str) -> None:
    """Raise `ConfigError` unless these fields are whole numbers of at least `least`."""
    for name in names:
        check_whole(f"{owner}.{name}", getattr(config, name), least)


def check_seed(owner: str, config: object, name: str) -> None:
    """Raise `ConfigError` unless a field is a seed, and an `int`: it is hashed as it stands."""
    value = getattr(config, name)
    check_whole(f"{owner}.{name}", value, 0, most=BELOW - 1)
    checked_seed(value, f"{owner}.{name}")
