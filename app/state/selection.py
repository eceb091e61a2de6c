"""What is selected in a picture of codes: an outline in the plane, short enough for a URL.

The outline is kept and not the rows: a lasso around 20,000 points is as short as one around ten,
and means the same after a reload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeAlias
from urllib.parse import quote, unquote

import numpy as np

from latentcode.codes import LatentCodes
from latentcode.errors import ConfigError, check
from latentcode.probes.common.statistics import varies
from latentcode.probes.projection import METHODS

Point: TypeAlias = tuple[float, float]

PRECISION = 0.001
"""How far a kept corner may lie from the drawn one, as a share of the outline."""
MOST_CORNERS = 240
DIVIDER = "!"
"""Between the parts of a picture's name, and between hidden values."""


class Picture(NamedTuple):
    """The codes of n instances at one layer and pair of a model, laid out by a method.

    An outline belongs to the picture it was drawn in: elsewhere it means nothing.

    key  what the catalog calls the model
    """

    split: str
    n: int
    method: str
    layer: int
    pair: str
    key: str

    @property
    def name(self) -> str:
        """What a selection keeps of it."""
        return DIVIDER.join(map(str, self))

    @classmethod
    def named(cls, name: str) -> Self | None:
        """Return the picture that has a name; None for a text that is no such name."""
        split, n, method, layer, pair, key = (*name.split(DIVIDER, 5), *[""] * 6)[:6]
        if not (n.isdecimal() and layer.isdecimal() and key) or len(n) > 9 or len(layer) > 9:
            return None
        return cls(split, int(n), method, int(layer), pair, key)

    def shows(self, codes: LatentCodes, split: str) -> bool:
        """Whether it is a picture of these codes, which are not all the same there."""
        return (self.split == split and self.n == len(codes) and self.method in METHODS
                and self.layer in codes.layers and self.pair in [p.name for p in codes.pairs]
                and varies(codes.select(layer=self.layer, pair=self.pair)))


@dataclass(frozen=True)
class Selection:
    """Instances inside an outline, or those that were clicked.

    corners    of the outline, in the coordinates of the plane
    instances  rows that were clicked, which are selected wherever they lie
    plane      the picture that the outline was drawn in
    hidden     lines of the legend of `label` that were switched off when the outline was drawn: it
               does not select their instances
    label      a column of the labels
    """

    corners: tuple[Point, ...] = ()
    instances: tuple[int, ...] = ()
    plane: str = ""
    hidden: tuple[str, ...] = ()
    label: str = ""

    def __bool__(self) -> bool:
        return bool(self.corners or self.instances)

    def rows(self, coordinates: np.ndarray) -> np.ndarray:
        """Return which points [instance, 2] are selected, as a mask [instance].

        Clicked instances that the coordinates do not have are left out.
        """
        from matplotlib.path import Path

        inside = np.zeros(len(coordinates), dtype=bool)
        if self.corners:
            inside |= Path(self.corners, closed=False).contains_points(coordinates)
        inside[[i for i in self.instances if i < len(coordinates)]] = True
        return inside

    def to_text(self) -> str:
        """Return the selection as a short text that a URL can hold without escapes."""
        numbers = [f"{value:.12g}" for corner in self.corners for value in corner]
        parts = [f"L{'_'.join(numbers)}"] if numbers else []
        parts += [f"I{'_'.join(map(str, self.instances))}"] if self.instances else []
        parts += [f"H{DIVIDER.join(map(escaped, (self.label, *self.hidden)))}"
                  ] if self.hidden else []
        return "~".join(parts) + (f"@{self.plane}" if self.plane else "")

    @classmethod
    def from_text(cls, text: str) -> Selection:
        """Return the selection that `to_text` wrote; `ConfigError` for any other text."""
        shapes, _, plane = text.partition("@")
        parts = {part[0]: part[1:] for part in shapes.split("~") if part}
        try:
            values = [float(number) for number in parts.pop("L", "").split("_") if number]
            instances = tuple(int(number) for number in parts.pop("I", "").split("_") if number)
        except ValueError:
            values, instances = [np.nan], ()
        label, *hidden = map(unquote, parts.pop("H", "").split(DIVIDER))
        check(not parts and len(values) % 2 == 0 and len(values) not in (2, 4)
              and bool(np.isfinite(values).all()) and min(instances, default=0) >= 0,
              f"the selection {text[:80]!r} cannot be read; expected one that the explorer has put "
              "into its URL", ConfigError)
        return cls(tuple(zip(values[::2], values[1::2], strict=True)), instances, plane,
                   tuple(hidden), label)

    @classmethod
    def drawn(cls, outline: Mapping[str, Any]) -> Selection:
        """Return what an outline in a picture selects.

        outline  `plane`, the name of the picture; `points`, the corners (x, y); where lines of the
                 legend are switched off, `label` and `hidden` as in a selection

        Corners are rounded, so that the text of the selection gives them back exactly.
        """
        corners = np.asarray(outline["points"], dtype=float).reshape(-1, 2)
        if len(corners) < 3 or not np.ptp(corners, axis=0).all():
            return cls()
        corners = corners[::-(-len(corners) // MOST_CORNERS)]
        size = float(np.ptp(corners, axis=0).max())
        digits = min(max(int(np.ceil(-np.log10(PRECISION * size))), 0), 9)
        kept = tuple((round(float(x), digits), round(float(y), digits)) for x, y in corners)
        if len(set(kept)) < 3:
            return cls()
        hidden = tuple(map(str, outline.get("hidden", ())))
        return cls(kept, plane=str(outline["plane"]), hidden=hidden,
                   label=str(outline["label"]) if hidden else "")


def escaped(text: str) -> str:
    """Return a text in which no character divides the parts of a selection."""
    return quote(text, safe="").replace("~", "%7E")
