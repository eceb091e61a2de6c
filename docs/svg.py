"""Shapes of a drawing that is legible on a light and a dark page: it brings its own paper."""

from __future__ import annotations

from html import escape

STYLE = """
svg { --paper: #ffffff; --ink: #24292f; --faint: #6a737d; --more: #c2410c; --less: #1d6fb8; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #1e2129; --ink: #e3e6ea; --faint: #98a1ab; --more: #ff8a4c; --less: #5ab0f7; }
}
text { font: 14px system-ui, "DejaVu Sans", sans-serif; fill: var(--ink); }
.code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; }
.faint { fill: var(--faint); }
.paper { fill: var(--paper); }
.grid { fill: var(--paper); stroke: var(--faint); stroke-width: 1; }
.mark { fill: none; stroke: var(--ink); stroke-width: 2.5; }
.line { fill: none; stroke: var(--ink); stroke-width: 1.5; }
.more { fill: var(--more); }
.less { fill: var(--less); }
""".strip()


def drawing(width: int, height: int, title: str, *shapes: str) -> str:
    """Return an SVG of these shapes, in their order."""
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{escape(title)}">',
        f"<style>\n{STYLE}\n</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" '
        'style="fill: var(--ink)"/></marker></defs>',
        f'<rect class="paper" width="{width}" height="{height}" rx="8"/>', *shapes, "</svg>", ""])


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str = "grid") -> str:
    return (f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            'rx="2"/>')


def cell(x: float, y: float, width: float, height: float, share: float) -> str:
    """Return a cell that shows a number between -1 and 1: its sign by hue, its size by strength."""
    kind = "more" if share > 0 else "less"
    return (f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'fill-opacity="{abs(share):.2f}"/>')


def arrow(*points: tuple[float, float], curve: bool = False) -> str:
    """Return an arrow through points; as a curve, the ones between only bend it."""
    step = " C" if curve else " L"
    first, *rest = (f"{x:g} {y:g}" for x, y in points)
    return f'<path class="line" d="M{first}{step}{" ".join(rest)}" marker-end="url(#tip)"/>'
