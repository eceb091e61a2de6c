"""Does a page say what the tables say? Its template, in which every number names its source.

Templates are Jinja's. What they can ask for beside it:

    {% set flips = table("experiments/results/NAME.csv")(metric="flip") %}
    {{ flips(kind="hyla", layers="2,3") }}  the number of one row; more in `tables.Rows`
    {{ fixed(document("NAME.json").key, 3) }}  a number of a JSON file; `span` of several
    {{ flips(**(place | merged(layers="0"))) }}  entries with others in their place
    {{ scores(features=named("row", "untrained")) }}  features as tables of decoding call them
    {{ given("0.125", "1 / 8: a random answer") }}  a number that is no result, and why
    {{ markdown(tables.rates) }}  a whole table of the study whose page it is
    {{ where(tables.rates, kind="hyla") }}  rows of it; {{ interval(row) }}: 0.50 [0.40, 0.60]

Outside of these no decimal, percentage or "3 of 4" may stand. Lines are broken anew.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from traceback import extract_tb

import pandas as pd
from jinja2 import (
    Environment,
    FileSystemLoader,
    StrictUndefined,
    Template,
    TemplateError,
    TemplateSyntaxError,
    nodes,
)

from latentcode.errors import ArtifactError, LatentCodeError, check, check_choice
from latentcode.experiments.evidence.tables import fixed, read_table, span
from latentcode.figures.markdown import markdown_of
from latentcode.files.storage import read_json
from latentcode.probes.common.results import where, with_interval
from latentcode.probes.decoding.naming import named

ROOT = Path(__file__).resolve().parents[2]
"""The checkout, which paths in templates start from."""
WIDTH = 110
BARE = re.compile(r"(?<![\w./])(?:\d*\.\d+|\d[\d,]*(?=\s(?:%|per cent|of (?:the )?\d)))")
"""What looks like a result: a decimal, a percentage, a count of so many; no address or name."""
ITEM = re.compile(r" *(?:-|\d+\.) ")
"""How an item of a list begins."""
MARK = re.compile(r" (?=(?:[-+*]|#+|\d+[.)]) )")
"""The space before what would be the mark of an item, or of a heading, at the beginning of a line.
"""
VERBATIM = ("#", "|", "!", "<")
"""How lines begin that are not part of a paragraph: headings, tables, pictures, marks."""


def markdown(table: pd.DataFrame, *columns: str, digits: int = 2) -> str:
    """Return a table, or some of its columns, as Markdown: decimals rounded, nothing for no number.
    """
    for name in columns:
        check_choice("column", name, list(table))
    chosen = table[list(columns)] if columns else table
    return markdown_of(chosen.map(
        lambda cell: "" if cell is None or cell != cell else
        f"{cell:.{digits}f}" if isinstance(cell, float) else cell))


def given(text: str, why: str) -> str:
    """Return a number that no table has; `why` says to the reader of the template what it is."""
    check(bool(why.strip()), f"given({text!r}) has no reason; expected one")
    return text


def _environment(folder: Path) -> Environment:
    """Return what reads the templates of a folder, and by their path those of `experiments/`."""
    return Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                       keep_trailing_newline=True,
                       loader=FileSystemLoader([folder, Path(__file__).parents[1]]))


def check_template(template: Path) -> None:
    """Raise `ArtifactError` for a template that is not there, is no template, or has a number
    without a source."""
    check(template.is_file(), f"template {template} does not exist", ArtifactError)
    try:
        _refuse_bare_numbers(_environment(template.parent).parse(template.read_text(encoding="utf-8")))
    except TemplateSyntaxError as error:
        raise ArtifactError(f"{template.name}, line {error.lineno}: {error.message}") from None


def render(template: Path, root: Path = ROOT, **more: object) -> str:
    """Return the page of a template; `ArtifactError` names the line that cannot be written.

    Tables and documents are those of the checkout `root`.

    more  further values that the template is given
    """
    check_template(template)
    environment = _environment(template.parent)
    environment.filters["merged"] = lambda mapping, **entries: {**mapping, **entries}
    environment.globals |= {
        # Each table is read once, and anew for the next page, before which it may be written.
        "table": cache(partial(read_table, root)), "document": lambda name: read_json(root / name),
        "named": named, "given": given, "fixed": fixed, "span": span,
        "markdown": markdown, "where": where, "interval": with_interval,
        **more}
    source = template.read_text(encoding="utf-8")
    try:
        page = Template.from_code(environment, environment.compile(source, filename=str(template)),
                                  environment.make_globals(None)).render()
    except (TemplateError, LatentCodeError, TypeError, ValueError, LookupError,
            ZeroDivisionError) as error:
        lines = [frame.lineno for frame in extract_tb(error.__traceback__)
                 if frame.filename == str(template)]
        line = f", line {lines[-1]}" if lines else ""
        raise ArtifactError(f"{template.name}{line}: {error}") from None
    return wrapped(page)


def _refuse_bare_numbers(parsed: nodes.Template) -> None:
    for line, text in _written(parsed):
        for found in BARE.finditer(text):
            at = line + text.count("\n", 0, found.start())
            context = text[max(0, found.start() - 30):found.end() + 10].replace("\n", " ")
            raise TemplateSyntaxError(f"a bare number in {context!r}; expected an expression, or "
                                      "given(number, why)", at)


def _written(parsed: nodes.Template) -> Iterator[tuple[int, str]]:
    """Yield what a template writes without asking a table for it, with the line it begins in."""
    for output in parsed.find_all(nodes.Output):
        for node in output.nodes:
            if isinstance(node, nodes.TemplateData):
                yield node.lineno, node.data
            elif isinstance(node, nodes.Const):
                yield node.lineno, str(node.value)


def wrapped(text: str) -> str:
    """Return Markdown whose paragraphs and items of lists are broken at `WIDTH`."""
    lines: list[str] = []
    paragraph: list[str] = []
    code = False

    def end() -> None:
        if paragraph:
            item = ITEM.match(paragraph[0])
            first = "" if item is None else item[0]
            text = " ".join(line.strip() for line in paragraph)
            lines.extend(line.replace("\0", " ") for line in textwrap.wrap(
                MARK.sub("\0", text.removeprefix(first.strip()).strip()), WIDTH,
                initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False,
                break_on_hyphens=False))
            paragraph.clear()

    for line in text.splitlines():
        fence = line.startswith("```")
        if code or fence or not line.strip() or line.startswith(VERBATIM):
            end()
            # Lines that only define something leave empty ones behind.
            if code or line.strip() or (lines and lines[-1]):
                lines.append(line)
            code ^= fence
            continue
        if ITEM.match(line):
            end()
        paragraph.append(line)
    end()
    return "\n".join(lines) + "\n"
