"""A command that asks a question of a model, made from the function that answers it.

Its options are the arguments of the function that words can give, and those of
`latentcode.subjects.subject`, which says what model and problems are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import tyro

from latentcode.cli import options
from latentcode.cli.options import check_numbers, option_of, with_options
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, as_tuple, check
from latentcode.files.storage import check_free
from latentcode.probes.registered import ask
from latentcode.progress import Bar
from latentcode.runs.run import folder_of
from latentcode.subjects import Subject, subject
from latentcode.subjects import arguments as argument_types

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
REPEATED = "repeated"
NOTHING = "An empty list: nothing"
"""What the help says of a list option that asks for nothing where nothing follows it."""


def question(function: Callable[..., Any]) -> Callable[..., partial[None]]:
    """Return the command of a question, for tyro: called with what words give, it returns the call
    of `answer`."""
    name = function.__name__
    arguments = options_of(function)
    takes_codes = name not in NOT_OF_CODES
    several = get_origin(_plain(arguments.pop(next(iter(arguments))))) is tuple or takes_codes
    for option in ("problems", "out", "overwrite"):
        arguments.pop(option, None)
    of_model = {option: arguments.get(option, parameter)
                for option, parameter in options_of(subject).items()
                if option not in ("model", "problems")
                and arguments.get(option, parameter).default is None}
    if name == "intervene":
        arguments |= options_of(patches)
    further = {
        "prompts": option_of("prompts", Path, PROMPTS, None),
        **({"texts": option_of("texts", Path, TEXTS, None)}
           if takes_codes else {}),
        **({"texts": option_of("texts", Path, f"{TEXTS} Or {REPEATED!r}: random tokens that come "
                               "twice.", None)} if name == "heads" else {}),
        "out": option_of("out", Path, "Folder to save the result in."),
        "overwrite": option_of("overwrite", bool, "Replace an earlier result in that folder, "
                               "finished or not.", False)}
    note = tyro.conf.arg(metavar="MODEL [MODEL ...]" if several else "MODEL",
                         help=MODEL + SEVERAL_CODES * takes_codes, help_behavior_hint="(required)")
    kind: Any = tuple[str, ...] if several else str
    model = inspect.Parameter("model", inspect.Parameter.POSITIONAL_OR_KEYWORD,
                              annotation=Annotated[kind, tyro.conf.Positional, note])
    every = arguments | of_model | further

    def call(model: str | tuple[str, ...], **words: Any) -> partial[None]:
        given = {option: value for option, value in words.items()
                 if value != every[option].default}
        if function.__module__.startswith("latentcode."):  # a user's probe has rules of its own
            check_numbers(given)
        for option in (option for option, value in given.items() if value == ()):
            check(NOTHING in every[option].annotation.__metadata__[0].help,
                  f"--{option.replace('_', '-')} has nothing after it; expected at least one, or "
                  "to leave it out")
        for option in further:
            given.pop(option, None)
        return partial(
            answer, function, as_tuple(model), prompts=words["prompts"], texts=words.get("texts"),
            out=words["out"], overwrite=words["overwrite"],
            of_model={option: given.pop(option) for option in of_model if option in given},
            options=given)

    words = EXAMPLES.get(name, f"{name.replace('_', '-')} runs/hyla --out results/{name}")
    return with_options(call, [model, *every.values()],
                        options.description(function, f"Example: latentcode {words}"))


def answer(
    function: Callable[..., Any], models: tuple[str, ...], *, prompts: Path | None,
    texts: Path | None, out: Path, overwrite: bool, of_model: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    """Compute under a progress bar, save, print, and say where it is.

    `of_model` are options of `subject`, `options` those of the function, both without defaults.
    """
    name, parameters = function.__name__, inspect.signature(function).parameters
    kind = inspect.signature(function).return_annotation
    if isinstance(kind, str):
        kind = eval(kind, {**_names(), **inspect.unwrap(function).__globals__})
    is_codes = kind is LatentCodes
    check_free(out, overwrite=overwrite, marker="meta.json" if is_codes else kind.marker())
    options = dict(options)
    of_patches = {option: options.pop(option) for option in options_of(patches)
                  if option in options} if name == "intervene" else {}
    check(not of_patches or "patch" in of_patches, f"--{' and --'.join(of_patches)} given without "
          "--patch; expected --patch too, or neither for the most informative patches")
    saves = "out" in parameters  # while it computes, and the same command goes on with it
    if saves:
        options |= {"out": out, "overwrite": overwrite}
    try:
        with Bar(name.replace("_", " ")) as progress:
            progress.wait("loading the model")
            drawn = ("n", "longest") if str(texts) == REPEATED else ()
            opening = dict(of_model) | {word: options[word] for word in drawn if word in options}
            subjects: Any = subjects_of(name, models, prompts, texts, opening)
            if get_origin(_plain(next(iter(options_of(function).values())))) is not tuple:
                subjects, = subjects
            if of_patches:
                options |= patches(subjects, **of_patches)
            result = function(subjects, progress=progress, **options)
    except KeyboardInterrupt as interruption:
        if not saves:
            interruption.add_note(f"{out} was not written; the same command starts again")
        raise
    if not saves:
        result.save(out, overwrite=overwrite)
    print(result)
    print(f"wrote {'codes' if is_codes else 'result'} {out}")


def subjects_of(
    name: str, models: tuple[str, ...], prompts: Path | None, texts: Path | None,
    options: Mapping[str, Any],
) -> Sequence[Any]:
    """Return models on problems, one for each checkpoint; several folders of codes are one subject,
    of codes that are fitted to, and others."""
    check(len(models) > 0, "MODEL is missing; expected it before options that take several words")
    for option, file in (("prompts", prompts), ("texts", texts)):
        check(file is None or file.is_file() or (name, option, str(file)) == (
            "heads", "texts", REPEATED), f"--{option} is {str(file)!r}, which is no file; "
              "expected one that holds them, one a line")
    check(prompts is None or texts is None, f"--texts is {str(texts)!r} and --prompts "
          f"{str(prompts)!r}; expected one or the other")
    if texts is not None:
        check(len(models) == 1, f"{len(models)} models are given; expected one, which is asked "
              "about the texts")
        if name == "heads":  # which streams them
            from latentcode.subjects.streams import stream_texts

            return [stream_texts(models[0], texts, **options)]
        from latentcode.prompts.texts import read_texts

        return [subject(models[0], read_texts(texts), **options)]
    if len(models) > 1 and name not in NOT_OF_CODES:
        folders = [folder_of(model) for model in models]
        check(all((folder / "codes.safetensors").is_file() for folder in folders),
              f"{len(models)} folders are given that are not all codes; expected one model, or "
              "folders of codes", ProbeError)
        check(prompts is None, f"--prompts is {str(prompts)!r}, but codes were read before; "
              "expected no prompts", ProbeError)
        return [subject(folders[0], folders[1:], **options)]  # type: ignore[arg-type]
    options = dict(options)
    steps = as_tuple(options.pop("step", (None,)))
    return [subject(model, prompts, step=step, **options) for model in models for step in steps]


def patches(
    subject: Subject, *, patch: Sequence[str] = (), scope: Sequence[str] = ("row",),
    layers: Sequence[str] = ("upper",), site: Sequence[str] = ("code",),
    alpha: Sequence[float] = (1.0,), heads: Sequence[int] | None = None,
    queries: Sequence[str] | None = None, keys: Sequence[str] | None = None,
    renormalize: bool = False,
) -> dict[str, Any]:
    """Return `interventions` for every combination of the lists.

    Args:
        subject: The model that is patched.
        patch: What to patch in: interchange, control, elsewhere, shuffled, resample, class_mean,
            class_mean_base, class_mean_shuffled, class_mean_third, class_mean_group, steer,
            steer_third, steer_random, zero_ablation, mean_ablation, erase, erase_shuffled, random,
            identity; of a factorial also the sources operands, operation+operands, unrelated, rest,
            operation+rest, operands+rest, operation+operands+rest and (fuzzy logic) permuted; or
            one that a file registers which --import names.
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
          "expected the name of one place, or numbers")
    return tuple(map(int, words))


def options_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the arguments of a question that words can give, as tyro takes them."""
    return options.options_of(function, subject, ask, names=_names())


def _names() -> dict[str, Any]:
    """Return what annotations of questions may name."""
    return {**vars(argument_types), **inspect.unwrap(ask).__globals__}


def _plain(parameter: inspect.Parameter) -> Any:
    """Return the type of an option, without what is noted of it."""
    return get_args(parameter.annotation)[0]
