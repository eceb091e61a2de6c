"""A small English text, made up of a few words, and a configuration that reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

WORDS = ["every", "head", "has", "a", "code", "that", "says", "which", "value", "each", "query",
         "reads", "and", "what", "it", "writes", "while", "words", "end", "with", "the", "stop"]


def sentences(n: int, seed: int) -> str:
    """Return n sentences of ten words, each the same for the same seed."""
    drawn = np.random.default_rng(seed).choice(WORDS, size=(n, 10))
    return "\n".join(" ".join(words).capitalize() + "." for words in drawn)


def twelve(seed: int) -> str:
    return sentences(12, seed)


def write_documents(folder: Path, n: int = 40, text: Callable[[int], str] = twelve) -> Path:
    """Write n text files, of their numbers, into two folders, the sources `first` and `second`."""
    for number in range(n):
        file = folder / ("first", "second")[number % 2] / f"{number:03}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text(number), encoding="utf-8")
    return folder
