"""One self-contained HTML page of texts, tables and figures, for people and for keeping.

    write_report(path, "What the codes say", [
        Section("Decoding", [
            Text("A probe per layer ..."),
            Figure(result.figure(), "Score per layer on held-out combinations."),
            Table(result.summary(), "The same in numbers.")])])

The page needs no network and no script, follows the reader's light or dark theme (figures stay
on white), and ends with the versions, configurations and commands that it comes from.
"""

from __future__ import annotations

import base64
import io
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure as MatplotlibFigure

from latentcode.errors import ArtifactError, ConfigError, check
from latentcode.figures.style import style
from latentcode.files.provenance import git_commit, now
from latentcode.files.storage import write_text

PACKAGES: tuple[str, ...] = ("latentcode", "torch", "transformer-lens", "numpy", "scipy",
                             "scikit-learn", "openTSNE", "matplotlib", "pandas")
"""Packages whose versions every report states."""
MOST_VECTOR_POINTS = 1000
"""A figure with more points than this is embedded as PNG, because its SVG would be larger."""
PNG_DPI = 170
"""Resolution of embedded PNG figures, in dots per inch."""
DIGITS = 3
FOLDED_ROWS = 30
"""A longer table is folded until the reader opens it; no row is left out."""
FOLDED_LINES = 20
"""Longer texts of the provenance are folded likewise."""


@dataclass(frozen=True)
class Text:
    """Paragraphs, separated by empty lines; or one preformatted block.

    opening  words in bold that the first paragraph begins with
    """

    body: str
    preformatted: bool = False
    opening: str = ""


@dataclass(frozen=True)
class Table:
    """A table; numbers that are not whole are shown with `DIGITS` decimals."""

    frame: pd.DataFrame
    caption: str = ""
    index: bool = False


@dataclass(frozen=True)
class Figure:
    """A matplotlib figure: PNG for scatter plots of many points, SVG for all else.

    name  of the file, without ending, if the figure is also kept as one
    """

    figure: MatplotlibFigure
    caption: str
    name: str = ""


@dataclass(frozen=True)
class Html:
    """Markup of our own making, such as a rendered instance, inserted as it is.

    Never pass text from elsewhere: it is not escaped. `ConfigError` for a script or for
    anything that would be fetched from outside the page.
    """

    markup: str
    caption: str = ""


Block = Text | Table | Figure | Html


@dataclass(frozen=True)
class Section:
    """A heading, which the table of contents lists, and what stands below it."""

    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)


def write_report(
    path: str | Path,
    title: str,
    sections: Sequence[Section],
    *,
    lead: str = "",
    provenance: Mapping[str, Any] | None = None,
) -> Path:
    """Write one HTML page, all or nothing, and return its path.

    lead        one or two sentences under the title
    provenance  heading -> text, or plain data that is shown as YAML, such as the configuration
                of a run or the commands that were given; versions are always added
    """
    path = Path(path)
    page = render_report(title, sections, lead=lead, provenance=provenance)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error}") from error
    write_text(path, page)
    return path


