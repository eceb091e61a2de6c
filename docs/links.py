"""Does every link of the site lead somewhere, and does the site need a network?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

LOADED = {"src", "srcset", "poster", "data"}
"""Attributes whose address a browser loads by itself; of a `link`, `href` is one, too."""
IN_STYLE = re.compile(r"url\(\s*['\"]?(.*?)['\"]?\s*\)|@import\s+['\"](.*?)['\"]")
DATA = re.compile(r"data:[^\s,]*,\S*")
"""What is written into the page and comes from nowhere."""


@dataclass(frozen=True)
class Links:
    """What was found in the pages of a site."""

    broken: list[str]
    """Each link that leads nowhere in the site, as PAGE: TARGET."""
    loaded: list[str]
    """Each address elsewhere that a browser would load by itself, likewise."""
    outside: list[str]
    """Addresses elsewhere that a reader can follow."""


class _Page(HTMLParser):
    """The names that links to a page can end in, and where its own links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names = {""}
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.in_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.in_style = tag == "style"
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag, name) == ("a", "name"):
                self.names.add(value)
            elif name == "style":
                self.loads.update(loaded_by_style(value))
            elif name in LOADED or (tag, name) == ("link", "href"):
                whole = DATA.sub("", value)
                parts = whole.split(",") if name == "srcset" else [whole]
                self.loads.update(part.split()[0] for part in parts if part.split())
            elif name == "href":
                self.links.add(value)

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.loads.update(loaded_by_style(data))


def loaded_by_style(text: str) -> Iterator[str]:
    """Yield the addresses that a style sheet loads."""
    for match in IN_STYLE.findall(text):
        address = "".join(match)
        if address and not address.startswith(("data:", "#")):
            yield address


def links(site: Path) -> Links:
    """Return what is wrong with the links of all pages below a folder, and those that lead out."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    styles = {path: set(loaded_by_style(path.read_text(encoding="utf-8")))
              for path in site.rglob("*.css")}
    loads = {**{path: page.loads for path, page in pages.items()}, **styles}
    wanted = [(path, target) for path, page in pages.items() for target in page.links]
    wanted += [(path, target) for path, targets in loads.items() for target in targets]
    return Links(
        sorted(f"{path.relative_to(site)}: {target}" for path, target in wanted
               if not _is_elsewhere(target) and not _leads(site, path, target, pages)),
        sorted(f"{path.relative_to(site)}: {target}" for path, targets in loads.items()
               for target in targets if _is_elsewhere(target)),
        _distinct(target for page in pages.values() for target in page.links
                  if _is_elsewhere(target)))


def _distinct(addresses: Iterable[str]) -> list[str]:
    return sorted(set(addresses))


def _is_elsewhere(target: str) -> bool:
    return bool(urlsplit(target).scheme) or target.startswith("//")


def _leads(site: Path, path: Path, target: str, pages: dict[Path, _Page]) -> bool:
    """Tell whether a file is there, and the name in it that a link ends in."""
    within = f".{target}" if target.startswith("/") else target  # the page 404.html counts from /
    base = site / "404.html" if within != target else path
    to, fragment = urldefrag(urljoin(base.as_uri(), within))
    file = Path(unquote(urlsplit(to).path))
    if file in pages:
        return unquote(fragment) in pages[file].names
    return file.is_file() and not fragment
