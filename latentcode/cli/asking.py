"""A command that asks a question of a model, made from the function that answers it.

The options are the arguments of the function that words can give, with what its docstring says of
them, and those of `latentcode.subjects.subject`, which says what model and problems are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tyro
from docstring_parser import parse

from latentcode.codes import LatentCodes
from latentcode.errors import ConfigError, ProbeError, as_tuple, check
from latentcode.files.storage import check_free
from latentcode.probes.registered import ask
from latentcode.progress import Bar
from latentcode.runs.run import folder_of
from latentcode.subjects import Subject, asked, subject

EXAMPLES: dict[str, str] = {
    "extract": "extract runs/hyla --out codes/hyla --n 10000 --pairs all",
    "project": "project runs/hyla --labels term_1 --out results/projection",
    "similarity": "similarity runs/hyla --label terms --out results/similarity",
    "topography": "topography runs/hyla-* --out results/topography",
    "align": "align runs/hyla-0 runs/hyla-1 --out results/alignment",
    "value_networks": "value-networks runs/hyla --labels term_1 --out results/networks",
    "heads": "heads gpt2 --texts pages.txt --longest 256 --out results/heads",
    "intervene": "intervene runs/sraven --out results/patched --patch interchange --scope row",
    "das": "das runs/sraven --out results/das --layer 3 --rank 4 16"}
"""An example of each question whose options need one."""
NOT_OF_CODES = ("extract", "knn_purity", "similarity", "topography", "align", "value_networks",
                "heads", "intervene", "attribute", "das")
"""Questions that take no second folder of codes, nor a file of texts; others do."""
MODEL = ("A run folder, a model of the zoo such as sraven-hyla, hf://user/name, or codes; for "
         "prompts or texts a language model's folder or its name on the hub, also with @revision")
SEVERAL_CODES = "; several folders of codes are those that are fitted to, then others"
PROMPTS = ('Prompts to ask about, one JSON object per line, such as {"prompt": "The capital of '
           'France is", "query": -1, "key": "France", "label": "capital"}; positions are token '
           "indices, or parts of the prompt; default: the run's own task.")
TEXTS = ("Texts to ask about: one per line (.txt), or one object with a text per line (.jsonl), "
         "perhaps with its document, its split and labels of whole texts.")
NOTHING = "An empty list: nothing"
"""What the help says of a list option that asks for nothing where nothing follows it."""
WORDS = (Path, float, int, bool, str)
"""Types that a word can have; of a union the first of these."""


class YesNo(Enum):
    """A choice that is otherwise left to the function."""

    yes = True
    no = False


def asking(function: Callable[..., Any]) -> Callable[..., Asked]:
    """Return the command of a question, for tyro: called with what words give, it is an `Asked`."""
    name = function.__name__
    of_function, of_subject = options_of(function), options_of(subject)
    first = of_function.pop(next(iter(of_function)))
    of_codes = name not in NOT_OF_CODES
    several = of_codes or get_origin(_plain(first)) is tuple
    for option in ("problems", "out", "overwrite"):
        of_function.pop(option, None)
    of_model = {option: of_function.get(option, parameter) for option, parameter in
                of_subject.items() if option not in ("model", "problems")
                and of_function.get(option, parameter).default is None}
    if name == "intervene":
        of_function |= options_of(patches)
    further = {
        "prompts": option_of("prompts", Path, PROMPTS, None),
        **({"texts": option_of("texts", Path, TEXTS, None)}
           if of_codes or name == "heads" else {}),
        "out": option_of("out", Path, "Folder to save the result in."),
        "overwrite": option_of("overwrite", bool, "Replace an earlier result in that folder, "
                               "finished or not.", False)}
    note = tyro.conf.arg(metavar="MODEL [MODEL ...]" if several else "MODEL",
                         help=MODEL + SEVERAL_CODES * of_codes, help_behavior_hint="(required)")
    kind: Any = tuple[str, ...] if several else str
    model = inspect.Parameter("model", inspect.Parameter.POSITIONAL_OR_KEYWORD,
                              annotation=Annotated[kind, tyro.conf.Positional, note])

    def command(model: str | tuple[str, ...], **words: Any) -> Asked:
        given = {option: value.value if isinstance(value, YesNo) else value
                 for option, value in words.items() if value != every[option].default}
        for option in (option for option, value in given.items() if value == ()):
            check(NOTHING in every[option].annotation.__metadata__[0].help,
                  f"--{option.replace('_', '-')} has nothing after it; expected at least one, or "
                  "to leave it out", ConfigError)
        return Asked(
            function, as_tuple(model), words["prompts"], words.get("texts"), words["out"],
            words["overwrite"],
            {option: value for option, value in given.items() if option in of_model},
            {option: value for option, value in given.items()
             if option in of_function and option not in of_model})

    every = of_function | of_model | further
    parameters = [model, *every.values()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = description(function)
    return command


@dataclass(frozen=True)
class Asked:
    """A question that words asked.

    Attributes:
        function: What answers it.
        models: Names or folders, at least one.
        prompts: File of prompts.
        texts: File of texts.
        out: Folder for the result.
        overwrite: Whether an earlier result there is replaced.
        of_model: Options of `subject` that differ from their defaults.
        options: Options of the function that differ from their defaults.
    """

    function: Callable[..., Any]
    models: tuple[str, ...]
    prompts: Path | None
    texts: Path | None
    out: Path
    overwrite: bool
    of_model: Mapping[str, Any]
    options: Mapping[str, Any]

    def run(self) -> None:
        """Compute under a progress bar, save, print, and say where it is."""
        name, parameters = self.function.__name__, inspect.signature(self.function).parameters
        kind = _evaluated(inspect.signature(self.function).return_annotation, self.function)
        check_free(self.out, overwrite=self.overwrite,
                   marker="meta.json" if kind is LatentCodes else kind.marker())
        subjects: Any = self._subjects()
        if get_origin(_plain(next(iter(options_of(self.function).values())))) is not tuple:
            subjects, = subjects
        options = dict(self.options)
        if name == "intervene":
            words = {word: options.pop(word) for word in options_of(patches) if word in options}
            options |= patches(subjects, **words)
        saves = "out" in parameters  # while it computes, and the same command goes on with it
        if saves:
            options |= {"out": self.out, "overwrite": self.overwrite}
        try:
            with Bar(name.replace("_", " ")) as progress:
                result = self.function(subjects, progress=progress, **options)
        except KeyboardInterrupt as interruption:
            if not saves:
                interruption.add_note(f"{self.out} was not written; the same command starts again")
            raise
        if not saves:
            result.save(self.out, overwrite=self.overwrite)
        print(result)
        print(f"wrote {'codes' if kind is LatentCodes else 'result'} {self.out}")

    def _subjects(self) -> Sequence[Any]:
        """Return what is asked: models on problems; of several checkpoints each is one."""
        check(len(self.models) > 0, "MODEL is missing; expected it before options that take "
              "several words", ConfigError)
        for option, file in (("prompts", self.prompts), ("texts", self.texts)):
            check(file is None or file.is_file(), f"--{option} is {str(file)!r}, which is no file; "
                  "expected one that holds them, one a line", ConfigError)
        check(self.prompts is None or self.texts is None, f"--texts is {str(self.texts)!r} and "
              f"--prompts {str(self.prompts)!r}; expected one or the other", ConfigError)
        if self.texts is not None:
            check(len(self.models) == 1, f"{len(self.models)} models are given; expected one, "
                  "which is asked about the texts", ConfigError)
            return [_of_texts(self.function.__name__, self.models[0], self.texts, self.of_model)]
        if len(self.models) > 1 and self.function.__name__ not in NOT_OF_CODES:
            return [self._of_codes()]
        options = dict(self.of_model)
        steps = as_tuple(options.pop("step", (None,)))
        return [subject(model, self.prompts, step=step, **options)
                for model in self.models for step in steps]

    def _of_codes(self) -> Subject:
        """Return codes in hand: those that are fitted to, on others."""
        first, *others = map(folder_of, self.models)
        check(all((folder / "codes.safetensors").is_file() for folder in (first, *others)),
              f"{len(self.models)} folders are given that are not all codes; expected one model, "
              "or folders of codes", ProbeError)
        check(self.prompts is None, f"--prompts is {str(self.prompts)!r}, but codes were read "
              "before; expected no prompts", ProbeError)
        problems: Any = others
        return subject(first, problems, **self.of_model)


def _of_texts(name: str, model: str, texts: Path, options: Mapping[str, Any]) -> Any:
    """Return a model on texts: of `heads` they are streamed, of other questions kept."""
    if name == "heads":
        from latentcode.subjects.streams import stream_texts

        return stream_texts(model, texts, **options)
    from latentcode.prompts.texts import read_texts

    return subject(model, read_texts(texts), **options)


def patches(
    subject: Subject, *, patch: Sequence[str] | None = None, scope: Sequence[str] = ("row",),
    layers: Sequence[str] = ("upper",), site: Sequence[str] = ("code",),
    alpha: Sequence[float] = (1.0,), heads: Sequence[int] | None = None,
    queries: Sequence[str] | None = None, keys: Sequence[str] | None = None,
    renormalize: bool = False,
) -> dict[str, Any]:
    """Return `interventions` for every combination of the lists; nothing without `patch`.

    Args:
        subject: The model that is patched.
        patch: What to patch in: interchange, control, elsewhere, shuffled, resample, class_mean,
            class_mean_base, class_mean_shuffled, class_mean_third, class_mean_group, steer,
            steer_third, steer_random, zero_ablation, mean_ablation, erase, erase_shuffled, random,
            identity; class_mean_pooled, class_mean_base_pooled, class_mean_third_pooled,
            class_mean_group_pooled; of a factorial also the sources operands, operation+operands,
            unrelated, rest, operation+rest, operands+rest, operation+operands+rest, frozen (at site
            residual) and (fuzzy logic) permuted; or one that a file registers which --import names.
            Without it: the most informative ones, with their controls.
        scope: Which codes to overwrite: pair, pairs, row, feature, examples, everything; or those
            of the queries of a place: context, operands, response, "outside context" or "within
            context" (in quotes).
        layers: In which layers: each, upward (the lowest two, three and so on), first, lower,
            upper, above (all but the lowest), all, or sets such as 2,3.
        site: What to overwrite: code, value, z (the output of each head, before W_O), message (what
            a key contributes to z), residual, mlp_in, mlp_out; code+value writes both in one run.
        alpha: How far to steer, in multiples of the difference between means.
        heads: Overwrite these heads only; default: all.
        queries: Overwrite the codes of these queries only, a place or numbers of tokens; default:
            all of the scope.
        keys: Overwrite the codes of these keys only, a place or numbers of tokens; default: all of
            the scope.
        renormalize: Rescale what was written to the constraint that the model's codes obey.
    """
    if not patch:
        given = {"scope": scope, "layers": layers, "site": site, "alpha": alpha, "heads": heads,
                 "queries": queries, "keys": keys, "renormalize": renormalize}
        defaults = inspect.signature(patches).parameters
        others = [f"--{name}" for name, value in given.items() if value != defaults[name].default]
        check(not others, f"{' and '.join(others)} given without --patch; expected --patch too, or "
              "neither for the most informative patches", ConfigError)
        return {}
    from latentcode.probes.interventions.patch import every_patch

    chosen = every_patch(
        {"site": site, "where": scope, "layers": layers, "alpha": alpha, "value": patch,
         "heads": heads, "renormalize": renormalize, "queries": _tokens(queries),
         "keys": _tokens(keys)}, subject.layers)
    return {"interventions": list(dict.fromkeys(chosen))}


def _tokens(words: Sequence[str] | None) -> str | tuple[int, ...] | None:
    """Return a place, or the numbers of tokens; None where nothing is given."""
    if not words:
        return None
    if len(words) == 1 and not words[0].lstrip("-").isdecimal():
        return words[0]
    check(all(word.lstrip("-").isdecimal() for word in words), f"tokens are {' '.join(words)}; "
          "expected the name of one place, or numbers", ConfigError)
    return tuple(map(int, words))


def options_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the arguments of a function that words can give, as tyro takes them."""
    texts = {argument.arg_name: argument.description or "" for source in (subject, ask, function)
             for argument in parse(inspect.getdoc(source) or "").params}
    options = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = (type(parameter.default) if parameter.annotation is parameter.empty
                else _evaluated(parameter.annotation, function))
        words = words_of(hint)
        if words is not None:
            options[name] = option_of(name, words, texts.get(name, ""), parameter.default)
    return options


