"""Does an address say where it differs from what can be shown?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from small_app import drawn_codes, open_folders
from streamlit.testing.v1 import AppTest

from latentcode.app.share import VERSION, checksum
from latentcode.runs import Run
from latentcode.runs.checkpoints import MODEL


def page() -> None:
    import streamlit as st

    from latentcode.app import share as address
    from latentcode.app.state.messages import guarded
    from latentcode.app.state.url import choose, open_address

    name = st.session_state.get("page", "compare")
    open_address(name)
    address.say_what_came(name)
    head = st.container()
    guarded(lambda: choose("Model", ["a", "sraven-hyla"], key="model"))()
    address.say_what_is_lost(head)


def shown(**query: str) -> AppTest:
    test = AppTest.from_function(page, default_timeout=30)
    for name, value in query.items():
        test.query_params[name] = value
    test.run()
    assert not test.exception
    return test


def test_an_address_has_a_version_and_no_message() -> None:
    test = shown(model="a")
    assert test.query_params["v"] == str(VERSION)
    assert not [*test.warning, *test.info]


def test_what_a_link_cannot_bring_is_said_once() -> None:
    test = shown(v="22222222222", model="sraven-hyla", hue="3", **{"<b>": "1"})
    said = [warning.value for warning in test.warning]
    assert "format 22222222, these 1" in said[0]
    assert r"left out: hue, \<b>." in said[1]
    test.run()
    assert not test.warning


@pytest.mark.parametrize("text", ["", "~", "|", "00000000", "00000000~b", "00000000~../..", "~~|"])
def test_weights_of_what_is_not_shown_mean_nothing(text: str) -> None:
    assert not shown(model="a", weights=text).warning


def test_other_weights_are_said() -> None:
    known = checksum("sraven-hyla")
    assert known is not None
    assert not shown(model="sraven-hyla", weights=f"{known}~sraven-hyla").warning
    test = shown(model="sraven-hyla", weights="00000000~sraven-hyla|00000000~a")
    assert "The weights of sraven-hyla are not those" in test.warning[0].value


def test_checksums_are_those_that_are_stored(
    smoke_run: Callable[[str, str], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = smoke_run("sraven", "hyla").publish(tmp_path / "runs" / "run")
    codes = drawn_codes().save(tmp_path / "runs" / "codes")
    open_folders(monkeypatch, [tmp_path / "runs"])
    stored = run.load_checkpoint().sha256[MODEL]
    assert stored is not None
    assert checksum("runs/run") == stored[:8]
    meta = json.loads((codes / "meta.json").read_text(encoding="utf-8"))
    assert checksum("runs/codes") == meta["sha256"]["codes.safetensors"][:8]
    (codes / "meta.json").write_text("{", encoding="utf-8")
    for key in ("runs/codes", "runs/none", "/etc", ""):
        assert checksum(key) is None
