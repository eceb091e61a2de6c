"""Take the pictures of the README and of app.md: pages of the explorer, one of them dark.

    python docs/pictures.py [FOLDER]

From the real application in a real browser, with the models of the zoo.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

from latentcode.experiments.benchmarks.browser import chromium, serving, settle

HERE = Path(__file__).resolve().parent / "pictures"
WIDTH = 1440
PAGES: dict[str, tuple[int, dict[str, str | tuple[str, ...]]]] = {
    "explore": (900, {
        "model": "sraven-hyla", "instance": "5", "projection": "t-SNE",
        "select": "L-15_-25_10_-25_10_-10_-15_-10@ood!2000!tsne!3!response->response!sraven-hyla"}),
    "intervene": (1_100, {"model": "sraven-hyla"}),
    "text": (1_000, {"model": "text-softmax", "layer": "1", "instance": "5"}),
}
"""Page -> height, and what its URL says; `text` is the page Explore of a model of text."""
STANDING = (".js-plotly-plot, .lc-map[data-drawn], [data-testid=stDataFrame], "
            "[data-testid=stTable]")
"""What a page has when it is there."""


def main(folder: Path = HERE) -> None:
    """Take every picture anew."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser, serving(
            [Path("sraven-hyla")], Path(scratch) / "cache", Path(scratch) / "log.txt") as server:
        for name, theme in (*((name, "light") for name in PAGES), ("explore", "dark")):
            height, query = PAGES[name]
            page = browser.new_page(
                viewport={"width": WIDTH, "height": height}, color_scheme=theme)
            page.goto(server.url("explore" if name == "text" else name, query))
            page.wait_for_selector(STANDING, timeout=300_000)
            settle(page)
            page.wait_for_timeout(1_500)  # animations of Streamlit end without an event
            file = folder / f"{name}-{theme}.png"
            page.screenshot(path=file)
            # A third of the bytes. Of Pillow's ways it is the one that keeps rare colours, such as
            # those of points (no channel is off by more than a tenth), and common ones exactly.
            Image.open(file).convert("RGB").quantize(
                256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE).save(
                    file, optimize=True)
            print(file)
            page.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
