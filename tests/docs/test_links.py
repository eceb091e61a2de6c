"""Does the check of links find what is wrong, and nothing else?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.mark.parametrize(("body", "broken", "loaded"), [
    ('<a href="below/other.html#here">', [], []),
    ('<a href="below/other.html#nowhere">', ["below/other.html#nowhere"], []),
    ('<a href="missing.html">', ["missing.html"], []),
    ('<a href="#mine"><p id="mine"><a href="">', [], []),
    ('<a href="below">', ["below"], []),
    ('<img src="missing.png"><img src="/x.css">', ["missing.png"], []),
    ('<img src="data:image/svg+xml,a%20b,https://x.org">', [], []),
    ('<img srcset="https://x.org/a.png 2x, b.png 1x">', ["b.png"], ["https://x.org/a.png"]),
    ('<script src="//x.org/a.js"></script>', [], ["//x.org/a.js"]),
    ('<link rel="stylesheet" href="https://x.org/a.css">', [], ["https://x.org/a.css"]),
    ('<iframe src="http://x.org"></iframe>', [], ["http://x.org"]),
    ("<style>@font-face { src: url('https://x.org/a.woff') }</style>", [],
     ["https://x.org/a.woff"]),
    ('<p style="background: url(https://x.org/b.png)">', [], ["https://x.org/b.png"]),
    ('<a href="https://x.org">', [], [])])
def test_what_is_found(
    script: Callable[[str], ModuleType], tmp_path: Path, body: str, broken: list[str],
    loaded: list[str],
) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "other.html").write_text('<h1 id="here">', encoding="utf-8")
    (tmp_path / "x.css").write_text("p { color: red }", encoding="utf-8")
    (tmp_path / "page.html").write_text(body, encoding="utf-8")
    found = script("links").links(tmp_path)
    assert found.broken == [f"page.html: {target}" for target in broken]
    assert found.loaded == [f"page.html: {target}" for target in loaded]
    assert found.outside == (["https://x.org"] if body == '<a href="https://x.org">' else [])
