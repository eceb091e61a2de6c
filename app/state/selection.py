"""What is selected in a picture of codes: outlines in the plane, short enough for a URL.

The outlines are kept and not the rows: a lasso around 20,000 points is as short as one around
ten, and means the same after a reload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypeAlias
from urllib.parse import quote, unquote

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.errors import ConfigError, check
from latentcode.probes.common.statistics import varies
from latentcode.probes.projection import METHODS

Point: TypeAlias = tuple[float, float]

PRECISION = 0.001
"""How far a kept outline may lie from the drawn one, as a share of its size: less than a pixel."""
DIVIDER = "!"
"""Between the parts of a picture's name."""


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
    """Instances inside at least one of some outlines, those clicked, and those found by a label.

    lassos     polygons, each the corners (x, y) in the coordinates of the plane
    boxes      rectangles, each two opposite corners
    instances  rows that were clicked, which are selected wherever they lie
    plane      the picture that the outlines were drawn in, where there are several
    found      "value" or "label=value": all instances that have it; see `has_label`
    hidden     lines of the legend of `label` that were switched off when the outline was drawn: it
               does not select their instances
    label      a column of the labels
    """

    lassos: tuple[tuple[Point, ...], ...] = ()
    boxes: tuple[tuple[Point, Point], ...] = ()
    instances: tuple[int, ...] = ()
    plane: str = ""
    found: str = ""
    hidden: tuple[str, ...] = ()
    label: str = ""

    def __bool__(self) -> bool:
        return bool(self.lassos or self.boxes or self.instances or self.found)

    def rows(self, coordinates: np.ndarray) -> np.ndarray:
        """Return which points [instance, 2] are selected, as a mask [instance].

        Clicked instances that the coordinates do not have are left out.
        """
        from matplotlib.path import Path

        inside = np.zeros(len(coordinates), dtype=bool)
        for corners in self.lassos:
            inside |= Path(corners, closed=False).contains_points(coordinates)
        for (x0, y0), (x1, y1) in self.boxes:
            low, high = (min(x0, x1), min(y0, y1)), (max(x0, x1), max(y0, y1))
            inside |= ((coordinates >= low) & (coordinates <= high)).all(axis=1)
        inside[[i for i in self.instances if i < len(coordinates)]] = True
        return inside

    def to_text(self) -> str:
        """Return the selection as a short text that a URL can hold without escapes."""
        parts = [f"L{_joined(corners)}" for corners in self.lassos]
        parts += [f"B{_joined(corners)}" for corners in self.boxes]
        parts += [f"I{'_'.join(map(str, self.instances))}"] if self.instances else []
        parts += [f"F{escaped(self.found)}"] if self.found else []
        parts += [f"H{DIVIDER.join(map(escaped, (self.label, *self.hidden)))}"
                  ] if self.hidden else []
        return "~".join(parts) + (f"@{self.plane}" if self.plane else "")

    @classmethod
    def from_text(cls, text: str) -> Selection:
        """Return the selection that `to_text` wrote; `ConfigError` for any other text."""
        shapes, _, plane = text.partition("@")
        lassos, boxes, instances, found, label = [], [], [], "", ""
        hidden: list[str] = []
        try:
            for kind, rest in ((part[0], part[1:]) for part in shapes.split("~") if part):
                if kind == "F":
                    found = unquote(rest)
                elif kind == "H":
                    label, first, *others = map(unquote, rest.split(DIVIDER))
                    hidden = [first, *others]
                elif kind == "I":
                    instances += [int(number) for number in rest.split("_")]
                else:
                    values = [float(number) for number in rest.split("_")]
                    corners = tuple(zip(values[::2], values[1::2], strict=True))
                    if not np.isfinite(values).all():
                        raise ValueError
                    if kind == "L" and len(corners) > 2:
                        lassos.append(corners)
                    elif kind == "B" and len(corners) == 2:
                        boxes.append((corners[0], corners[1]))
                    else:
                        raise ValueError
        except ValueError:
            raise ConfigError(f"the selection {text[:80]!r} cannot be read; expected one that the "
                              "explorer has put into its URL") from None
        check(min(instances, default=0) >= 0, f"the selection {text[:80]!r} has negative "
              "instances; expected rows counted from 0")
        return cls(tuple(lassos), tuple(boxes), tuple(instances), plane, found, tuple(hidden),
                   label)

    @classmethod
    def drawn(cls, outline: Mapping[str, Any]) -> Selection:
        """Return what an outline in a picture selects.

        outline  `plane`, the name of the picture; `kind`, lasso or box; `points`, the corners
                 (x, y), two opposite ones of a box; where lines of the legend are switched off,
                 `label` and `hidden` as in a selection

        It is rounded and thinned, so that the text of the selection gives it back exactly.
        """
        corners = np.asarray(outline["points"], dtype=float).reshape(-1, 2)
        hidden = tuple(map(str, outline.get("hidden", ())))
        drawn = cls(plane=str(outline["plane"]), hidden=hidden,
                    label=str(outline["label"]) if hidden else "")
        box = outline["kind"] == "box"
        if len(corners) < (2 if box else 3):
            return cls()
        if box:
            kept = _rounded(corners)
            return replace(drawn, boxes=((kept[0], kept[-1]),))
        kept = _thinned(corners)
        return replace(drawn, lassos=(kept,)) if len(kept) > 2 else cls()


