"""The pages of the API: one per module, from the docstrings.

Docstrings here are text for reading in the source: mathematics as it is typed, and columns of
names beside what they mean. Markdown would take a[:, q, k] for a link, a * b for emphasis, and
columns for running text; so they are brought into Markdown that means what they look like.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from textwrap import dedent

import pdoc
import pdoc.render

HERE = Path(__file__).resolve().parent
NO_API = {"latentcode.app", "latentcode.cli", "latentcode.experiments"}
"""What is used in the browser and in the terminal, and explained there, and what no wheel has."""
CODE = re.compile(r"(`[^`]*`)")
COLUMNS = re.compile(r"^\S(.*\S)?  +\S", re.MULTILINE)
ITEM = re.compile(r"(-|\d+\.) ")


def to_markdown(docstring: str) -> str:
    """Return Markdown that shows a docstring as it stands in the source."""
    return "\n\n".join(map(_block, re.split(r"\n\s*\n", docstring.strip("\n"))))


def _block(text: str) -> str:
    lines = text.split("\n")
    if all(line.startswith("    ") for line in lines):
        return _verbatim(dedent(text))
    if ITEM.match(text):
        return _escaped(text)
    if COLUMNS.search(text) or any(line.startswith(" ") for line in lines):
        return _verbatim(text)
    return _escaped(text)


def _verbatim(text: str) -> str:
    return f"```text\n{text}\n```"


def _escaped(text: str) -> str:
    """Escape what Markdown would take for markup, outside of `code`."""
    parts = CODE.split(text)
    parts[::2] = [re.sub(r"([\\*_\[\]#])", r"\\\1", part).replace("&", "&amp;").replace(
        "<", "&lt;") for part in parts[::2]]
    return "".join(parts)


def write_api(folder: Path) -> int:
    """Write the pages into a folder, and return how many modules they describe."""
    pdoc.render.configure(template_directory=HERE / "templates", search=True,
                          show_source=False, footer_text="latentcode")
    pdoc.render.env.filters["to_markdown"] = to_markdown
    with warnings.catch_warnings():
        # A module that cannot be described must not be left out silently.
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", ".* has already been added")  # below packages not lazy
        # Of what a tensor inherits; private members have no page.
        warnings.filterwarnings("ignore", r"Cannot determine where .*\._\w+ is taken from")
        modules = ["latentcode", *_below("latentcode")]
        for module in map(import_module, modules):
            for name in getattr(module, "__all__", ()):  # pdoc sees no name that is loaded lazily
                setattr(module, name, getattr(module, name))
        pdoc.pdoc(*modules, output_directory=folder)
    return len(modules)


def _below(package: str) -> Iterator[str]:
    """Yield the modules of a package, and of those in it."""
    for module in iter_modules(import_module(package).__path__, f"{package}."):
        if module.name not in NO_API and not module.name.endswith(".__main__"):
            yield module.name
            if module.ispkg:
                yield from _below(module.name)
