"""What a browser and an address say of tokens is read with care."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit")
from latentcode.app.handles.tokens import from_text, to_text, tokens_of


def test_tokens_of_an_address() -> None:
    for numbers in ((), (0,), (0, 1, 2, 5), (3, 5, 7, 8)):
        assert to_text(numbers[::-1]) == to_text(numbers)
        assert numbers == () or from_text(to_text(numbers), 9) == numbers
    assert to_text((0, 1, 2, 5)) == "0-2_5"
    for wrong in ("", "x", "1-", "2-1", "9", "0-9", "-1", "1__2", "1.5"):
        assert from_text(wrong, 9) is None


def test_what_a_browser_says_of_tokens() -> None:
    assert tokens_of({"queries": [2, 1, 2], "keys": []}, 3) == {"queries": (1, 2), "keys": ()}
    for wrong in (None, [], {"queries": [1]}, {"queries": [3], "keys": []},
                  {"queries": ["1"], "keys": []}, {"queries": 1, "keys": []}):
        assert tokens_of(wrong, 3) is None
