"""The commands that ask a question: what they write and print, and what they refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import latentcode as lc
from latentcode.cli import main
from latentcode.probes.common.results import load_result
from latentcode.probes.projection import ProjectionResult

Words = Callable[[str], list[str]]


@pytest.fixture
def words(run: lc.Run, sraven: Callable[[str, int], str]) -> Words:
    """The words of a command, in which LOGIC, SOFTMAX-0 and HYLA-1 stand for folders of runs."""
    def word(text: str) -> str:
        of_sraven = re.fullmatch(r"(SOFTMAX|HYLA)-(\d)", text)
        if of_sraven:
            return sraven(of_sraven[1].lower(), int(of_sraven[2]))
        return str(run.path) if text == "LOGIC" else text

    return lambda command: [word(text) for text in command.split()]


slow = pytest.mark.slow


@pytest.mark.parametrize(("command", "printed", "table", "column", "values"), [
    ("align SOFTMAX-0 SOFTMAX-1 --n-train 200 --n-heldout 200 --layers 1",
     "Run softmax1 was trained on", "transfer", "features", "code, residual, untrained"),
    ("knn-purity SOFTMAX-0 --n 200", "of other combinations", "table", "label",
     "combination, rule, target"),
    ("similarity SOFTMAX-0 --label rule --n 300", "participation_ratio", "concentration",
     "features", "code, residual, untrained"),
    ("topography SOFTMAX-0 SOFTMAX-1 HYLA-0 HYLA-1 --n 200 --layers 1",
     "4 runs find a rank correlation", "correlation", "scope", "all runs, within kind"),
    ("topography LOGIC --n 200 --layers 1 --labels terms", "literals", "table", "unit",
     "means"),
    ("value-networks LOGIC --labels term_1 --n 128 --n-inputs 16 --layers 1", "", "networks",
     "label", "term_1"),
    pytest.param("decode HYLA-0 --features code row --layers 1 --widths 4 --beyond-answer --labels "
                 "rule --n-train 200 --n-heldout 200", "", "given", "given",
                 "answer, answer and operands", marks=slow),
    pytest.param("attribute logic-hyla --n 60 --n-patched 8 --sites value --source operands",
                 "no set is looked for", "maps", "key", "example, query", marks=slow),
    pytest.param("das logic-hyla --layer 0 --rank 2 --n 60 --n-train 100 --steps 50", "", "table",
                 "search", "random, shuffled, trained, untrained, whole", marks=slow),
], ids=lambda value: value.split()[0] if isinstance(value, str) and "--" in value else "")
def test_a_question_is_answered_saved_and_shown(
    command: str, printed: str, table: str, column: str, values: str, words: Words, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], refused: Callable[..., str],
) -> None:
    out, asked = tmp_path / "result", words(command)
    main([*asked, "--out", str(out)])
    said = capsys.readouterr().out
    assert printed in said
    assert f"wrote result {out}" in said
    assert set(values.split(", ")) <= set(getattr(load_result(out), table)[column])
    assert max(picture.stat().st_size for picture in out.glob("*.png")) > 1_000
    main(["show", str(out)])
    assert capsys.readouterr().out.strip() in said
    assert "exists already" in refused(*asked, "--out", out)


@pytest.mark.parametrize(("command", "message"), [
    ("align LOGIC", "1 model is given: softmax; expected at least 2"),
    ("align LOGIC LOGIC", "expected different names"),
    ("align LOGIC SOFTMAX-0", "expected runs of one task"),
    ("attribute HYLA-0 --source rest", "unknown source 'rest'; expected one of: interchange, oper"),
    ("attribute HYLA-0 --sites mlp", "unknown site 'mlp'; expected one of: code, value"),
    ("attribute HYLA-0 --sites code code", "sites repeats code"),
    ("attribute HYLA-0 --n-patched 2", "n_patched is 2; expected a whole number of at least 4"),
    ("attribute HYLA-0 --n 100", "Is it trained, and n large enough?"),
    ("das logic-hyla --objective operands operands", "objectives repeats operands"),
    ("das logic-hyla --rank 0", "rank is 0; expected a whole number of at least 1"),
    ("das logic-hyla --steps 0", "steps is 0; expected a whole number of at least 1"),
    ("das logic-hyla --n 0", "n is 0; expected a whole number of at least 1"),
    ("das logic-hyla --n-train -1", "n_train is -1; expected a whole number of at least 1"),
    ("das logic-hyla --layer 9", "layer 9"),
    ("knn-purity SOFTMAX-0 --labels colour --n 50", "unknown label 'colour'"),
    ("similarity SOFTMAX-0 --label colour --n 50", "unknown label 'colour'"),
    ("value-networks LOGIC --labels terms", "several columns"),
    ("value-networks nowhere", "nowhere"),
    ("project LOGIC --method pca --perplexity 3", "unknown setting of pca 'perplexity'"),
    ("project LOGIC --n 0", "n is 0"),
])
def test_what_cannot_be_asked_is_said(
    command: str, message: str, words: Words, tmp_path: Path, refused: Callable[..., str]
) -> None:
    assert message in refused(*words(command), "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


# --- A projection, of a run and of its codes ------------------------------------------------------


def test_project_a_run_then_its_codes(
    run: lc.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    main(["project", str(run.path), "--method", "pca", "--splits", "ood", "train", "--n", "60",
          "--out", str(tmp_path / "of_run")])
    assert f"wrote result {tmp_path / 'of_run'}" in capsys.readouterr().out
    table = pd.read_parquet(tmp_path / "of_run" / "coordinates.parquet")
    assert {"projection_x", "projection_y", "term_1", "term_2", "combination"} <= set(table)
    assert table.groupby(["split", "layer"]).size().eq(60).all()
    settings = json.loads((tmp_path / "of_run" / "projection.json").read_text())["settings"]
    assert settings["method"]["name"] == "pca"
    assert settings["labels"] == ["term_1", "term_2"]
    assert {"trustworthiness", "points"} <= set(settings["quality"][0])
    assert (tmp_path / "cache").is_dir()

    problems = replace(run.config.task, inputs="fixed_context")
    for split in ("ood", "train"):
        lc.extract(run, problems, split=split, n=80, out=tmp_path / split)
    main(["project", str(tmp_path / "ood"), str(tmp_path / "train"), "--method", "pca", "--labels",
          "term_1", "--n", "60", "--out", str(tmp_path / "of_codes")])
    first, second = (ProjectionResult.load(tmp_path / name) for name in ("of_run", "of_codes"))
    pd.testing.assert_frame_equal(first.quality, second.quality)  # the same codes


def test_what_cannot_be_projected_of_codes_is_said(
    run: lc.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    out, codes = tmp_path / "x", tmp_path / "codes"
    main(["extract", str(run.path), "--n", "20", "--out", str(codes)])
    for arguments, message in (
        ([], "labels are missing"),
        (["--labels", "term_1", "--splits", "train"], "have their own split"),
        ([run.path, "--labels", "term_1"], "2 folders are given"),
        (["--labels", "rule"], "unknown label 'rule'"),
        (["--labels", "term_1", "--perplexity", "30"], "perplexity is 30 for 20 points"),
    ):
        assert message in refused("project", codes, *arguments, "--out", out)
    assert not out.exists()
