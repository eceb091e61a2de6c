"""Does the page for those who have a language model run as it stands, and is it right?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import pytest
from page_blocks import run_page
from places import ROOT

from latentcode.experiments.examples import small_language_models
from latentcode.probes.common.results import where
from latentcode.probes.heads import HeadsResult
from tests.experiments.notebooks.test_notebooks import CHECKS, read

PAGE = (ROOT / "docs" / "language_model.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    folder = tmp_path_factory.mktemp("language_model")
    return {**run_page(PAGE, folder, ("said()",)), "folder": folder}


@pytest.mark.slow
def test_the_notebook_asks_the_same_of_the_same_model(
    ran: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ran["folder"])
    monkeypatch.setattr(small_language_models, "main", lambda folder, **_: None)  # it is there
    names: dict[str, Any] = {}
    for cell in read("language_model")["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    exec(CHECKS["language_model"], names)
    assert (names["flips"].loc["interchange z"]["difference_low"] > 0).sum() == 1
    pd.testing.assert_frame_equal(names["heads"].effects, ran["heads"].effects)


@pytest.mark.slow
def test_what_is_said_of_texts(ran: Mapping[str, Any]) -> None:
    read: HeadsResult = ran["read"]
    assert (read.matrix("induction").loc[1] > 0.9).all()
    assert read.matrix("previous_token").loc[0].between(0.45, 0.65).all()
    alone = where(read.effects, patch="mean", quantity="loss")
    assert (alone["value"] < 0.1).all()
    sets: pd.DataFrame = where(read.sets, how="pair").set_index("heads")
    layers = [set(name.replace(".", " ").split()[::2]) for name in sets.index]
    assert (sets["acts"][[len(of) == 1 for of in layers]] == "redundant").all()
    assert sets.loc["0.0 0.1", "difference"] == pytest.approx(0.90, abs=0.1)
    assert sets.loc["0.0 0.1", "difference_low"] > 0.5
    of_layer_1 = sets[[of == {"1"} for of in layers]]
    assert len(of_layer_1) > 0
    assert not (of_layer_1["difference_low"] > 0).any()
    assert (where(read.sets, how="random")["acts"] == "redundant").mean() > 0.5
    assert len(read.nearest_codes(0)) == 10


@pytest.mark.slow
def test_the_command_writes_a_result(ran: Mapping[str, Any]) -> None:
    saved = HeadsResult.load(ran["folder"] / "results/heads")
    assert len(where(saved.heads, metric="induction")) == 8
    assert (ran["folder"] / "heads.png").stat().st_size > 10_000
