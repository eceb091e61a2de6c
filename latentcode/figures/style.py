"""One look for all figures: colours that colour-blind readers can tell apart, and quiet axes.

Figures are built with `Figure`, never through pyplot, and settings hold inside `style()` only:
drawing changes no global state, in a notebook or in the app.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib as mpl
import matplotlib.figure
import matplotlib.style

from latentcode.figures.colours import DIVERGING as DIVERGING
from latentcode.figures.colours import FEATURE_STYLES as FEATURE_STYLES
from latentcode.figures.colours import GREY as GREY
from latentcode.figures.colours import MARKERS as MARKERS
from latentcode.figures.colours import PALETTE as PALETTE
from latentcode.figures.colours import SEQUENTIAL as SEQUENTIAL
from latentcode.figures.colours import category_styles as category_styles

_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.3,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.dpi": 110.0,
    "svg.fonttype": "path",
    "svg.hashsalt": "latentcode",
}


@contextmanager
def style() -> Iterator[None]:
    """Draw with the settings of this module, and leave matplotlib as it was."""
    with matplotlib.style.context("default"), mpl.rc_context(_SETTINGS):
        yield


class Figure(matplotlib.figure.Figure):
    """A figure that a notebook shows as it is.

    Jupyter shows matplotlib's own figures once pyplot or `%matplotlib inline` has prepared it,
    and until then their size in words.
    """

    def _repr_png_(self) -> bytes:
        image = io.BytesIO()
        with style():
            self.savefig(image, format="png")
        return image.getvalue()

    def to_html(self, description: str) -> str:
        """Return the figure as an HTML image that needs no other file."""
        encoded = base64.b64encode(self._repr_png_()).decode()
        return f'<img alt="{escape(description)}" src="data:image/png;base64,{encoded}">'
