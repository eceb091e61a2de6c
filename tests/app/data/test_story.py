"""Does the story say what the stored results say, and nothing without them?"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from latentcode.app.data import story as told
from latentcode.app.data.evidence import evidence


def test_verdicts_are_those_of_the_claims() -> None:
    found = evidence()
    chapters = {chapter.title: chapter for chapter in told.story(found)}
    for chapter in chapters.values():
        if chapter.claim:
            assert found.claims[chapter.claim]["verdict"] in [v for _, v in chapter.verdicts] or (
                chapter.claim == "causal-sraven-row-operation")
    ahead = chapters["HYLA generalises better to new compositions"]
    softmax, linear = (part["estimate"]
                       for part in found.claims["tabA1-logic-hyla-ahead"]["parts"])
    assert f"{softmax:.2f} above softmax and {linear:.2f} above linear" in ahead.text


def test_our_own_finding_is_that_of_the_runs_that_decide() -> None:
    table = Path(str(told.files("latentcode.experiments"))) / "results" / told.STUDY / told.TABLE
    with table.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["role"] == "confirmatory"
                and row["primary"] == "True" and row["statement"] == told.CARRIES]
    wanted = {told.KINDS[row["kind"]]: row["verdict"] for row in rows}
    [chapter] = [one for one in told.story(evidence()) if "own finding" in one.title]
    assert dict(chapter.verdicts) == wanted
    assert len(wanted) == 3


def test_what_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = evidence()
    results = {**found.results, "paper": {"causal": found.results["paper"]["causal"]}}
    monkeypatch.setattr(told, "files", lambda _: tmp_path)
    titles = [one.title for one in told.story(replace(found, results=results))]
    assert titles == ["Codes of the response carry the operation", "What has not been run"]
