"""Which codes are worth reading: named pairs of a query and a key. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """A named (query position, key position) whose codes are worth reading.

    `token` is the index of the response token that the query belongs to, so that the label
    "rule" of this pair means the column "rule_{token}"; None where a task has one response.
    """

    name: str
    """For example `query->query` or `response.3->row3.panel2.same`."""
    description: str
    """One sentence for people."""
    token: int | None = None
