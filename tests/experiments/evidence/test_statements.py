"""Every rule of a study's claims passes, fails and stays undecided on tables that are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from latentcode.errors import ArtifactError, ConfigError, UnknownNameError
from latentcode.experiments.evidence.statements import Statement, judged, read_statements

CLAIM: dict[str, Any] = {"id": "the-claim", "claim": "Something holds.", "table": "scores",
                         "rows": {"features": "code"}, "by": [], "seen": None}


def statements(folder: Path, *claims: dict[str, Any]) -> tuple[Statement, ...]:
    path = folder / "claims.yaml"
    path.write_text(json.dumps([{**CLAIM, **changed} for changed in claims]), encoding="utf-8")
    return read_statements(path)


def table(*values: float, half: float = 0.05, kinds: str = "") -> pd.DataFrame:
    return pd.DataFrame({
        "features": "code", "kind": list(kinds or "a" * len(values)),
        "value": values, "low": [value - half for value in values],
        "high": [value + half for value in values]})


DIFFERENCE = {"name": "difference", "least": 0.1}
NOWHERE = {**DIFFERENCE, "differs": "nowhere above 0"}
BOUND = {"name": "bound", "side": "above", "bound": 0.5}
ORDERING = {"name": "ordering", "among": "kind", "higher": "a", "lower": "b"}
NUMBER = {"name": "number", "value": 0.5, "error": 0.01, "n": 3, "margin": 0.1}
IDENTITY = {"name": "identity", "equals": 0.5, "within": 0.001}


@pytest.mark.parametrize(("rule", "rows", "verdict"), [
    (DIFFERENCE, table(0.2, 0.3, 0.2), "agrees"),
    (DIFFERENCE, table(0.01, 0.02, 0.0), "differs"),
    (DIFFERENCE, table(0.2, 0.3, 0.0), "undecided"),  # one interval holds 0
    (DIFFERENCE, table(0.2, 0.3), "undecided"),  # two runs
    (DIFFERENCE, table(0.08, 0.09, 0.08), "undecided"),  # above 0, but by less
    (NOWHERE, table(0.04, 0.04, 0.04, half=0.2), "differs"),
    (DIFFERENCE, table(0.04, 0.04, 0.04, half=0.2), "undecided"),
    (BOUND, table(0.5, 0.6, 0.7), "agrees"),
    (BOUND, table(0.4, 0.3, 0.2), "differs"),
    (BOUND, table(0.4, 0.6, 0.7), "undecided"),
    (ORDERING, table(0.7, 0.8, 0.9, 0.1, 0.2, 0.3, kinds="aaabbb"), "agrees"),
    (ORDERING, table(0.7, 0.8, 0.9, 0.1, 0.2, 0.3, kinds="bbbaaa"), "differs"),
    (ORDERING, table(0.7, 0.8, 0.1, 0.9, 0.2, 0.3, kinds="aaabbb"), "undecided"),
    (NUMBER, table(0.49, 0.5, 0.51), "agrees"),
    (NUMBER, table(0.89, 0.9, 0.91), "differs"),
    (NUMBER, table(0.2, 0.5, 0.8), "undecided"),
    (IDENTITY, table(0.5, 0.5005), "agrees"),
    (IDENTITY, table(0.5, 0.51), "differs"),
    *((rule, table(*values, kinds="aaabbb"), "undecided") for values in (
        [float("nan")] * 6, [float("nan"), 0.1, 0.1, 0.9, 0.9, 0.9])
      for rule in (DIFFERENCE, NOWHERE, BOUND, ORDERING, NUMBER, IDENTITY)),
])
def test_a_rule_decides(
    tmp_path: Path, rule: dict[str, Any], rows: pd.DataFrame, verdict: str
) -> None:
    found = judged(statements(tmp_path, {"rule": rule}), {"scores": rows})
    assert found["verdict"].tolist() == [verdict]


def test_places_are_judged_by_themselves(tmp_path: Path) -> None:
    claims = statements(tmp_path, {"rule": DIFFERENCE, "by": ["kind"]})
    rows = table(0.2, 0.3, 0.2, 0.0, 0.0, 0.0, kinds="aaabbb")
    found = judged(claims, {"scores": rows}).set_index("place")
    assert found["verdict"].to_dict() == {"a": "agrees", "b": "differs"}
    assert found.loc["a", "estimate"] == pytest.approx(0.7 / 3)


def test_places_without_a_name_are_judged_too(tmp_path: Path) -> None:
    rows = table(0.2, 0.3, 0.2).assign(width=float("nan"))
    found = judged(statements(tmp_path, {"rule": DIFFERENCE, "by": ["width"]}), {"scores": rows})
    assert found["verdict"].tolist() == ["agrees"]


@pytest.mark.parametrize("rule", [DIFFERENCE, BOUND, NUMBER, ORDERING])
def test_several_rows_of_a_run_are_not_several_runs(
    tmp_path: Path, rule: dict[str, Any]
) -> None:
    rows = table(0.2, 0.3, 0.2, 0.2, kinds="aaab").assign(run="one", layer=[0, 1, 2, 0])
    with pytest.raises(ConfigError, match=r"\d rows of run one.* differ in .*layer,"):
        judged(statements(tmp_path, {"rule": rule}), {"scores": rows})


@pytest.mark.parametrize(("changed", "error", "named"), [
    ({"table": "other"}, UnknownNameError, "other"),
    ({"rows": {"layers": 1}}, UnknownNameError, "layers"),
    ({"rows": {"features": "residual"}}, UnknownNameError, "residual"),
    ({"by": ["seed"]}, UnknownNameError, "seed"),
    ({"rule": {"name": "difference"}}, ConfigError, "least"),
    ({"rule": {"name": "guess"}}, UnknownNameError, "guess"),
    ({"rule": {**ORDERING, "lower": "c"}}, UnknownNameError, "'c'"),
    ({"seen": []}, ConfigError, "seen"),
])
def test_a_claim_that_cannot_be_judged_is_one_error(
    tmp_path: Path, changed: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        judged(statements(tmp_path, {"rule": DIFFERENCE, **changed}),
               {"scores": table(0.2, 0.3, 0.2)})


def test_a_file_of_claims_has_every_id_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the-claim"):
        statements(tmp_path, *2 * [{"rule": DIFFERENCE}])
    with pytest.raises(ArtifactError, match="nowhere"):
        read_statements(tmp_path / "nowhere.yaml")
