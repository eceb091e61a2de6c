"""Write experiments/QUESTIONS.md from its template and the committed tables.

    python -m latentcode.experiments.questions
"""

from __future__ import annotations

from pathlib import Path

import tyro

from latentcode.experiments.questions.page import ROOT, render
from latentcode.files.storage import write_text

PAGES = {"experiments/QUESTIONS.md": "questions.md.jinja2"}
"""Page -> its template in this folder."""


def written(page: str, root: Path = ROOT) -> str:
    """Return a page as the tables of the checkout `root` have it."""
    return render(Path(__file__).with_name(PAGES[page]), root)


def main() -> None:
    """Write the pages whose numbers come from the tables."""
    for page in PAGES:
        write_text(ROOT / page, written(page))
        print(f"wrote {page}")


if __name__ == "__main__":
    tyro.cli(main)
