"""Texts and prompts as they come (files, tables, lists), and as batches of tokens.

A file is a `.txt`, each line of which is a text, or a `.jsonl`, whose lines are objects:

    {"text": "The river rises in the hills.", "document": "hills", "kind": "report"}
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentcode.devices import available_memory, make_generator
from latentcode.errors import ArtifactError, ProbeError, check, check_count
from latentcode.files.provenance import package_version
from latentcode.files.storage import checksum, rows_in
from latentcode.prompts.answers import answer_tokens
from latentcode.prompts.codes import PATTERN_BYTES
from latentcode.prompts.language_models import LanguageModel
from latentcode.prompts.messages import is_messages
from latentcode.prompts.prompts import read_rows, row_name

TEXT, PROMPT, MESSAGES, ANSWER = "text", "prompt", "messages", "answer"
SUFFIXES = (".txt", ".jsonl")
"""Endings of files of texts."""
EXPECTED = ("a file of texts (.txt, one per line, or .jsonl, one object per line with `text`, or "
            "with `prompt` and `answer`), a DataFrame with such columns, or texts in a list")
TOKENS_AT_ONCE = 2_048
"""Tokens of a batch, padding included."""
GATHERED = 16
"""Batches whose texts are sorted by length together."""
REMEMBERED = 2**20
"""Texts whose numbers `TextNumbers` remembers; those after them have numbers from their tokens."""


def read_texts(path: str | Path) -> pd.DataFrame:
    """Return the texts of a file, a row each: column `text`, then others that its objects have.

    Raises:
        ArtifactError: The file cannot be read, has another ending or no text, or a line has no text
            or other columns than the first.
    """
    path = Path(path)
    check(path.suffix in SUFFIXES, f"texts {path} end with {path.suffix!r}; expected "
          f"{' or '.join(SUFFIXES)}: one text per line, or one object with a text per line",
          ArtifactError)
    rows = read_rows(path, path.suffix, '{"text": "The river rises in the hills."}', TEXT)
    check(len(rows) > 0, f"texts {path} hold no text; expected at least one line that is not empty",
          ArtifactError)
    return pd.DataFrame(rows, columns=[TEXT, *(name for name in rows[0] if name != TEXT)])


@dataclass(frozen=True)
class Given:
    """One text or prompt as it was given, or an excerpt that has tokens already.

    Attributes:
        after: How much of the source is read with it, of the source's `total`.
        text: Text, or a list of messages; None for an excerpt.
        answer: What comes after a prompt: text, the id of a token, or a list of these, any of which
            is right; of text of several tokens the first is read. None: nothing is read there.
        is_prompt: Whether the answer alone is read, not every next token.
        tokens: Ids of an excerpt, one more than the model is given.
        number: Number of the text to the bootstrap: equal for rows that belong together; None:
            rows of the same tokens are one text.
        first: The first token of an excerpt after which it is read.
    """

    after: int
    text: Any = None
    answer: Any = None
    is_prompt: bool = False
    tokens: Sequence[int] | None = None
    number: int | None = None
    first: int = 0


@dataclass(frozen=True)
class Source:
    """Texts that can be read again and again.

    Attributes:
        read: Yields all of them.
        total: `Given.after` of the last: lines of a table, bytes of a file.
        digest: Returns a SHA-256 of all texts.
    """

    read: Callable[[], Iterator[Given]]
    total: int
    digest: Callable[[], str]

    @classmethod
    def in_memory(cls, rows: list[Given], content: list[Any]) -> Source:
        """Return rows as a source, which `content` tells from others."""
        return cls(partial(iter, rows), len(rows),
                   lambda: hashlib.sha256(repr(content).encode()).hexdigest())


def source_of(texts: Any) -> Source:
    """Return the source of texts, or of prompts with answers.

    Args:
        texts: The path of a file, which is read line by line, a DataFrame with `text`, or with
            `prompt` and possibly `answer`, or an iterable of texts, which is kept in memory.

    Raises:
        ConfigError: They are anything else, or none.
        ArtifactError: A line cannot be read, when it is reached.
    """
    if isinstance(texts, str | Path):
        path = Path(texts)
        check(path.is_file(), f"texts are {str(texts)[:60]!r}, which is no file; expected "
              f"{EXPECTED}")
        check(path.suffix in SUFFIXES, f"{path} is no file of texts; expected {EXPECTED}")
        source = Source(partial(_lines, path), path.stat().st_size, partial(checksum, path))
    elif isinstance(texts, pd.DataFrame):
        column = next((name for name in (TEXT, PROMPT, MESSAGES) if name in texts), None)
        check(column is not None, f"texts have the columns {list(texts)}; expected {TEXT}, or "
              f"{PROMPT} and {ANSWER}")
        answers = texts[ANSWER].tolist() if column != TEXT and ANSWER in texts else None
        source = listed(texts[column].tolist(), is_prompt=column != TEXT, answers=answers)
    else:
        check(isinstance(texts, Iterable), f"texts are {texts!r}; expected {EXPECTED}")
        source = listed(list(texts))
    check(source.total > 0, f"there are no texts; expected {EXPECTED}")
    return source


def listed(
    texts: Sequence[Any], *, is_prompt: bool = False, answers: Sequence[Any] | None = None,
    numbers: Sequence[int] | None = None,
) -> Source:
    """Return texts or prompts in memory as a source.

    Args:
        texts: All of them.
        is_prompt: Whether they are prompts.
        answers: Of each prompt `Given.answer`; default: none is read.
        numbers: `Given.number` of each.
    """
    kind = PROMPT if is_prompt else TEXT
    for i, text in enumerate(texts):
        check(isinstance(text, str) or is_messages(text), f"{kind} {i} is {text!r}; expected text, "
              "or messages")
    rows = [Given(
        i + 1, text, None if answers is None else answers[i], is_prompt,
        number=None if numbers is None else int(numbers[i])) for i, text in enumerate(texts)]
    return Source.in_memory(rows, [
        list(texts), None if answers is None else list(answers),
        None if numbers is None else list(map(int, numbers))])


def excerpts(tokens: Sequence[Sequence[int]], numbers: Sequence[int]) -> Source:
    """Return excerpts of a packed text, ids [N, T + 1], as a source; numbers are documents."""
    rows = [Given(i + 1, tokens=row, number=int(number))
            for i, (row, number) in enumerate(zip(tokens, numbers, strict=True))]
    return Source.in_memory(rows, [[list(row) for row in tokens], list(map(int, numbers))])


def repeated(
    model: LanguageModel, n: int, length: int, prepend_bos: bool | None = None, seed: int = 0
) -> Source:
    """Return n texts of random tokens that come twice, read in their second half, as a source.

    [BOS] r_1 ... r_m r_1 ... r_m, with r uniform over the ids of the vocabulary that are no special
    tokens: what says the next token is the first half alone (Olsson et al., 2022).

    Args:
        model: The language model.
        n: Number of texts.
        length: Tokens of each at most, at least 5.
        prepend_bos: As in `LanguageModel.encode`.
        seed: Seed of the tokens.
    """
    check_count("longest", length, 5)
    tokenizer: Any = getattr(model, "tokenizer", None)
    special = getattr(tokenizer, "all_special_ids", None) or [getattr(tokenizer, "end", -1)]
    n_ids = min(model.vocabulary, getattr(tokenizer, "n_tokens", None) or len(tokenizer))
    ids = torch.tensor(sorted({*range(n_ids)} - {*special}))
    begin = model.encode("", prepend_bos)[0][:1] if model.begins(prepend_bos) else []
    m = (length - len(begin)) // 2
    drawn = torch.randint(len(ids), (n, m), generator=make_generator(seed, "repeated tokens"))
    rows = [Given(i + 1, tokens=[*begin, *half, *half, half[0]], number=i, first=len(begin) + m)
            for i, half in enumerate(ids[drawn].tolist())]
    return Source.in_memory(rows, [list(row.tokens or ()) for row in rows])


def _lines(path: Path) -> Iterator[Given]:
    """Yield the texts or prompts of a file, of which one line at a time is in memory."""
    for where, row, after in rows_in(path):
        kinds = [name for name in (TEXT, PROMPT, MESSAGES)
                 if isinstance(row, dict) and name in row]
        check(len(kinds) == 1 and (isinstance(row[kinds[0]], str) or is_messages(row[kinds[0]])),
              f"{where} is "
              f"{str(row)[:60]!r}; expected an object such as {{\"text\": ...}}, or "
              "{\"prompt\": ..., \"answer\": ...}", ArtifactError)
        yield Given(after, row[kinds[0]], row.get(ANSWER), kinds != [TEXT])


@dataclass(frozen=True)
class TextBatch:
    """Some texts, or prompts, padded on the right.

    Attributes:
        tokens: Ids.
        lengths: Tokens of each text.
        targets: The next token: of a text its own, of a prompt the answer, at its last token; 0
            where there is none.
        read: Where predictions of the next token are measured; never where there is no target.
        text: Number of the text of each row, which the bootstrap resamples. Several rows can be of
            one, such as excerpts of a document or prompts of a combination.
        padding: Arguments by which the model is told of padding (`LanguageModel.padded`).
        row: Number of each row, no two the same; default: that of its text.
        others: Further tokens of the answer of each row, then -1; None: there are none.
    """

    tokens: Int[Tensor, "B T"]
    lengths: Int[Tensor, " B"]
    targets: Int[Tensor, "B T"]
    read: Bool[Tensor, "B T"]
    text: Int[Tensor, " B"]
    padding: Mapping[str, Tensor] = field(default_factory=dict)
    row: Int[Tensor, " B"] | None = None
    others: Int[Tensor, "B A"] | None = None

    @property
    def answers(self) -> Int[Tensor, "R M"]:
        """The tokens of the answer wherever one is read, then -1: the target, and `others`."""
        target = self.targets[self.read][:, None]
        if self.others is None:
            return target
        return torch.cat([target, self.others[self.read.nonzero()[:, 0]]], 1)

    @property
    def rows(self) -> Int[Tensor, " B"]:
        """Number of each row, no two the same."""
        return self.text if self.row is None else self.row

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: Tensor) -> TextBatch:
        """Return some rows, int64 or bool."""
        return self._map(lambda x: x[rows.to(x.device)])

    def of_texts(self, texts: Iterable[int]) -> TextBatch:
        """Return the rows of some texts, by their numbers."""
        return self[torch.isin(self.text.cpu(), torch.tensor(list(texts), dtype=torch.int64))]

    def to(self, device: torch.device) -> TextBatch:
        """Return the batch on a device."""
        return self._map(lambda x: x.to(device))

    def _map(self, function: Callable[[Tensor], Tensor]) -> TextBatch:
        changed: dict[str, Any] = {
            name: function(x) for name, x in vars(self).items() if isinstance(x, Tensor)}
        padding = {name: function(x) for name, x in self.padding.items()}
        return replace(self, **changed, padding=padding)


@dataclass(frozen=True)
class _Row:
    """Tokens of a text, the targets after those from `first` on, and others of an answer."""

    tokens: Sequence[int]
    targets: Sequence[int]
    first: int
    number: int
    row: int
    others: Sequence[int] = ()


class TextNumbers:
    """Numbers of texts in the order in which they are read; copies have that of the first."""

    def __init__(self) -> None:
        self._first: dict[bytes, int] = {}
        self._n = 0

    def number(self, tokens: Sequence[int]) -> int:
        """Return the number of a text with these tokens."""
        key = hashlib.blake2b(array("q", tokens).tobytes(), digest_size=8).digest()
        if key not in self._first and len(self._first) == REMEMBERED:
            return int.from_bytes(key) >> 1
        number = self._first.setdefault(key, self._n)
        self._n += number == self._n
        return number

    def skip(self) -> None:
        """Leave out a number, for a text that is not read."""
        self._n += 1


class Texts:
    """A language model, and the texts or prompts that it reads.

    Batches come in the order of the texts up to blocks of `GATHERED` batches, within which texts of
    similar length share a batch. Memory: the texts of one block.

    Args:
        model: The language model.
        source: The texts.
        problems: The subject that the prompts came as, which has `counterfactuals()`.
        prepend_bos: As in `LanguageModel.encode`.
        longest: Tokens of a text, of which longer ones lose the rest; default: the model's context,
            and a longer text is an error.
        n: Texts that are read at most; default: all.
        tokens_at_once: Tokens of a batch, padding included.
    """

    def __init__(
        self, model: LanguageModel, source: Source, *, problems: Any = None,
        prepend_bos: bool | None = None, longest: int | None = None, n: int | None = None,
        tokens_at_once: int = TOKENS_AT_ONCE,
    ) -> None:
        check_count("tokens_at_once", tokens_at_once)
        if longest is not None:
            check_count("longest", longest, 2)
            check(model.context is None or longest <= model.context, f"longest is {longest:,}; "
                  f"expected at most {model.context:,}, the context of the model")
        if n is not None:
            check_count("n", n)
        self.model, self.source, self.problems = model, source, problems
        self.prepend_bos = model.begins(prepend_bos)
        self.longest, self.n, self.tokens_at_once = longest, n, tokens_at_once
        self.of_longer: set[int] = set()  # prompts whose answer has further tokens, once read
        self._weight: Tensor = next(model.model.parameters())

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of results: the model and the texts."""
        return {**self.model.settings, "dtype": str(self._weight.dtype),
                "texts": self.source.digest(), **self.model.beginning(self.prepend_bos),
                "longest": self.longest, "n": self.n, "tokens_at_once": self.tokens_at_once,
                "latentcode_version": package_version("latentcode")}

    def first(self, n: int) -> Texts:
        """Return the first n texts, or all that there are."""
        check_count("n", n)
        texts = copy(self)
        texts.n = n if self.n is None else min(n, self.n)
        return texts

    def __iter__(self) -> Iterator[TextBatch]:
        return self.batches()

    def batches(self, progress: Callable[[int, int], None] | None = None) -> Iterator[TextBatch]:
        """Yield all texts, from the first on, as often as asked.

        Args:
            progress: Called after each block with how much of the source is read, and its total.

        Raises:
            ConfigError: A text is longer than the context, an answer is no text or token, or no
                text has two tokens.
        """
        rows: list[_Row] = []
        n_tokens, readable, numbers = 0, False, TextNumbers()
        for number, given in enumerate(islice(self.source.read(), self.n)):
            row = self._tokenized(given, number, numbers)
            if row is None:
                numbers.skip()
            else:
                rows.append(row)
                n_tokens, readable = n_tokens + len(row.tokens), True
            if n_tokens >= GATHERED * self.tokens_at_once:
                yield from self._batched(rows)
                if progress is not None:
                    progress(min(given.after, self.source.total), self.source.total)
                rows, n_tokens = [], 0
        yield from self._batched(rows)
        check(readable, "no text has two tokens or more; expected texts in which something comes "
              "next")
        if progress is not None:
            progress(self.source.total, self.source.total)

    def _tokenized(self, given: Given, row: int, numbers: TextNumbers) -> _Row | None:
        """Return the tokens of a text; None where nothing comes after its first."""
        if given.tokens is not None:
            assert given.number is not None
            return _Row(given.tokens[:-1], given.tokens[given.first + 1:], given.first,
                        given.number, row)
        assert given.text is not None
        text = self.model.chat(given.text) if is_messages(given.text) else given.text
        where = row_name(row, text, PROMPT if given.is_prompt else TEXT)
        ids, _ = self.model.encode(text, self.prepend_bos)
        limit, kept = self.model.context, len(ids) if self.longest is None else self.longest
        check(not given.is_prompt or self.longest is None, f"longest is {self.longest}, which cuts "
              f"texts, and {where} is a prompt, whose end is read; expected longest=None")
        way_out = "" if given.is_prompt else (
            f". longest={limit} (--longest {limit}) reads the first {limit} of each text; or "
            "divide the texts")
        check(limit is None or min(kept, len(ids)) <= limit, f"{where} has {len(ids):,} "
              f"tokens; expected at most {limit}, the context of the model{way_out}")
        if len(ids) < (1 if given.is_prompt else 2):
            return None
        targets, first, others = ids[1:kept + 1], 0, list[int]()
        if given.is_prompt:
            sequences = () if given.answer is None else answer_tokens(
                self.model, ANSWER, given.answer, text, ids, where, self.prepend_bos)
            if any(len(tokens) > 1 for tokens in sequences):
                self.of_longer.add(row)
            answers = list(dict.fromkeys(tokens[0] for tokens in sequences))
            targets, others, first = answers[:1], answers[1:], len(ids) - 1
        number = numbers.number(ids[:kept]) if given.number is None else given.number
        return _Row(ids[:kept], targets, first, number, row, others)

    def _batched(self, rows: list[_Row]) -> Iterator[TextBatch]:
        """Yield the rows of a block in batches of similar length."""
        n_heads = self.model.model.cfg.n_heads
        batch: list[_Row] = []
        for row in sorted(rows, key=lambda row: len(row.tokens)):
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
            tokens[i, :len(row.tokens)] = torch.tensor(row.tokens)
            places = slice(row.first, row.first + len(row.targets))
            targets[i, places] = torch.tensor(row.targets, dtype=torch.int64)
            read[i, places] = True
        lengths = torch.tensor([len(row.tokens) for row in rows])
        most = max(len(row.others) for row in rows)
        others = torch.tensor([[*row.others] + [-1] * (most - len(row.others)) for row in rows])
        return TextBatch(
            tokens, lengths, targets, read, torch.tensor([row.number for row in rows]),
            self.model.padded(torch.arange(width) < lengths[:, None]),
            torch.tensor([row.row for row in rows]), others if most else None
        ).to(self._weight.device)

    def check_memory(self, batch: TextBatch) -> None:
        """Raise `ProbeError` for a batch that memory cannot suffice for: it holds at least three
        patterns of a layer (scores, codes, and what is made of them) and their weights."""
        free = available_memory(self._weight.device)
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
