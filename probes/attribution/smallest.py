"""How few places carry the answer? A small set that does most of what all of them do.

Places are added in order of attribution until the share of answers that become the source's is
SHARE of what writing all places brings; then, from the least important on, each that is not needed
for that is taken out again. That is greedy: a smaller set may do as much. One half of the instances
says which places these are, the other half what they bring, which may be less than SHARE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from latentcode.probes.attribution.instances import Patched

SHARE = 0.9
"""Share of the effect of all places that a set has to have where it is chosen."""
LEAST_RATE = 0.2
"""No set is looked for where the interval of the rate of all places does not lie above this."""


@dataclass
class Search:
    """Sets of places of a site, in order of attribution, and their rates on the searched half.

    order    the places, the one that attribution ranks first before the others
    advance  called after each set that is measured
    """

    searched: Patched
    site: str
    order: np.ndarray
    advance: Callable[[], None]
    _rates: dict[int, float] = field(default_factory=dict)

    def rate(self, places: np.ndarray) -> float:
        """Return the share of answers that become the source's where these places are written."""
        _, flipped = self.searched.written(self.site, places)
        self.advance()
        return float(flipped.mean())

    def of_first(self, size: int) -> float:
        """Return the rate of the first places of the order."""
        if size not in self._rates:
            self._rates[size] = self.rate(self.order[:size])
        return self._rates[size]

    def smallest(self, n_ranked: int, of_all: float) -> tuple[np.ndarray, int] | None:
        """Return a set that reaches SHARE, after pruning, and its size before; None without one.

        n_ranked  how many of the places may be in it, from the first on
        of_all    the rate of all places
        """
        wanted = SHARE * of_all
        size = next((size for size in doublings(min(n_ranked, len(self.order)))
                     if self.of_first(size) >= wanted), None)
        if size is None:
            return None
        low = size // 2  # did not reach it, or is 0
        while size - low > 1:
            middle = (low + size) // 2
            low, size = (low, middle) if self.of_first(middle) >= wanted else (middle, size)
        kept = self.order[:size]
        for place in kept[::-1] if size > 1 else ():
            without = kept[kept != place]
            if len(without) and self.rate(without) >= wanted:
                kept = without
        return kept, size


def doublings(last: int) -> list[int]:
    """Return 1, 2, 4, ... and `last`."""
    return [*(2**i for i in range(last.bit_length()) if 2**i < last), last]
