"""Words, and what they call: options of a function, from its signature and docstring.

tyro reads the words; what it says of wrong ones becomes one line.
"""

from __future__ import annotations

import inspect
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr
from enum import Enum
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tyro
from docstring_parser import parse as parse_docstring

from latentcode.errors import (
    ConfigError,
    LatentCodeError,
    as_tuple,
    check,
    check_count,
    check_jobs,
)

IMPORTS = ("With --import FILE, a file of your own that registers tasks, attention, patches or "
           "probes is imported first; it may be given several times.")
"""An option of every command, which `cli.take_imports` reads."""
CONFIG = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes,
          tyro.conf.PositionalMetavarFromFieldName)
WORDS = (Path, float, int, bool, str)
"""Types that a word can have; of a union the first of these."""


LEAST: Mapping[str, int] = {
    "n_bootstrap": 100, "n_patched": 4,
    **dict.fromkeys((
        "n", "n_train", "n_heldout", "n_reference", "n_samples", "n_instances", "n_inputs",
        "n_permutations", "n_shuffles", "n_points", "n_checked", "n_ranked", "n_exact", "n_ablated",
        "n_read", "n_iter", "n_neighbors", "k", "widths", "rank", "steps", "batch_size",
        "longest", "tokens_at_once", "max_new_tokens", "top_k", "lengths", "processes",
        "members_at_once"), 1),
    **dict.fromkeys(("seed", "step", "layer", "layers", "heads", "codes"), 0)}
"""The least whole number that an option of the library takes."""


class YesNo(Enum):
    """A choice that is otherwise left to the function."""

    yes = True
    no = False


def options_of(
    function: Callable[..., Any], *sources: Callable[..., Any],
    names: Mapping[str, Any] | None = None,
) -> dict[str, inspect.Parameter]:
    """Return the arguments of a function that words can give, as tyro takes them.

    `sources` describe arguments that its docstring does not; its annotations may use `names`.
    """
    texts = {argument.arg_name: argument.description or "" for source in (*sources, function)
             for argument in parse_docstring(inspect.getdoc(source) or "").params}
    known = {**(names or {}), **inspect.unwrap(function).__globals__}
    options = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = parameter.annotation
        if hint is parameter.empty:
            hint = type(parameter.default)
        elif isinstance(hint, str):
            hint = eval(hint, known)
        hint, *marks = get_args(hint) if get_origin(hint) is Annotated else [hint]
        words = words_of(hint)
        if words is not None:
            options[name] = option_of(name, words, texts.get(name, ""), parameter.default, *marks)
    return options


def option_of(
    name: str, kind: Any, text: str, default: Any = inspect.Parameter.empty, *marks: Any
) -> inspect.Parameter:
    """Return an argument as tyro takes it; None stands for an option that is left out."""
    if get_origin(kind) is tuple and default not in (None, inspect.Parameter.empty):
        default = as_tuple(default)
    hint = "" if default is None or default == () else None
    note = tyro.conf.arg(help=" ".join(text.split()), help_behavior_hint=hint)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default,
        annotation=Annotated[(kind | None if default is None else kind, note, *marks)])


def words_of(hint: Any) -> Any:
    """Return the type of what words can give for an annotation; None if only code can give it.

    Of a union several values rather than one, a choice rather than any text.
    """
    if hint in WORDS or get_origin(hint) is Literal:
        return hint
    if get_origin(hint) in (Union, UnionType):
        kinds = [words for part in get_args(hint) if (words := words_of(part)) is not None]
        if kinds == [bool]:
            return YesNo
        choices = [kind for kind in kinds if get_origin(kind) is Literal]
        several = [kind for kind in kinds if get_origin(kind) is tuple]
        return next(iter([*several, *choices, *(kind for kind in WORDS if kind in kinds)]), None)
    if get_origin(hint) in (Sequence, Iterable, tuple, list):
        item = words_of(get_args(hint)[0])
        return None if item is None else tuple[item, ...]  # type: ignore[valid-type]
    return None


