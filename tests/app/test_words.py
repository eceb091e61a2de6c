"""Do names from files stay names on a page?"""

from __future__ import annotations

import numpy as np
import pytest

from latentcode.app.words import literal, without_tags


@pytest.mark.parametrize(("text", "shown"), [
    ("response->row3.panel2", "response->row3.panel2"), ("kind=hyla,seed=0", "kind=hyla,seed=0"),
    ("![a](http://example.org/a.png)", r"!\[a\](http://example.org/a.png)"),
    ("<img src=x>", r"\<img src=x>"), ("a*b*", r"a\*b\*"), ("$x$", r"\$x\$"),
    ("two\nlines", "two lines"), ("\\[", r"\\\["), (7, "7"),
    # Code in messages stays code, and nothing hides behind a backtick that begins none.
    ("use `a[0] FOLDER`", "use `a[0] FOLDER`"), ("` ![a](b)", r"\` !\[a\](b)"),
    ("`` ![a](b)`", r"\`\` !\[a\](b)\`")])
def test_markdown_shows_what_was_written(text: object, shown: str) -> None:
    assert literal(text) == shown


def test_charts_have_no_tags_but_their_own() -> None:
    link = "<a href='https://example.org'>sum</a>"
    spec = without_tags({"data": [{"name": link, "hovertext": np.array([f"{link}<br>2"], object),
                                   "hovertemplate": "%{x}<extra></extra>", "y": [link, 1.0]}],
                         "layout": {"title": {"text": f"<b>1 < 2</b> {link}"}}})
    assert "<a" not in str(spec)
    assert "</a" not in str(spec)
    trace, title = spec["data"][0], spec["layout"]["title"]["text"]
    assert trace["hovertemplate"] == "%{x}<extra></extra>"
    assert trace["hovertext"][0].endswith("&lt;/a><br>2")
    assert trace["y"][1] == 1.0
    assert title.startswith("<b>1 &lt; 2</b> &lt;a href=")
