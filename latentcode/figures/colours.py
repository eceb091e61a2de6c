"""The colours of all figures, and of the explorer, which draws without matplotlib."""

from __future__ import annotations

from collections.abc import Sequence

from latentcode.errors import ProbeError, check

PALETTE: tuple[str, ...] = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7",
                            "#000000", "#E0D020")
"""The colours of Okabe and Ito (2008), the yellow a little darker to show on white."""
MARKERS: tuple[str, ...] = ("o", "^", "s", "X", "D", "v", "P")
"""Shapes that tell categories apart beyond the eight colours, and features in print."""
SEQUENTIAL = "cividis"
"""Colour map of continuous labels."""
DIVERGING = "RdBu_r"
"""Colour map of signed values: white is 0."""
GREY = "#7A7A7A"
"""Chance lines and the shuffled control."""
FEATURE_STYLES: dict[str, tuple[str, str, str]] = {
    "code": ("#0072B2", "o", "latent code"),
    "residual": ("#E69F00", "s", "residual stream"),
    "untrained": ("#009E73", "^", "untrained model"),
    "shuffled": (GREY, "X", "shuffled labels"),
    "bag": ("#CC79A7", "v", "bag of tokens"),
}
"""Colour, marker and name in words of what is decoded from."""


def category_styles(categories: Sequence[object]) -> dict[object, tuple[str, str]]:
    """Return a (colour, marker) for each category: all colours first, then the next marker."""
    most = len(PALETTE) * len(MARKERS)
    check(len(categories) <= most, f"{len(categories)} categories cannot be told apart; expected "
          f"at most {most} (colour by a coarser label, or by a continuous one)", ProbeError)
    return {c: (PALETTE[i % len(PALETTE)], MARKERS[i // len(PALETTE)])
            for i, c in enumerate(categories)}
