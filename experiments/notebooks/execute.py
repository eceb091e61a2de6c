"""Run notebooks from top to bottom, and keep their outputs.

    python -m latentcode.experiments.notebooks.execute            # all of this folder, in place
    python -m latentcode.experiments.notebooks.execute my.ipynb

Each runs in an empty folder, so that it cannot rely on other files and leaves none behind. A
notebook whose cells raise is not written.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from latentcode.codes.browser import WIDGET
from latentcode.files.storage import write_text
from latentcode.progress import SWITCH

FOLDER = Path(__file__).resolve().parent
LONGEST_CELL = 300
"""Seconds after which a cell counts as stuck."""
METADATA = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"}}
"""What every notebook says of itself; the kernel would add the versions of one machine."""
QUIET = {"PYTHONWARNINGS": "ignore:IProgress not found", "TQDM_DISABLE": "1", SWITCH: "0"}
"""Progress bars, and hints about them, leave traces that differ from machine to machine."""


def execute(path: Path) -> None:
    """Run a notebook in a fresh kernel and replace its outputs.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell raises; with its source.
    """
    # Not needed to use the library, so only the development extra has them.
    import nbformat
    from nbclient import NotebookClient

    notebook: Any = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as empty:
        NotebookClient(
            notebook, timeout=LONGEST_CELL, kernel_name="python3", coalesce_streams=True,
            record_timing=False, resources={"metadata": {"path": empty}},
        ).execute(env=os.environ | QUIET)
    notebook.metadata = METADATA
    for cell in notebook.cells:
        # Of a widget stays what it shows without its kernel, which is gone; of a bar nothing.
        for output in list(cell.get("outputs", ())):
            if output.get("data", {}).pop(WIDGET, None) and "text/html" not in output["data"]:
                cell.outputs.remove(output)
    write_text(path, nbformat.writes(notebook) + "\n")


def main(notebooks: tyro.conf.Positional[Sequence[Path]] = ()) -> None:
    """Run notebooks in place.

    Args:
        notebooks: Their paths; default: those of this folder.
    """
    for path in notebooks or sorted(FOLDER.glob("*.ipynb")):
        execute(path)
        print(f"ran {path.name}")


if __name__ == "__main__":
    tyro.cli(main)
