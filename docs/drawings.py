"""Draw the pictures of concepts.md, with the numbers of the problem that the page is about.

    python docs/drawings.py [FOLDER]

A drawing brings its own paper, so that it is legible on a light and on a dark page.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

import torch
from torch import Tensor

import latentcode as lc

HERE = Path(__file__).resolve().parent / "concepts"
LAYER = 3
STRONGEST = 2.5
"""The score of which a cell has its full colour."""
WIDTH = 760
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


def scores(column: Tensor, x: float, y: float, width: float, height: float) -> list[str]:
    """Return the scores of a code as cells, from top to bottom."""
    shares = (column / STRONGEST).clamp(-1, 1).tolist()
    return [cell(x, y + i * height, width, height, share) for i, share in enumerate(shares)]


def code_picture(row: Tensor) -> str:
    """A pair of positions in all patterns, [head, key], is a column of numbers."""
    shapes = []
    for sheet in range(15, -1, -1):
        x, y = 60 + 9 * sheet, 182 - 8 * sheet
        shapes.append(box(x, y, 108, 108))
        shapes += scores(row[sheet, -1:], x + 92, y + 92, 12, 12)
    shapes += [box(152, 274, 12, 12, "mark"),
               text(114, 312, "keys k", "faint", "middle"), text(50, 240, "q", "faint", "end"),
               text(60, 338, "a_hqk for 16 heads h", "code"),
               text(70, 206, "h = 0", "faint"), text(312, 164, "h = 15", "faint"),
               arrow((372, 190), (452, 190)), text(412, 178, "one q, one k", "faint", "middle")]
    for head, score in enumerate(row[:, -1].tolist()):
        shapes.append(text(546, 45 + 18 * head, f"{score:.1f}".replace("-", "−"), "code", "end"))
    return drawing(WIDTH, 360, "A code is one query and one key in the patterns of all heads",
                   *shapes, *scores(row[:, -1], 476, 31, 22, 18),
                   box(476, 31, 22, 288, "mark"), text(476, 346, "a[:, q, k]", "code"),
                   text(590, 180, "the latent code"), text(590, 202, "of this pair:", "faint"),
                   text(590, 222, "a number per head", "faint"))


def pair_picture(panels: list[list[list[int]]]) -> str:
    """A pair is a query and a key with a name; panels: symbols, [row, column, feature]."""
    shapes, side, gap = [], 34, 36
    left = [190 + column * (3 * side + gap) for column in range(3)]
    top = [34 + row * (side + 30) for row in range(3)]
    for row, columns in enumerate(panels):
        for column, symbols in enumerate(columns):
            is_answer = row == column == 2
            for feature, symbol in enumerate(symbols):
                x = left[column] + feature * side
                shapes += [box(x, top[row], side, side),
                           text(x + side / 2, top[row] + 22, "?" if is_answer else str(symbol),
                                "code", "middle")]
    for row in range(3):
        shapes.append(text(172, top[row] + 22, f"row {row + 1}", "faint", "end"))
    query, key = left[2] + 2.5 * side, left[1] + 2.5 * side
    low = top[2] + side
    return drawing(
        WIDTH, 270, "Two pairs: the last token of the answer to itself, and to panel 2 of row 3",
        *shapes, box(left[2] + 2 * side, top[2], side, side, "mark"),
        box(left[1] + 2 * side, top[2], side, side, "mark"),
        arrow((query - 6, low), (query - 20, low + 46), (key + 20, low + 46), (key, low + 4),
              curve=True),
        arrow((query + side / 2, low - 8), (query + 70, low + 6), (query + 70, low - 46),
              (query + side / 2 + 3, low - side + 8), curve=True),
        text((query + key) / 2, low + 56, "response->row3.panel2", "code", "middle"),
        text(query, top[2] - 9, "response->response", "code", "middle"))


def row_picture(row: Tensor, sizes: Tensor) -> str:
    """A row is the codes of one query over all keys, of [head, key]; sizes: of what a key adds."""
    n_keys, side, left, top = row.shape[1], 19, 96, 52
    shapes = []
    for key in range(n_keys):
        x = left + key * side + 6 * (key // 3)
        shapes += scores(row[:, key], x, top, side - 1, 12)
        size = 84 * float(sizes[key] / sizes.max())
        shapes.append(box(x, 360 - size, side - 1, size, "more") if size else
                      box(x, 359, side - 1, 1, "faint"))
        if key % 3 == 1:
            shapes.append(text(x + side / 2, top - 10, str(key // 3 + 1), "faint", "middle"))
    last = left + (n_keys - 1) * side + 6 * ((n_keys - 1) // 3)
    return drawing(
        WIDTH, 400, "The row of the last token: a code for each of 27 keys, and what each adds",
        text(left, 20, "keys: three tokens in each of the nine panels", "faint"), *shapes,
        box(last - 1, top - 1, side + 1, 194, "mark"),
        text(86, top + 92, "heads", "faint", "end"), text(86, top + 110, "0 to 15", "faint", "end"),
        text(last + 28, top + 92, "the code"), text(last + 28, top + 112, "of the pair"),
        text(86, 324, "size of", "faint", "end"), text(86, 342, "W_qk(x_k)", "code", "end"),
        text(left, 384, "every code is equally long; what a key adds is up to its network",
             "faint"))


def value_network_picture(row: Tensor) -> str:
    """A code mixes the matrices of the heads into a network, applied to the key's input."""
    shapes = []
    for head, label in enumerate(("0", "1", "2", "⋮", "15")):
        y = 40 + 34 * head
        if label != "⋮":
            shapes += [*scores(row[int(label), -1:], 60, y, 24, 24),
                       box(60, y, 24, 24, "mark"), text(102, y + 17, "×", "", "middle"),
                       box(120, y, 40, 24), text(140, y + 17, f"W_{label}", "code", "middle"),
                       arrow((160, y + 12), (232, 122 + 3 * (head - 2)))]
        else:
            shapes += [text(x, y + 18, label, "", "middle") for x in (72, 140)]
    return drawing(
        WIDTH, 270, "A code generates the value network of a pair; the sum over keys is the output",
        text(72, 26, "code", "", "middle"), text(140, 26, "heads", "", "middle"), *shapes,
        box(236, 84, 136, 76), text(304, 112, "value network", "", "middle"),
        text(304, 138, "W_qk", "code", "middle"), arrow((304, 222), (304, 164)),
        text(304, 242, "x_k, the input at key k", "faint", "middle"),
        arrow((372, 122), (476, 122)), text(423, 110, "W_qk(x_k)", "code", "middle"),
        box(480, 98, 48, 48), text(504, 130, "Σ", "", "middle"),
        text(504, 170, "over keys", "faint", "middle"),
        arrow((550, 52), (520, 94)), arrow((504, 52), (504, 94)),
        text(504, 40, "from the other keys", "faint"),
        arrow((528, 122), (586, 122)), text(594, 127, "output of query q"))


def main(folder: Path = HERE) -> None:
    """Draw every picture anew, of the last token of one problem in the last layer."""
    folder.mkdir(parents=True, exist_ok=True)
    run = lc.load_run("sraven-hyla")
    model, batch = run.load_model(), lc.instances(run, "ood", 8, seed=2)
    with torch.no_grad():
        _, cache = model.run_with_cache(batch.inputs)
        row = cache["pattern", LAYER][0, :, -1]
        network = lc.value_network(model, LAYER, row.T)
        outputs = network(model.blocks[LAYER].ln1(cache["resid_pre", LAYER])[0])
    for name, picture in {
            "code": code_picture(row), "pair": pair_picture(batch.info["grid"][0].tolist()),
            "row": row_picture(row, outputs.norm(dim=1)),
            "value_network": value_network_picture(row)}.items():
        (folder / f"{name}.svg").write_text(picture, encoding="utf-8")
        print(folder / f"{name}.svg")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
