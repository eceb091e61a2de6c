"""A problem of the first page, drawn as its task draws it, from plain lists and without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentcode.tasks.logic.render import strip
from latentcode.tasks.sraven.render import Drawing as Grid
from latentcode.tasks.sraven.render import draw_small
from latentcode.tasks.text.render import Drawing as Text
from latentcode.tasks.text.render import draw_around

AROUND = 2
"""Tokens of a text that are shown on either side of those that matter."""


def drawn(task: str, side: Mapping[str, Any], problem: Mapping[str, Any]) -> str:
    """Return a base or a source as HTML; what shows a token has its position as `data-token`."""
    plain = side["drawing"]
    if task == "sraven":
        return draw_small(Grid(**plain))
    if task == "logic":
        n_inputs = len(plain["tokens"][0]) - 1
        return strip("", [*(f"x{i + 1}" for i in range(n_inputs)), "f"], plain["tokens"])
    return draw_around(Text(**plain), problem["places"]["what"], AROUND)
