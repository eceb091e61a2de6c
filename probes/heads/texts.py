"""Texts on their way to a model: streamed, made tokens, in batches of similar length."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError, ConfigError, ProbeError, check, check_count
from latentcode.files.provenance import package_version
from latentcode.files.storage import checksum
from latentcode.models.memory import available
from latentcode.probes.heads.batches import TextBatch
from latentcode.prompts import LanguageModel, OwnLanguageModel, Prompts, load_language_model
from latentcode.prompts.codes import PATTERN_BYTES
from latentcode.prompts.identity import TextNumbers, joined
from latentcode.prompts.texts_file import SUFFIXES, rows_in
from latentcode.prompts.tokens import next_token
from latentcode.runs import Run
from latentcode.subjects.base import Subject, check_nothing
from latentcode.subjects.of_prompts import PromptSubject
from latentcode.subjects.of_tasks import RunSubject, placed
from latentcode.subjects.resolving import opened_model, subject
from latentcode.tasks.text.task import Text

if TYPE_CHECKING:
    from latentcode.subjects.asked import Model, Problems

TEXT, PROMPT, ANSWER = "text", "prompt", "answer"
EXPECTED = ("a file of texts (.txt, one per line, or .jsonl, one object per line with `text`, or "
            "with `prompt` and `answer`), a DataFrame with such columns, or texts in a list")
TOKENS_AT_ONCE = 2_048
"""Tokens of a batch, padding included."""
GATHERED = 16
"""Batches whose texts are sorted by length together."""
EXCERPTS = 512
"""Excerpts of a run's own text that are read where it is not said how many."""
PLACES = ("query", "key", "pairs")
"""Columns that make prompts those of other questions, too (`latentcode.prompts.Prompts`)."""


@dataclass(frozen=True)
class Given:
    """One text or prompt as it was given, or an excerpt that has tokens already.

    where     what errors call it
    text      None for an excerpt
    answer    of a prompt, a token or its id; None: nothing is read there
    is_prompt whether the answer alone is read, not every next token
    tokens    of an excerpt, one more than the model is given
    number    which text it is of, for the bootstrap: what belongs together has the same; None:
              texts of the same tokens do
    after     how far the source is read then, of its `total`
    """

    where: str
    text: str | None
    answer: Any
    is_prompt: bool
    tokens: Sequence[int] | None
    number: int | None
    after: int


class Source(ABC):
    """Texts that can be read again and again.

    total  what `Given.after` is at the end
    """

    total: int

    @abstractmethod
    def read(self) -> Iterator[Given]:
        """Yield all texts."""

    @abstractmethod
    def digest(self) -> str:
        """Return a SHA-256 of all texts."""


class Listed(Source):
    """Texts or prompts in memory.

    numbers  which text each is of; default: each its own, and copies the same
    """

    def __init__(
        self, texts: Sequence[str], *, is_prompt: bool = False,
        answers: Sequence[Any] | None = None, numbers: Sequence[int] | None = None,
    ) -> None:
        what = PROMPT if is_prompt else TEXT
        for i, text in enumerate(texts):
            check(isinstance(text, str), f"{what} {i} is {text!r}; expected text")
        check(answers is None or len(answers) == len(texts), "answers are not as many as prompts")
        self.texts, self.is_prompt, self.total = texts, is_prompt, len(texts)
        self.answers, self.numbers = answers, numbers

    def read(self) -> Iterator[Given]:
        for i, text in enumerate(self.texts):
            yield Given(named(PROMPT if self.is_prompt else TEXT, i, text), text,
                        None if self.answers is None else self.answers[i], self.is_prompt, None,
                        None if self.numbers is None else int(self.numbers[i]), i + 1)

    def digest(self) -> str:
        content = repr([list(self.texts), None if self.answers is None else list(self.answers),
                        None if self.numbers is None else list(map(int, self.numbers))])
        return hashlib.sha256(content.encode()).hexdigest()


