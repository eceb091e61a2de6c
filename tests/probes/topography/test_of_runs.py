"""Do results of several runs say which runs they are of, and take the right numbers from them?"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

import latentcode as lc
from latentcode.probes.alignment.of_runs import align
from latentcode.probes.topography.of_runs import topography


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[lc.Run]:
    """Return two kinds of one seed, and one of another."""
    folder = tmp_path_factory.mktemp("runs")
    found = []
    for kind, seed in (("softmax", 0), ("hyla", 0), ("softmax", 1)):
        config = lc.preset("smoke", "sraven", kind)
        training = replace(config.training, seed=seed, steps=4, warmup_steps=1, eval_every=2)
        found.append(lc.train(replace(config, training=training), folder / f"{kind}{seed}",
                              progress=False))
    return found


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
    found = topography(runs[:1], ["rule"], n=100, layers=[1], n_permutations=100,
                               n_bootstrap=100).runs
    assert found["metric"].tolist() == [metric]
    assert found["performance"].tolist() == [last]
    monkeypatch.setattr(lc.Run, "metrics", lambda self: table)
    found = topography(runs[:1], ["rule"], n=100, layers=[1], n_permutations=100,
                               n_bootstrap=100).runs
    assert found["performance"].tolist() == [0.3]


def test_all_runs_are_named_as_the_origin(runs: list[lc.Run]) -> None:
    settings = topography(runs[:2], ["rule"], n=100, layers=[1], n_permutations=100,
                                  n_bootstrap=100).settings
    assert [o["run_id"] for o in settings["codes"]] == [run.id for run in runs[:2]]
    assert all(o["n"] == 100 and o["task"] for o in settings["codes"])


def test_runs_that_began_alike_are_not_summarised(runs: list[lc.Run]) -> None:
    found = align(runs, ["rule"], n_train=100, n_heldout=80, layers=[1], n_bootstrap=100)
    assert found.settings["initial_seeds"] == {"softmax0": 0, "hyla0": 0, "softmax1": 1}
    assert (found.settings["n_train"], found.settings["n_heldout"]) == (100, 80)
    assert any("the same seed" in note and note.endswith(": softmax0 and hyla0.")
               for note in found.caveats)
