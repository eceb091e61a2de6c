"""The map: points of one picture or several, their colours, and what a person does there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import streamlit as st
from matplotlib.colors import to_hex, to_rgb
from scipy.ndimage import gaussian_filter, maximum_filter

from latentcode.app.assets import own_component
from latentcode.app.charts.addresses import array_address, library_address
from latentcode.app.charts.theme import grey, palette
from latentcode.app.data.projections import LegendEntry, legend_entries
from latentcode.app.settings import STREAMLIT_THEME
from latentcode.app.state.messages import answering
from latentcode.app.state.selection import Selection
from latentcode.codes.latent_codes import is_measurement
from latentcode.figures.colours import SEQUENTIAL

MARGIN = 1.06
"""How much of the picture lies around its points."""
SKEWED = 0.1
"""Share of the range within which a skewed measurement has half of its values."""
SHADES = 64
"""Colours of a scale."""
FURTHER = ("#C10020", "#B2DF8A", "#8C564B", "#882255", "#EE6677", "#B66DFF", "#FB9A99", "#AA4499")
"""Colours beyond those of the figures, from lists of Kelly, ColorBrewer, Tableau, Tol and Wong.

Each is the one, of those that show on either ground, that is farthest from all before it, also to
people who cannot tell red from green or blue from yellow.
"""
CELLS = 48
"""Cells along a side of the grid on which points are counted."""
BLUR = 1.2
"""Standard deviation, in cells, over which points are counted together."""
PURE, SPARSE = 0.6, 0.25
"""A name stands where more than this share of the points has the value, and where its points are
not this much sparser than at their densest."""
MOST_PLACES = 3
"""Places with the name of the same value."""


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


def show_map(
    planes: Sequence[Plane], colours: Colours, note: Callable[[Selection], None], *, key: str,
    dark: bool, label: str, selection: Selection, selected: np.ndarray | None,
    instance: int | None = None, across: int = 1, height: int = 500, alt: str,
) -> None:
    """Show planes of the same N points, and call `note` with what is clicked, outlined, cleared.

    label      what a selection calls the label that colours the points
    selection  its outlines are drawn in their plane
    selected   bool [N]; the others are faint
    instance   gets a ring in every plane
    across     planes in a row
    """
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
            "planes": [_described(plane, colours) for plane in planes],
            "colour": {
                "title": colours.title, "label": label, "values": array_address(colours.values),
                "colors": list(colours.colors), "names": list(colours.names),
                "counts": list(colours.counts), "continuous": colours.continuous,
                "low": colours.bounds[0], "high": colours.bounds[1], "middle": colours.middle},
            "outlines": [{"plane": selection.plane, "points": list(map(list, selection.corners))}
                         ] if selection.corners else [],
            "instance": instance, "dark": dark,
            "selected": None if selected is None else array_address(
                np.flatnonzero(selected).astype(np.uint32)),
            # At which n points remain distinct, in pixels.
            "size": float(np.clip(260.0 / math.sqrt(max(n, 1)), 1.0, 8.0)) * (
                1.0 if len(planes) == 1 else 0.8),
            "ink": STREAMLIT_THEME[f"{theme}.textColor"],
            "accent": STREAMLIT_THEME[f"{theme}.primaryColor"]},
        on_outline_change=answering(happened), on_instance_change=answering(happened),
        on_cleared_change=answering(happened),
        on_missing_change=answering(lambda: None))  # the page runs again


def _described(plane: Plane, colours: Colours) -> dict[str, Any]:
    points = plane.points
    low, high = points.min(axis=0), points.max(axis=0)
    return {"name": plane.name, "title": plane.title, "cards": plane.cards,
            "points": array_address(points.T.astype(np.float32)),
            "centre": [float(v) for v in (low + high) / 2],
            "half": float((high - low).max()) / 2 * MARGIN or 1.0,
            "clusters": clusters(points, colours)}


@dataclass(frozen=True)
class Colours:
    """What colours N points.

    values      uint16 [N], which of the colours
    colors      as #RRGGBB; on a continuous scale, the last one is that of missing measurements
    names       of the values; of a continuous scale there are none
    counts      points per value
    others      whether the last value stands for several
    bounds      smallest and largest measurement, as text
    middle      text at the middle of a scale by rank, which is not linear
    """

    title: str
    values: np.ndarray
    colors: tuple[str, ...]
    names: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    others: bool = False
    bounds: tuple[str, str] = ("", "")
    middle: str = ""

    @property
    def continuous(self) -> bool:
        return not self.names


def colours(label: pd.Series, *, title: str, dark: bool) -> Colours:
    """Return the colours of a label: a scale for measurements, otherwise one per value."""
    if is_measurement(label):
        return _scale(label, title, dark)
    entries = legend_entries(label)
    line = {value: i for i, entry in enumerate(entries) for value in entry.values}
    index = label.map(line).to_numpy(dtype=np.uint16)
    counts = np.bincount(index, minlength=len(entries))
    return Colours(title, index, _of_entries(entries, dark),
                   tuple(entry.name for entry in entries), tuple(map(int, counts)),
                   others=len(entries[-1].values) > 1)


def colours_of_values(label: pd.Series, *, dark: bool) -> dict[object, str]:
    """Return the colour of each value of a category, that of the map."""
    entries = legend_entries(label)
    return {value: color for entry, color in zip(entries, _of_entries(entries, dark), strict=True)
            for value in entry.values}


def _of_entries(entries: Sequence[LegendEntry], dark: bool) -> tuple[str, ...]:
    """Return a colour per line of a legend, grey for a line of several values."""
    if len(entries[-1].values) > 1:
        return (*distinct(len(entries) - 1, dark), grey(dark))
    return distinct(len(entries), dark)


def _scale(label: pd.Series, title: str, dark: bool) -> Colours:
    numbers = label.to_numpy(dtype=np.float64)
    known = numbers[np.isfinite(numbers)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    share = _shares(numbers, known)
    ramp = mpl.colormaps[SEQUENTIAL](np.linspace(0.0, 1.0, SHADES))
    shade = np.where(np.isfinite(share), np.nan_to_num(share) * (SHADES - 1), SHADES)
    return Colours(title, np.rint(shade).astype(np.uint16), (*map(to_hex, ramp), grey(dark)),
                   bounds=(f"{low:.3g}", f"{high:.3g}"), middle=(
                       f"{np.median(known):.3g} (shades by rank)" if _is_skewed(known) else ""))


def _is_skewed(known: np.ndarray) -> bool:
    """Whether most measurements would have one shade, as losses do of which a few are large."""
    if len(known) < 3 or known.min() == known.max():
        return False
    low, middle, high = np.quantile(known, (0.0, 0.5, 1.0))
    return not SKEWED < (middle - low) / (high - low) < 1 - SKEWED


def _shares(numbers: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return where on the scale each measurement is, from 0 to 1: by value, or skewed ones by rank.
    """
    if not len(known) or known.min() == known.max():
        return np.where(np.isfinite(numbers), 0.0, np.nan)
    if not _is_skewed(known):
        return np.asarray((numbers - known.min()) / (known.max() - known.min()))
    ordered = np.sort(known)
    # Equal numbers have equal shades: the middle of their ranks.
    rank = (np.searchsorted(ordered, numbers, "left")
            + np.searchsorted(ordered, numbers, "right") - 1) / 2
    return np.where(np.isfinite(numbers), rank / (len(ordered) - 1), np.nan)


