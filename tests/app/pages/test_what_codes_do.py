"""Does the first page open on what its address says, and say what it cannot show?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from latentcode.app.data import moves as data
from latentcode.app.data.catalog import GIVEN, ROOTS
from latentcode.app.main import first_page
from latentcode.errors import ArtifactError

SCRIPT = "from latentcode.app.main import opened; opened('what_codes_do')()"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    st.cache_data.clear()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the component was given, run by run."""
    given: list[dict[str, Any]] = []
    monkeypatch.setattr("latentcode.app.pages.what_codes_do.moves",
                        lambda key, view, state, note: given.append({**view, "state": state}))
    return given


def page(**query: str) -> AppTest:
    test = AppTest.from_string(SCRIPT, default_timeout=60)
    for key, value in query.items():
        test.query_params[key] = value
    return test.run()


def test_it_opens_on_the_finding_and_on_what_the_address_says(shown: list[dict[str, Any]]) -> None:
    assert not page().exception
    assert shown[-1]["state"] == {"task": "sraven", "kind": "hyla", "put": "codes",
                                  "drop": "context", "problem": 0}
    asked = {"task": "text", "kind": "softmax", "put": "values", "drop": "what", "problem": "2"}
    page(**asked)
    assert shown[-1]["state"] == {**asked, "problem": 2}


def test_a_link_to_what_there_is_not_is_told_in_a_line(shown: list[dict[str, Any]]) -> None:
    test = page(task="logic", drop="operands", kind="deep", problem="many")
    said = " ".join(warning.value for warning in test.warning)
    assert "no drop 'operands' here; showing 'context'" in said
    assert "no kind 'deep' here" in said
    assert "no problem 'many' here" in said
    assert (shown[-1]["state"]["drop"], shown[-1]["state"]["problem"]) == ("context", 0)


def test_a_problem_that_is_not_stored_is_computed(
    shown: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = data.read_stored()["problems"]["logic"][0]
    monkeypatch.setattr(data, "computed", lambda task, number: {**first, "number": number})
    page(task="logic", problem="7")
    *stored, computed = shown[-1]["problems"]["logic"]
    assert (computed["number"], computed["computed"]) == (7, True)
    assert not any("computed" in one for one in stored)

    def broken(task: str, number: int) -> dict[str, Any]:
        raise ArtifactError("weights are damaged")

    monkeypatch.setattr(data, "computed", broken)
    (error,) = page(task="logic", problem="7").error
    assert "Problem 7 cannot be computed: weights are damaged" in error.value
    assert shown[-1]["state"]["problem"] == 0


def test_answers_of_other_weights_are_not_shown_as_those_of_the_zoo(
    shown: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = data.read_stored()
    changed = {**kept, "weights": {**kept["weights"], "logic-hyla": {
        **kept["weights"]["logic-hyla"], "sha256": "0"}}}
    monkeypatch.setattr(data, "read_stored", lambda: changed)
    monkeypatch.setattr(data, "computed",
                        lambda task, number: {**kept["problems"][task][0], "number": number})
    st.cache_data.clear()
    assert not page(task="sraven").warning
    (warning,) = page(task="logic").warning
    assert "logic-hyla has other weights than the stored answers are of" in warning.value
    assert [one["computed"] for one in shown[-1]["problems"]["logic"]] == [True]


def test_the_explorer_opens_on_runs_of_one_s_own(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opens_on(folder: Path, given: str = "yes", **query: str) -> str:
        monkeypatch.setenv(ROOTS, json.dumps([str(folder)]))
        monkeypatch.setenv(GIVEN, given)
        monkeypatch.setattr(st, "query_params", query)
        st.cache_data.clear()
        st.cache_resource.clear()
        return first_page()

    assert opens_on(models) == "explore"
    assert opens_on(models, given="") == "what_codes_do"
    assert opens_on(tmp_path) == "what_codes_do"
    # An address of an earlier version, which opened on Explore.
    assert opens_on(tmp_path, model="sraven-hyla", layer="1") == "explore"


FIRST = """
import sys
from streamlit.testing.v1 import AppTest
from latentcode.app.data import preload

preload._once.acquire()  # nothing is loaded behind the page
test = AppTest.from_string(
    "from latentcode.app.main import main; main()", default_timeout=120).run()
assert not test.exception and not test.error, test.error
names = [part.proto.component_name for part in test.get("bidi_component")]
assert names == ["latentcode_tour", "latentcode_moves", "latentcode_bar"], names
assert not {"torch", "pandas", "sklearn", "scipy"} & {*sys.modules}, sorted(sys.modules)
"""


@pytest.mark.slow
def test_the_first_page_with_its_bar_and_tour_waits_for_no_large_library() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", FIRST], capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name not in (GIVEN, ROOTS)})
    assert shown.returncode == 0, shown.stderr[-2_000:]
