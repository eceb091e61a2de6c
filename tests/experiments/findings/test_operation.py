"""The study of the operation runs on a small run, and its verdicts follow the criteria."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from places import ROOT

from latentcode.experiments.findings import operation
from latentcode.metrics import CLASSES

RUN = ROOT / "experiments/results/runs/sraven_confirm/seed=3,split_seed=3,kind=hyla"


def rows(*lows: float, value: float = 0.3, against: str = "operands") -> pd.DataFrame:
    return pd.DataFrame([{"run": f"run {i}", "direction": "both", "against": against,
                          "value": value, "low": low} for i, low in enumerate(lows)])


@pytest.mark.parametrize(("differences", "expected"), [
    (rows(0.1, 0.2, 0.1), "met"),
    (rows(0.1, 0.2, 0.1, value=0.05), "undecided"),
    (rows(0.1, -0.2, 0.1), "undecided"),
    (rows(0.1, 0.2), "undecided"),
    (rows(-0.1, 0.0, -0.2), "refuted"),
    (pd.concat([rows(0.1, 0.2, 0.1), rows(-0.1, -0.1, 0.0, against="unrelated")]), "refuted"),
    (pd.concat([rows(0.1, 0.2, 0.1), rows(-0.1, 0.1, 0.1, against="unrelated")]), "undecided")])
def test_a_verdict_needs_every_run_and_every_control(
    differences: pd.DataFrame, expected: str
) -> None:
    assert operation.verdict(differences, least=0.1, fewest=3) == expected


def test_runs_that_were_looked_at_do_not_count_for_what_was_chosen_on_them() -> None:
    criteria = operation.read_criteria(published=True)
    asked = {one.name: one for one in operation.statements(
        criteria, ("context", "operands", "response"))}
    chosen = asked["codes of all other queries carry the operation"]
    assert chosen.leave_out == ("seed=0,split_seed=0,kind=linear", "seed=1,split_seed=1,kind=hyla")
    assert chosen.fewest == 2
    assert str(chosen.patch.where) == "outside context"
    mean = asked["the mean code of a rule at the context carries the operation"]
    assert [patch.named for patch in mean.controls] == [
        "class_mean_base", "class_mean_third", "class_mean_group"]
    assert not mean.refuters
    assert not asked.keys() & {name for name in operation.read_criteria(False)["words"]
                               if "all other" in name}


@pytest.mark.slow
def test_a_run_is_measured_from_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operation.main((str(RUN),), tmp_path, n=16)
    judged = pd.read_csv(tmp_path / "verdicts.csv")
    assert set(judged["verdict"]) == {"undecided"}  # one run decides nothing
    assert set(judged["statement"]) == set(operation.read_criteria(False)["words"])
    rates = pd.read_csv(tmp_path / "rates.csv")
    assert set(rates["direction"]) == {"to sum", "from sum"}
    assert rates.loc[rates["metric"].isin(CLASSES), "value"].between(0, 1).all()
    assert "codes at the context carry the operation" in capsys.readouterr().out