class Excerpted(Source):
    """Excerpts of a packed text that are tokens already.

    tokens   int64 [N, T + 1]
    numbers  which document each is of
    """

    def __init__(self, tokens: Sequence[Sequence[int]], numbers: Sequence[int]) -> None:
        self.tokens, self.numbers, self.total = tokens, numbers, len(tokens)

    def read(self) -> Iterator[Given]:
        for i in range(self.total):
            yield Given(f"excerpt {i}", None, None, False, list(map(int, self.tokens[i])),
                        int(self.numbers[i]), i + 1)

    def digest(self) -> str:
        content = repr([[list(map(int, row)) for row in self.tokens],
                        list(map(int, self.numbers))])
        return hashlib.sha256(content.encode()).hexdigest()


class File(Source):
    """A file with a text or an object on each line, of which one line at a time is in memory.

    `ArtifactError` names the line that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        check(path.suffix in SUFFIXES, f"{path} is no file of texts; expected {EXPECTED}")
        self.path, self.total = path, path.stat().st_size

    def read(self) -> Iterator[Given]:
        for number, (where, row, after) in enumerate(rows_in(self.path)):
            known = [name for name in (TEXT, PROMPT) if isinstance(row, dict) and name in row]
            check(len(known) == 1 and isinstance(row[known[0]], str), f"{where} is "
                  f"{str(row)[:60]!r}; expected an object such as {{\"text\": ...}}, or "
                  "{\"prompt\": ..., \"answer\": ...}", ArtifactError)
            text = row[known[0]]
            yield Given(named(known[0], number, text), text, row.get(ANSWER), known == [PROMPT],
                        None, None, after)

    def digest(self) -> str:
        return checksum(self.path)


def named(what: str, number: int, text: str) -> str:
    """Return what errors call a text."""
    return f"{what} {number} ({text if len(text) <= 40 else text[:37] + '...'!r})"


def source_of(texts: Any) -> Source:
    """Return what texts, or prompts with answers, are read from.

    texts  a path, a list of texts, a DataFrame with `text`, or with `prompt` and possibly `answer`,
           or anything else that can be iterated, which is written to a temporary file first

    `ConfigError` for anything else, and for no texts at all.
    """
    if isinstance(texts, str | Path):
        check(Path(texts).is_file(), f"texts are {str(texts)[:60]!r}, which is no file; expected "
              f"{EXPECTED}")
        return File(Path(texts))
    if isinstance(texts, pd.DataFrame):
        column = next((name for name in (TEXT, PROMPT) if name in texts), None)
        check(column is not None, f"texts have the columns {list(texts)}; expected {TEXT}, or "
              f"{PROMPT} and {ANSWER}")
        assert column is not None
        answers = texts[ANSWER].tolist() if column == PROMPT and ANSWER in texts else None
        found: Source = Listed(texts[column].tolist(), is_prompt=column == PROMPT, answers=answers)
    elif isinstance(texts, Sequence):
        found = Listed(texts)
    else:
        check(isinstance(texts, Iterable), f"texts are {texts!r}; expected {EXPECTED}")
        found = _spooled(texts)
    check(found.total > 0, f"there are no texts; expected {EXPECTED}", ConfigError)
    return found


def _spooled(texts: Iterable[Any]) -> File:
    """Return texts that can be iterated once as a file, for they are read several times; it goes
    with the object."""
    folder = Path(tempfile.mkdtemp(prefix="latentcode-texts-"))
    try:
        with (folder / "texts.jsonl").open("w", encoding="utf-8") as file:
            for i, text in enumerate(texts):
                check(isinstance(text, str), f"text {i} is {text!r}; expected text")
                file.write(json.dumps({TEXT: text}) + "\n")
        found = File(folder / "texts.jsonl")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)
    return found


@dataclass(frozen=True)
class Block:
    """Texts that are sorted by length together, and batched.

    after  how far the source is read then, of its `total`
    """

    batches: Sequence[TextBatch]
    after: int


@dataclass(frozen=True)
class _Row:
    """The tokens of a text, and what is to be said after those from `first` on.

    number  which text it is of, for the bootstrap; `row` which one it is of all that are read
    """

    tokens: Sequence[int]
    targets: Sequence[int]
    first: int
    number: int | None
    row: int


class Texts:
    """A language model, and the texts or prompts that it is asked about.

    model     a `LanguageModel`
    source    the texts
    problems  the prompts as a subject, where they came as such: what has `counterfactuals()`
    longest   tokens of a text, of which longer ones lose the rest; None: the model's context, and a
              text that is longer is an error
    n         texts that are read at most; None: all

    Batches come in the order of the texts up to blocks of `GATHERED` batches, within which texts of
    similar length share a batch. Memory: the texts of one block.
    """

    def __init__(
        self, model: LanguageModel, source: Source, *, problems: Subject | None = None,
        prepend_bos: bool | None = None, longest: int | None = None, n: int | None = None,
        tokens_at_once: int = TOKENS_AT_ONCE,
    ) -> None:
        check_count("tokens_at_once", tokens_at_once)
        limit = model.context
        if longest is not None:
            check_count("longest", longest, 2)
            check(limit is None or longest <= limit, f"longest is {longest:,}; expected at most "
                  f"{limit:,}, the context of the model")
        if n is not None:
            check_count("n", n)
        self.model, self.source, self.problems = model, source, problems
        self.prepend_bos = model.begins(prepend_bos)
        self.longest, self.n, self.tokens_at_once = longest, n, tokens_at_once

    @property
    def name(self) -> str:
        """What results call the model."""
        return str(self.model.settings["run"])

    @property
    def settings(self) -> dict[str, Any]:
        """What results say of model and texts."""
        return {**self.model.settings, "dtype": str(self._weight.dtype),
                "texts": self.source.digest(), **self.model.beginning(self.prepend_bos),
                "longest": self.longest, "n": self.n, "tokens_at_once": self.tokens_at_once,
                "latentcode_version": package_version("latentcode")}

    @property
    def total(self) -> int:
        """What `Block.after` is at the end, for those who say how far it is; about, with `n`."""
        return self.source.total

    def first(self, n: int) -> Texts:
        """Return the first n texts, or all that there are."""
        few = copy(self)
        few.n = n if self.n is None else min(n, self.n)
        check_count("n", few.n)
        return few

    def __iter__(self) -> Iterator[TextBatch]:
        return self.batches()

    def batches(self) -> Iterator[TextBatch]:
        """Yield all texts, from the first on, as often as asked."""
        for block in self.blocks():
            yield from block.batches

    def blocks(self) -> Iterator[Block]:
        """Yield all texts in blocks.

        `ConfigError` names a text that is longer than the context, an answer that is not one
        token, and texts of which none has two tokens.
        """
        rows: list[_Row] = []
        n_tokens, after, readable = 0, 0, False
        numbers = TextNumbers()
        for number, given in enumerate(islice(self.source.read(), self.n)):
            row = self._tokenized(given, number)
            after = given.after
            if row is None:
                numbers.skip()
            else:
                if row.number is None:
                    row = replace(row, number=numbers.number(row.tokens))
                rows.append(row)
                n_tokens, readable = n_tokens + len(row.tokens), True
            if n_tokens >= GATHERED * self.tokens_at_once:
                yield Block(list(self._batched(rows)), after)
                rows, n_tokens = [], 0
        if rows:
            yield Block(list(self._batched(rows)), after)
        check(readable, "no text has two tokens or more; expected texts in which something comes "
              "next")

    def _tokenized(self, given: Given, row: int) -> _Row | None:
        """Return the tokens of a text; None where nothing comes after its first."""
        if given.tokens is not None:
            return _Row(given.tokens[:-1], given.tokens[1:], 0, given.number, row)
        assert given.text is not None
        ids, _ = self.model.encode(given.text, self.prepend_bos)
        limit = self.model.context
        if given.is_prompt:
            check(self.longest is None, f"longest is {self.longest}, which cuts texts, and "
                  f"{given.where} is a prompt, whose end is read; expected longest=None")
            check(limit is None or len(ids) <= limit, f"{given.where} has {len(ids):,} tokens; "
                  f"expected at most {limit or 0:,}, the context of the model")
            answer = [] if given.answer is None else [next_token(
                self.model, ANSWER, given.answer, given.text, ids, given.where, self.prepend_bos)]
            return _Row(ids, answer, len(ids) - 1, given.number, row) if ids else None
        kept = len(ids) if self.longest is None else self.longest
        check(limit is None or min(kept, len(ids)) <= limit, f"{given.where} has {len(ids):,} "
              f"tokens; expected at most {limit or 0:,}, the context of the model. longest="
              f"{limit} (--longest {limit}) reads the first {limit or 0:,} of each text; or divide "
              "the texts")
        return (_Row(ids[:kept], ids[1:kept + 1], 0, given.number, row) if len(ids) > 1
                else None)

    def _batched(self, rows: list[_Row]) -> Iterator[TextBatch]:
        """Yield the rows of a block in batches of similar length."""
        n_heads = self.model.model.cfg.n_heads
        batch: list[_Row] = []
        for row in sorted(rows, key=lambda one: len(one.tokens)):
            length, n = len(row.tokens), len(batch) + 1
            if batch and (n * length > self.tokens_at_once
                          or 4 * n_heads * n * length**2 > PATTERN_BYTES):
                yield self._padded(batch)
                batch = []
            batch.append(row)
        if batch:
            yield self._padded(batch)

    def _padded(self, rows: Sequence[_Row]) -> TextBatch:
        width = max(len(row.tokens) for row in rows)
        tokens = torch.full((len(rows), width), self.model.padding)
        targets = torch.zeros(len(rows), width, dtype=torch.int64)
        read = torch.zeros(len(rows), width, dtype=torch.bool)
        for i, row in enumerate(rows):
            said = slice(row.first, row.first + len(row.targets))
            tokens[i, :len(row.tokens)] = torch.tensor(row.tokens)
            targets[i, said] = torch.tensor(row.targets, dtype=torch.int64)
            read[i, said] = True
        lengths = torch.tensor([len(row.tokens) for row in rows])
        device = self._weight.device
        inside = torch.arange(width, device=device) < lengths.to(device)[:, None]
        return TextBatch(
            tokens.to(device), lengths.to(device), targets.to(device), read.to(device),
            torch.tensor([row.number for row in rows], device=device), self.model.padded(inside),
            torch.tensor([row.row for row in rows], device=device))

    def check_memory(self, batch: TextBatch) -> None:
        """Raise `ProbeError` for a batch that memory cannot suffice for: it holds at least three
        patterns of a layer (scores, codes, and what is made of them) and what they are weighted
        with."""
        free = available(self._weight.device)
        n, width = batch.tokens.shape
        if free is not None and 4 * n * width**2 * (3 * self.model.model.cfg.n_heads + 5) > free:
            raise self.too_large(batch, free)

    def too_large(self, batch: TextBatch, free: int | None = None) -> ProbeError:
        """Return the error of a batch that memory does not suffice for."""
        n, width = batch.tokens.shape
        pattern = 4 * self.model.model.cfg.n_heads * n * width**2 / 2**20
        way_out = (f"tokens_at_once={max(self.tokens_at_once // 2, width)}" if n > 1
                   else f"longest={max(width // 2, 2)}, which cuts texts")
        left = "" if free is None else f"; {free / 2**20:,.0f} MiB are free"
        return ProbeError(f"memory does not suffice for a batch of {n} texts of {width:,} tokens, "
                          f"one layer's pattern of which takes {pattern:,.0f} MiB several times"
                          f"{left}; expected less at once, such as {way_out}")

    @property
    def _weight(self) -> Tensor:
        weight: Tensor = next(self.model.model.parameters())
        return weight


def read_texts(
    model: Model | Texts,
    problems: Problems | Any = None,
    *,
    longest: int | None = None,
    n: int | None = None,
    tokens_at_once: int = TOKENS_AT_ONCE,
    prepend_bos: bool | None = None,
    **opening: Any,
) -> Texts:
    """Which language model is asked about which texts?

    model     as in `subject`: a pretrained model's folder or name, a run on the task `language`, a
              model in hand; a `PromptSubject` or `Texts`, which have theirs already
    problems  a list of texts or anything that yields them, a DataFrame with `text`, a file (.txt, a
              text a line, or .jsonl, a line an object with `text`), which is streamed; or prompts:
              `Prompts`, a DataFrame or a JSONL file with `prompt` and `answer`, after whose last
              token the answer is read; default: held-out excerpts of a run's own text
    opening   further options of `subject`: step, device, dtype and others

    Other arguments are those of `Texts`, whose own stay where they are left at the default. Prompts
    of one `combination` are one text to the bootstrap. `ConfigError` for what cannot be read, and
    what opening the model raises.
    """
    reading: dict[str, Any] = {"longest": longest, "n": n, "tokens_at_once": tokens_at_once}
    if isinstance(model, Texts):
        check_nothing("the model has its texts already", problems=problems,
                      prepend_bos=prepend_bos, **opening)
        return Texts(
            model.model, model.source, problems=model.problems, prepend_bos=model.prepend_bos,
            longest=model.longest if longest is None else longest,
            n=model.n if n is None else n, tokens_at_once=model.tokens_at_once
            if tokens_at_once == TOKENS_AT_ONCE else tokens_at_once)
    if isinstance(model, Subject):
        check_nothing("the model is a subject, which has them already", problems=problems,
                      prepend_bos=prepend_bos, **opening)
        return _of_subject(model, reading)
    if problems is None or _has_places(problems):
        return _of_subject(subject(model, problems, prepend_bos=prepend_bos, **opening), reading)
    source = source_of(problems)
    check_nothing("texts are batched by their length; expected tokens_at_once",
                  batch_size=opening.pop("batch_size", None))
    return Texts(_opened(model, **opening), source, prepend_bos=prepend_bos, **reading)


def _has_places(problems: Any) -> bool:
    """Whether problems are prompts that say which pair is read, as other questions ask for."""
    columns: Any = problems if isinstance(problems, pd.DataFrame) else ()
    if isinstance(problems, str | Path) and Path(problems).is_file() and (
            Path(problems).suffix == ".jsonl"):
        columns = next((row for _, row, _ in rows_in(Path(problems)) if isinstance(row, dict)), ())
    return isinstance(problems, Prompts) or (
        PROMPT in columns and TEXT not in columns and any(name in columns for name in PLACES))


def _opened(model: Any, **opening: Any) -> LanguageModel:
    """Return a language model as `subject` opens it."""
    given = {name: value for name, value in opening.items() if value is not None}
    found: Any = opened_model(model, pretrained=True) if isinstance(model, str | Path) else model
    check(not isinstance(found, LatentCodes), "the model is codes that were read before; expected "
          "a language model", ProbeError)
    if isinstance(found, Run | str | Path):
        if "device" in given:
            given["device"] = placed(given["device"])
    else:
        check_nothing("the model is in hand", **given)
    return load_language_model(found, **given)


def _of_subject(of: Subject, reading: Mapping[str, Any]) -> Texts:
    """Return the texts of a subject: prompts, or held-out excerpts of a run's own text."""
    if isinstance(of, PromptSubject):
        labels = of.prompts.labels
        numbers = pd.factorize(labels["combination"])[0].tolist()
        answers = labels[ANSWER].tolist() if ANSWER in labels else None
        source: Source = Listed(labels[PROMPT].tolist(), is_prompt=True, answers=answers,
                                numbers=numbers)
        return Texts(of.of, source, problems=of, prepend_bos=of.prepend_bos, **reading)
    check(isinstance(of, RunSubject) and isinstance(of.task, Text), f"{of.name!r} is asked about "
          "problems that are no text; expected a language model, and texts or prompts",
          ConfigError)
    assert isinstance(of, RunSubject)
    assert isinstance(of.task, Text)
    check(reading["longest"] is None, f"longest is {reading['longest']}, but the texts are "
          "excerpts of the length that the run was trained on; expected None")
    excerpts = of.task.excerpts(of.task.splits[-1])
    model = OwnLanguageModel.of_run(of.run, step=of.step, device=placed(of.device))
    n = reading["n"] or EXCERPTS
    tokens = excerpts.tokens[:n].tolist()
    documents = joined(excerpts.document[:n, 0].tolist(), (tuple(row[:-1]) for row in tokens))
    return Texts(model, Excerpted(tokens, documents), **reading)
