"""Figures and tables of the paper: found, trained, measured, judged, kept, put on a page."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from here import Here

from latentcode.cli import main
from latentcode.errors import ArtifactError, ProbeError, RunError
from latentcode.experiments.paper import reproduce as reproducing
from latentcode.experiments.paper.claims import RESULTS, load_claims
from latentcode.experiments.paper.reproduce import (
    REPRODUCTIONS,
    UNUSED,
    Request,
    judged_claim,
    read_result,
    reproduce,
    results_in,
    write_pages,
)
from latentcode.experiments.paper.reproductions import definitions
from latentcode.experiments.paper.runs import KnownRuns
from latentcode.sweep import executors
from latentcode.sweep.grid import with_fields
from tests.helpers.paper_runs import made_up

CLAIMS = {claim.id: claim for claim in load_claims()}


def request(at: Path, **others: object) -> Request:
    return Request(**{"preset": "smoke", "out": at / "out", "work": at / "work", **others})


def test_every_result_names_its_runs() -> None:
    assert set(REPRODUCTIONS) == set(RESULTS)
    for name, result in REPRODUCTIONS.items():
        assert set(result.shows) == {"paper", "small", "smoke"}
        assert result.claims
        assert {claim.setting for claim in result.claims} <= set(
            result.settings("paper")) or name in ("figA1", "tabA2", "figA9", "tabA3")


@pytest.mark.slow
def test_all_at_smoke_size_with_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Train in this process: each result would start processes of its own.
    monkeypatch.setattr(executors, "Workers", Here)
    monkeypatch.chdir(tmp_path)  # where the text of language models is written
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    # None of the library's runs is of this size, and all would be opened twice for each result.
    monkeypatch.setattr(reproducing, "default_folders", list)
    out, work = tmp_path / "out", tmp_path / "work"
    main(["reproduce", "all", "--preset", "smoke", "--out", str(out), "--work", str(work)])
    assert f"{len(RESULTS)} of {len(RESULTS)} complete" in capsys.readouterr().out
    results = results_in(out, "smoke")
    assert list(results) == list(RESULTS)
    for name, result in results.items():
        folder = out / "smoke" / name
        assert result["summary"]
        assert result["claims"] == []  # judged at the published setting alone
        assert any(result["tables"].values()), name
        assert all((folder / f"{figure}.{kind}").stat().st_size > 1000
                   for figure in result["figures"] for kind in ("png", "svg"))
    main(["reproduce", "--report", "--out", str(out)])
    text = (out / "README.md").read_text()
    words = " ".join(text.split())
    assert all(f"## {name}" in text and " ".join(results[name]["summary"].split()) in words
               for name in RESULTS)
    # Nothing is trained or measured twice, and the same is found.
    capsys.readouterr()
    main(["reproduce", "fig2b", "fig5ab", "--preset", "smoke", "--out", str(out), "--work",
          str(work)])
    printed = capsys.readouterr().out
    assert ": training " not in printed
    assert ": measuring " not in printed
    again = results_in(out, "smoke")
    assert all(again[name]["tables"] == results[name]["tables"] for name in ("fig2b", "fig5ab"))


@pytest.mark.slow
def test_the_published_setting_is_judged_from_the_runs_that_are_there(tmp_path: Path) -> None:
    """Without training: the zoo's fuzzy-logic models are of the published size."""
    wanted = request(tmp_path, preset="paper", train=False)
    assert reproduce(["tabA3", "tabA1"], wanted) == ["tabA3"]
    exact = read_result(tmp_path / "out" / "paper" / "tabA3")["claims"]
    assert [claim["verdict"] for claim in exact] == ["agrees"]
    table = read_result(tmp_path / "out" / "paper" / "tabA1")
    claims = {claim["id"]: claim for claim in table["claims"]}
    assert claims["tabA1-logic-hyla"]["verdict"] in ("undecided", "agrees", "differs")
    assert claims["tabA1-logic-hyla"]["seen"]
    assert claims["tabA1-sraven-hyla-moe"]["verdict"] == "not run"
    assert table["missing"]
    readme, *_ = write_pages(tmp_path / "out", tmp_path)
    assert "(out/paper/tabA1)" in readme.read_text()


