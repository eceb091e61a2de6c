"""Which picture of codes an outline was drawn in: elsewhere the same outline means nothing."""

from __future__ import annotations

from typing import NamedTuple, Self

from latentcode.codes import LatentCodes
from latentcode.probes.common.sources import varies
from latentcode.probes.projection.methods import METHODS

DIVIDER = "!"
"""Between the parts of a picture's name."""


class Picture(NamedTuple):
    """The codes of n instances at one layer and pair of a model, laid out by a method.

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


__all__ = ["Picture"]
