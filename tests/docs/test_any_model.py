"""Does the page on any model run, line by line, and do its models answer as it says?"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from page_blocks import BLOCK, run_page
from places import ROOT

from latentcode.probes.common.results import where
from latentcode.probes.das import DASResult
from latentcode.probes.decoding import DecodingResult
from latentcode.probes.interventions import InterventionResult

PAGE = (ROOT / "docs" / "any_model.md").read_text(encoding="utf-8")
MEASURED = ("closest classes", "nearest", "small set")
"""What blocks have whose words are measured, too."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Run every block in order, and return the names that are there at the end."""
    folder = tmp_path_factory.mktemp("any_model")
    names = dict(run_page(PAGE, folder, MEASURED))
    with contextlib.chdir(folder):
        names["saved"] = {kind: kind.load(Path("results", name)) for name, kind in (
            ("decoding", DecodingResult), ("intervention", InterventionResult),
            ("das", DASResult))}
    return names


def value(table: pd.DataFrame, **rows: Any) -> float:
    """Return the value of a single row."""
    return float(where(table, **rows)["value"].item())


@pytest.mark.slow
def test_the_page_runs_and_prints_what_it_shows(ran: Mapping[str, Any]) -> None:
    assert all(kind != "python" or shown or ("print(" not in block and "show(" not in block)
               or "def show" in block for kind, block, shown in BLOCK.findall(PAGE))
    assert set(ran["MODELS"]) == {"gpt2", "text-softmax", "sraven-hyla"}


@pytest.mark.slow
def test_the_models_have_learnt_what_they_are_asked(ran: Mapping[str, Any]) -> None:
    assert ran["patched"]["gpt2"].settings["n_known"] == 96


@pytest.mark.slow
def test_what_is_said_of_decoding(ran: Mapping[str, Any]) -> None:
    table = ran["decoded"]["gpt2"].table
    code, residual, untrained, shuffled = (
        value(table, features=features, layer=1)
        for features in ("code", "residual", "untrained", "shuffled"))
    assert residual - 0.2 > code > untrained > shuffled
    rows = where(ran["rows"]["gpt2"].table, label="operation")
    trained, untrained = (value(rows, features=of) for of in ("row", "untrained row"))
    assert untrained > trained > code
    assert value(where(ran["rows"]["gpt2"].table, label="operands"), features="row") == 0.0
    text = where(ran["decoded"]["text-softmax"].table, layer=1, features="code")
    assert text["value"].item() <= text["chance"].item()


@pytest.mark.slow
def test_what_is_said_of_causes(ran: Mapping[str, Any]) -> None:
    def brought(name: str, site: str, layer: int) -> float:
        return value(ran["patched"][name].table, site=site, layers=str(layer), metric="operation")

    assert brought("gpt2", "value", 0) > 0.9
    assert max(brought("gpt2", "code", 0), brought("gpt2", "code", 1)) < 0.1
    assert brought("text-softmax", "code", 1) > 0.8
    assert brought("text-softmax", "value", 0) > 0.9
    assert brought("sraven-hyla", "code", 0) > 0.8
    every = {name: result.smallest.set_index("site")["held_all"] for name, result in
             ran["hangs"].items()}
    for name in ("gpt2", "text-softmax"):
        assert every[name]["value"] > 0.6 > 0.2 > every[name]["code"], name
    assert every["sraven-hyla"]["code"] > 0.9

    def carried(search: str) -> float:
        return value(ran["found"]["gpt2"].table, search=search, source="operation+operands",
                     **{"class": "operation"})

    assert carried("trained") > carried("shuffled") > carried("random")
    assert carried("whole") == 0.0


@pytest.mark.slow
def test_commands_give_what_functions_give(ran: Mapping[str, Any]) -> None:
    saved = ran["saved"]
    commanded = saved[DecodingResult].table.query("metric == 'accuracy' and features == 'code'")
    table = ran["decoded"]["gpt2"].table.query("features == 'code'")
    assert commanded["value"].tolist() == table["value"].tolist()
    assert saved[InterventionResult].settings["n_known"] == 96
    assert saved[InterventionResult].settings["factorial"]
    assert set(saved[DASResult].table["search"]) == {"trained", "shuffled", "random", "whole"}
