"""Are what a component tells and the answers to it told apart, over sessions that are lost?"""

from __future__ import annotations

from typing import Any

import pytest

from latentcode.app.state.turns import heard, turn


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
