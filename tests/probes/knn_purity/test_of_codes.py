"""Does the result of kNN purity find what was planted, beside its controls, and keep it?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import latentcode as lc
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, UnknownNameError
from latentcode.probes.common.results import where
from latentcode.probes.knn_purity.purity import ALL, OTHER, purity
from latentcode.probes.knn_purity.result import KNNPurityResult
from latentcode.probes.knn_purity.separation import knn_purity_codes
from latentcode.probes.saved import load_result

Planted = Callable[..., LatentCodes]
PAIR = "query->query"


@pytest.fixture(scope="module")
def result(planted: Planted) -> KNNPurityResult:
    return knn_purity_codes(planted("ood"), untrained=planted("ood", strength=0.0), pairs=PAIR,
                            n_bootstrap=200)


def test_the_numbers_are_those_of_the_arrays(result: KNNPurityResult, planted: Planted) -> None:
    codes = planted("ood")
    wanted = purity(codes.select(layer=1, pair=PAIR), {"target": codes.labels["target"]},
                    combinations=codes.labels["combination"].to_numpy()).set_index("among")
    found = where(result.table, layer=1, label="target", features="code").set_index("among")
    for mine, theirs in (("value", "purity"), ("values", "values")):
        pd.testing.assert_series_equal(found[mine], wanted[theirs], check_names=False)
    assert set(result.table["features"]) == {"code", "residual", "untrained"}
    assert result.settings["cut"] == ["target"]


def test_each_combination_is_a_cluster_which_is_no_excess(result: KNNPurityResult) -> None:
    # The six held-out combinations lie apart: a term is pure because of them alone.
    best = result.best(layer=1, pair=PAIR).set_index("label")
    assert best.loc["combination", "value"] == 1.0
    assert best.loc["term", "value"] == 1.0
    assert best["excess"].max() < 0.1
    others = result.best(layer=1, pair=PAIR, among=OTHER).set_index("label")
    assert np.isnan(others.loc["combination", "value"])
    # 0+3 and 0+5 share the first term, 1+4 and 1+2, too: other combinations tell it, in part.
    assert others.loc["term", "excess"] > 0.15
    assert others.loc["term", "low"] <= others.loc["term", "value"] <= others.loc["term", "high"]
    untrained = where(result.table, layer=1, features="untrained", among=ALL).set_index("label")
    assert untrained.loc["combination", "value"] < 0.4


def test_a_balanced_mean_has_an_interval_about_it(result: KNNPurityResult) -> None:
    known = result.table[np.isfinite(result.table["low"])]
    assert (known["low"] <= known["high"]).all()
    noise = where(known, layer=0, features="code", among=ALL, label="target")
    assert noise["low"].item() < 0.5 < noise["high"].item() + 0.1


def test_it_is_shown_and_kept(result: KNNPurityResult, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "knn_purity")
    again = load_result(folder)
    assert isinstance(again, KNNPurityResult)
    pd.testing.assert_frame_equal(again.table, result.table)
    assert (folder / "figure.png").stat().st_size > 1_000
    text = repr(result)
    assert "median, above it or not: target." in text
    assert "Without controls" not in text
    summary = result.summary()
    assert list(summary.columns) == ["pair", "layer", "label", "code", "residual", "untrained",
                                     "shuffled", OTHER]
    assert len(summary) == 2 * 4  # four labels, two layers


def test_what_is_the_same_in_all_instances_separates_nothing(planted: Planted) -> None:
    codes = planted("ood")
    scores = codes.scores.copy()
    scores[:, 0] = 1.0
    same = LatentCodes(scores, codes.labels, codes.pairs, codes.layers, codes.meta)
    found = knn_purity_codes(same, "term_1", controls=False, pairs=PAIR, n_bootstrap=100)
    assert set(found.table["layer"]) == {1}
    _, note = found.caveats
    assert note.startswith("The code of layer 0, query->query is the same")
    with pytest.raises(ProbeError, match="all codes are the same at every layer and pair"):
        knn_purity_codes(same, "term_1", controls=False, layers=0, n_bootstrap=100)


def test_what_cannot_be_asked_is_named(planted: Planted) -> None:
    codes = planted("ood")
    with pytest.raises(ProbeError, match="not reported without its controls"):
        knn_purity_codes(codes)
    with pytest.raises(UnknownNameError, match="unknown label 'hue'"):
        knn_purity_codes(codes, ["hue"], controls=False)
    with pytest.raises(ProbeError, match="labels repeats term_1"):
        knn_purity_codes(codes, ["term_1", "term_1"], controls=False)
    with pytest.raises(ProbeError, match="no label is given"):
        knn_purity_codes(codes, (), controls=False)
    with pytest.raises(ProbeError, match="k is 0; expected a whole"):
        knn_purity_codes(codes, controls=False, k=0)


def test_codes_without_combinations_have_neighbours_too(planted: Planted) -> None:
    codes = planted("ood")
    labels = codes.labels.drop(columns="combination")
    found = knn_purity_codes(
        LatentCodes(codes.scores, labels, codes.pairs, codes.layers, codes.meta), "term_1",
        controls=False, layers=1, pairs=PAIR, n_bootstrap=100)
    assert set(found.table["among"]) == {ALL}
    assert found.table["excess"].item() > 0.7
    assert OTHER not in found.summary()


def test_a_run_separates_as_its_codes(runs: list[lc.Run]) -> None:
    run = runs[0]
    found = lc.knn_purity(run.path, labels={"even": lambda batch: batch.targets[:, 0] % 2 == 0},
                          n=60, layers=1, n_bootstrap=100)
    task = lc.make_task(run.config.task).probe_config
    codes = lc.extract(run, split="ood", n=60, layers=1, problems=task)
    even = lc.instances(task, "ood", 60).targets[:, 0] % 2 == 0
    wanted = knn_purity_codes(codes.with_labels(even=even), "even", controls=False,
                              n_bootstrap=100)
    pd.testing.assert_frame_equal(
        where(found.table, features="code").reset_index(drop=True), wanted.table)
