"""A text as a person would want to see it: the query, what it may copy, and what comes next.

The characters are those of the text, so that they can be copied; what stands for one that cannot
be seen is not copied along.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

SIGNS = {"\n": "\N{RETURN SYMBOL}", "\t": "\N{RIGHTWARDS ARROW TO BAR}"}
"""Shown before a character that cannot be seen; before others stands their number, U+200B."""
MARKS: dict[str, tuple[str, str, str]] = {
    "query": ("\u00ab\u00bb", "outline:2px solid currentColor;background:hsla(210,80%,50%,.35)",
              "the query"),
    "earlier": ("\u2039\u203a", "outline:1px dotted currentColor;background:hsla(210,80%,50%,.18)",
                "its latest earlier occurrence"),
    "key": ("\u27e6\u27e7", "outline:1px dashed currentColor;background:hsla(40,95%,50%,.40)",
            "what came after that: the key of the induction pair"),
    "next": ("", "border-bottom:2px solid currentColor;background:hsla(40,95%,50%,.22)",
             "what comes next"),
}
"""Brackets in text, style in HTML, and meaning of what is marked."""
NEAR = 9
"""Tokens on either side of the query, and half as many of the key, that a small drawing shows."""


@dataclass(frozen=True)
class Drawing:
    """One instance in plain lists.

    pieces   the texts of its tokens, and of the one after the last
    query, key, earlier  positions of the induction pair and of what came before the key
    title    where it is from
    tokens   the ids of its tokens, of which several can have one text; default: they have not
    """

    pieces: list[str]
    query: int
    key: int
    earlier: int
    title: str
    tokens: list[int] | None = None

    @property
    def copied(self) -> bool:
        """Whether the key is what comes next."""
        same = self.pieces if self.tokens is None else self.tokens
        return same[self.query + 1] == same[self.key]

    def mark(self, position: int) -> str | None:
        """Return which of `MARKS` a token has; of two the first."""
        places = {self.query: "query", self.earlier: "earlier", self.query + 1: "next"}
        return places.get(position) if position != self.key else "key"

    def near(self) -> list[range]:
        """Return the runs of tokens around the query and the key, in their order."""
        a, b = max(self.earlier - NEAR // 2, 0), self.key + NEAR // 2 + 1
        c, d = max(self.query - NEAR, 0), min(self.query + NEAR + 2, len(self.pieces))
        return [range(min(a, c), d)] if b >= c else [range(a, b), range(c, d)]


def draw_text(drawing: Drawing) -> str:
    """Return the text with brackets around what is marked, and what the brackets mean."""
    shown = []
    for position, piece in enumerate(drawing.pieces):
        name = drawing.mark(position)
        brackets = "" if name is None else MARKS[name][0]
        text = "".join(f"{sign}{c if c in SIGNS else ''}" if (sign := _sign(c)) else c
                       for c in piece)
        shown.append(f"{brackets[:1]}{text}{brackets[1:]}")
    legend = "\n".join(
        f"{name:<8}{MARKS[name][0]:<3}token {position}, {drawing.pieces[position]!r}"
        f": {MARKS[name][2]}" for name, position in (
            ("query", drawing.query), ("earlier", drawing.earlier), ("key", drawing.key),
            ("next", drawing.query + 1)))
    verdict = "the next token is the key's" if drawing.copied else "the next token is another"
    return f"{drawing.title}\n{''.join(shown)}\n\n{legend}\n{verdict}"


def draw_html(drawing: Drawing) -> str:
    """Return the same as self-contained HTML, with `data-token` on every token."""
    legend = "".join(f'<span style="margin-right:1em"><span style="{MARKS[name][1]};'
                     f'padding:0 3px">{name}</span> {escape(MARKS[name][2])}</span>'
                     for name in ("query", "earlier", "key", "next"))
    return (f'<div style="font:13px ui-monospace,monospace;color:inherit">'
            f'<div style="opacity:.75;margin-bottom:4px;overflow-wrap:anywhere">'
            f"{_characters(drawing.title)}</div>{_text_html(drawing, [range(len(drawing.pieces))])}"
            f'<div style="font-size:11px;opacity:.85;margin-top:6px">{legend}</div></div>')


def draw_small(drawing: Drawing) -> str:
    """Return what is around the query and the key, for a card of about 260 x 150 px."""
    return ('<div style="font:11px ui-monospace,monospace;color:inherit;max-width:250px;'
            f'max-height:140px;overflow:hidden">'
            f"{_text_html(drawing, drawing.near())}</div>")


def visible(piece: str) -> str:
    """Return a token's text in quotation marks, on one line, with signs for what is not seen."""
    return f"\u201c{''.join(_sign(c) or c for c in piece)}\u201d"


def _text_html(drawing: Drawing, runs: Iterable[range]) -> str:
    """Tokens of the runs in their order; every one keeps its own direction of writing."""
    def token(position: int) -> str:
        name = drawing.mark(position)
        style = "background:rgba(128,128,128,.10)" if position % 2 else ""
        title = ""
        if name is not None:
            _, style, meaning = MARKS[name]
            title = f' title="{escape(meaning)}"'
        # The token after the last is none of the model's.
        given = position < len(drawing.pieces) - 1
        place = f' data-token="{position}"' if given else ""
        return (f'<span{place}{title} style="unicode-bidi:isolate;{style}">'
                f"{_characters(drawing.pieces[position])}</span>")

    dots = ('<span aria-hidden="true" style="user-select:none;opacity:.6"> '
            "\N{HORIZONTAL ELLIPSIS} </span>")
    return ('<div dir="ltr" style="white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.7">'
            f"{dots.join(''.join(map(token, run)) for run in runs)}</div>")


def _characters(text: str) -> str:
    """Return text for HTML, with a sign that is not copied before what cannot be seen.

    Control characters and halves of surrogates, which HTML cannot hold, are signs alone.
    """
    return "".join(
        f'<span aria-hidden="true" style="user-select:none;opacity:.6">{sign}</span>'
        f"{'' if c not in SIGNS and unicodedata.category(c) in ('Cc', 'Cs') else c}"
        if (sign := _sign(c)) else escape(c) for c in text)


def _sign(character: str) -> str:
    """Return what stands for a character that cannot be seen or moves others; else ""."""
    if character in SIGNS:
        return SIGNS[character]
    unseen = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    return f"U+{ord(character):04X}" if unseen else ""
