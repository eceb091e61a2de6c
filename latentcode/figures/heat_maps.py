"""Matrices as coloured cells: any of them, and the mean codes of a label."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, TwoSlopeNorm
from matplotlib.image import AxesImage
from pandas.api.types import is_integer_dtype

from latentcode.figures.style import DIVERGING, SEQUENTIAL, Figure, style

LONGEST = 28
"""Letters of a name that a tick label shows."""
BRIGHTNESS = (0.299, 0.587, 0.114)
"""Of red, green and blue to the eye."""


def mean_codes_figure(means: pd.DataFrame, title: str, *, centred: bool = False) -> Figure:
    """Return mean codes as rows of colours, a column per head; white is a score of 0.

    means    index: what each row is; one column per head
    centred  show each row minus the mean of all rows; white is then a score like the others'
    """
    n_rows, n_heads = means.shape
    means = means - means.mean() if centred else means
    rows = means.set_axis([_short(name) for name in means.index]).set_axis(range(n_heads), axis=1)
    letters = max(map(len, rows.index), default=0)
    with style():
        figure = Figure(figsize=(0.07 * letters + float(np.clip(0.17 * n_heads, 1.8, 6.0)) + 1.0,
                                 0.17 * n_rows + 0.95), layout="constrained")
        axes = figure.subplots()
        drawn = heat_map(axes, rows, signed_norm(means.to_numpy()), fontsize=7.5)
        axes.set_xlabel("head")
        axes.set_ylabel(_short(means.index.name or ""), parse_math=False)
        axes.set_title(title, fontsize=8.5, parse_math=False)
        figure.colorbar(drawn, ax=axes, fraction=0.05, pad=0.02,
                        label="mean score − mean of rows" if centred else "mean score")
    return figure


def heat_map(
    axes: Axes, matrix: pd.DataFrame, norm: Normalize, *, numbers: bool = False,
    fontsize: float = 7.0, rotation: float = 0.0,
) -> AxesImage:
    """Draw a matrix as coloured cells and return what a colour bar needs; NaN stays white.

    matrix    its index and columns name the rows and columns, in their order; if the
              columns have numbers, about eight of them are written
    norm      signed where it is a `TwoSlopeNorm`, which chooses the colours
    numbers   whether to write the values into the cells
    rotation  of the names of columns, in degrees
    """
    axes.grid(False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    cmap = DIVERGING if isinstance(norm, TwoSlopeNorm) else SEQUENTIAL
    values = matrix.to_numpy(dtype=np.float64)
    # Cells of a large matrix are smaller than a pixel; "none" would drop some of them.
    drawn = axes.imshow(values, cmap=cmap, norm=norm, aspect="auto", interpolation="nearest")
    step = max(1, len(matrix.columns) // 8) if is_integer_dtype(matrix.columns) else 1
    # Names come from data, where a dollar sign is no mathematics.
    axes.set_xticks(range(0, matrix.shape[1], step), [str(name) for name in matrix.columns[::step]],
                    fontsize=fontsize, rotation=rotation, parse_math=False)
    axes.set_yticks(range(matrix.shape[0]), [str(name) for name in matrix.index],
                    fontsize=fontsize, parse_math=False)
    for (row, column), value in np.ndenumerate(values) if numbers else ():
        if np.isfinite(value):
            brightness = np.dot(drawn.cmap(norm(value))[:3], BRIGHTNESS)
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=fontsize,
                      color="black" if brightness > 0.5 else "white")
    return drawn


def signed_norm(values: np.ndarray) -> Normalize:
    """Return a scale that is symmetric about 0, or from 0 up where nothing is negative."""
    most = float(np.abs(values).max()) or 1.0
    return TwoSlopeNorm(0.0, -most, most) if values.min() < 0 else Normalize(0.0, most)


def _short(name: object) -> str:
    text = " ".join(str(name).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST - 1]}…"
