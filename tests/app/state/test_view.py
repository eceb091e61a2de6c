"""Where one looks and what is hidden: through the address, in the pictures it was said of."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from latentcode.app.words import literal


def page() -> None:
    import streamlit as st

    from latentcode.app.state.url import open_address
    from latentcode.app.state.view import View, note_view, view_in_url

    open_address("one page")
    if st.button("Look"):
        note_view("zoom", View("0.2_-0.1_3~", ("sum", "a!b")), "rule")
    planes = st.session_state.get("planes", ["one", "two"])
    label = st.session_state.get("label", "rule")
    st.text(repr(view_in_url("zoom", planes, label, ("sum", "+1", "a!b"))))


def shown(**query: str) -> AppTest:
    test = AppTest.from_function(page, default_timeout=30)
    for name, value in query.items():
        test.query_params[name] = value
    return test.run()


def text(test: AppTest) -> str:
    assert not test.exception
    return str(test.text[0].value)


LOOKED = "View(zoom='0.2_-0.1_3~', hidden=('sum', 'a!b'))"
WHOLE = "View(zoom='', hidden=())"


def test_what_is_looked_at_comes_back_by_the_address() -> None:
    test = shown()
    assert text(test) == WHOLE
    assert text(test.button[0].click().run()) == LOOKED
    assert text(shown(zoom="0.2_-0.1_3~", off="rule!sum!a%21b")) == LOOKED


def test_other_pictures_are_whole_and_another_colour_hides_nothing() -> None:
    test = shown(zoom="0.2_-0.1_3~", off="rule!sum!a%21b")
    test.session_state["planes"] = ["one", "three"]
    assert text(test.run()) == "View(zoom='', hidden=('sum', 'a!b'))"
    test.session_state["label"] = "target"
    assert text(test.run()) == WHOLE
    test.session_state["planes"], test.session_state["label"] = ["one", "two"], "rule"
    assert text(test.run()) == WHOLE
    assert not test.warning


@pytest.mark.parametrize("zoom", ["1_2", "0.2_-0.1_3", "1_2_3~1_2_3~", "x_1_2~", "1_2_9999~",
                                  "0_0_0~", "0_0_0.4~"])
def test_what_cannot_be_read_is_said(zoom: str) -> None:
    test = shown(zoom=zoom)
    assert text(test) == WHOLE
    assert literal(repr(zoom)) in test.warning[0].value
    assert "each of 2 pictures" in test.warning[0].value


def test_one_picture_is_not_counted() -> None:
    test = AppTest.from_function(page, default_timeout=30)
    test.session_state["planes"], test.query_params["zoom"] = ["one"], "0_0_0"
    assert text(test.run()) == WHOLE
    assert "for the picture," in test.warning[0].value


@pytest.mark.parametrize("times", ["0.5", "0.512", "1", "1.23", "12.3", "200"])
def test_what_the_map_writes_is_read(times: str) -> None:
    assert text(shown(zoom=f"0.2_-0.1_{times}~")).startswith(f"View(zoom='0.2_-0.1_{times}~'")


@pytest.mark.parametrize("off", ["rule", "rule!none", "target!sum", "rule!sum!+1!a%21b", ""])
def test_what_is_no_value_hides_nothing(off: str) -> None:
    assert text(shown(off=off)) == WHOLE
