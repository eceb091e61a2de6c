"""Which prompts and texts are the same: those whose tokens are, whatever their characters."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

REMEMBERED = 2**20
"""Texts whose numbers `TextNumbers` remembers; those after them have numbers from their tokens."""


def joined(groups: Iterable[Hashable], *identities: Iterable[Hashable]) -> list[Any]:
    """Return the group of each row: the first of those that share an identity, however far.

    identities  of each row what rows of other groups can have, too, such as its tokens
    """
    parent: dict[Hashable, Hashable] = {}

    def root(node: Hashable) -> Hashable:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    groups = list(groups)
    for kind, values in enumerate(identities):
        for group, value in zip(groups, values, strict=True):
            parent[root((kind, value))] = root(("group", group))
    first: dict[Hashable, Any] = {}
    return [first.setdefault(root(("group", group)), group) for group in groups]


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
