"""Is a page one file that needs nothing else, and shows text as text?"""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from latentcode.errors import ArtifactError, ConfigError
from latentcode.experiments.evidence.html import PACKAGES, versions, write_html

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


def page(folder: Path, text: str, **more: object) -> Page:
    path = write_html(folder / "sub" / "page.html", f"# A title\n\n{text}", pictures=folder,
                      **more)  # type: ignore[arg-type]
    return Page(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_pictures_are_inside_with_their_captions(tmp_path: Path, suffix: str) -> None:
    Figure(figsize=(1, 1)).savefig(tmp_path / f"plot.{suffix}")
    found = page(tmp_path, f"![What it shows](plot.{suffix})\n")
    (image,) = found.all("img")
    assert str(image["src"]).startswith("data:image/")
    assert image["alt"] == "What it shows"
    assert "What it shows" in found.text
    assert "<p><figure" not in (tmp_path / "sub" / "page.html").read_text(encoding="utf-8")
    assert found.open == []


def test_nothing_is_run_or_fetched_and_text_is_text(tmp_path: Path) -> None:
    found = page(tmp_path, f"{HOSTILE}\n\n| a | b |\n|---|---|\n| {HOSTILE} | 1 |\n",
                 provenance={"Command": HOSTILE})
    assert not found.all("script")
    assert not found.all("img")
    assert not found.all("link")
    assert HOSTILE.split(" & ")[0] in "".join(found.text)
    assert "writers" not in "".join(page(tmp_path, "<!-- for\nwriters -->\n\nText\n").text)


def test_headings_are_listed_each_with_its_own_anchor(tmp_path: Path) -> None:
    found = page(tmp_path, "## One\n\ntext\n\n## One\n\n### Below\n")
    anchors = [str(one["id"]) for one in found.all("h2") if "id" in one]
    assert anchors == ["one", "one-2"]
    links = [str(one["href"]) for one in found.all("a")]
    assert links == ["#one", "#one-2", "#provenance"]


def test_markup_of_our_own_stands_in_its_place(tmp_path: Path) -> None:
    found = page(tmp_path, "![A problem](markup:one)\n", markup={"one": "<b>held out</b>"})
    assert "held out" in found.text
    assert found.all("b")


def test_long_tables_are_folded_and_numbers_stand_right(tmp_path: Path) -> None:
    rows = "".join(f"| name | {n}.5 [0.1, 0.2] |\n" for n in range(31))
    found = page(tmp_path, f"| a | b |\n|---|---|\n{rows}\n")
    assert len(found.all("details")) == 1
    assert sum(one.get("class") == "number" for one in found.all("td")) == 31
    assert not page(tmp_path, "| a |\n|---|\n| 1 |\n").all("details")


def test_provenance_ends_the_page(tmp_path: Path) -> None:
    found = page(tmp_path, "text", provenance={"Configuration": {"seed": 3}})
    assert "seed: 3" in "".join(found.text)
    assert set(versions()) >= {"python", *PACKAGES}


def test_what_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="nowhere"):
        page(tmp_path, "![x](nowhere.png)\n")
    with pytest.raises(ConfigError, match="object"):
        page(tmp_path, "text", provenance={"a": object()})

    (tmp_path / "sub").write_text("a file")
    with pytest.raises(ArtifactError, match="cannot write"):
        page(tmp_path, "text")
