"""A SRAVEN instance as a person would want to see it: the grid, its rules, its answer."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

SMALL = 246
"""Pixels that a small grid is wide at most."""


@dataclass(frozen=True)
class Drawing:
    """One instance in plain lists, for G x G panels of M tokens.

    grid      [row][column][token]  symbol as shown, the answer in the last panel
    features  [column][token]       which feature a token shows
    rules     [token]               name of the rule of each token of the last column
    aligned   [token][row][column]  symbols of the feature that the last column shows there
    """

    grid: list[list[list[int]]]
    features: list[list[int]]
    rules: list[str]
    aligned: list[list[list[int]]]

    def tokens(self, response: int) -> list[int]:
        """Return, per column, the token that shows the feature of a response token."""
        feature = self.features[-1][response]
        return [column.index(feature) for column in self.features]

    def position(self, row: int, column: int, token: int) -> int:
        """Return which token of the model's input a symbol is, counted from 0."""
        panel = row * len(self.grid) + column
        return panel * len(self.features[column]) + token

    @property
    def width(self) -> int:
        """Number of characters of the widest symbol."""
        return max(len(str(s)) for row in self.grid for panel in row for s in panel)


def draw_text(drawing: Drawing) -> str:
    """Return the grid and, per response token, its rule, its tokens and its rows as text."""
    width, last = drawing.width, len(drawing.grid) - 1

    def panel(row: int, column: int) -> str:
        symbols = " ".join(f"{s:>{width}}" for s in drawing.grid[row][column])
        return f"[{symbols}]" if row == column == last else f" {symbols} "

    lines = [" |".join(panel(row, column) for column in range(last + 1))
             + ("   <- answer in brackets" if row == last else "") for row in range(last + 1)]
    lines += ["", "response token: rule (token read in each column) symbols row by row"]
    longest = max(map(len, drawing.rules))
    for token, rule in enumerate(drawing.rules):
        rows = [" ".join(f"{s:>{width}}" for s in row) for row in drawing.aligned[token]]
        *context, answer = (f"{s:>{width}}" for s in drawing.aligned[token][-1])
        rows[-1] = f"{' '.join(context)} [{answer}]"
        read = " ".join(map(str, drawing.tokens(token)))
        lines.append(f"{token}: {rule:<{longest}}  ({read})  {' / '.join(rows)}")
    return "\n".join(lines)


def draw_html(drawing: Drawing) -> str:
    """Return the same as self-contained HTML; tokens of one feature have one colour.

    Colours are translucent and text inherits its colour, so that it reads on light and dark.
    """
    last = len(drawing.grid) - 1
    legend = []
    for token, rule in enumerate(drawing.rules):
        feature = drawing.features[-1][token]
        symbols = [
            " ".join(_chip(s, feature, r == c == last) for c, s in enumerate(row))
            for r, row in enumerate(drawing.aligned[token])]
        read = ", ".join(map(str, drawing.tokens(token)))
        cell = '<td style="padding:3px 12px 3px 0;white-space:nowrap;text-align:left">'
        legend.append(f"<tr>{cell}{token}</td>{cell}{escape(rule)}</td>{cell}{read}</td>"
                      + "".join(f"{cell}{row}</td>" for row in symbols) + "</tr>")
    head = '<th style="padding:3px 12px 3px 0;text-align:left;font-weight:600">'
    titles = ["token", "rule", "read at",
              *(f"row {r + 1}" for r in range(last + 1))]
    return (
        '<div style="font-family:system-ui,sans-serif;font-size:14px;color:inherit;'
        'overflow-x:auto">'
        '<table style="border-collapse:collapse;margin:0 0 4px 0;background:none">'
        f"{_grid(drawing)}</table>"
        '<div style="opacity:.75;margin:0 0 10px 0">dashed: the panel to be answered; '
        "one colour: one feature</div>"
        '<table style="border-collapse:collapse;background:none"><tr>'
        f"{''.join(f'{head}{escape(t)}</th>' for t in titles)}</tr>{''.join(legend)}</table></div>")


def draw_small(drawing: Drawing) -> str:
    """Return the grid alone, at most about 250 px wide, with question marks to be answered."""
    letters = 13 if len(drawing.rules) <= 3 else 11
    return ('<table style="border-collapse:collapse;margin:0;background:none;color:inherit;'
            f'font:{letters}px system-ui,sans-serif">{_grid(drawing, small=True)}</table>')


def _grid(drawing: Drawing, small: bool = False) -> str:
    """Return the rows of the grid, the panel to be answered dashed and, if small, not answered."""
    last = len(drawing.grid) - 1
    size = (f"padding:4px 2px;text-align:center;max-width:{SMALL // (last + 1)}px" if small
            else "padding:6px 8px;white-space:nowrap")
    rows = []
    for row, panels in enumerate(drawing.grid):
        cells = []
        for column, symbols in enumerate(panels):
            is_answer = row == column == last
            chips = "".join(
                _chip("?" if small and is_answer else symbol, feature, is_answer and not small,
                      drawing.position(row, column, token), gap=1 if small else 2)
                for token, (symbol, feature) in enumerate(zip(
                    symbols, drawing.features[column], strict=True)))
            border = "2px dashed currentColor" if is_answer else "1px solid rgba(128,128,128,.6)"
            title = ' title="answer"' if is_answer and not small else ""
            cells.append(f'<td{title} style="border:{border};{size}">{chips}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return "".join(rows)


def _chip(
    symbol: int | str, feature: int, answer: bool, position: int | None = None, gap: int = 2
) -> str:
    """Return one symbol on the colour of its feature; hues a golden angle apart.

    position  which token of the input it is; None where it is shown once more
    """
    hue = round(feature * 137.5) % 360
    token = "" if position is None else f' data-token="{position}"'
    weight = "font-weight:700;outline:1px dashed currentColor;" if answer else ""
    return (f'<span{token} style="display:inline-block;min-width:1.5em;margin:0 {gap}px;'
            f'padding:1px 0;text-align:center;border-radius:4px;{weight}'
            f'background:hsla({hue},75%,50%,.32)">{symbol}</span>')
