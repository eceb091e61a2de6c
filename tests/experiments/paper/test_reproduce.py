"""Figures and tables of the paper: found, trained, measured, judged, kept, put on a page."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from here import Here

import latentcode as lc
from latentcode.cli import main
from latentcode.errors import (
    ArtifactError,
    ProbeError,
    RunError,
    UnknownNameError,
)
from latentcode.experiments.paper import reproduce as reproducing
from latentcode.experiments.paper.claims import RESULTS, load_claims
from latentcode.experiments.paper.report import page, write_pages
from latentcode.experiments.paper.reproduce import (
    UNUSED,
    Request,
    judged_claim,
    reproduce,
)
from latentcode.experiments.paper.reproduction import reproduction
from latentcode.experiments.paper.results import read_result, remarks, results_in
from latentcode.experiments.paper.runs import KnownRuns, find_runs, folder_name, missing
from latentcode.models.config import kind_of
from latentcode.sweep import executors
from latentcode.sweep.grid import with_fields
from tests.helpers.paper_runs import made_up

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "experiments" / "results" / "reproduced"


def request(at: Path, **others: object) -> Request:
    return Request(**{"preset": "smoke", "out": at / "out", "work": at / "work", **others})


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train in this process: each result would start processes of its own."""
    monkeypatch.setattr(executors, "Workers", Here)


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_names_its_runs(name: str) -> None:
    result = reproduction(name)
    assert result.name == name
    assert set(result.shows) == {"paper", "small", "smoke"}
    assert result.claims
    assert {claim.setting for claim in result.claims} <= set(
        result.settings("paper")) or name in ("figA1", "tabA2", "figA9", "tabA3")


@pytest.mark.slow
def test_all_at_smoke_size_with_a_page(
    here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the text of language models is written
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    # None of the library's runs is of this size, and all would be opened twice for each result.
    monkeypatch.setattr(reproducing, "default_folders", list)
    out, work = tmp_path / "out", tmp_path / "work"
    main(["reproduce", "all", "--preset", "smoke", "--out", str(out), "--work", str(work)])
    assert f"{len(RESULTS)} of {len(RESULTS)} complete" in capsys.readouterr().out
    found = results_in(out, "smoke")
    assert list(found) == list(RESULTS)
    for name, result in found.items():
        folder = out / "smoke" / name
        assert result["summary"]
        assert result["claims"] == []  # judged at the published setting alone
        assert any(result["tables"].values()), name
        assert all((folder / f"{figure}.{kind}").stat().st_size > 1000
                   for figure in result["figures"] for kind in ("png", "svg"))
    main(["reproduce", "--report", "--out", str(out)])
    text = (out / "README.md").read_text()
    words = " ".join(text.split())
    assert all(f"## {name}" in text and " ".join(found[name]["summary"].split()) in words
               for name in RESULTS)

    before = {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}
    main(["reproduce", "all", "--preset", "smoke", "--out", str(out), "--work", str(work)])
    assert capsys.readouterr().out.count("is there already") == len(RESULTS)
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}


@pytest.mark.slow
def test_a_budget_an_interruption_and_then_the_same_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["fig2c", "figA3"]
    whole, parts = request(tmp_path / "whole"), tmp_path / "parts"
    monkeypatch.setattr(executors, "available_cores", lambda: 1)
    assert reproduce(names, whole) == names
    # A budget so short that it only begins, a run that was stopped half-way, then the rest.
    assert reproduce(names, request(parts, missing=True, deadline=time.time() + 0.5)) == []
    wanted = missing(reproduction("fig2c").settings("smoke"), find_runs([]), 1)
    name, config = list(wanted.items())[-1]
    run_folder = parts / "work" / "runs" / name
    with pytest.raises(SystemExit):
        stopped_after_first_checkpoint(run_folder, config)
    begun = lc.Run.open(run_folder)
    assert begun.checkpoints()
    assert not begun.is_complete
    assert reproduce(names, request(parts, missing=True)) == names
    assert reproduce(names, request(parts, missing=True)) == names  # nothing is missing
    pages = [path.read_bytes() for at in (tmp_path / "whole", parts)
             for path in write_pages(at / "out", at / "out")[:1]]
    assert pages[0] == pages[1]
    for name in names:
        one, other = (read_result(at / "out" / "smoke" / name)
                      for at in (tmp_path / "whole", parts))
        for result in (one, other):
            # Random names of runs, and what a clock says.
            result.pop("digest")
            result.pop("minutes")
            for table in (result["runs"], *result["tables"].values()):
                for row in table:
                    row.pop("id", None)
                    row.pop("minutes", None)
        assert one == other