def has_label(labels: pd.DataFrame, asked: str) -> np.ndarray:
    """Return which instances have a value, bool [N].

    asked  "value" or "label=value", in small or capital letters. A value that no instance has
           stands for those that contain it.
    """
    name, found, wanted = asked.partition("=")
    name, wanted = (name.strip(), wanted.strip()) if found else ("", asked.strip())
    columns = [labels[c].astype(str).str.casefold() for c in labels.columns
               if not pd.api.types.is_float_dtype(labels[c])
               and (not name or str(c).casefold().startswith(name.casefold()))]
    rows = np.zeros(len(labels), dtype=bool)
    for matches in (lambda c: c == wanted.casefold(),
                    lambda c: c.str.contains(wanted.casefold(), regex=False)):
        for column in columns:
            rows |= matches(column).to_numpy(dtype=bool)
        if rows.any() or not wanted:
            break
    return rows


def escaped(text: str) -> str:
    """Return a text in which no character divides the parts of a selection."""
    return quote(text, safe="").replace("~", "%7E")


def _joined(corners: Sequence[Point]) -> str:
    return "_".join(f"{value:.12g}" for corner in corners for value in corner)


def _rounded(points: np.ndarray) -> tuple[Point, ...]:
    """Round to the power of ten below the precision of the outline."""
    size = float(np.ptp(points, axis=0).max()) if len(points) else 0.0
    digits = 6 if size == 0.0 else min(max(int(np.ceil(-np.log10(PRECISION * size))), 0), 9)
    return tuple((round(float(x), digits), round(float(y), digits)) for x, y in points)


def _thinned(points: np.ndarray) -> tuple[Point, ...]:
    """Round the corners and leave out those that lie on the line of their neighbours."""
    kept = _corners(points, PRECISION * float(np.ptp(points, axis=0).max()))
    corners = _rounded(points[kept])
    return tuple(corner for i, corner in enumerate(corners) if corner != corners[i - 1])


def _corners(points: np.ndarray, tolerance: float) -> list[int]:
    """Return the indices that the algorithm of Ramer, Douglas and Peucker keeps."""
    kept, waiting = {0, len(points) - 1}, [(0, len(points) - 1)]
    while waiting:
        first, last = waiting.pop()
        inner = points[first + 1:last] - points[first]
        if not len(inner):
            continue
        chord = points[last] - points[first]
        length = float(np.hypot(*chord))
        # A closed outline begins where it ends, and has no chord to be far from.
        distance = (np.hypot(*inner.T) if length <= tolerance
                    else np.abs(inner[:, 0] * chord[1] - inner[:, 1] * chord[0]) / length)
        farthest = int(distance.argmax())
        if distance[farthest] > tolerance:
            middle = first + 1 + farthest
            kept.add(middle)
            waiting += [(first, middle), (middle, last)]
    return sorted(kept)
