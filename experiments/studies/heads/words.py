"""Words of five alphabets, and prompts that one head, or two, can answer.

A word has one of 32 codes: six signs, of which an even number is -1. Two codes are equal or
c . c' <= 2, and the product of two, sign by sign, is a code. What comes next is a word of alphabet
a, or the end where the model does not know.

    induction   a_1 ... a_12 a_1 ... a_8                   a_9
    duplicate   b_1 ... b_12, then some of them again      the word of a with the code of the last
    redundant   words of a, each once, one of c among them the word of a with the code of that
    synergetic  the same with one of d and one of e        the word of a with the product of both

There are 32 prompts of a kind: those of one, all of whose codes are multiplied by the same code
(that of e by another, so that the product differs, too). Two of them have different words at each
place: what comes from another prompt is always wrong, and the mean code of a place is 0. Or there
are 64 that are drawn one by one.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import torch
from torch import Tensor

N_CODES, N_SIGNS = 32, 6
ALPHABETS = "abcde"
END = 0
PIECES = ("<end>", *(f" {alphabet}{code:02d}" for alphabet in ALPHABETS
                     for code in range(N_CODES)))
KINDS = ("induction", "duplicate", "redundant", "synergetic")
N_DRAWN = 64
LISTED, AGAIN, AROUND = 12, 8, 18
"""Words that are listed, that come again, and that stand around the one or two that count."""
FIELD = 0b100101
"""x^5 + x^2 + 1: codes as elements of the field of 32, where + is the product of signs."""


def codes() -> Tensor:
    """Return the signs of all codes, [32, 6]; the code of i xor j is the product of both."""
    bits = torch.arange(N_CODES)[:, None] >> torch.arange(N_SIGNS - 1) & 1
    signs = 1.0 - 2.0 * bits
    return torch.cat([signs, signs.prod(1, keepdim=True)], 1)


def id_of(alphabet: str, code: int) -> int:
    """Return the id of a word."""
    return 1 + ALPHABETS.index(alphabet) * N_CODES + code


class Words:
    """The tokenizer: a space begins a word."""

    pieces, n_tokens, end = PIECES, len(PIECES), END
    _word = re.compile(r" [a-e]\d\d")

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [self.locate(text)[0] for text in texts]

    def locate(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        found = list(self._word.finditer(text))
        return [PIECES.index(word[0]) for word in found], [word.span() for word in found]

    def decode(self, ids: list[int]) -> str:
        return "".join(PIECES[i] for i in ids)


def prompts(kind: str, seed: int = 0, *, alike: bool = True) -> pd.DataFrame:
    """Return the prompts of a kind, `prompt` and `answer`.

    alike  32 that are one but for their codes; False: 64, each drawn anew
    """
    place = [seed, KINDS.index(kind)]
    if not alike:
        drawn = (_drawn(kind, np.random.default_rng([*place, i])) for i in range(N_DRAWN))
        return pd.DataFrame([_said(kind, *one) for one in drawn])
    one = _drawn(kind, np.random.default_rng(place))
    return pd.DataFrame([_said(kind, *one, by) for by in range(N_CODES)])


def _drawn(kind: str, rng: np.random.Generator) -> tuple[list[tuple[str, int]], int]:
    """Return the words of one prompt, alphabet and code, and the code of its answer."""
    first = rng.permutation(N_CODES)
    again = (rng.permutation(LISTED) if kind == "duplicate" else np.arange(LISTED))[:AGAIN]
    listed = [("b" if kind == "duplicate" else "a", int(code)) for code in first]
    if kind in KINDS[:2]:
        words = [*listed[:LISTED], *(listed[i] for i in again)]
        return words, listed[AGAIN][1] if kind == "induction" else words[-1][1]
    words = listed[:AROUND]
    counts = [(alphabet, int(rng.integers(N_CODES)))
              for alphabet in ("c" if kind == "redundant" else "de")]
    for word, place in zip(counts, sorted(rng.choice(
            np.arange(2, AROUND), len(counts), replace=False)), strict=True):
        words.insert(int(place), word)
    return words, int(np.bitwise_xor.reduce([code for _, code in counts]))


def _said(kind: str, words: list[tuple[str, int]], answer: int, by: int = 0) -> dict[str, str]:
    """Return a prompt and its answer as text, all codes multiplied by one."""
    said = [PIECES[id_of(alphabet, code ^ (twice(by) if alphabet == "e" else by))]
            for alphabet, code in words]
    right = answer ^ (by ^ twice(by) if kind == "synergetic" else by)
    return {"prompt": "".join(said), "answer": PIECES[id_of("a", right)]}


def twice(code: int) -> int:
    """Return a code times x: code -> twice(code) and code -> code xor twice(code) are one-to-one.
    """
    doubled = code << 1
    return doubled ^ FIELD if doubled & N_CODES else doubled
