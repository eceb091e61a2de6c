"""What a person clicks or draws comes into the URL, and takes out of it what no longer holds."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from latentcode.app.state.url import STAYS

BEFORE = {"select": "I1", "other": "I2"}
DRAWN = "{'plane': 'two', 'points': [[0.0, 0.0], [1.0, 2.0], [0.0, 2.0]]}"
LASSO = "L0_0_1_0_1_1@pca.1.a->b"


@pytest.mark.parametrize(("call", "changed"), [
    (f"explore.select(Selection.from_text('{LASSO}'))", {"select": LASSO}),
    ("explore.select(Selection.from_text('I4'))", {"instance": "4"}),
    ("explore.select(Selection())", {"select": None}),
    (f"explore.select(Selection.drawn({DRAWN}))", {"select": "L0_0_1_2_0_2@two"}),
])
def test_a_click_comes_into_the_url(call: str, changed: dict[str, str | None]) -> None:
    test = AppTest.from_string(
        "import streamlit as st\n"
        "from latentcode.app.pages import explore\n"
        "from latentcode.app.state.selection import Selection\n"
        "from latentcode.app.state.url import remembered, write_address\n"
        f"for name in {[*BEFORE]}: remembered(name)\n" + call + "\nwrite_address()",
        default_timeout=60)
    for name, value in BEFORE.items():
        test.query_params[name] = value
    test.run()
    assert not test.exception
    found = {name: value if isinstance(value, str) else value[0]
             for name, value in test.query_params.items() if name != STAYS}
    assert found == {name: value for name, value in {**BEFORE, **changed}.items() if value}
    if "instance" in changed:  # whose problem then stands beside the map
        assert test.session_state["beside"] == "Problem"
