"""Does the study's page show what the results hold?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.errors import RunError
from latentcode.experiments.studies.rows.__main__ import Study
from latentcode.experiments.studies.rows.jobs import Job


@pytest.mark.slow
def test_the_page_shows_the_results(
    smoke_run: Callable[[str, str], lc.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once computed, nothing is computed again; the cells are the numbers of the results."""
    run = smoke_run("sraven", "hyla")
    about = {"run": "hyla", "kind": "hyla", "step": 30}
    how = {"features": ("code", "residual"), "layers": (0, 1), "widths": (128,)}
    planned = [Job("first", run, about | {"part": "sraven", "seed": 0}, how),
               Job("step", run, about | {"part": "milestones", "seed": 0, "step": 15},
                   how | {"controls": False})]
    module = "latentcode.experiments.studies.rows.__main__"
    monkeypatch.setattr(f"{module}.jobs", lambda *folders: planned)
    study = Study(out=tmp_path / "out", work=tmp_path / "work", n=200)
    study.run()
    monkeypatch.setattr(f"{module}.decode", lambda *args, **how: pytest.fail("again"))
    study.run()
    page = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    table = lc.DecodingResult.load(tmp_path / "work" / "first").table
    row = table[(table["layer"] == 1) & (table["metric"] == "accuracy")
                & (table["label"] == "rule")].set_index("features")["value"]
    cell = " / ".join(f"{row[f'{model}residual']:.2f}" for model in ("", "untrained ", "shuffled "))
    assert f"| hyla | residual | 1 | {cell} |" in page
    assert "| hyla | code | 0 | nothing to read |" in page
    assert (tmp_path / "out" / "figures" / "milestones.png").exists()
    assert {path.name for path in (tmp_path / "out" / "tables").iterdir()} == {
        "scores.csv", "given.csv"}
    # The tables have four digits, so that a number may be rounded otherwise.
    replace(study, work=tmp_path / "nothing", page_only=True).run()
    again = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert [line.split(" | ")[:3] for line in again.splitlines()] == [
        line.split(" | ")[:3] for line in page.splitlines()]


def test_a_page_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no tables"):
        Study(out=tmp_path, work=tmp_path / "work", sraven=tmp_path, page_only=True).run()