def with_options(
    call: Callable[..., Any], options: Iterable[inspect.Parameter], doc: str
) -> Callable[..., Any]:
    """Return a function for tyro with some options, which calls another with what words give."""
    parameters = list(options)

    def command(**words: Any) -> Any:
        return call(**{name: word.value if isinstance(word, YesNo) else word
                       for name, word in words.items()})

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = doc
    return command


def check_numbers(words: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for numbers out of range, before anything is opened or read."""
    for name, value in words.items():
        for number in as_tuple(value) if name in LEAST else ():
            if type(number) is int:
                check_count(name, number, LEAST[name])
        if name == "n_jobs":
            check_jobs(value)
        if name == "heldout":
            check(0.0 < value < 1.0, f"heldout is {value}; expected a share between 0 and 1")


def command_of_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for tyro, which returns the call of a function that words ask for.

    Arguments that may be given by position are words without a name.
    """
    signature = inspect.signature(function).parameters
    options = [
        option if signature[name].kind is inspect.Parameter.KEYWORD_ONLY else option.replace(
            annotation=Annotated[option.annotation, tyro.conf.Positional])
        for name, option in options_of(function).items()]

    def call(**words: Any) -> partial[Any]:
        check_numbers(words)
        return partial(function, **words)

    return with_options(call, options, description(function))


def description(function: Callable[..., Any], example: str = "") -> str:
    """Return the text of `--help`: what the docstring says before its sections, with an example."""
    text = parse_docstring(inspect.getdoc(function) or "").description or ""
    summary, _, more = text.partition("\n")
    return "\n\n".join(filter(None, (summary, example, more.strip())))


def parse(
    command: Any, words: Sequence[str], prog: str, default: Any = None, summary: str = ""
) -> Any:
    """Return what a command, a dataclass, a function, or several by name, returns for some words.

    `default` is an instance whose values are the defaults, of which None is then a word, too; else
    None stands for what is left out. `summary` says what several commands do together.

    `ConfigError`, in one line, for words that the command does not take; `SystemExit` for help.
    """
    box = io.StringIO()
    config = (*CONFIG, tyro.conf.DisallowNone) if default is None else CONFIG
    try:
        with redirect_stderr(box):
            if isinstance(command, Mapping):
                return tyro.extras.subcommand_cli_from_dict(
                    dict(command), args=list(words), prog=prog, config=config,
                    description=f"{summary}\n\n{IMPORTS}")
            return tyro.cli(
                command, args=list(words), prog=prog, config=config,
                description=f"{inspect.getdoc(get_origin(command) or command)}\n\n{IMPORTS}",
                **({} if default is None else {"default": default}))
    except SystemExit as stopped:
        if stopped.code == 0:
            raise
        cause: BaseException | None = stopped
        while cause is not None and not isinstance(cause, LatentCodeError):
            cause = cause.__context__  # what a configuration said of its fields
        raise ConfigError(str(cause) if cause else in_one_line(box.getvalue())) from None


def in_one_line(box: str) -> str:
    """Return an error that tyro drew as one line: what is wrong, and which option may be meant.

    Rules separate its parts. Where the terminal has no such characters, a title stands before the
    first rule, and there is no frame.
    """
    box = re.sub(r"\x1b\[[\d;]*m", "", box)  # colours, on a terminal
    rows = [row.strip("│ ") for row in box.splitlines() if row[:1] not in ("╭", "╰")]
    parts = re.split(r"(?:^|\n)[─-]{3,}(?:\n|$)", "\n".join(rows))
    problem, *more = [" ".join(part.split()) for part in parts[0 if "╭" in box else 1:]]
    meant = next((re.findall(r"--[\w.-]+", part) for part in more if "you meant" in part), [])
    close = f"; did you mean {meant[0]}?" if meant else ""
    pointer = re.search("latentcode .*--help", more[-1]) if more else None
    return f"{problem}{close} ({pointer[0] if pointer else 'latentcode --help'} lists all options)"
