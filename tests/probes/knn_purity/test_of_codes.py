"""Does the result of kNN purity find what was planted, beside its controls, and keep it?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError
from latentcode.probes.common.results import where
from latentcode.probes.knn_purity.purity import ALL, OTHER, purity
from latentcode.probes.knn_purity.result import KNNPurityResult
from latentcode.probes.knn_purity.separation import knn_purity_codes

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


def test_a_balanced_mean_has_an_interval_about_it(result: KNNPurityResult) -> None:
    known = result.table[np.isfinite(result.table["low"])]
    assert (known["low"] <= known["high"]).all()
    noise = where(known, layer=0, features="code", among=ALL, label="target")
    assert noise["low"].item() < 0.5 < noise["high"].item() + 0.1


def test_it_is_shown(result: KNNPurityResult, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "knn_purity")
    assert (folder / "figure.png").stat().st_size > 1_000
    text = repr(result)
    assert "median, above it or not: target." in text
    assert "Without controls" not in text
    assert len(result.summary()) == 2 * 4  # four labels, two layers


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


def test_codes_without_combinations_have_neighbours_too(planted: Planted) -> None:
    codes = planted("ood")
    labels = codes.labels.drop(columns="combination")
    found = knn_purity_codes(
        LatentCodes(codes.scores, labels, codes.pairs, codes.layers, codes.meta), "term_1",
        controls=False, layers=1, pairs=PAIR, n_bootstrap=100)
    assert set(found.table["among"]) == {ALL}
    assert found.table["excess"].item() > 0.7
    assert OTHER not in found.summary()
