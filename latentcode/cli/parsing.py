"""The words of a command become its dataclass; what cannot be read is an error of one line."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from inspect import getdoc
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    UnsupportedTypeAnnotationError,
)

from latentcode.cli.mistakes import explained
from latentcode.errors import ConfigError, LatentCodeError

REGISTRY = ConstructorRegistry()
IMPORTS = ("With --import FILE, a file of your own that registers tasks or attention is imported "
           "first; it may be given several times.")
"""What every command takes, and `options.take_imports` reads."""
CONFIG = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes,
          tyro.conf.PositionalMetavarFromFieldName)


def parse(
    command: Any, words: Sequence[str], prog: str, default: Any = None, *,
    disallow_none: bool = False,
) -> Any:
    """Return the command that words call.

    command  a dataclass, or one with its type parameters
    prog     what it is called by, such as `latentcode decode`
    default  an instance whose values are the defaults; default: those of the class
    disallow_none  whether the word None is a word like any other

    `ConfigError`, in one line, for words that it does not take; `SystemExit` after `--help`.
    """
    drawn = io.StringIO()
    given = {} if default is None else {"default": default}
    config = (*CONFIG, tyro.conf.DisallowNone) if disallow_none else CONFIG
    about = f"{getdoc(get_origin(command) or command)}\n\n{IMPORTS}"
    try:
        with redirect_stderr(drawn):
            called = tyro.cli(command, args=list(words), prog=prog, description=about,
                              config=config, registry=REGISTRY, **given)
    except SystemExit as stopped:
        if stopped.code == 0:
            raise
        raise ConfigError(_of_a_field(stopped) or explained(command, words, prog)
                          or _undrawn(drawn.getvalue())) from None
    if getattr(called, "model", None) == ():  # tyro takes no words for several
        raise ConfigError(explained(command, words, prog) or "MODEL is missing")
    return called


def _of_a_field(stopped: BaseException) -> str | None:
    """Return what a configuration said of its fields, which tyro takes for an error of its own."""
    error: BaseException | None = stopped
    while error is not None:
        if isinstance(error, LatentCodeError):
            return str(error)
        error = error.__context__
    return None


def _undrawn(box: str) -> str:
    """Return what tyro says in a box, as one line."""
    words = [word for word in box.split() if not set(word) <= set("╭╮╰╯│─•")]
    return " ".join(words) or "the command cannot be read"


def _spec(hint: Any, info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    found = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(hint, info.markers))
    return None if isinstance(found, UnsupportedTypeAnnotationError) else found


@REGISTRY.primitive_rule
def or_none(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """X | None reads `X or None` in the help, in place of `{None}|X`."""
    options = get_args(info.type)
    if (info.type_origin not in (Union, UnionType) or NoneType not in options
            or tyro.conf.DisallowNone in info.markers):
        return None
    spec = _spec(Union[tuple(o for o in options if o is not NoneType)], info)  # noqa: UP007
    if spec is None:
        return None
    read, write = spec.instance_from_str, spec.str_from_instance
    return replace(
        spec, metavar=f"{spec.metavar} or None",
        choices=None if spec.choices is None else (*spec.choices, "None"),
        instance_from_str=lambda words: None if words == ["None"] else read(words),
        is_instance=lambda value: value is None or spec.is_instance(value),
        str_from_instance=lambda value: ["None"] if value is None else write(value))


@REGISTRY.primitive_rule
def several(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """tuple[X, ...] reads `X ...` in the help, and its default `none` where it is empty."""
    hint, *more = get_args(info.type) or (None,)
    if info.type_origin is not tuple or more != [...] or tyro.conf.UseAppendAction in info.markers:
        return None
    spec = _spec(hint, info)
    if spec is None or spec.nargs != 1:
        return None
    return PrimitiveConstructorSpec(
        nargs="*", metavar=f"{spec.metavar} ...", choices=spec.choices,
        instance_from_str=lambda words: tuple(spec.instance_from_str([word]) for word in words),
        is_instance=lambda value: isinstance(value, tuple) and all(map(spec.is_instance, value)),
        str_from_instance=lambda values: [
            word for value in values for word in spec.str_from_instance(value)] or ["none"])


__all__ = ["parse"]
