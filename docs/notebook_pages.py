"""A notebook with its outputs, as a page."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

import nbformat

STYLE = re.compile(r"<style.*?</style>\s*", re.DOTALL)
"""What pandas writes beside every table, for every table of the page."""


def markdown_of_notebook(path: Path) -> str:
    """Return Markdown: prose as it is, code, and of each output its richest form."""
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(part for cell in cells for part in _cell(cell))


def _cell(cell: Any) -> list[str]:
    if cell.cell_type == "markdown":
        return [cell.source]
    return [f"```python\n{cell.source}\n```", *map(_output, cell.outputs)]


def _output(output: Any) -> str:
    if output.output_type == "stream":
        return _shown(f"<pre>{escape(output.text)}</pre>")
    data = output.data
    if "image/png" in data:
        image = "".join(data["image/png"].split())
        return _shown(f'<img alt="{escape(data["text/plain"])}" '
                      f'src="data:image/png;base64,{image}">')
    if "text/html" in data:
        return _shown(STYLE.sub("", data["text/html"]))
    return _shown(f"<pre>{escape(data['text/plain'])}</pre>")


def _shown(html: str) -> str:
    """Return a block that Markdown leaves alone: it ends at the first line of its own."""
    return f'<div class="output">{html}</div>'