def test_what_is_there_of_the_same_runs_can_be_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = request(tmp_path, train=False, missing=True)
    for times in (0, 2):
        assert reproduce(["tabA3", "figA3"], wanted) == ["tabA3"]
        assert capsys.readouterr().out.count("is there already") == times
    folder = tmp_path / "out" / "smoke" / "figA3" / "result.json"
    result = json.loads(folder.read_text())
    folder.write_text(json.dumps(result | {"missing": result["missing"][1:]}))
    reproduce(["figA3"], wanted)  # of other runs
    assert json.loads(folder.read_text())["missing"] == result["missing"]


def test_a_damaged_result_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "smoke" / "tabA3"
    reproduce(["tabA3"], request(tmp_path))
    whole = json.loads((folder / "result.json").read_text())
    del whole["missing"]
    (folder / "result.json").write_text(json.dumps(whole))
    with pytest.raises(ArtifactError, match=r"result\.json lacks missing"):
        reproduce(["tabA3"], request(tmp_path, missing=True))
    with pytest.raises(ArtifactError, match="lacks missing"):
        write_pages(tmp_path / "out", tmp_path)


def test_a_place_that_cannot_be_written_to_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Request, "known", lambda request: pytest.fail("work was begun"))
    (tmp_path / "file").touch()
    foreign = tmp_path / "taken" / "smoke" / "tabA3"
    foreign.mkdir(parents=True)
    (foreign / "mine.txt").touch()
    for where, message in (({"out": tmp_path / "file"}, "is a file"),
                           ({"work": tmp_path / "file"}, "is a file"),
                           ({"out": tmp_path / "taken"}, "not one of ours")):
        with pytest.raises(RunError, match=message):
            reproduce(["tabA3"], request(tmp_path, **where))


def test_what_needs_no_run_can_be_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published 0.0032 +- 0.0009 for K = 8: undecided, however many instances there are."""
    def few(n: int, **_: object) -> pd.DataFrame:
        return pd.DataFrame({name: [i < 0.0032 * n for i in range(n)]
                             for name in ("official", "ambiguous", "solved")})

    monkeypatch.setattr(definitions, "fresh_instances", few)
    assert reproduce(["tabA2"], request(tmp_path, preset="paper", train=False)) == ["tabA2"]
    claims = read_result(tmp_path / "out" / "paper" / "tabA2")["claims"]
    undecided = next(claim for claim in claims if claim["id"] == "tabA2-k-8")
    assert undecided["verdict"] == "undecided"


def test_claims_whose_runs_gave_no_value_ask_for_no_runs() -> None:
    """Its three runs of each kind are there, and nothing was measured."""
    claim = CLAIMS["fig5f-rule-decodable"]
    judged = judged_claim(claim, {}, made_up([claim.setting], lambda member, config: {}, seeds=3))
    assert judged["verdict"] == "not run"
    assert judged["needs"] == UNUSED
    judged = judged_claim(claim, {}, KnownRuns({}))
    assert judged["needs"].startswith("3 runs of kind=softmax")


def test_a_claim_about_changes_lacks_the_runs_of_the_same_seeds() -> None:
    """The published settings on three splits each, but only two pairs of seeds in common."""
    changes = CLAIMS["fig2c-hyla-declines-less"]
    known = made_up([changes.setting], lambda member, config: {}, seeds=3)
    assert judged_claim(changes, {}, known)["needs"] == UNUSED
    key, (*runs, last) = next(iter(known.finished.items()))
    other = replace(last, config=with_fields(last.config, {"training.seed": 0}))
    less = KnownRuns({**known.finished, key: (*runs, other)})
    assert judged_claim(changes, {}, less)["needs"] != UNUSED


def test_what_cannot_be_measured_holds_up_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    def measure(work: object) -> object:
        raise ProbeError("no codes vary")

    monkeypatch.setattr(reproducing, "REPRODUCTIONS", {
        name: result if name == "tabA3" else replace(result, measure=measure)
        for name, result in REPRODUCTIONS.items()})
    wanted = request(tmp_path, train=False)
    with pytest.raises(ProbeError, match="no codes vary"):
        reproduce(["figA3", "tabA3"], wanted)
    assert "1 of 2, figA3: failed, no codes vary" in capsys.readouterr().out
    assert (tmp_path / "out" / "smoke" / "tabA3" / "result.json").exists()
    with pytest.raises(ProbeError, match="2 of 3 could not be reproduced: figA3: no codes vary"):
        reproduce(["figA3", "tabA3", "figA5"], wanted)
