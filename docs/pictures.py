"""Take the pictures of the README and of app.md: every page of the explorer, light and dark.

    python docs/pictures.py [FOLDER]

From the real application in a real browser, with the models of the zoo.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from latentcode.experiments.benchmarks.browser import chromium, serving, settle

HERE = Path(__file__).resolve().parent / "pictures"
HEIGHTS = {"explore": 900, "compare": 800, "decode": 900, "intervene": 1100, "evidence": 900,
           "idea": 1300}
WIDTH = 1440
PAGES: dict[str, dict[str, str | tuple[str, ...]]] = {
    "explore": {"model": "sraven-hyla", "instance": "5",
                "select": "B-15_-25_10_-10@ood!2000!tsne!3!response->response!sraven-hyla"},
    "compare": {},
    "decode": {"model": "sraven-hyla"},
    "intervene": {"model": "sraven-hyla", "instance": "12", "target": "sum", "scope": "row",
                  "layers": ("2", "3")},
    "idea": {"model": "sraven-hyla"},
}
"""Page -> what its URL says."""


def main(folder: Path = HERE) -> None:
    """Take every picture anew."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser, serving(
            [Path(scratch)], Path(scratch) / "cache", Path(scratch) / "log.txt") as server:
        for theme in ("light", "dark"):
            for name, query in PAGES.items():
                context = browser.new_context(
                    viewport={"width": WIDTH, "height": HEIGHTS[name]},
                    color_scheme="dark" if theme == "dark" else "light")
                page = context.new_page()
                page.goto(server.url("" if name == "explore" else name, query))
                page.wait_for_selector(".js-plotly-plot, .lc-map[data-drawn]", timeout=120_000)
                settle(page)
                page.wait_for_timeout(1_500)  # animations of Streamlit end without an event
                file = folder / f"{name}-{theme}.png"
                page.screenshot(path=file)
                print(file)
                context.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
