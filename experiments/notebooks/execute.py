"""Run notebooks from top to bottom, and keep their outputs.

    python -m latentcode.experiments.notebooks.execute            # all of this folder, in place
    python -m latentcode.experiments.notebooks.execute my.ipynb

Each runs in an empty folder, so that it cannot rely on other files and leaves none behind.
Those of this folder begin with a badge that opens them in Colab, and a cell that installs. A
notebook whose cells raise is not written; the message is the cell's.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from latentcode.codes.browser import WIDGET
from latentcode.errors import ArtifactError, LatentCodeError, check
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

REPOSITORY = "latentcode/latentcode"
"""Where the notebooks are published: owner and name on GitHub. `make notebooks` writes it into
their badges."""
BRANCH = "main"

BADGE = ("[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
         f"(https://colab.research.google.com/github/{REPOSITORY}/blob/{BRANCH}/"
         "experiments/notebooks/{name}.ipynb)")

INSTALL = f"""\
# Fetches latentcode and the examples of this folder where they are not there yet, as on Colab.
import importlib.util
from pathlib import Path

library = importlib.util.find_spec("latentcode")
if library is None or not Path(library.origin).with_name("experiments").exists():
    import subprocess
    import sys

    checkout = Path("latentcode-checkout").resolve()
    url = "https://github.com/{REPOSITORY}"
    commands = [[sys.executable, "-m", "pip", "install", "--quiet", "latentcode[jupyter]"]]
    if not checkout.exists():
        commands.append(["git", "clone", "--quiet", "--depth", "1", url, str(checkout)])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"latentcode could not be installed:\\n{{done.stderr}}")
    sys.path.insert(0, str(checkout))
    importlib.invalidate_caches()"""
INSTALL_ID = "install"
"""What the cell is called in every notebook."""


def execute(path: Path) -> None:
    """Run a notebook in a fresh kernel and replace its outputs; `ArtifactError` where it fails."""
    # Not needed to use the library, so only the development extra has them.
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    check(path.is_file(), f"notebook {path} does not exist", ArtifactError)
    try:
        notebook: Any = nbformat.read(path, as_version=4)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"notebook {path} cannot be read: {error}") from None
    if path.resolve().parent == FOLDER:
        notebook = with_opening(notebook, path.stem)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = None  # of an earlier run, by which no failing cell is found
    with tempfile.TemporaryDirectory() as empty:
        client = NotebookClient(
            notebook, timeout=LONGEST_CELL, kernel_name="python3", coalesce_streams=True,
            record_timing=False, resources={"metadata": {"path": empty}})
        try:
            client.execute(env=os.environ | QUIET)
        except CellExecutionError as error:
            raise ArtifactError(f"notebook {path} does not run: {error.ename}: {error.evalue}, in "
                                f"the cell\n{_running(notebook)}") from None
        except (CellTimeoutError, DeadKernelError) as error:
            raise ArtifactError(f"notebook {path} does not run: {error}") from None
    notebook.metadata = METADATA
    _drop_widgets(notebook)
    write_text(path, nbformat.writes(notebook) + "\n")


def with_opening(notebook: Any, name: str) -> Any:
    """Return a notebook that begins with its title, its badge, and the cell that installs.

    notebook  as nbformat reads it: its first cell is Markdown, and the first line the title
    name      of its file, without the ending
    """
    from nbformat.v4 import new_code_cell

    first, *others = [cell for cell in notebook.cells if cell.get("id") != INSTALL_ID]
    title, *text = first.source.split("\n")
    told = "\n".join(line for line in text if not line.startswith("[![Open in Colab]")).strip("\n")
    first.source = f"{title}\n\n{BADGE.format(name=name)}\n\n{told}"
    notebook.cells = [first, new_code_cell(INSTALL, id=INSTALL_ID), *others]
    return notebook


def _drop_widgets(notebook: Any) -> None:
    """Keep of each widget what it shows without its kernel, which is gone; of a bar nothing."""
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        for output in list(cell.outputs):
            if output.get("data", {}).pop(WIDGET, None) and "text/html" not in output["data"]:
                cell.outputs.remove(output)


def _running(notebook: Any) -> str:
    """Return the source of the last cell that has begun."""
    begun = [cell for cell in notebook.cells if cell.get("execution_count")]
    return str(max(begun, key=lambda cell: int(cell.execution_count)).source) if begun else ""


def main(notebooks: tyro.conf.Positional[Sequence[Path]] = ()) -> None:
    """Run notebooks in place.

    Args:
        notebooks: Their paths; default: those of this folder.
    """
    for path in notebooks or sorted(FOLDER.glob("*.ipynb")):
        try:
            execute(path)
        except LatentCodeError as error:
            sys.exit(str(error))
        print(f"ran {path.name}")


if __name__ == "__main__":
    tyro.cli(main)
