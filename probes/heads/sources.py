"""Where texts come from: a list, a file that is never read whole, or whatever can be iterated."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.errors import ArtifactError, ConfigError, check
from latentcode.files.storage import checksum
from latentcode.prompts.texts_file import SUFFIXES, rows_in

TEXT, PROMPT, ANSWER = "text", "prompt", "answer"
EXPECTED = ("a file of texts (.txt, one per line, or .jsonl, one object per line with `text`, or "
            "with `prompt` and `answer`), a DataFrame with such columns, or texts in a list")


@dataclass(frozen=True)
class Given:
    """One text or prompt as it was given, or an excerpt that has tokens already.

    where     what errors call it
    text      None for an excerpt
    answer    of a prompt, a token or its id; None: nothing is read there
    is_prompt whether the answer alone is read, not every next token
    tokens    of an excerpt, one more than the model is given
    number    which text it is of, for the bootstrap: what belongs together has the same
    after     how far the source is read then, of its `total`
    """

    where: str
    text: str | None
    answer: Any
    is_prompt: bool
    tokens: Sequence[int] | None
    number: int
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

    numbers  which text each is of; default: each its own
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
                        i if self.numbers is None else int(self.numbers[i]), i + 1)

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
                        None, number, after)

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


__all__ = ["ANSWER", "PROMPT", "TEXT", "Excerpted", "File", "Given", "Listed", "Source",
           "source_of"]
