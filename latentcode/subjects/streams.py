"""A language model and the texts that are streamed through it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.errors import ConfigError, ProbeError, check
from latentcode.files.storage import rows_in
from latentcode.prompts import OwnLanguageModel, Prompts, load_language_model
from latentcode.prompts.prompts import joined
from latentcode.prompts.texts import (
    ANSWER,
    MESSAGES,
    PROMPT,
    TEXT,
    TOKENS_AT_ONCE,
    Texts,
    excerpts,
    listed,
    repeated,
    source_of,
)
from latentcode.runs import Run
from latentcode.subjects.base import Subject, check_nothing
from latentcode.subjects.prompts import PromptSubject
from latentcode.subjects.resolving import opened_model, subject
from latentcode.subjects.tasks import RunSubject, placed
from latentcode.tasks.text.task import Text

if TYPE_CHECKING:
    from latentcode.subjects.arguments import Model, Problems

EXCERPTS = 512
"""Excerpts of a run's own text that are read by default."""
REPEATED, N_REPEATED = "repeated", 64
"""What asks for texts of repeated random tokens, and their number and length by default."""
PLACES = ("query", "key", "pairs")
"""Columns of prompts that say which pair is read, as other questions ask for."""


def stream_texts(
    model: Model | Texts,
    problems: Problems | Any = None,
    *,
    longest: int | None = None,
    n: int | None = None,
    tokens_at_once: int = TOKENS_AT_ONCE,
    prepend_bos: bool | None = None,
    **opening: Any,
) -> Texts:
    """Return a language model and the texts that it reads.

    Args:
        model: As in `subject`. A `PromptSubject` or `Texts` have their texts already; these keep
            the settings that are left at their default here.
        problems: Texts, as in `source_of`; or prompts, as in `subject`, of which the `answer` comes
            next; or `repeated`, random tokens that come twice (`prompts.texts.repeated`), 64 texts
            of 64 tokens unless n and longest say otherwise; default: held-out excerpts of a run's
            own text.
        longest: As in `Texts`, and so are the next three.
        n: Texts that are read at most; default: all, of a run's own text 512.
        tokens_at_once: Tokens of a batch.
        prepend_bos: Whether texts begin with the BOS token.
        opening: Further options of `subject`: step, device, dtype and others.

    Raises:
        LatentCodeError: `ConfigError` for what cannot be read, and what opening the model raises.
    """
    reading: dict[str, Any] = {"longest": longest, "n": n, "tokens_at_once": tokens_at_once}
    if isinstance(model, Texts):
        check_nothing("the model has its texts already", problems=problems,
                      prepend_bos=prepend_bos, **opening)
        default = {"longest": None, "n": None, "tokens_at_once": TOKENS_AT_ONCE}
        return Texts(model.model, model.source, problems=model.problems,
                     prepend_bos=model.prepend_bos, **{
                         name: getattr(model, name) if value == default[name] else value
                         for name, value in reading.items()})
    if isinstance(model, Subject):
        check_nothing("the model is a subject, which has them already", problems=problems,
                      prepend_bos=prepend_bos, **opening)
        return _of_subject(model, reading)
    if problems is None or _has_places(problems):
        return _of_subject(subject(model, problems, prepend_bos=prepend_bos, **opening), reading)
    source = None if str(problems) == REPEATED else source_of(problems)
    check_nothing("texts are batched by their length; expected tokens_at_once",
                  batch_size=opening.pop("batch_size", None))
    options = {name: value for name, value in opening.items() if value is not None}
    if isinstance(model, str | Path):
        model = opened_model(model, pretrained=True)
    check(not isinstance(model, LatentCodes), "the model is codes that were read before; expected "
          "a language model", ProbeError)
    if not isinstance(model, Run | str | Path):
        check_nothing("the model is in hand", **options)
    elif "device" in options:
        options["device"] = placed(options["device"])
    in_text: Any = model
    language = load_language_model(in_text, **options)
    if source is None:
        length = min(longest or N_REPEATED, language.context or N_REPEATED)
        source, reading["longest"] = repeated(
            language, n or N_REPEATED, length, prepend_bos), None
    return Texts(language, source, prepend_bos=prepend_bos, **reading)


def _has_places(problems: Any) -> bool:
    """Whether problems are prompts that say which pair is read."""
    columns: Any = problems if isinstance(problems, pd.DataFrame) else ()
    if isinstance(problems, str | Path) and Path(problems).is_file() and (
            Path(problems).suffix == ".jsonl"):
        columns = next((row for _, row, _ in rows_in(Path(problems)) if isinstance(row, dict)), ())
    return isinstance(problems, Prompts) or (
        (PROMPT in columns or MESSAGES in columns) and TEXT not in columns
        and any(name in columns for name in PLACES))


def _of_subject(model: Subject, reading: dict[str, Any]) -> Texts:
    """Return the texts of a subject: prompts, or held-out excerpts of a run's own text.

    Prompts of one `combination` are one text to the bootstrap.
    """
    if isinstance(model, PromptSubject):
        labels = model.prompts.labels
        source = listed(
            labels[PROMPT].tolist(), is_prompt=True,
            answers=labels[ANSWER].tolist() if ANSWER in labels else None,
            numbers=pd.factorize(labels["combination"])[0].tolist())
        return Texts(model.language_model, source, problems=model,
                     prepend_bos=model.prepend_bos, **reading)
    if not isinstance(model, RunSubject) or not isinstance(model.task, Text):
        raise ConfigError(f"{model.name!r} is asked about problems that are no text; expected a "
                          "language model, and texts or prompts")
    check(reading["longest"] is None, f"longest is {reading['longest']}, but the texts are "
          "excerpts of the length that the run was trained on; expected None")
    heldout = model.task.excerpts(model.task.splits[-1])
    n = reading["n"] or EXCERPTS
    tokens = heldout.tokens[:n].tolist()
    documents = joined(heldout.document[:n, 0].tolist(), (tuple(row[:-1]) for row in tokens))
    language = OwnLanguageModel.of_run(model.run, step=model.step, device=placed(model.device))
    return Texts(language, excerpts(tokens, documents), **reading)
