"""Tables in Markdown, and a few codes as bars in SVG: what pages show that draw no figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np
import pandas as pd

from latentcode.figures.colours import GREY, PALETTE


def markdown_table(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table of cells as they are printed."""
    head, *body = (f"| {' | '.join(map(str, row))} |" for row in (columns, *rows))
    # The pages of the zoo, which have checksums, write a column without a name like this.
    return "\n".join([head.replace("|  |", "| |"), "|" + "---|" * len(columns), *body])


def markdown_of(table: pd.DataFrame) -> str:
    """Return a data frame as a Markdown table, without its index."""
    return markdown_table(list(table.columns), table.itertuples(index=False, name=None))


COLORS = (PALETTE[4], PALETTE[1], GREY)
"""Of the first three codes: they show on light and on dark pages."""
WIDTH, HEIGHT, LEFT, BELOW = 400, 150, 44, 16


def bars_svg(codes: Mapping[str, np.ndarray], quantity: str = "score") -> str:
    """Return codes of H heads as SVG: head by head, a bar for each code; text inherits its colour.

    codes     name -> scores [H], at most three
    quantity  what the scores are, in words
    """
    values = np.stack([np.asarray(code, dtype=np.float64) for code in codes.values()])
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = HEIGHT / (high - low or 1.0)
    group = (WIDTH - LEFT) / values.shape[1]
    width = 0.8 * group / len(values)

    def bar(code: int, head: int, name: str) -> str:
        value = values[code, head]
        x = LEFT + group * (head + 0.1) + width * code
        return (f'<rect x="{x:.1f}" y="{(high - max(value, 0.0)) * scale:.1f}" '
                f'width="{width:.1f}" height="{abs(value) * scale:.1f}" fill="{COLORS[code]}">'
                f"<title>{escape(name)}, head {head}: {value:.3g}</title></rect>")

    drawn = "".join(bar(code, head, name) for code, name in enumerate(codes)
                    for head in range(values.shape[1]))
    ticks = "".join(
        f'<text x="{LEFT - 4}" y="{(high - tick) * scale + 3:.1f}" text-anchor="end">{tick:.2g}'
        "</text>" for tick in sorted({low, 0.0, high}))
    step = -(-values.shape[1] // 16)
    heads = "".join(
        f'<text x="{LEFT + group * (head + 0.5):.1f}" y="{HEIGHT + 14}" text-anchor="middle">{head}'
        "</text>" for head in range(0, values.shape[1], step))
    legend = "".join(
        f'<span style="white-space:nowrap;margin-right:10px"><span style="color:{COLORS[i]}">'
        f"■</span> {escape(name)}</span>" for i, name in enumerate(codes))
    told = f"{quantity} of each head: {', '.join(codes)}"
    return (f'<div style="font:11px system-ui,sans-serif;color:inherit;max-width:{WIDTH}px">'
            f'{legend}'
            f'<svg viewBox="0 -6 {WIDTH} {HEIGHT + BELOW + 8}" role="img" style="width:100%" '
            f'aria-label="{escape(told)}" '
            f'font-size="10" fill="currentColor">{drawn}{ticks}{heads}'
            f'<line x1="{LEFT}" x2="{WIDTH}" y1="{high * scale:.1f}" y2="{high * scale:.1f}" '
            f'stroke="currentColor" stroke-width="0.7"/></svg>'
            f'<div style="opacity:.75;text-align:center">head; {escape(quantity)}</div></div>')
