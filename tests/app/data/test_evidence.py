"""The results of the paper's claims as the explorer reads them."""

import io
import json
import shutil
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from latentcode.app.data.evidence import evidence, matching, shipped, titled
from latentcode.errors import ArtifactError
from latentcode.experiments.evidence.claim import RESULTS, load_claims
from latentcode.experiments.paper.wording import ours

VERDICTS = shipped().parent / "verdicts.csv"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two results, without the tables that `result.json` holds; one has its picture left out."""
    for name in ("figA9", "fig2d"):
        shutil.copytree(shipped() / "paper" / name, tmp_path / "paper" / name)
        for file in (tmp_path / "paper" / name).glob("*.csv"):
            file.unlink()
    (tmp_path / "paper" / "figA9" / "figA9.png").unlink()
    return tmp_path


def test_the_table_has_the_verdicts_of_the_report() -> None:
    found = evidence()
    written = pd.read_csv(VERDICTS)
    assert found.table["verdict"].to_dict() == dict(
        zip(written["id"], written["verdict"], strict=True))
    assert found.counts() == Counter(written["verdict"])
    assert len(found.table) == len(load_claims())
    assert found.missing == []
    row = found.table.loc["tabA2-k-4"]
    assert (row["published"], row["ours"]) == ("0.0642 ± 0.0038", "0.0608")
    assert pd.isna(row["runs"])
    assert found.table.loc["causal-sraven-codes-answer", "runs"] == 30


def test_what_was_left_out_is_written_from_the_numbers(two: Path) -> None:
    found = evidence(two)
    assert found.missing == [name for name in RESULTS if name not in ("fig2d", "figA9")]
    assert found.picture("paper", "figA9") is None
    assert found.picture("paper", "fig2d") == (two / "paper/fig2d/fig2d.png").read_bytes()
    files = found.files("paper", "figA9")
    assert set(files) == {"counts.csv", "result.json"}
    counts = pd.DataFrame(found.results["paper"]["figA9"]["tables"]["counts"])
    pd.testing.assert_frame_equal(pd.read_csv(io.BytesIO(files["counts.csv"])), counts,
                                  check_dtype=False)


def test_damaged_and_absent_results_are_named(two: Path, tmp_path: Path) -> None:
    (two / "paper" / "fig2d" / "result.json").write_text("{}", encoding="utf-8")
    found = evidence(two)
    assert set(found.table["result"]) == {"figA9"}
    assert "fig2d" in found.damaged[0]
    with pytest.raises(ArtifactError, match="holds no result whose claims were judged"):
        evidence(tmp_path / "nowhere")


def test_words_find_claims() -> None:
    table = evidence().table
    assert {"fig2d-clusters-by-function"} <= set(matching(table, "fig. 2D cluster").index)
    assert set(matching(table, "table a2 differs")["verdict"]) == {"differs"}
    assert matching(table, "nothing says this").empty
    assert [titled(name) for name in ("fig5ab", "tabA1", "figA9")] == [
        "Fig. 5AB", "Table A1", "Fig. A9"]


@pytest.mark.parametrize(("rule", "estimates", "said"), [
    ("welch", [-1.5], "61.78"), ("exact", [1.0, 0.0], "holds in 1 of 2 so far"),
    ("exact", [0.0], "does not hold so far"), ("bound", [0.25], "0.25"),
    ("excess", [-0.13, 0.014, None], "-0.13 to +0.014"), ("permutation", [None], "")])
def test_ours_in_words(rule: str, estimates: list[float | None], said: str) -> None:
    claim = json.loads(json.dumps({
        "rule": {"name": rule}, "published": {"value": 63.28}, "verdict": "undecided",
        "parts": [{"estimate": value} for value in estimates]}))
    assert ours(claim) == said