def distinct(n: int, dark: bool) -> tuple[str, ...]:
    """Return n colours: those of the figures, `FURTHER`, then lighter and darker ones of them."""
    base = (*palette(dark), *FURTHER)
    made = []
    for i in range(n):
        color, turn = np.array(to_rgb(base[i % len(base)])), i // len(base)
        toward = np.ones(3) if turn % 2 else np.zeros(3)
        made.append(to_hex(color + (toward - color) * min(0.45 * ((turn + 1) // 2), 0.9)))
    return tuple(made)


def clusters(points: np.ndarray, shown: Colours) -> list[dict[str, object]]:
    """Return where in a picture [N, 2] the names of values may stand.

    These are the densest places of a value at which more than `PURE` of the points around are its
    own: a value that is spread over the whole picture has no place of its own, and gets no name.
    The densest come first.
    """
    if shown.continuous or len(points) < 2:
        return []
    low, high = points.min(axis=0), points.max(axis=0)
    size = np.where(high > low, high - low, 1.0)
    cell = np.minimum(((points - low) / size * CELLS).astype(np.int64), CELLS - 1)
    flat = cell[:, 0] * CELLS + cell[:, 1]

    def density(rows: np.ndarray) -> np.ndarray:
        grid = np.bincount(rows, minlength=CELLS * CELLS).reshape(CELLS, CELLS)
        smooth: np.ndarray = gaussian_filter(grid.astype(float), BLUR, mode="constant")
        return smooth

    every = density(flat)
    found: list[tuple[float, dict[str, object]]] = []
    for value in range(len(shown.names) - shown.others):
        mine = density(flat[shown.values == value])
        peaks = ((mine == maximum_filter(mine, size=7)) & (mine > PURE * every)
                 & (mine > SPARSE * mine.max()) & (mine > 0.0))
        places = np.argwhere(peaks)
        for place in places[np.argsort(-mine[peaks], kind="stable")][:MOST_PLACES]:
            at = low + (place + 0.5) / CELLS * size
            found.append((-mine[tuple(place)],
                          {"value": value, "at": [float(at[0]), float(at[1])]}))
    return [name for _, name in sorted(found, key=lambda item: item[0])]