def stopped_after_first_checkpoint(folder: Path, config: lc.RunConfig) -> None:
    """Train as the reproduction does, and be told to stop."""
    import signal

    from latentcode.training import loop

    folder.parent.mkdir(parents=True, exist_ok=True)
    original = lc.Run.save_checkpoint

    def save(self: lc.Run, step: int, *args: object, **kwargs: object) -> None:
        original(self, step, *args, **kwargs)  # type: ignore[arg-type]
        if 0 < step < config.training.steps:
            os.kill(os.getpid(), signal.SIGTERM)

    lc.Run.save_checkpoint = save  # type: ignore[method-assign]
    try:
        loop.train(config, folder, resume=(folder / "config.yaml").exists(), progress=False)
    finally:
        lc.Run.save_checkpoint = original  # type: ignore[method-assign]


@pytest.mark.slow
def test_the_published_setting_is_judged_from_the_runs_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    """Without training: the zoo's fuzzy-logic models are of the published size."""
    wanted = request(tmp_path, preset="paper", train=False)
    assert reproduce(["tabA3", "tabA1"], wanted) == ["tabA3"]
    exact = read_result(tmp_path / "out" / "paper" / "tabA3")["claims"]
    assert [claim["verdict"] for claim in exact] == ["agrees"]
    table = read_result(tmp_path / "out" / "paper" / "tabA1")
    of_hyla = next(claim for claim in table["claims"] if claim["id"] == "tabA1-logic-hyla")
    assert of_hyla["verdict"] in ("undecided", "agrees", "differs")
    assert of_hyla["seen"]
    of_moe = next(claim for claim in table["claims"] if claim["id"] == "tabA1-sraven-hyla-moe")
    assert of_moe["verdict"] == "not run"
    assert table["missing"]
    readme, *_ = write_pages(tmp_path / "out", tmp_path)
    assert "(out/paper/tabA1/result.json)" in readme.read_text()


@pytest.mark.slow
def test_the_grid_is_searched_for_one_kind_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained: dict[str, lc.RunConfig] = {}

    def train(out: Path, members: dict[str, lc.RunConfig], **settings: object) -> dict[str, str]:
        trained.update(members)
        return {}

    monkeypatch.setattr(reproducing, "train_members", train)
    # The time is up before anything is measured, which is not what is asked here.
    monkeypatch.setattr(Request, "late", lambda request: bool(trained))
    wanted = request(tmp_path, preset="paper", search=True, kinds=("linear",))
    assert reproduce(["fig5f"], wanted) == []
    assert {kind_of(config.model) for config in trained.values()} == {"linear"}
    assert {config.training.learning_rate for config in trained.values()} == {3e-4, 1e-3}
    with pytest.raises(UnknownNameError, match="'hylas'; expected one of"):
        reproduce(["fig5f"], replace(wanted, kinds=("hylas",)))


def test_a_run_that_somebody_else_has_begun_is_left_to_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = missing(reproduction("fig2c").settings("smoke"), find_runs([]), 1)
    theirs = tmp_path / "theirs" / "a"
    lc.Run.create(theirs, next(iter(wanted.values())))
    assert reproduce(["fig2c"], request(tmp_path, runs=(tmp_path / "theirs",), train=False)) == []
    assert "under way at update 0 of 30, paused" in capsys.readouterr().out
    result = read_result(tmp_path / "out" / "smoke" / "fig2c")
    assert any(row["under_way"] for row in result["missing"])
    assert not (tmp_path / "work" / "runs").exists()
    assert lc.Run.open(theirs).checkpoints() == []
    assert folder_name(next(iter(wanted.values()))) in {row["run"] for row in result["missing"]}


def test_what_is_there_already_lacks_no_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--preset", "smoke", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "w")]
    main(["reproduce", "tabA3", *options])
    written = (tmp_path / "out" / "smoke" / "tabA3" / "result.json").stat().st_mtime_ns
    main(["reproduce", "tabA3", "--missing", *options])
    assert capsys.readouterr().out.count("1 of 1 complete") == 2
    assert (tmp_path / "out" / "smoke" / "tabA3" / "result.json").stat().st_mtime_ns == written


