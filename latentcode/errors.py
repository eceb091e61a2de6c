"""Errors that a user can act on, and checks of arguments that raise them.

Each error names the thing, its value and what was expected. The command line prints it as one line;
anything else is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from inspect import unwrap
from numbers import Integral
from pathlib import Path
from typing import Any

FEW = 4
"""Names of which anyone sees at once which was meant."""
LISTED = 10
"""Names that a message lists."""
MOST = 10**9
"""The largest number of anything that is asked for: more than that takes years, or a terabyte."""


class LatentCodeError(Exception):
    """Base of all errors that a user can act on."""


class ConfigError(LatentCodeError, ValueError):
    """A field of a configuration has a value that cannot be used."""


class UnknownNameError(ConfigError):
    """A name (kind, task, split, pair, label, preset, ...) that does not exist."""

    def __init__(self, what: str, name: object, valid: Iterable[object], hint: str = "") -> None:
        self.what, self.name, self.valid, self.hint = what, name, tuple(valid), hint
        choices = listed(self.valid)
        near = get_close_matches(str(name), map(str, self.valid), n=1)
        meant = f"; did you mean {near[0]}?" if near and len(self.valid) > FEW else ""
        super().__init__(f"unknown {what} {name!r}; expected one of: {choices}{hint}{meant}")

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[object, ...]]:
        # Or the exception of a worker process would be rebuilt from its message alone.
        return type(self), (self.what, self.name, self.valid, self.hint)


def listed(names: Iterable[object]) -> str:
    """Return the first ten of some names, and how many others there are."""
    texts = [str(name) for name in names]
    others = len(texts) - LISTED
    return ", ".join(texts[:LISTED]) + (f" and {others:,} others" if others > 0 else "") or "none"


class MissingMemberError(LatentCodeError, AttributeError):
    """Something that other libraries' models have and ours cannot, with what to use instead."""


class SplitError(LatentCodeError, ValueError):
    """A split that a task cannot offer, with what would be possible."""


class RunError(LatentCodeError):
    """A run folder that is missing, incomplete, occupied, locked or of another format."""


class ArtifactError(LatentCodeError):
    """A file or folder whose contents do not match what its format promises."""


class HubError(LatentCodeError):
    """A repository of the hub that cannot be reached, or does not hold what was expected."""


class TrainingError(LatentCodeError):
    """Training that cannot go on, such as a loss that is not finite."""


class ProbeError(LatentCodeError, ValueError):
    """A probe that cannot be fitted, such as a label with a single class."""


class TooFewCountError(ProbeError):
    """A model answers too few instances rightly for writes to say anything."""


def reason(error: Exception) -> str:
    """Return what an error says, without the number and the file of an `OSError`."""
    return getattr(error, "strerror", None) or str(error)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is not enough memory, of this machine or of a GPU."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(
        sign in str(error)
        for sign in ("out of memory", "can't allocate memory", "not enough memory")))


def called(
    what: str, kind: type[LatentCodeError], function: Callable[..., Any], *arguments: Any,
    **options: Any,
) -> Any:
    """Call a function of a user's; `kind` says what it raises, and where in the user's file.

    what  the beginning of the message, such as `probe 'nearest': its function`

    Errors that a user can act on already, and those of memory, pass as they are.
    """
    try:
        return function(*arguments, **options)
    except LatentCodeError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        file = getattr(getattr(unwrap(function), "__code__", None), "co_filename", "")
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
                 if frame.filename == file]
        place = f" ({Path(file).name}, line {lines[-1]})" if lines else ""
        text = f": {error}" if str(error) else ""
        raise kind(f"{what} raised {type(error).__name__}{text}{place}") from error


def check(condition: bool, message: str, error: type[LatentCodeError] = ConfigError) -> None:
    """Raise `error(message)` unless `condition` holds."""
    if not condition:
        raise error(message)


def check_whole(
    name: str, value: object, least: int, error: type[LatentCodeError] = ConfigError,
    most: int = MOST,
) -> None:
    """Raise `error` unless `value` is a whole number (no bool) from `least` to `most`."""
    if type(value) is not int or value < least:
        raise error(f"{name} is {value!r}; expected a whole number of at least {least}")
    if value > most:
        raise error(f"{name} is {value!r}; expected at most {most:,}")


def check_count(
    name: str, value: object, least: int = 1, error: type[LatentCodeError] = ConfigError,
    most: int = MOST,
) -> None:
    """As `check_whole`, whose values are written to files, but for numbers of numpy, too."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    check_whole(name, int(value) if whole else value, least, error, most)  # type: ignore


def check_jobs(n_jobs: object, error: type[LatentCodeError] = ConfigError) -> None:
    """Raise `error` unless `n_jobs` says how many work side by side, or as joblib does with -1."""
    check(type(n_jobs) is int and n_jobs != 0 and -1 <= n_jobs <= 1_024,
          f"n_jobs is {n_jobs!r}; expected 1 to 1,024, or -1 for one a core", error)


def check_text(what: str, text: str) -> None:
    """Raise `ConfigError` for text that UTF-8 cannot say: half of a pair of surrogates."""
    half = re.search("[\ud800-\udfff]", text)
    check(half is None, f"{what} holds {half and half[0]!r}, half of a pair of surrogates; "
          "expected text that UTF-8 can say")


def check_no_pipe(path: Path, error: type[LatentCodeError] = ConfigError) -> None:
    """Raise `error` for a pipe or a device, which may have no end, or be read once only."""
    check(path.is_file() or path.is_dir() or not path.exists(), f"{path} is a pipe or a device; "
          "expected a file", error)


def check_choice(what: str, value: object, valid: Iterable[object]) -> None:
    """Raise `UnknownNameError` unless `value` is one of `valid`."""
    valid = tuple(valid)
    if value not in valid:
        raise UnknownNameError(what, value, valid)


def as_tuple(values: Any) -> tuple[Any, ...]:
    """Return several values as a tuple; text, a path, a number or an object is one value."""
    single = isinstance(values, str | bytes | os.PathLike) or not isinstance(values, Iterable)
    return (values,) if single else tuple(values)


def chosen(what: str, wanted: Any, available: Sequence[Any]) -> tuple[Any, ...]:
    """Return what is wanted of `available`, one or several of them, all by default.

    `UnknownNameError` for other names, `ProbeError` for none and for a name that is repeated.
    """
    if wanted is None:
        return tuple(available)
    wanted = as_tuple(wanted)
    check(len(wanted) > 0, f"{what}s is empty; expected some of {listed(available)}", ProbeError)
    for name in wanted:
        check_choice(what, name, available)
    check_distinct(f"{what}s", wanted)
    return wanted


def check_distinct(what: str, names: Sequence[Any]) -> None:
    """Raise `ProbeError` for a name that is repeated."""
    repeated = sorted({str(name) for name in names if list(names).count(name) > 1})
    check(not repeated, f"{what} repeats {listed(repeated)}; expected different ones",
          ProbeError)
