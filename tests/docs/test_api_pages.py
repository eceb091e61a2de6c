"""Do docstrings look on their pages as they do in the source?"""

from __future__ import annotations

from collections.abc import Callable
from html import unescape
from types import ModuleType

import pytest


@pytest.fixture
def api(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("api")


def test_prose_keeps_its_mathematics(api: ModuleType) -> None:
    html = api.pdoc.render.env.filters["to_html"](api.to_markdown(
        "sum_k a_hqk * v_kh * w, a[:, q, k] (see x), a < b & c; `a_b*c*d` is [code].\n"
        "m ~ Bernoulli(1 - p)"))
    assert unescape(html).strip() == (
        "<p>sum_k a_hqk * v_kh * w, a[:, q, k] (see x), a < b & c; <code>a_b*c*d</code> is "
        "[code].\n"
        "m ~ Bernoulli(1 - p)</p>")


def test_columns_and_code_stay_as_they_are(api: ModuleType) -> None:
    columns = "layers, pairs  which to probe\nseed      of all\n          the rest"
    assert api.to_markdown(columns) == f"```text\n{columns}\n```"
    assert api.to_markdown("Title\n\n    python x.py  # y\n    more") == (
        "Title\n\n```text\npython x.py  # y\nmore\n```")
    assert api.to_markdown("- one_a\n- two") == "- one\\_a\n- two"
