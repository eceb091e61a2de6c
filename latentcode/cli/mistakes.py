"""What is wrong with the words of a command? One line that names the word and what was expected.

Asked only where tyro has refused them. The answer is found from the fields of the command, so that
it depends neither on how tyro words its messages nor on how it draws them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from inspect import getdoc
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tyro

PARTS = ("task", "model", "training")
"""What a configuration consists of."""
TRUTHS = ("true", "false", "yes", "no", "1", "0", "on", "off")


@dataclass(frozen=True)
class Argument:
    """One thing that a command takes.

    name        `--training.steps`, or `RUN` where it stands alone
    hint        the type of its value, or of one of them
    several     whether it takes all words that follow
    required    whether it cannot be left out
    """

    name: str
    hint: Any
    several: bool
    required: bool

    @property
    def is_flag(self) -> bool:
        """Whether it is called by its name."""
        return self.name.startswith("-")

    def takes_another(self, values: Sequence[str], word: str) -> bool:
        """Whether a word belongs to the values: of a yes or no only what nobody should write."""
        if self.hint is bool:
            return not values and word.lower() in TRUTHS
        return self.several or not values

    def mistakes(self, values: Sequence[str]) -> Iterator[str]:
        """Yield what is wrong with the values that are given."""
        if self.hint is bool:
            if values:
                yield f"{self.name} is followed by {values[0]!r}; expected {self.name} alone"
            return
        if not (values or self.several):
            yield f"{self.name} has no value; expected {self.expected('') or 'one after it'}"
        for value in values:
            expected = self.expected(value)
            parts = [part for part in value.split(",") if self.expected(part) is None]
            if expected and self.several and len(parts) > 1:
                yield f"{self.name} is {value!r}; expected spaces: {self.name} {' '.join(parts)}"
            elif expected:
                yield f"{self.name} is {value!r}; expected {expected}"

    def expected(self, word: str) -> str | None:
        """Return what was expected in place of a word, or None where the word will do."""
        if get_origin(self.hint) is Literal:
            choices = [str(choice) for choice in get_args(self.hint)]
            return None if word in choices else f"one of: {', '.join(choices)}"
        for kind, what in ((int, "a whole number"), (float, "a number")):
            if self.hint is kind:
                try:
                    kind(word)
                except ValueError:
                    return what
        return None


def explained(command: Any, words: Sequence[str], prog: str) -> str | None:
    """Return what is wrong with the words of a command, or None if that cannot be told."""
    subcommands: Mapping[str, Any] | None = getattr(command, "SUBCOMMANDS", None)
    if subcommands is None:
        return next(_mistakes(command, words, prog), None)
    name = next(iter(words), "")
    if name in subcommands:
        return explained(subcommands[name], words[1:], f"{prog} {name}")
    called = f"unknown command '{prog} {name}'" if name else f"{prog} is not a whole command"
    return f"{called}; expected one of: {', '.join(f'{prog} {other}' for other in subcommands)}"


def _mistakes(command: Any, words: Sequence[str], prog: str) -> Iterator[str]:
    arguments = list(arguments_of(command))
    flags = {argument.name: argument for argument in arguments if argument.is_flag}
    alone: list[str] = []
    given: dict[str, list[str]] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if not is_flag(word):
            alone.append(word)
            continue
        name, equals, value = word.partition("=")
        flag = flags.get(name.replace("_", "-"))
        if flag is None:
            yield f"unknown option {name}{_meant(name, flags)} ({prog} --help lists all)"
            return
        values = [value] if equals else []
        while left and not is_flag(left[0]) and flag.takes_another(values, left[0]):
            values.append(left.pop(0))
        yield from flag.mistakes(values)
        given[flag.name] = values
    standing = [argument for argument in arguments if not argument.is_flag]
    for argument in standing:
        values, alone = (alone, []) if argument.several else (alone[:1], alone[1:])
        if values:
            yield from argument.mistakes(values)
        elif argument.required:
            greedy = [name for name, taken in given.items() if len(taken) > 1]
            yield f"{argument.name} is missing" + (
                f", because {greedy[0]} takes all words that follow it; expected {argument.name} "
                "before it" if greedy else _example(command))
    if alone:
        names = " and ".join([*(argument.name for argument in standing), "options"])
        yield f"unexpected word {alone[0]!r}; expected {names} ({prog} --help lists all)"
    for flag in flags.values():
        if flag.required and flag.name not in given:
            yield f"{flag.name} is missing{_example(command)}"


def _meant(name: str, flags: Iterable[str]) -> str:
    """Return `; did you mean --training.steps?` for --steps, --training.stpes and --stpes."""
    name = f"--{name.lstrip('-')}".replace("_", "-")
    of_last = {f"--{flag.lstrip('-').rpartition('.')[2]}": flag for flag in flags}
    longer = [flag for flag in flags if flag.startswith(f"{name}-")]
    close = get_close_matches(name, [*flags, *of_last], n=1) or longer
    return f"; did you mean {of_last.get(close[0], close[0])}?" if close else ""


def _example(command: Any) -> str:
    found = re.search(r"Example: (.*?)(\n\n|$)", getdoc(get_origin(command) or command) or "",
                      re.DOTALL)
    return f"; for example: {' '.join(found[1].split())}" if found else ""


def in_flags(message: str, words: Sequence[str]) -> str:
    """Return a message about a field, such as `training.seed is -1`, as one about its option.

    Only options that are given count; of `latentcode train` all, for they are the configuration.
    """
    said = re.match(r"(unknown )?([a-z_]\w*(?:\.\w+)*)(?= is | has | '|-?\d)", message)
    if said is None or (said[1] and "." not in said[2]):
        return message
    name = said[2].replace("_", "-")
    given = [word.partition("=")[0].replace("_", "-") for word in words if is_flag(word)]
    if name.partition(".")[0] in PARTS and "." in name and words[:1] == ["train"]:
        given.append(f"--{name}")
    for flag in given:
        if name in (flag[2:], flag[2:].rpartition(".")[2]):
            return f"{said[1] or ''}{flag}{message[said.end():]}"
    return message


def is_flag(word: str) -> bool:
    """Whether a word is the name of an option; -1 is a number."""
    return word.startswith("-") and word.lstrip("-")[:1].isalpha()


def arguments_of(command: Any, prefix: str = "") -> Iterator[Argument]:
    """Yield what a command takes: its fields, and those of the dataclasses among them."""
    kind = get_origin(command) or command
    chosen = dict(zip(getattr(kind, "__parameters__", ()), get_args(command), strict=False))
    hints, noted = get_type_hints(kind), get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint = chosen.get(hints[field.name], hints[field.name])
        notes = getattr(noted[field.name], "__metadata__", ())
        if is_dataclass(hint):
            part = "" if tyro.conf.OmitArgPrefixes in notes else f"{field.name}."
            yield from arguments_of(hint, prefix + part)
            continue
        hint = next((of for of in get_args(hint) if NoneType in get_args(hint)), hint)
        several = get_origin(hint) is tuple
        flag = f"--{'no-' if field.default is True else ''}{prefix}{field.name}".replace("_", "-")
        if tyro.conf.Positional in notes:
            metavars = [note.metavar for note in notes if getattr(note, "metavar", None)]
            flag = metavars[0].split()[0] if metavars else field.name.upper()
        yield Argument(flag, get_args(hint)[0] if several else hint, several,
                       field.default is MISSING and field.default_factory is MISSING)


__all__ = ["Argument", "arguments_of", "explained", "in_flags"]
