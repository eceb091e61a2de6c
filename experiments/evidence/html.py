"""A page of Markdown as one self-contained HTML file, for people and for keeping.

    write_html(out / "report.html", text, pictures=out, provenance={"Command": "latentcode ..."})

The page needs no network and no script, follows the reader's light or dark theme (pictures stay on
white), and ends with the versions, configurations and commands that it comes from.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from latentcode.errors import ArtifactError, ConfigError, check
from latentcode.files.provenance import git_commit, now
from latentcode.files.storage import write_text

PACKAGES: tuple[str, ...] = ("latentcode", "torch", "transformer-lens", "numpy", "scipy",
                             "scikit-learn", "openTSNE", "matplotlib", "pandas")
"""Packages whose versions every page states."""
FOLDED_ROWS = 30
"""A longer table is folded until the reader opens it; no row is left out."""
FOLDED_LINES = 20
"""Longer texts of the provenance are folded likewise."""
MARKUP = "markup:"
"""What the address of a picture begins with that stands for markup of our own."""
NUMBER = re.compile(r"<td>([-+]?[\d.,]+%?(?: \[[^\]]*\])?)</td>")


def write_html(
    path: Path, markdown: str, *, pictures: Path, markup: Mapping[str, str] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Path:
    """Write one HTML page of a text whose first line is its title, and return its path.

    pictures    folder that the addresses of pictures start from; their texts are captions
    markup      name -> HTML of our own making, such as a rendered problem, which stands where the
                text has a picture of address `markup:NAME`; all other HTML is shown as text
    provenance  heading -> text, or plain data that is shown as YAML, such as the configuration of
                a run or the commands that were given; versions are always added

    `ArtifactError` where a picture is missing or the page cannot be written.
    """
    title, _, body = markdown.partition("\n")
    contents, shown = _body(body, pictures, markup or {})
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True,
                              undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = environment.get_template("page.html").render(
        title=title.lstrip("# "), contents=contents, body=Markup(shown), written=now(),
        folded_lines=FOLDED_LINES,
        provenance={name: value if isinstance(value, str) else _as_yaml(value)
                    for name, value in {**(provenance or {}), "Versions": versions()}.items()})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error}") from error
    write_text(path, page)
    return path


def _body(text: str, pictures: Path, markup: Mapping[str, str]) -> tuple[list[dict[str, str]], str]:
    """Return the headings and the HTML of a text."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")

    def picture(
        self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any
    ) -> str:
        address, caption = unquote(str(tokens[index].attrs["src"])), tokens[index].content
        shown = (markup[address.removeprefix(MARKUP)] if address.startswith(MARKUP) else
                 f'<img alt="{escape(caption)}" src="{_embedded(pictures / address)}">')
        return (f'<figure><div class="paper">{shown}</div><figcaption>{escape(caption)}'
                "</figcaption></figure>")

    reader.add_render_rule("image", picture)
    tokens, contents = reader.parse(re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)), []
    anchors: set[str] = {"provenance"}
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            words = tokens[index + 1].content
            anchor = _anchor(words, anchors)
            token.attrs["id"] = anchor
            if token.tag == "h2":
                contents.append({"title": words, "anchor": anchor})
        elif token.type == "inline" and [t.type for t in token.children or ()] == ["image"]:
            tokens[index - 1].hidden = tokens[index + 1].hidden = True  # no paragraph around it
    shown = NUMBER.sub(r'<td class="number">\1</td>',
                       reader.renderer.render(tokens, reader.options, {}))
    return contents, re.sub(r"<table>.*?</table>", _framed, shown, flags=re.DOTALL)


def _framed(table: re.Match[str]) -> str:
    """Return a table that scrolls where it is wide, and is folded where it is long."""
    rows = table[0].count("<tr>") - 1
    framed = f'<div class="wide">{table[0]}</div>'
    return framed if rows <= FOLDED_ROWS else (
        f"<details><summary>Table of {rows:,} rows</summary>{framed}</details>")


def _embedded(picture: Path) -> str:
    """Return a picture as a `data:` address."""
    kinds = {".svg": "svg+xml", ".png": "png"}
    check(picture.suffix in kinds and picture.is_file(),
          f"picture {picture} is missing; expected a PNG or SVG file", ArtifactError)
    data = base64.b64encode(picture.read_bytes()).decode()
    return f"data:image/{kinds[picture.suffix]};base64,{data}"


def versions() -> dict[str, str]:
    """Return the versions of Python, of `PACKAGES` as far as installed, and the commit."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    commit = git_commit()
    return found | ({"commit": commit} if commit else {})


def _anchor(title: str, taken: set[str]) -> str:
    """Return a name for a heading that no other heading of the page has."""
    base = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
    anchor, n = base, 2
    while anchor in taken:
        anchor, n = f"{base}-{n}", n + 1
    taken.add(anchor)
    return anchor


def _as_yaml(value: object) -> str:
    try:
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).strip()
    except yaml.YAMLError as error:
        raise ConfigError(f"provenance of type {type(value).__name__} is neither text nor plain "
                          f"data: {error}") from None
