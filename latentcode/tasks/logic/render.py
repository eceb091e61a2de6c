"""An instance of fuzzy logic as a person would want to see it: its tokens as text, table, strip."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def text_table(
    title: str, source: str, header: list[str], rows: list[list[str]], answer: str
) -> str:
    """Return a row of text per token, the last one the query."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
             for row in (header, *rows)]
    return "\n".join([title, source, "", *lines, "", answer])


def html_table(
    title: str, source: str, header: list[str], rows: list[list[str]], answer: str
) -> str:
    """Return the same as self-contained HTML."""
    # Half-transparent grey and amber on an inherited text colour read well on any background.
    border = "border-bottom:1px solid rgba(128,128,128,0.35);padding:2px 10px;text-align:right"
    marked = "background:rgba(255,170,0,0.22);font-weight:600"

    def row(cells: list[str], tag: str, attributes: str = "") -> str:
        inner = "".join(f'<{tag} style="{border}">{escape(c)}</{tag}>' for c in cells)
        return f"<tr{attributes}>{inner}</tr>"

    body = "".join(
        row(cells, "td", f' data-token="{i}" style="{marked if cells is rows[-1] else ""}"')
        for i, cells in enumerate(rows))
    return (
        '<div style="color:inherit;font-variant-numeric:tabular-nums">'
        f'<div style="font-weight:600">{escape(title)}</div>'
        f'<div style="opacity:0.75;margin-bottom:6px">{escape(source)}</div>'
        '<table style="border-collapse:collapse;color:inherit;background:transparent">'
        f"<thead>{row(header, 'th')}</thead><tbody>{body}</tbody></table>"
        f'<div style="margin-top:6px">{escape(answer)}</div></div>')


def strip(title: str, names: Sequence[str], tokens: Sequence[Sequence[float]]) -> str:
    """Return a column per token and a row per input, about 240 px wide; the fuller, the larger.

    names   of the inputs, each from 0 to 1; the last is f
    tokens  their values [T, L + 1]; the last token is the query, whose f is asked for
    """
    query = len(tokens) - 1
    last = len(names) - 1

    def cell(token: int, part: int) -> str:
        if token == query and part == last:
            return '<div style="height:12px;text-align:center">?</div>'
        value, colour = tokens[token][part], "213,94,0" if part == last else "0,114,178"
        return (f'<div style="height:12px;margin-bottom:1px;background:'
                f'linear-gradient(to top,rgba({colour},.75) {value:.0%},'
                f'rgba(128,128,128,.15) {value:.0%})"></div>')

    columns = "".join(
        f'<div data-token="{token}" title="{_told(names, tokens[token], token == query)}" '
        f'style="flex:{"1.6" if token == query else "1"} 1 0;max-width:24px;'
        f'{"outline:1px dashed currentColor;margin-left:3px" if token == query else ""}">'
        f"{''.join(cell(token, part) for part in range(len(names)))}</div>"
        for token in range(len(tokens)))
    rows = "".join(f'<div style="height:13px">{escape(name)}</div>' for name in names)
    return ('<div style="font:10px/12px system-ui,sans-serif;color:inherit;width:250px">'
            f'<div style="font-size:11px;margin-bottom:4px">{escape(title)}</div>'
            f'<div style="display:flex;gap:1px"><div style="width:16px">{rows}</div>{columns}</div>'
            "</div>")


def _told(names: Sequence[str], values: Sequence[float], asked: bool) -> str:
    """Return the values of a token in words."""
    told = [f"{name} = {value:.2f}" for name, value in zip(names, values, strict=True)]
    return escape(", ".join([*told[:-1], f"{names[-1]} = ?"] if asked else told))
