"""Are runs joined under their names, and with the right performance?"""

from __future__ import annotations

import pandas as pd
import pytest

import latentcode as lc
from latentcode.probes.topography.correlation import topography


def test_performance_is_the_newest_on_heldout_combinations(
    runs: list[lc.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    metric = "accuracy"
    rows = [(1, "ood", metric, 0.1), (2, "train", metric, 0.9), (2, "ood", metric, 0.3),
            (2, "ood", "loss", 5.0), (2, "train", metric, 0.8)]
    table = pd.DataFrame(rows, columns=["step", "split", "metric", "mean"])
    recorded = runs[0].metrics()
    assert set(table) <= set(recorded)
    last = recorded[(recorded["split"] == "ood") & (recorded["metric"] == metric)]["mean"].iloc[-1]
    found = topography(runs[:1], labels=["rule"], n=100, layers=[1], n_permutations=100,
                       n_bootstrap=100).runs
    assert found["metric"].tolist() == [metric]
    assert found["performance"].tolist() == [last]
    monkeypatch.setattr(lc.Run, "metrics", lambda self: table)
    found = topography(runs[:1], labels=["rule"], n=100, layers=[1], n_permutations=100,
                       n_bootstrap=100).runs
    assert found["performance"].tolist() == [0.3]


def test_all_runs_are_named_as_the_origin(runs: list[lc.Run]) -> None:
    settings = topography(runs[:2], labels=["rule"], n=100, layers=[1], n_permutations=100,
                          n_bootstrap=100).settings
    assert [o["run_id"] for o in settings["codes"]] == [run.id for run in runs[:2]]
    assert all(o["n"] == 100 and o["task"] for o in settings["codes"])
