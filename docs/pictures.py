"""Take the pictures of the README and of app.md: pages of the explorer, one of them dark.

    python docs/pictures.py [FOLDER]
    python docs/pictures.py FOLDER every     every page, light and dark, in every width looked at

From the real application in a real browser, with the models of the zoo.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import product
from pathlib import Path

from PIL import Image

from latentcode.experiments.benchmarks.browser import chromium, serving, settle

HERE = Path(__file__).resolve().parent / "pictures"
HEIGHTS = {"explore": 900, "compare": 800, "intervene": 1100, "text": 1_000}
WIDTH = 1440
WIDTHS = (375, 1_280)
"""What is looked at before a change of the explorer is finished."""
PAGES: dict[str, dict[str, str | tuple[str, ...]]] = {
    "explore": {"model": "sraven-hyla", "instance": "5", "projection": "t-SNE",
                "select": "B-15_-25_10_-10@ood!2000!tsne!3!response->response!sraven-hyla"},
    "compare": {},
    "intervene": {"model": "sraven-hyla"},
    "text": {"model": "text-softmax", "layer": "1", "instance": "5"},
}
"""Page -> what its URL says; `text` is the page Explore of a model of text."""
OTHERS: dict[str, dict[str, str | tuple[str, ...]]] = {
    "similarity": {"model": "sraven-hyla"}, "results": {"model": "sraven-hyla"}}
"""Pages without a picture in the documentation."""
STANDING = (".js-plotly-plot, .lc-map[data-drawn], [data-testid=stDataFrame], "
            "[data-testid=stTable]")
"""What a page has when it is there."""


def main(folder: Path = HERE, what: str = "") -> None:
    """Take every picture anew."""
    folder.mkdir(parents=True, exist_ok=True)
    if what not in ("", "every"):
        sys.exit(__doc__)
    every = what == "every"
    pages = {**PAGES, **OTHERS} if every else PAGES
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser, serving(
            [Path(scratch)], Path(scratch) / "cache", Path(scratch) / "log.txt") as server:
        for theme, (name, query), width in product(
                ("light", "dark"), pages.items(), WIDTHS if every else (WIDTH,)):
            if theme == "dark" and not every and name != "explore":
                continue
            height = 800 if every else HEIGHTS[name]
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if theme == "dark" else "light")
            page = context.new_page()
            page.goto(server.url("explore" if name == "text" else name, query))
            page.wait_for_selector(STANDING, timeout=300_000)
            settle(page)
            page.wait_for_timeout(1_500)  # animations of Streamlit end without an event
            size = f"-{width}" if every else ""
            file = folder / f"{name}{size}-{theme}.png"
            page.screenshot(path=file)
            # A third of the bytes. Of Pillow's ways it is the one that keeps rare colours, such as
            # those of points (no channel is off by more than a tenth), and common ones exactly.
            Image.open(file).convert("RGB").quantize(
                256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE).save(
                    file, optimize=True)
            print(file)
            context.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]), *sys.argv[2:3])
