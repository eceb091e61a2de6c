"""What was found of architectures is found again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from places import ROOT

from latentcode.experiments.studies.bridges.checking import check_architecture
from latentcode.experiments.studies.bridges.reasons import by_reason, failing
from latentcode.experiments.studies.bridges.small_models import NotBuiltError, make, names
from latentcode.files.provenance import package_version
from latentcode.probes.common.results import where
from latentcode.probes.model_checks.questions import VERBS

TABLES = {path.stem: pd.read_csv(path, keep_default_na=False)
          for path in (ROOT / "experiments" / "results" / "bridges" / "tables").glob("*.csv")}
FOUND = TABLES["architectures"].set_index("architecture")["outcome"]
same_versions = pytest.mark.skipif(
    any(package_version(row.package) != row.version for row in TABLES["versions"].itertuples()),
    reason="the results are of other versions of TransformerLens or transformers")


def rows(table: str, name: str, *columns: str) -> list[dict[str, Any]]:
    """Return the rows of an architecture in a committed table, as text."""
    found = where(TABLES[table], architecture=name).astype(str)
    return (found[list(columns)] if columns else found).to_dict("records")


def test_what_is_not_tried_has_a_reason(tmp_path: Path) -> None:
    for name, message in (("T5ForConditionalGeneration", "a text alone"),
                          ("BaichuanForCausalLM", "no class of this name"),
                          ("Gemma3ForConditionalGeneration", "images or sound")):
        with pytest.raises(NotBuiltError, match=message):
            make(name, tmp_path / name)
        assert check_architecture(name) == {
            "architectures": rows("architectures", name), "precisions": [], "worst": []}


def test_what_fails_is_told_with_its_number_or_its_note() -> None:
    worst = pd.DataFrame([
        {"check": "patch", "value": 0.0, "outcome": "fails", "note": ""},
        {"check": "rows", "value": 0.81234, "outcome": "fails", "note": "never shown"},
        {"check": "values", "value": float("nan"), "outcome": "fails",
         "note": "the bridge shows no values. And more"},
        {"check": "codes", "value": 1.0, "outcome": "holds", "note": ""}])
    assert failing(worst) == "rows (0.81), values (the bridge shows no values), patch (0)"


def test_architectures_with_one_reason_stand_together() -> None:
    found = by_reason(pd.Series({"A": "model is a A, so | so", "B": "other", "C, x": "so | so"}))
    assert found.to_dict("records") == [{"why": r"so \| so", "architectures": "`A`, `C, x`"},
                                        {"why": "other", "architectures": "`B`"}]


@same_versions
def test_no_architecture_is_left_out() -> None:
    assert set(FOUND.index) == set(names())


@same_versions
@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND.index[FOUND != "not built"])
def test_an_architecture_is_as_the_results_say(name: str) -> None:
    now = check_architecture(name)
    assert now["architectures"] == rows("architectures", name)
    columns = "dtype", "reason", "failed", *VERBS
    assert [{column: str(row.get(column, "")) for column in columns}
            for row in now["precisions"]] == rows("precisions", name, *columns)
