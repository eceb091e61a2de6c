"""What is known of a token without anybody's annotation? Classes that the text itself gives.

Bracket depth and indentation are counted within the excerpt, from its beginning or that of the
query's document, whichever comes later: what was opened before that is not known of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from latentcode.tasks.text.data import Tokenizer
from latentcode.tasks.text.patterns import INDUCTION, SAME, keys_at

CLASSES: tuple[str, ...] = ("letter", "digit", "space", "newline", "punctuation", "bracket",
                            "mixed", "end")
"""Classes of characters; spaces before other characters do not count. `end` ends a document."""
OPENING, CLOSING = "([{", ")]}"
TAB = 4
"""Spaces that a tab counts as in an indentation."""
DEEPEST = 4
"""Brackets open at once that are told apart: a depth of 4 is 4 or more."""
ROLES: tuple[str, ...] = ("query", "key", "next")
"""Tokens with labels of their own: the query's, the induction pair's key and the answer."""


@dataclass(frozen=True)
class TokenTable:
    """What the texts of V token ids say, a row each.

    pieces  the text of every id
    end     the id that ends a document, or None where there is none
    """

    pieces: tuple[str, ...]
    end: int | None = None

    @classmethod
    def of(cls, tokenizer: Tokenizer, n: int) -> TokenTable:
        """Return the table of a model with n ids, of which a tokenizer may leave the last unused.
        """
        return cls((*tokenizer.pieces, *[""] * (n - tokenizer.n_tokens)), tokenizer.end)

    @cached_property
    def classes(self) -> np.ndarray:
        """The class of characters of every id, indices of `CLASSES`."""
        found = np.array([CLASSES.index(class_of(piece)) for piece in self.pieces])
        if self.end is not None:
            found[self.end] = CLASSES.index("end")
        return found

    @cached_property
    def capital(self) -> np.ndarray:
        """Whether the first character that is no space is a capital letter."""
        return np.array([piece.lstrip()[:1].isupper() for piece in self.pieces])

    @cached_property
    def digit(self) -> np.ndarray:
        """Whether a digit is among the characters."""
        return np.array([any(c.isdigit() for c in piece) for piece in self.pieces])

    @cached_property
    def edges(self) -> np.ndarray:
        """Whether an id begins with space, has its first other character alphanumeric, and ends
        with an alphanumeric one: bool [V, 3]."""
        return np.array([(piece[:1].isspace(), piece.lstrip()[:1].isalnum(),
                          piece[-1:].isalnum()) for piece in self.pieces])

    @cached_property
    def brackets(self) -> np.ndarray:
        """The lowest depth within an id and that after it, relative to before: int64 [V, 2]."""
        steps = [[(c in OPENING) - (c in CLOSING) for c in piece] for piece in self.pieces]
        return np.array([(min(0, *np.cumsum(s)) if s else 0, sum(s)) for s in steps])

    @cached_property
    def blanks(self) -> np.ndarray:
        """Columns of int64 [V, 3]: the width of the spaces that an id begins with, or that follow
        its last newline; whether it has a newline; whether all after that is space."""
        rows = []
        for piece in self.pieces:
            line = piece.rpartition("\n")[2].replace("\t", " " * TAB)
            rows.append((len(line) - len(line.lstrip()), "\n" in piece, not line.strip()))
        return np.array(rows)


def class_of(piece: str) -> str:
    """Return which of `CLASSES` a text is of; parts of characters are `mixed`."""
    text = piece.strip()
    if not text:
        return "newline" if "\n" in piece else "space"
    kinds = {"letter" if c.isalpha() else "digit" if c.isdigit()
             else "bracket" if c in OPENING + CLOSING
             else "mixed" if c.isspace() or c == "\ufffd" else "punctuation" for c in text}
    return kinds.pop() if len(kinds) == 1 else "mixed"


def bracket_depth(tokens: Int[Tensor, "B T"], table: TokenTable) -> Int[Tensor, "B T"]:
    """s_t - min(0, min_{u <= t} s_u), s_t the opening less the closing brackets up to token t.

    A closing bracket that nothing opened is passed over, and a document begins at depth 0.
    """
    low, net = _looked_up(table.brackets, tokens)
    total, line = net.cumsum(1), _since_end(tokens, table)
    before = torch.where(line > 0, total.gather(1, (line - 1).clamp_min(0)), 0)
    # Every document lies far below the one before, so that minima are its own.
    floor = -line * (1 + int(np.abs(table.brackets).max(initial=0)) * tokens.shape[1])
    depth = total - before + floor
    return depth - torch.minimum(depth - net + low, floor).cummin(1).values


def indentation(tokens: Int[Tensor, "B T"], table: TokenTable) -> Int[Tensor, "B T"]:
    """Return how many spaces the line of each token begins with, as far as token t shows it.

    The first line of an excerpt begins where the excerpt does.
    """
    width, newline, blank = _looked_up(table.blanks, tokens)
    place = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    line = torch.where(newline == 1, place, _since_end(tokens, table)).cummax(1).values
    written = torch.where(blank == 1, -1, place).cummax(1).values
    before = torch.nn.functional.pad(written[:, :-1], (1, 0), value=-1)
    counted = torch.where(before < line, width, 0).cumsum(1)
    return counted - torch.where(line > 0, counted.gather(1, (line - 1).clamp_min(0)), 0)


def _since_end(tokens: Tensor, table: TokenTable) -> Tensor:
    """Return where the document of each token begins, int64 [B, T]; 0 where that is not shown."""
    place = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    first = torch.zeros_like(tokens)
    if table.end is not None:
        first[:, 1:] = torch.where(tokens[:, :-1] == table.end, place[:, 1:], 0)
    return first.cummax(1).values


def frequency_bins(tokens: Tensor, n_ids: int) -> np.ndarray:
    """floor(log10(1 + n_v)), n_v how often id v occurs in a million of `tokens`: int64 [V]."""
    counts = torch.bincount(tokens.flatten().cpu(), minlength=n_ids).double().numpy()
    return np.log10(1.0 + 1e6 * counts / max(counts.sum(), 1.0)).astype(np.int64)


def token_labels(
    tokens: Int[Tensor, "B S"], query: Int[Tensor, " B"], table: TokenTable, bins: np.ndarray
) -> pd.DataFrame:
    """Return what is known of each query, its key of the induction pair and its next token.

    tokens  with the one that follows the query; `bins` of `frequency_bins`

    {role}_class     class of characters (`CLASSES`), of the roles query, key and next
    {role}_capital   whether it begins with a capital letter
    {role}_word      whether it begins a word
    {role}_digit     whether it has a digit
    {role}_frequency decade of its occurrences in a million tokens
    copied           whether the induction pair is right: the next token is the pair's key's
    distance         how many tokens ago the query's token was, in bins
    depth            brackets open after the query, at most `DEEPEST`
    indentation      spaces before the query's line, in bins
    """
    tokens, query = tokens.cpu(), query.cpu()
    induction, same = keys_at(tokens, query, (INDUCTION, SAME)).unbind(1)
    places = {"query": query, "key": induction, "next": query + 1}
    columns: dict[str, np.ndarray] = {}
    ids = {role: _at(tokens, places[role]) for role in ROLES}
    spaced, begins, ends = table.edges.T
    for role in ROLES:
        at = ids[role]
        before = _at(tokens, (places[role] - 1).clamp_min(0))
        after_word = ends[before] & (places[role] > 0).numpy()
        columns |= {
            f"{role}_class": np.array(CLASSES, dtype=object)[table.classes[at]],
            f"{role}_capital": table.capital[at],
            f"{role}_word": begins[at] & (spaced[at] | ~after_word),
            f"{role}_digit": table.digit[at],
            f"{role}_frequency": bins[at]}
    return pd.DataFrame({
        **columns, "copied": ids["next"] == ids["key"],
        "distance": _in_bins((query - same).numpy()),
        "depth": _at(bracket_depth(tokens, table), query).clip(max=DEEPEST),
        "indentation": _in_bins(_at(indentation(tokens, table), query))})


def row_labels(labels: pd.DataFrame) -> pd.DataFrame:
    """Return operand (the classes of query and key), operation (copied or not, depth and
    indentation) and answer (the class of the next token) of `token_labels`."""
    return pd.DataFrame({
        "operand_query": labels["query_class"], "operand_key": labels["key_class"],
        **{name: labels[name] for name in ("copied", "depth", "indentation")},
        "answer": labels["next_class"]})


def _looked_up(columns: np.ndarray, tokens: Tensor) -> Sequence[Tensor]:
    table = torch.from_numpy(columns.astype(np.int64)).to(tokens.device)
    return table[tokens].unbind(-1)


def _at(values: Tensor, place: Tensor) -> np.ndarray:
    return values.gather(1, place[:, None])[:, 0].numpy()


def _in_bins(numbers: np.ndarray) -> np.ndarray:
    """Name the bin of each number from 0: 0, 1, 2-3, 4-7, 8-15 and so on."""
    power = np.where(numbers > 0, np.log2(np.maximum(numbers, 1)).astype(int), -1)
    names = {-1: "0", 0: "1", **{k: f"{2**k}-{2**(k + 1) - 1}" for k in range(1, power.max() + 1)}}
    return np.array([names[k] for k in power.tolist()], dtype=object)


__all__ = ["CLASSES", "ROLES", "TokenTable", "bracket_depth", "class_of", "frequency_bins",
           "indentation", "row_labels", "token_labels"]
