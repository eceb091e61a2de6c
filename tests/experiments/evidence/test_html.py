"""Is a report one page that needs nothing else, and shows text as text?"""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as MatplotlibFigure

from latentcode.errors import ArtifactError, ConfigError
from latentcode.experiments.demo.report import (
    Figure,
    Html,
    Section,
    Table,
    Text,
    figure_source,
    render_report,
    versions,
    write_report,
)

HOSTILE = '<script>alert("x")</script> & <img src=x onerror=alert(1)>'
VOID = {"meta", "img", "br", "hr", "input", "col"}


class Page(HTMLParser):
    """The tags, attributes and text of a page; fails where tags do not nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def plot(points: int = 3) -> MatplotlibFigure:
    figure = MatplotlibFigure(figsize=(2, 2))
    figure.subplots().scatter(np.arange(points), np.arange(points))
    return figure


def full_report() -> str:
    frame = pd.DataFrame({"label": ["term_1", HOSTILE], "value": [0.51234, np.nan],
                          "n": [12_000, 3]})
    return render_report(
        f"Report {HOSTILE}",
        [Section(f"First {HOSTILE}", [Text(f"One paragraph.\n\nAnother, {HOSTILE}."),
                                      Text("x1  AND x2", preformatted=True)]),
         Section("Scores", [Table(frame, f"Caption {HOSTILE}"), Figure(plot(), "A <plot>"),
                            Figure(plot(2000), "Many points")]),
         Section("Scores", [Html("<table><tr><td style='color:red'>3</td></tr></table>", "Grid")])],
        lead=HOSTILE, provenance={"Config": {"seed": 0, HOSTILE: [1, 2]}, "Commands": HOSTILE})


def test_page_is_well_formed_and_lists_its_sections() -> None:
    page = Page(full_report())
    anchors = [a["href"] for a in page.all("a")]
    assert anchors[1:] == ["#scores", "#scores-2", "#provenance"]
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(set(ids)) == len(ids)
    assert {f"#{name}" for name in ids} == set(anchors)


def test_page_needs_nothing_from_outside() -> None:
    html = full_report()
    page = Page(html)
    for tag, attrs in page.tags:
        assert tag not in ("script", "link", "iframe", "object", "embed")
        for name in ("src", "href", "srcset", "data"):
            if name in attrs:
                assert (attrs[name] or "").startswith(("data:", "#"))
        assert not any(name.startswith("on") for name in attrs)
    assert not re.search(r"https?:|url\(|@import", html)


def test_text_is_escaped_wherever_it_comes_from() -> None:
    html = full_report()
    assert "<script" not in html
    assert "<img src=x" not in html
    # title (twice), lead, heading (twice), paragraph, cell, caption, provenance key and value
    assert html.count("&lt;script&gt;") == 10


def test_figures_are_embedded_as_what_suits_them() -> None:
    page = Page(full_report())
    svg, png = (attrs["src"] or "" for attrs in page.all("img"))
    assert svg.startswith("data:image/svg+xml;base64,")
    assert b"<svg" in base64.b64decode(svg.split(",")[1])
    assert png.startswith("data:image/png;base64,")
    assert base64.b64decode(png.split(",")[1]).startswith(b"\x89PNG")
    assert [attrs["alt"] for attrs in page.all("img")] == ["A <plot>", "Many points"]
    assert page.all("img")[0]["width"] == "192"


def test_the_same_figure_gives_the_same_bytes() -> None:
    assert figure_source(plot()) == figure_source(plot())


def test_tables_show_numbers_plainly_and_lose_no_row() -> None:
    page = Page(full_report())
    text = [t.strip() for t in page.text]
    assert "0.512" in text
    assert "–" in text
    assert "12,000" in text
    long = pd.DataFrame({"x": [1e-9, 2.5e7, 0.0, float("inf"), True, None] * 10})
    html = render_report("Long", [Section("Table", [Table(long), Table(long.head(3))])])
    page = Page(html)
    assert len(page.all("tr")) == 1 + 60 + 1 + 3
    assert len(page.all("details")) == 1
    assert "Table of 60 rows" in html
    assert "1e-09" in html
    assert "2.5e+07" in html
    assert "True" in html
    indexed = pd.DataFrame({"a": [1]}, index=pd.Index(["first"], name="rule"))
    shown = render_report("Index", [Section("Table", [Table(indexed, index=True)])])
    assert "<th scope=\"col\">rule</th>" in shown
    assert "<td>first</td>" in shown


def test_page_follows_the_readers_theme_and_screen() -> None:
    html = full_report()
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html


def test_provenance_states_versions_and_configuration() -> None:
    text = "".join(Page(full_report()).text)
    assert f"numpy: {np.__version__}" in text
    assert "seed: 0" in text
    assert versions()["numpy"] == np.__version__
    long = render_report("x", [], provenance={"Config": {f"field{i}": i for i in range(40)}})
    assert "<summary>Config</summary>" in long
    assert "field39: 39" in long
    with pytest.raises(ConfigError, match="provenance of type object"):
        render_report("x", [], provenance={"Config": object()})


@pytest.mark.parametrize("markup", [
    "<script>1</script>", "<img src='https://example.org/x.png'>", "<p onclick='f()'>x</p>",
    "<div style='background: url(//example.org/x)'>x</div>", "<link rel=stylesheet href=x>",
    "<style>@import 'x.css';</style>", "<a href='javascript:f()'>x</a>",
])
def test_markup_that_reaches_outside_is_refused(markup: str) -> None:
    with pytest.raises(ConfigError, match="stands for itself"):
        render_report("x", [Section("y", [Html(markup)])])


def test_markup_that_stands_for_itself_is_inserted_as_it_is() -> None:
    markup = "<svg viewBox='0 0 1 1'><use href='#a'/></svg><img src='data:image/png;base64,AA=='>"
    assert markup in render_report("x", [Section("y", [Html(markup)])])


def test_report_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_report(tmp_path / "deep" / "report.html", "Title", [Section("A", [Text("x")])])
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    before = path.read_bytes()
    with pytest.raises(ConfigError):
        write_report(path, "Title", [Section("A", [Html("<script></script>")])])
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ArtifactError, match="cannot write"):
        write_report(blocked / "report.html", "Title", [])
