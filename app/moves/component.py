"""The first page's component: what a visitor puts in is drawn at once, and told to the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from latentcode.app.assets import own_component
from latentcode.app.data.moves import MOST
from latentcode.app.state.messages import answering
from latentcode.app.state.turns import heard, turn

NOTHING = "nothing"
"""The place where nothing is put in."""


def moves(
    key: str, view: Mapping[str, Any], state: Mapping[str, Any],
    note: Callable[[Mapping[str, Any]], None],
) -> None:
    """Show base, source and outcome, and call `note` with the state that a visitor chooses.

    view   as `latentcode.app.moves.view` makes it
    state  `task`, `kind`, `put` (codes or values), `drop` (a place, or `NOTHING`), `problem`
    """
    def noted() -> None:
        chosen = heard(key, "state")
        if is_state(view, chosen):
            note(chosen)

    own_component(__name__, "moves")(
        key=key, data={**view, "state": dict(state), "alone": False, "turn": turn(key)},
        on_state_change=answering(noted), height="content")


def is_state(view: Mapping[str, Any], chosen: object) -> bool:
    """Whether what a browser says is a state of the page."""
    if not isinstance(chosen, Mapping):
        return False
    number = chosen.get("problem")
    task = next((one for one in view["tasks"] if one["name"] == chosen.get("task")), None)
    return (task is not None and type(number) is int and 0 <= number < MOST
            and chosen.get("kind") in [kind["name"] for kind in view["kinds"]]
            and chosen.get("put") in ["codes", "values"]
            and chosen.get("drop") in [NOTHING, *(move["place"] for move in task["moves"])])
