"""Claims that came after their result are judged from what it keeps, or have no runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from latentcode.errors import ArtifactError
from latentcode.experiments.paper.rejudge import rejudge
from latentcode.experiments.paper.runs import KnownRuns, default_folders, find_runs

COMMITTED = Path(__file__).parents[3] / "experiments" / "results" / "reproduced"
pytestmark = pytest.mark.skipif(not COMMITTED.exists(), reason="a checkout has the results")


def without(tmp_path: Path, name: str, *claims: str) -> Path:
    """Return a copy of a committed result that lacks some of its claims."""
    folder = tmp_path / "paper" / name
    folder.mkdir(parents=True)
    shutil.copy(COMMITTED / "paper" / name / "result.json", folder)
    path = folder / "result.json"
    result = json.loads(path.read_text())
    result["claims"] = [claim for claim in result["claims"] if claim["id"] not in claims]
    path.write_text(json.dumps(result))
    return path


def claims(path: Path) -> dict[str, dict[str, Any]]:
    return {claim["id"]: claim for claim in json.loads(path.read_text())["claims"]}


def test_a_claim_is_judged_from_the_tables_that_are_kept(tmp_path: Path) -> None:
    name = "causal-hyla-sraven-codes-answer"
    path = without(tmp_path, "causal", name)
    assert rejudge("causal", tmp_path, find_runs(default_folders())) == [name]
    measured, judged = claims(COMMITTED / "paper" / "causal" / "result.json"), claims(path)
    # The tables that are kept are rounded; a claim is judged before that.
    parts, parts_again = measured[name].pop("parts"), judged[name].pop("parts")
    assert judged == measured
    for one, again in zip(parts, parts_again, strict=True):
        for end in ("estimate", "low", "high"):
            assert again.pop(end) == pytest.approx(one.pop(end), rel=1e-5)
        assert again == one
    assert rejudge("causal", tmp_path, KnownRuns({})) == []


def test_a_claim_whose_runs_are_there_is_not_called_not_run(tmp_path: Path) -> None:
    path = without(tmp_path, "fig2b", "fig2b-terms-decodable")
    before = path.read_text()
    with pytest.raises(ArtifactError, match="expected `latentcode reproduce fig2b`"):
        rejudge("fig2b", tmp_path, find_runs(default_folders()))
    assert path.read_text() == before
    assert rejudge("fig2b", tmp_path, KnownRuns({})) == ["fig2b-terms-decodable"]
    assert claims(path)["fig2b-terms-decodable"]["verdict"] == "not run"