def test_a_damaged_result_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "smoke" / "tabA3"
    reproduce(["tabA3"], request(tmp_path))
    whole = json.loads((folder / "result.json").read_text())
    del whole["digest"]
    (folder / "result.json").write_text(json.dumps(whole))
    with pytest.raises(ArtifactError, match=r"result\.json lacks digest"):
        reproduce(["tabA3"], request(tmp_path))
    with pytest.raises(ArtifactError, match="lacks digest"):
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
    def few(work: object, n: int, m: int, k: int) -> pd.DataFrame:
        return pd.DataFrame({name: [i < 0.0032 * n for i in range(n)]
                             for name in ("official", "ambiguous", "solved")})

    monkeypatch.setattr("latentcode.experiments.paper.reproductions.tabA2.instances", few)
    assert reproduce(["tabA2"], request(tmp_path, preset="paper", train=False)) == ["tabA2"]
    claims = read_result(tmp_path / "out" / "paper" / "tabA2")["claims"]
    undecided = next(claim for claim in claims if claim["id"] == "tabA2-k-8")
    assert undecided["verdict"] == "undecided"


def test_claims_whose_runs_gave_no_value_ask_for_no_runs(tmp_path: Path) -> None:
    """Its three runs of each kind are there, and nothing was measured."""
    searched = next(claim for claim in load_claims() if claim.id == "fig5f-rule-decodable")
    known = made_up([searched.setting], lambda member, config: {}, seeds=3)
    judged = judged_claim(searched, {}, known)
    assert judged["verdict"] == "not run"
    assert judged["needs"] == UNUSED
    judged = judged_claim(searched, {}, KnownRuns({}))
    assert judged["needs"].startswith("3 runs of kind=softmax")


def test_a_claim_about_changes_lacks_the_runs_of_the_same_seeds() -> None:
    """The published settings on three splits each, but only two pairs of seeds in common."""
    changes = next(claim for claim in load_claims() if claim.id == "fig2c-hyla-declines-less")
    known = made_up([changes.setting], lambda member, config: {}, seeds=3)
    assert judged_claim(changes, {}, known)["needs"] == UNUSED
    key, (*runs, last) = next(iter(known.finished.items()))
    other = replace(last, config=with_fields(last.config, {"training.seed": 0}))
    less = KnownRuns({**known.finished, key: (*runs, other)})
    assert judged_claim(changes, {}, less)["needs"] != UNUSED


@pytest.mark.skipif(not COMMITTED.exists(), reason="a checkout has the results")
def test_what_is_committed_is_judged_whole_and_said_on_its_page() -> None:
    found = {preset: results_in(COMMITTED, preset) for preset in ("paper", "small", "smoke")}
    assert list(found["paper"]) == list(RESULTS)
    judged = [claim for result in found["paper"].values() for claim in result["claims"]]
    assert [claim["id"] for name in RESULTS for claim in found["paper"][name]["claims"]] == [
        claim.id for name in RESULTS for claim in load_claims() if claim.result == name]
    for claim in judged:
        assert claim["verdict"] != "differs" or claim["id"] in remarks(), claim["id"]
    assert set(remarks()) <= {claim["id"] for claim in judged if claim["verdict"] == "differs"}
    readme = COMMITTED.parent / "README.md"
    assert readme.read_text() == page(found, COMMITTED, COMMITTED.parent)
    assert json.dumps(found)


def test_what_cannot_be_measured_holds_up_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    from latentcode.experiments.paper import reproduce as module

    original = module.reproduction

    def broken(name: str):
        found = original(name)

        def measure(work: object) -> object:
            raise ProbeError("no codes vary")

        return found if name == "tabA3" else replace(found, measure=measure)

    monkeypatch.setattr(module, "reproduction", broken)
    wanted = request(tmp_path, train=False)
    with pytest.raises(ProbeError, match="no codes vary"):
        reproduce(["figA3", "tabA3"], wanted)
    assert "1 of 2, figA3: failed, no codes vary" in capsys.readouterr().out
    assert (tmp_path / "out" / "smoke" / "tabA3" / "result.json").exists()
    with pytest.raises(ProbeError, match="2 of 3 could not be reproduced: figA3: no codes vary"):
        reproduce(["figA3", "tabA3", "figA5"], wanted)
