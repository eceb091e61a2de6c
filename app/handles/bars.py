"""Bars that are dragged, one per head: a component of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from latentcode.app.assets import own_component
from latentcode.app.state.messages import answering
from latentcode.app.state.turns import heard, turn

STEP = 0.01


def bars(
    key: str, values: Sequence[float] | np.ndarray, note: Callable[[tuple[float, ...]], None], *,
    ghost: Sequence[float] | np.ndarray, most: float,
    ticks: Mapping[str, np.ndarray] | None = None, marked: str | None = None,
    label: str = "head",
) -> None:
    """Show numbers as bars, and call `note` with all of them when one was moved and let go.

    ghost   numbers that stand behind them
    most    where a bar stops, to either side
    ticks   name -> numbers, which stand as marks beside the bars; `marked` is one of the names
    label   what a bar is called, for those who hear the page
    """
    def noted() -> None:
        moved = numbers_of(heard(key, "values").get("values"), len(values), most)
        if moved is not None:
            note(moved)

    component = own_component(__name__, "handles")
    component(key=key, on_values_change=answering(noted), data={
        "values": [float(value) for value in values], "ghost": [float(value) for value in ghost],
        "most": float(most), "step": STEP, "label": label, "turn": turn(key),
        "ticks": [{"name": name, "numbers": [float(value) for value in numbers],
                   "marked": name == marked} for name, numbers in (ticks or {}).items()]})


def numbers_of(moved: object, n: int, most: float) -> tuple[float, ...] | None:
    """Return what a browser says of n bars; None where it says something else."""
    if not isinstance(moved, list | tuple) or len(moved) != n or not all(
            isinstance(value, int | float) and abs(value) <= most for value in moved):
        return None
    return tuple(float(value) for value in moved)
