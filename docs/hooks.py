"""The pages of the site, as MkDocs calls for them: Markdown and notebooks where they lie.

A link means the same on GitHub and in the site: MkDocs resolves it between the places that files
have in the repository, and only their addresses differ. What is no page, such as a script or a
table, is linked in the repository on the web.
"""

from __future__ import annotations

import os
import re
from html import escape
from pathlib import Path
from typing import Any

import griffe
import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("*.md", "docs/*.md", "docs/*/*.svg", "docs/*/*.png", "experiments/**/*.md",
           "experiments/**/*.png", "experiments/notebooks/*.ipynb", "models/zoo/**/*.md")
ADDRESSES = {"docs/README.md": "index.html", "README.md": "overview.html"}
"""Pages whose address is not that of their file."""
LINK = re.compile(r"(?<=\]\()(?!https?:|#)[^)#\s]+")
DISTANT_IMAGE = re.compile(r"!\[([^\]]*)\]\(https?:[^)]*\)")
STYLE = re.compile(r"<style.*?</style>\s*", re.DOTALL)
"""What pandas writes beside every table of a notebook."""
COLUMNS = re.compile(r"^(?! |- |\d+\. |```|[A-Z]\w+:\n).*(?:\n.+)*\S  +\S.*(?:\n.+)*",
                     re.MULTILINE)
"""A paragraph of a docstring with names beside what they mean."""


class NotebookPage(File):
    """A page that is written in a notebook."""

    def is_documentation_page(self) -> bool:
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages and pictures of the repository."""
    for path in sorted(path for pattern in SOURCES for path in ROOT.glob(pattern)):
        source = path.relative_to(ROOT).as_posix()
        if path.suffix == ".ipynb":
            file = NotebookPage.generated(config, source, content=markdown_of_notebook(path))
            file.dest_uri = f"{source.removesuffix('ipynb')}html"
        else:
            file = File.generated(config, source, abs_src_path=str(path))
        file.dest_uri = ADDRESSES.get(source, file.dest_uri.removeprefix("docs/"))
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to what is no page into the repository; name distant pictures, such as badges."""

    def target(link: re.Match[str]) -> str:
        path = os.path.normpath(Path(page.file.src_uri).parent / link[0])
        if files.get_file_from_path(path) is not None or not (ROOT / path).exists():
            return link[0]  # MkDocs warns of one that leads nowhere
        return f"{config.extra['repository']}/blob/main/{path}"

    return LINK.sub(target, DISTANT_IMAGE.sub(r"\1", markdown))


def markdown_of_notebook(path: Path) -> str:
    """Return Markdown: prose as it is, code, and of each output its richest form."""
    parts = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = {"text/plain": output.text} if output.output_type == "stream" else output.data
            html = f"<pre>{escape(data['text/plain'])}</pre>"
            if "image/png" in data:
                image = "".join(data["image/png"].split())
                html = (f'<img alt="{escape(data["text/plain"])}" '
                        f'src="data:image/png;base64,{image}">')
            elif "text/html" in data:
                html = STYLE.sub("", data["text/html"])
            parts.append(f'<div class="output">{html}</div>')
    return "\n\n".join(parts)


class Docstrings(griffe.Extension):
    """Public names of the package, and docstrings whose columns stand as in the source."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        pkg.exports = {name for name, member in pkg.members.items() if member.is_alias}

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = COLUMNS.sub(r"```text\n\g<0>\n```\n", obj.docstring.value)
