"""The colours of all figures, and of the explorer, which draws without matplotlib."""

from __future__ import annotations

PALETTE: tuple[str, ...] = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7",
                            "#000000", "#E0D020")
"""The colours of Okabe and Ito (2008), the yellow a little darker to show on white."""
MARKERS: tuple[str, ...] = ("o", "^", "s", "X", "D", "v")
"""Shapes that tell categories apart beyond the eight colours, and features in print."""
SEQUENTIAL = "cividis"
"""Colour map of continuous labels."""
DIVERGING = "RdBu_r"
"""Colour map of signed values: white is 0."""
GREY = "#7A7A7A"
"""Chance lines and the shuffled control."""
