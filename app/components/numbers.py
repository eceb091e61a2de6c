"""Numbers that are put into heads by hand: bars to drag, presets, and their text in the URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import streamlit as st

from latentcode.app.assets import own_component
from latentcode.app.charts.theme import reach
from latentcode.app.data.benches import OpenBench
from latentcode.app.state.messages import answering, heard, turn
from latentcode.app.state.url import choose, remember, remembered
from latentcode.app.words import literal

HOW = {"set": "set to", "scale": "times", "add": "plus"}
"""What numbers set by hand do, in the words of the page."""
BARS = "numbers by hand"
"""Key of the bars."""
STEP = 0.01


def choose_numbers(
    open_: OpenBench, instance: int, which: int, target: str, *, layer: int, scope: str,
    key: int | None = None,
) -> tuple[str, tuple[float, ...]]:
    """Let a person set one number per head; return how they are written, and the numbers.

    layer  whose code the bars begin at, and stand before
    key    of the response attending to this token; None: to itself
    """
    own = open_.code(instance, which, key)[layer].astype(np.float64)
    how = choose("Every code becomes", list(HOW), key="how", form="buttons",
                 default="set" if scope == "pair" or key is not None else "scale",
                 shown=lambda h: HOW[h])
    means = {name: code[layer].astype(np.float64).round(2) for name, code in open_.means(
        instance, which, key, centred=how == "add").items()}
    ticks = {} if how == "scale" else means
    begin = {"set": own.round(2), "scale": np.ones_like(own), "add": np.zeros_like(own)}[how]
    # Numbers of the URL that were meant otherwise do not fit.
    asked = read_numbers(remembered("numbers"), how, len(own))
    values = begin if asked is None else asked
    bars(BARS, values, lambda moved: _write(how, moved), ghost=begin, ticks=ticks, marked=target,
         most=max(reach([*own, *begin]), *(float(np.abs(x).max()) for x in (
             values, *means.values()))))
    st.caption("**Drag** a bar, or move it with the arrow keys. " + _about(
        how, layer, open_, target, key))
    _presets(how, len(own), means, open_.kind)
    return how, tuple(float(value) for value in values)


def _about(how: str, layer: int, open_: OpenBench, target: str, key: int | None) -> str:
    """Return what stands behind and beside the bars."""
    if how == "scale":
        return "Its own codes are times 1."
    to = "itself" if key is None else literal(open_.task.token_names[key])
    own = (f"Behind the bars: the problem's own code in layer {layer}, of the response attending "
           f"to {to}." if how == "set" else "The bars are added to every code that is written.")
    centred = "" if how == "set" else ", minus the mean over all training problems"
    return (f"{own} Ticks: the mean codes of training problems with each {open_.kind} in that "
            f"place{centred}, coloured for **{literal(target)}**.")


def _presets(how: str, n: int, means: Mapping[str, np.ndarray], kind: str) -> None:
    """Offer numbers that mean something, one button each."""
    with st.container(horizontal=True, gap="small"):
        st.button("Its own", icon=":material/restart_alt:", on_click=answering(remember),
                  args=("numbers", None),
                  help="The problem's own code (set to), times 1, or plus 0.")
        st.button("Zero", on_click=answering(_write), args=("set", [0.0] * n),
                  help="No score at any head.")
    added = how == "add"
    st.caption(("Plus the centred mean code" if added else "Set to the mean code")
               + f" of training problems with this {kind} in that place:")
    with st.container(horizontal=True, gap="small"):
        for name, code in means.items():
            st.button(literal(name), key=f"mean of {name}", on_click=answering(_write),
                      args=("add" if added else "set", code))


def _write(how: str, numbers: Sequence[float] | np.ndarray) -> None:
    """Put numbers into the URL, and how they are meant."""
    remember("how", HOW[how], step=True)
    remember("numbers", "_".join([how, *(f"{value:g}" for value in numbers)]))


def read_numbers(text: str | None, how: str, n: int) -> np.ndarray | None:
    """Return the numbers of the URL; None where there are none that are meant as `how` says.

    None, too, where they are not one for each of n heads.
    """
    meant, *parts = (text or "").split("_")
    if meant != how:
        return None
    try:
        values = np.array([float(part) for part in parts])
    except ValueError:
        return None
    return values if len(values) == n and bool(np.isfinite(values).all()) else None


def bars(
    key: str, values: Sequence[float] | np.ndarray, note: Callable[[tuple[float, ...]], None], *,
    ghost: Sequence[float] | np.ndarray, most: float,
    ticks: Mapping[str, np.ndarray] | None = None, marked: str | None = None,
) -> None:
    """Show numbers as bars, and call `note` with all of them when one was moved and let go.

    ghost   numbers that stand behind them
    most    where a bar stops, to either side
    ticks   name -> numbers, which stand as marks beside the bars; `marked` is one of the names
    """
    def noted() -> None:
        moved = numbers_of(heard(key, "values").get("values"), len(values), most)
        if moved is not None:
            note(moved)

    component = own_component(__name__, "handles")
    component(key=key, on_values_change=answering(noted), data={
        "values": [float(value) for value in values], "ghost": [float(value) for value in ghost],
        "most": float(most), "step": STEP, "label": "head", "turn": turn(key),
        "ticks": [{"name": name, "numbers": [float(value) for value in numbers],
                   "marked": name == marked} for name, numbers in (ticks or {}).items()]})


def numbers_of(moved: object, n: int, most: float) -> tuple[float, ...] | None:
    """Return what a browser says of n bars; None where it says something else."""
    if not isinstance(moved, list | tuple) or len(moved) != n or not all(
            isinstance(value, int | float) and abs(value) <= most for value in moved):
        return None
    return tuple(float(value) for value in moved)