def render_report(
    title: str,
    sections: Sequence[Section],
    *,
    lead: str = "",
    provenance: Mapping[str, Any] | None = None,
) -> str:
    """Return the page that `write_report` writes."""
    # Everything that is inserted is escaped unless it is `Markup`; a misspelt name is an error.
    environment = Environment(loader=PackageLoader("latentcode.experiments.demo"), autoescape=True,
                              undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    anchors: set[str] = {"provenance"}
    return environment.get_template("report.html").render(
        title=title, lead=lead, written=now(), folded_lines=FOLDED_LINES,
        sections=[{"title": section.title, "anchor": _anchor(section.title, anchors),
                   "blocks": [_prepare(block) for block in section.blocks]}
                  for section in sections],
        provenance={name: value if isinstance(value, str) else _as_yaml(value)
                    for name, value in {**(provenance or {}), "Versions": versions()}.items()})


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


def figure_source(figure: MatplotlibFigure) -> str:
    """Return a figure as a `data:` address that an <img> can show."""
    points = sum(len(np.asarray(collection.get_offsets()))
                 for axes in figure.axes for collection in axes.collections
                 if isinstance(collection, PathCollection))
    format = "png" if points > MOST_VECTOR_POINTS else "svg"
    data = io.BytesIO()
    with style():
        # Without a date the same figure gives the same bytes.
        figure.savefig(data, format=format, dpi=PNG_DPI,
                       metadata={"Date": None} if format == "svg" else None)
    kind = {"svg": "image/svg+xml", "png": "image/png"}[format]
    return f"data:{kind};base64,{base64.b64encode(data.getvalue()).decode()}"


def _prepare(block: Block) -> dict[str, Any]:
    """Return what the template shows of a block."""
    if isinstance(block, Text):
        paragraphs = [p.strip() for p in re.split(r"\n\s*\n", block.body) if p.strip()]
        return {"kind": "text", "body": block.body, "preformatted": block.preformatted,
                "opening": block.opening, "paragraphs": paragraphs}
    if isinstance(block, Table):
        return _prepare_table(block)
    if isinstance(block, Figure):
        return {"kind": "figure", "caption": block.caption,
                "source": figure_source(block.figure),
                # As many CSS pixels as it is wide in print, at 96 to the inch.
                "width": round(96 * float(block.figure.get_figwidth()))}
    checker = _OutsideReferences()
    checker.feed(block.markup)
    checker.close()
    check(not checker.found, f"markup refers to {', '.join(checker.found)}; expected a page "
          "that stands for itself, without scripts and without addresses other than data: and #")
    return {"kind": "html", "markup": Markup(block.markup), "caption": block.caption}


def _prepare_table(block: Table) -> dict[str, Any]:
    frame = block.frame.reset_index() if block.index else block.frame
    numeric = [pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)
               for dtype in frame.dtypes]
    columns = [" ".join(map(str, c)) if isinstance(c, tuple) else str(c) for c in frame.columns]
    rows = [[{"text": _cell(value), "number": number}
             for value, number in zip(row, numeric, strict=True)]
            for row in frame.itertuples(index=False, name=None)]
    return {"kind": "table", "caption": block.caption, "rows": rows,
            "header": [{"text": c, "number": n} for c, n in zip(columns, numeric, strict=True)],
            "folded": len(rows) > FOLDED_ROWS, "summary": f"Table of {len(rows):,} rows"}


def _cell(value: object) -> str:
    if isinstance(value, (float, np.floating)):
        if np.isnan(value):
            return "–"
        size = abs(float(value))
        if np.isinf(size) or (size != 0 and not 1e-3 <= size < 1e6):
            return f"{value:.{DIGITS}g}"
        return f"{value:.{DIGITS}f}"
    if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_)):
        return f"{value:,}"
    return "–" if value is None or value is pd.NA or value is pd.NaT else str(value)


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


class _OutsideReferences(HTMLParser):
    """Collects what a piece of markup would run or fetch."""

    LOADING = frozenset({"script", "link", "iframe", "object", "embed", "base", "meta"})
    ADDRESSES = frozenset({"src", "srcset", "href", "xlink:href", "poster", "data", "action",
                           "formaction", "background"})

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        if tag in self.LOADING:
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            text = (value or "").strip()
            if ((name in self.ADDRESSES and not text.startswith(("data:", "#")))
                    or name.startswith("on")):
                self.found.append(f"{name}={text!r}")
            elif name == "style":
                self._look_in_style(text)

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self._look_in_style(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "style":
            self._in_style = False

    def _look_in_style(self, css: str) -> None:
        for address in re.findall(r"url\(\s*['\"]?([^'\")]*)|@import\s+([^;]*)", css):
            target = "".join(address)
            if not target.startswith(("data:", "#")):
                self.found.append(f"url({target})")
