"""Write experiments/QUESTIONS.md, and what README.md says was found, from the committed tables.

    python -m latentcode.experiments.questions
"""

from __future__ import annotations

from pathlib import Path

import tyro

from latentcode.experiments.evidence.pages import ROOT, render
from latentcode.figures.markdown import with_results
from latentcode.files.storage import write_text

PAGES = {"experiments/QUESTIONS.md": "questions.md.jinja2", "README.md": "found.md.jinja2"}
"""Page -> its template in this folder."""
IN_PART = ("README.md",)
"""Pages of which the template is what stands between the two marks."""


def written(page: str, root: Path = ROOT) -> str:
    """Return a page as the tables of the checkout `root` have it."""
    text = render(Path(__file__).with_name(PAGES[page]), root)
    if page in IN_PART:
        text = with_results((ROOT / page).read_text(encoding="utf-8"), text)
    return text


def main() -> None:
    """Write the pages whose numbers come from the tables."""
    for page in PAGES:
        write_text(ROOT / page, written(page))
        print(f"wrote {page}")


if __name__ == "__main__":
    tyro.cli(main)
