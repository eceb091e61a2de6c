"""The colours of a map's points: one per value of a label, or a scale of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.colors import to_hex, to_rgb
from scipy.ndimage import gaussian_filter, maximum_filter

from latentcode.app.charts.theme import grey, palette
from latentcode.app.data.projections import LegendEntry, legend_entries
from latentcode.codes.latent_codes import is_measurement
from latentcode.figures.colours import SEQUENTIAL

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
