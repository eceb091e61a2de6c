"""A command that asks a question of a model, made from the function that answers it.

The options of the command are the arguments of its function, and `--help` says of them what the
function's docstring says (`latentcode.documented`); which model is meant, and which problems, is
what `latentcode.subjects.subject` takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cached_property
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_origin

import tyro

from latentcode.arguments import as_tuple
from latentcode.cli.options import Saving
from latentcode.documented import REQUIRED, Described, Option, described, options_of
from latentcode.errors import ConfigError, check

if TYPE_CHECKING:
    import pandas as pd

    from latentcode.subjects import Subject

SUBJECT = "latentcode.subjects.subject"
MODEL = ("run folder, model of the zoo such as sraven-hyla, hf://user/name, or codes; for prompts "
         "or texts a language model's folder or its name on the hub, also with @revision")
PROMPTS = ('prompts to ask about, one JSON object per line, such as {"prompt": "The capital of '
           'France is", "query": -1, "key": "France", "label": "capital"}; positions are token '
           'indices, or parts of the prompt')
FOR_CODE = re.compile(r" ?(?:\bRaises\b.*|See `[^`]+` for [^.]*\.)", re.DOTALL)
"""What a docstring says to those who call the function themselves."""


@dataclass(frozen=True, kw_only=True)
class Own:
    """The options of one question; classes of its own say what words can give otherwise than code.
    """

    SEVERAL: ClassVar[bool] = False
    """Whether it takes several words for a model, though its function takes one."""

    def of(
        self, models: tuple[str, ...], prompts: Path | pd.DataFrame | None, given: dict[str, Any]
    ) -> list[Subject]:
        """Return what is asked: models on problems, with the options of `subject` that are given.

        prompts  the file of prompts, or texts
        Of several checkpoints each is a model of its own.
        """
        from latentcode.subjects import subject

        steps = as_tuple(given.pop("step", None) or (None,))
        return [subject(model, prompts, step=step, **given) for model in models for step in steps]

    def arguments(self, of: Subject) -> dict[str, Any]:
        """Return further arguments of the function."""
        return {}


@dataclass(frozen=True)
class Verb:
    """A question, and how its command differs from its function.

    function  its address, or itself where a user registered it
    example   a command that works
    own       the class of its options, where it has more than the function's arguments
    """

    function: Callable[..., Any] | str
    example: str
    own: type[Own] = Own

    @property
    def name(self) -> str:
        """The name of the function."""
        return (self.function.rpartition(".")[2] if isinstance(self.function, str)
                else self.function.__name__)

    def ask(self, *of: Any, **given: Any) -> Any:
        """Call the function."""
        if not isinstance(self.function, str):
            return self.function(*of, **given)
        return getattr(import_module(self.function.rpartition(".")[0]), self.name)(*of, **given)

    @property
    def described(self) -> Described:
        """What the function says of itself."""
        return described(self.function)

    @property
    def takes_several(self) -> bool:
        """Whether the function is asked about several models."""
        return get_origin(next(iter(self.described.options.values())).words) is tuple

    @property
    def about(self) -> str:
        """What the command says of itself: the question, an example, and how it is answered."""
        question, _, more = FOR_CODE.sub("", self.described.text).replace("`", "").partition("\n\n")
        of_words = "" if self.own is Own else getdoc(self.own)
        return "\n\n".join(filter(None, (
            question.strip(), f"Example: latentcode {self.example}", more.strip(), of_words)))

    @cached_property
    def command(self) -> type[Asking]:
        """The command, a dataclass."""
        name = self.name.replace("_", "-")
        first, *arguments = self.described.options.values()
        of_model = {**options_of(SUBJECT)}
        hidden = {first.name, "problems", *_names(Saving), *_names(self.own)}
        for option in arguments:
            if option.name in of_model and option.default is None:
                of_model[option.name] = option  # as `subject` takes it, in the question's words
                hidden.add(option.name)
            else:  # such as the instances of a step of Adam
                of_model.pop(option.name, None)
        default = (self.described.options["problems"].said_default
                   or options_of(SUBJECT)["problems"].said_default)
        prompts = tyro.conf.arg(help=PROMPTS, help_behavior_hint=f"(default: {default})")
        asked = _group("Asked", object, [
            ("prompts", Annotated[Path | None, prompts], None),
            *_fields(of_model.values(), hidden={"model", "problems"})])
        own = _group("Own", self.own, _fields(arguments, hidden=hidden))
        several = self.takes_several or self.own.SEVERAL
        words: Any = tuple[str, ...] if several else str
        model = tyro.conf.arg(metavar="MODEL [MODEL ...]" if several else "MODEL", help=MODEL,
                              help_behavior_hint="(required)")
        return make_dataclass("Asking", [
            ("model", Annotated[words, tyro.conf.Positional, model]),
            ("asked", _boxed(asked, "model and problems"), field(default_factory=asked)),
            ("own", _boxed(own, name), field(default_factory=own))],
            bases=(Asking,), frozen=True, kw_only=True,
            namespace={"__doc__": self.about, "VERB": self})


@dataclass(frozen=True, kw_only=True)
class Asking(Saving):
    """Base of the commands that ask a question.

    model  which, one word or several
    asked  how it is opened, and the prompts: the options of `subject`
    own    the options of the question
    """

    VERB: ClassVar[Verb]
    model: Any
    asked: Any
    own: Any

    def run(self) -> None:
        options, own = self.VERB.described.options, self.own
        kind = getattr(import_module("latentcode"), self.VERB.described.returns)
        saves = "out" in options  # while it computes
        self.check_out(kind.marker() if hasattr(kind, "marker") else "meta.json")
        models, prompts = as_tuple(self.model), self.asked.prompts
        check(prompts is None or prompts.is_file(), f"--prompts is {str(prompts)!r}, which is no "
              "file; expected prompts, one JSON object a line", ConfigError)
        of: Any = own.of(models, prompts, self._given("asked", options_of(SUBJECT)))
        if not self.VERB.takes_several:
            of, = of
        given = self._given("own", options) | own.arguments(of)
        if saves:
            given |= {"out": self.out, "overwrite": self.overwrite}
        self.save_result(self.VERB.name.replace("_", " "), lambda progress: self.VERB.ask(
            of, progress=progress, **given), is_saved=saves)

    def _given(self, group: str, options: Mapping[str, Option]) -> dict[str, Any]:
        """Return the options of a group that differ from their defaults, as functions take them."""
        values = getattr(self, group)
        given = {each.name: getattr(values, each.name) for each in fields(values)
                 if each.name in options and getattr(values, each.name) != each.default}
        return {name: value == "yes" if options[name].is_open else value
                for name, value in given.items()}


def _group(name: str, base: type, of: Iterable[tuple[str, Any, Any]]) -> type:
    return make_dataclass(name, of, bases=(base,), frozen=True, kw_only=True,
                          namespace={"__doc__": ""})


def _boxed(group: type, title: str) -> Any:
    """Return the type of a group whose options stand in a box of their own, by their names."""
    return Annotated[group, tyro.conf.OmitArgPrefixes, tyro.conf.arg(name=title)]


def _fields(options: Iterable[Option], hidden: Collection[str]) -> list[tuple[str, Any, Any]]:
    """Return the fields for the options that words can give, apart from hidden ones."""
    return [_field(option) for option in options
            if option.words is not None and option.name not in hidden]


def _field(option: Option) -> tuple[str, Any, Any]:
    kind, default, unsaid = option.words, option.default, option.default is None
    if option.is_open:
        kind, default = Literal["auto", "yes", "no"], "auto"
    elif get_origin(kind) is tuple:
        default = () if unsaid else as_tuple(default)
    elif unsaid:
        kind = kind | None
    said = f"auto, {option.said_default}" if option.is_open else option.said_default or "none"
    hint = f"(default: {said})" if unsaid else None
    text = option.said
    if default is True:  # the command has --no-NAME
        text, hint = (text.removeprefix("False ") if text.startswith("False ")
                      else f"{option.name}: {text}"), ""
    note = tyro.conf.arg(help=text, help_behavior_hint=hint)
    given = field() if default is REQUIRED else field(default=default)
    return option.name, Annotated[kind, note], given


def _names(kind: type) -> set[str]:
    return {each.name for each in fields(kind)}
