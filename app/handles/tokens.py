"""The tokens of a drawn problem, to click: of which queries and keys something is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from latentcode.app.assets import own_component
from latentcode.app.state.messages import answering
from latentcode.app.state.turns import heard, turn

ROLES = ("queries", "keys")
"""What a token that is clicked is chosen as: what attends, or what is attended to."""
_RUN = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def tokens(
    key: str, html: str, chosen: Mapping[str, Sequence[int]],
    written: Mapping[str, Sequence[int]],
    note: Callable[[dict[str, tuple[int, ...]]], None], *, n: int, label: str,
) -> None:
    """Show a problem whose tokens are clicked, or drawn over; call `note` with what is chosen.

    html     the problem; what shows a token has its position as `data-token`
    chosen   role -> tokens that somebody has chosen
    written  role -> tokens of which something is written; they are marked
    n        how many tokens it has
    label    what the problem is called, for those who hear the page
    """
    def noted() -> None:
        told = tokens_of(heard(key, "chosen"), n)
        if told is not None:
            note(told)

    own_component(__name__, "tokens")(
        key=key, on_chosen_change=answering(noted), height="content", data={
            "html": html, "label": label, "turn": turn(key),
            "chosen": {role: list(chosen.get(role, ())) for role in ROLES},
            "written": {role: list(written.get(role, ())) for role in ROLES}})


def tokens_of(told: object, n: int) -> dict[str, tuple[int, ...]] | None:
    """Return what a browser says of n tokens; None where it says something else."""
    if not isinstance(told, dict) or not all(
            isinstance(told.get(role), list | tuple) and all(
                isinstance(token, int) and token in range(n) for token in told[role])
            for role in ROLES):
        return None
    return {role: tuple(sorted(set(told[role]))) for role in ROLES}


def to_text(numbers: Sequence[int]) -> str:
    """Return numbers of tokens as a URL holds them: `0-5_7`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return "_".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def from_text(text: str, n: int) -> tuple[int, ...] | None:
    """Return the numbers of n tokens that `to_text` wrote; None for any other text."""
    found: set[int] = set()
    for part in text.split("_"):
        match = _RUN.fullmatch(part)
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < n:
            return None
        found.update(range(first, last + 1))
    return tuple(sorted(found))
