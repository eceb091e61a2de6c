"""Are runs joined under their names, and with the right performance?"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import latentcode as lc
from latentcode.probes.topography.correlation import topography

FEW: dict[str, Any] = {"n": 100, "layers": [1], "n_permutations": 100, "n_bootstrap": 100}


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
    result = topography(runs[:2], labels=["rule"], **FEW)
    assert result.runs["metric"].tolist() == [metric] * 2
    assert result.runs["performance"].iloc[0] == last
    origins = result.settings["codes"]
    assert [origin["run_id"] for origin in origins] == [run.id for run in runs[:2]]
    assert all(origin["n"] == 100 and origin["task"] for origin in origins)
    monkeypatch.setattr(lc.Run, "metrics", lambda self: table)
    found = topography(runs[:1], labels=["rule"], **FEW).runs
    assert found["performance"].tolist() == [0.3]
