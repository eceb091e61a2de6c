"""Do names from files stay names on a page?"""

from __future__ import annotations

import pytest

from latentcode.app.words import literal


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
