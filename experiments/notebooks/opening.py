"""What every notebook begins with: a badge that opens it in Colab, and a cell that installs."""

from __future__ import annotations

from typing import Any

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
