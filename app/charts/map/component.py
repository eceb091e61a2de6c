"""The map as a component of the page: what it is told, and what a person does in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from latentcode.app.assets import own_component
from latentcode.app.charts.map.addresses import array_address, library_address
from latentcode.app.charts.map.colours import Colours, clusters
from latentcode.app.look import STREAMLIT_THEME
from latentcode.app.state.messages import answering
from latentcode.app.state.selection import Selection

MARGIN = 1.06
"""How much of the picture lies around its points."""


@dataclass(frozen=True)
class Plane:
    """Points of one picture.

    name    what a selection drawn in it calls it
    title   above it where there are several
    points  float [N, 2]
    cards   address below which each point's card is, as HTML
    """

    name: str
    title: str
    points: np.ndarray
    cards: str | None = None


@dataclass(frozen=True)
class Pin:
    """A further point, drawn over the first plane with its name.

    at      in the coordinates of the plane
    before  where it was, from where a line leads to it
    """

    at: tuple[float, float]
    name: str
    before: tuple[float, float] | None = None


def point_size(n: int) -> float:
    """Return a diameter in pixels at which n points remain distinct."""
    return float(np.clip(260.0 / math.sqrt(max(n, 1)), 1.0, 8.0))


def show_map(
    planes: Sequence[Plane], colours: Colours, note: Callable[[Selection], None], *, key: str,
    dark: bool, label: str, selection: Selection, selected: np.ndarray | None,
    instance: int | None = None, across: int = 1, height: int = 500, alt: str,
    pins: Sequence[Pin] = (),
) -> None:
    """Show planes of the same N points, and call `note` with what is clicked, outlined, cleared.

    label      what a selection calls the label that colours the points
    selection  its outlines are drawn in their plane
    selected   bool [N]; the others are faint
    instance   gets a ring in every plane
    across     planes in a row
    pins       further points, in the first plane
    """
    by_name = {plane.name: plane for plane in planes}
    n = len(colours.values)

    def happened() -> None:
        state: Mapping[str, Any] = st.session_state[key]
        if (outline := state.get("outline")) is not None:
            note(Selection.drawn(outline))
        elif isinstance(point := state.get("instance"), int):
            note(Selection(instances=(point,), plane=planes[0].name))
        elif state.get("cleared") is not None:
            note(Selection())

    theme = f"theme.{'dark' if dark else 'light'}"
    component = own_component(__name__, "map")
    component(
        key=key, height="content", data={
            "library": library_address(), "n": n, "across": across, "height": height, "alt": alt,
            "planes": [_described(plane, colours, pins if plane is planes[0] else ())
                       for plane in planes],
            "colour": {
                "title": colours.title, "label": label, "values": array_address(colours.values),
                "colors": list(colours.colors), "names": list(colours.names),
                "counts": list(colours.counts), "continuous": colours.continuous,
                "low": colours.bounds[0], "high": colours.bounds[1], "middle": colours.middle},
            "outlines": _outlines(selection, by_name),
            "instance": instance, "dark": dark,
            "selected": None if selected is None else array_address(
                np.flatnonzero(selected).astype(np.uint32)),
            "size": point_size(n) * (1.0 if len(planes) == 1 else 0.8),
            "ink": STREAMLIT_THEME[f"{theme}.textColor"],
            "accent": STREAMLIT_THEME[f"{theme}.primaryColor"]},
        on_outline_change=answering(happened), on_instance_change=answering(happened),
        on_cleared_change=answering(happened),
        on_missing_change=answering(_offer_again))


def _offer_again() -> None:
    """Let the page run again, which offers what the map misses."""


def _outlines(selection: Selection, planes: Mapping[str, Plane]) -> list[dict[str, Any]]:
    """Return the outlines of a selection as they are shown, where their plane is."""
    if selection.plane not in planes:
        return []
    boxes = [((x0, y0), (x1, y0), (x1, y1), (x0, y1)) for (x0, y0), (x1, y1) in selection.boxes]
    return [{"plane": selection.plane, "points": [list(corner) for corner in corners]}
            for corners in (*selection.lassos, *boxes)]


def _described(plane: Plane, colours: Colours, pins: Sequence[Pin]) -> dict[str, Any]:
    points = plane.points
    # Of each where it is, and where it was, which may be the same place.
    pinned = (np.array([place for pin in pins for place in (pin.at, pin.before or pin.at)])
              if pins else points[:0])
    shown = np.vstack([points, pinned])
    low, high = shown.min(axis=0), shown.max(axis=0)
    half = float((high - low).max()) / 2 * MARGIN or 1.0
    return {"name": plane.name, "title": plane.title, "cards": plane.cards,
            "points": array_address(points.T.astype(np.float32)),
            "centre": [float(v) for v in (low + high) / 2], "half": half,
            "clusters": clusters(points, colours), "pins": [
                {"at": at, "name": pin.name, "before": None if pin.before is None else before}
                for at, before, pin in zip(
                    pinned[::2].tolist(), pinned[1::2].tolist(), pins, strict=True)]}