def option_of(
    name: str, kind: Any, text: str, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    """Return an argument as tyro takes it; None stands for an option that is left out."""
    if get_origin(kind) is tuple and default not in (None, inspect.Parameter.empty):
        default = as_tuple(default)
    hint = "" if default is None else None
    note = tyro.conf.arg(help=" ".join(text.split()), help_behavior_hint=hint)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default,
        annotation=Annotated[kind | None if default is None else kind, note])


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


def description(function: Callable[..., Any]) -> str:
    """Return the text of `--help`: what the docstring says before its sections, with an example."""
    name = function.__name__
    summary, _, more = (parse(inspect.getdoc(function) or "").description or "").partition("\n")
    words = EXAMPLES.get(name, f"{name.replace('_', '-')} runs/hyla --out results/{name}")
    return "\n\n".join(filter(None, (summary, f"Example: latentcode {words}", more.strip())))


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    """Return the type that an annotation of a question stands for."""
    if not isinstance(annotation, str):
        return annotation
    names = {**vars(asked), **inspect.unwrap(ask).__globals__,
             **inspect.unwrap(function).__globals__}
    return eval(annotation, names)


def _plain(parameter: inspect.Parameter) -> Any:
    """Return the type of an option, without what is noted of it."""
    return get_args(parameter.annotation)[0]
