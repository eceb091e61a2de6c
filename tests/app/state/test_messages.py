"""Does an error in a callback become a message, and is every callback of the explorer guarded?"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import latentcode.app
from latentcode.app.state.messages import heard, turn

APP = Path(latentcode.app.__file__).parent


def page() -> None:
    import streamlit as st

    from latentcode.app.state.messages import answering, guarded
    from latentcode.errors import ConfigError

    def fail(error: Exception) -> None:
        raise error

    @guarded
    def body() -> None:
        st.text("the page")
        st.button("Known", on_click=answering(fail), args=(ConfigError("*n* is 3"),))
        st.button("Unknown", on_click=answering(fail), args=(KeyError("x"),))

    body()


def test_an_error_in_a_callback_is_told_once() -> None:
    test = AppTest.from_function(page, default_timeout=30).run()
    for label, words in (("Known", "\\*n\\* is 3"), ("Unknown", "Something went wrong")):
        next(button for button in test.button if button.label == label).click().run()
        assert not test.exception
        assert [error.value.startswith(words) for error in test.error] == [True]
        assert test.text[0].value == "the page"
        assert not test.run().error


def test_every_callback_is_guarded() -> None:
    """A callback is `answering(...)`, or the name of what Streamlit does."""
    calls = [node for path in APP.rglob("*.py")
             for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(node, ast.Call)]
    given = [keyword.value for call in calls for keyword in call.keywords
             if (keyword.arg or "").startswith("on_")]
    unguarded = [ast.unparse(value) for value in given if not isinstance(value, ast.Constant)
                 and not ast.unparse(value).startswith("answering(")]
    assert len(given) > 10
    assert unguarded == []


def test_no_cached_function_draws() -> None:
    """Streamlit shows again what it has drawn, on a page that has no place for it any more."""
    cached = [node for path in APP.rglob("*.py")
              for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
              if isinstance(node, ast.FunctionDef)
              and any("st.cache_" in ast.unparse(decorator) for decorator in node.decorator_list)]
    drawing = [node.name for node in cached for statement in node.body
               if "progress_bar(" in ast.unparse(statement) or "st." in {
                   ast.unparse(call.func)[:3] for call in ast.walk(statement)
                   if isinstance(call, ast.Call)}]
    assert len(cached) > 10
    assert drawing == []


def test_a_new_session_counts_from_above_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    session: dict[str, Any] = {}
    monkeypatch.setattr("streamlit.session_state", session)
    monkeypatch.setattr("time.time", lambda: 1_000.0)
    begun = turn("bars")
    session["bars"] = {"values": {"values": [1.0], "turn": begun + 3}}
    assert heard("bars", "values")["values"] == [1.0]
    assert turn("bars") == begun + 3
    session.clear()
    monkeypatch.setattr("time.time", lambda: 1_120.0)
    assert turn("bars") > begun + 3


@pytest.mark.parametrize("told", [None, [1.0], {"values": [1.0]}, {"turn": "3"}, {"turn": True}])
def test_what_is_not_counted_is_not_heard(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamlit.session_state", {"bars": {"values": told}})
    assert heard("bars", "values") == {}
