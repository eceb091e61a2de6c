"""Is a contrast the difference of two scores, over the same problems and combinations?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from decoded_codes import decode_codes

import latentcode as lc
from latentcode.codes import LatentCodes
from latentcode.probes.common.harness import read
from latentcode.probes.common.results import where
from latentcode.probes.common.statistics import (
    MOST_SAID,
    Contrasts,
    Resampled,
    balanced_accuracy,
    contrast_columns,
    count_by_cluster,
    paired_rates,
    resample,
)
from latentcode.probes.decoding import DecodingResult, decode_readings
from latentcode.probes.knn_purity import ALL
from latentcode.subjects.base import CodesSubject

Planted = Callable[..., LatentCodes]
CLUSTERS = np.repeat(np.arange(10), 20)
RIGHT = np.arange(200) % 2
TRUTH = np.eye(2, dtype=bool)[RIGHT]


def score(answer: np.ndarray) -> Resampled:
    weights = resample(10, 500, np.random.default_rng(0))
    counts = count_by_cluster(TRUTH, np.eye(2, dtype=bool)[answer], CLUSTERS)
    return Resampled(float(balanced_accuracy(counts.sum(1))), balanced_accuracy(weights @ counts),
                     200, 10)


def test_difference_from_itself_is_nothing() -> None:
    found = score(np.random.default_rng(1).integers(2, size=200))
    assert (found - found).row() == {"value": 0.0, "low": 0.0, "high": 0.0, "n": 200,
                                     "n_clusters": 10}


def test_differences_are_paired_by_combination() -> None:
    """Both are right in the even combinations and one in every instance beside: sure, though
    either score is not."""
    even = CLUSTERS % 2 == 0
    worse = score(np.where(even, RIGHT, 1 - RIGHT))
    better = score(np.where(even | (np.arange(200) % 20 < 4), RIGHT, 1 - RIGHT))
    own, difference = worse.row(), (better - worse).row()
    assert own["value"] == 0.5
    assert own["high"] - own["low"] > 0.4
    assert difference["value"] == pytest.approx(0.1)
    assert 0.0 < difference["low"] < 0.1 < difference["high"] < 0.2


def test_rates_are_of_the_instances_that_both_count_and_whole_combinations() -> None:
    n = np.arange(16)
    ours = pd.DataFrame({"number": n, "combination": n // 2, "flip": (n < 8).astype(float)})
    theirs = ours.assign(flip=(n >= 8).astype(float)).iloc[[*range(1, 8, 2), *range(15, 7, -1)]]
    found, = paired_rates(ours, theirs, ["flip"], 200, 0)
    # Four combinations have 1 in their one instance that both count, four have -1 in two.
    assert (found["value"], found["n"], found["n_clusters"]) == (-1 / 3, 12, 8)
    assert -1.0 <= found["low"] < -1 / 3 < found["high"] <= 1.0


@pytest.fixture(scope="module")
def decoded(planted: Planted) -> DecodingResult:
    return decode_codes(planted("train"), planted("ood"), ["term_1", "term_2"],
                        pairs=["query->query"], n_shuffles=2, n_bootstrap=200,
                        untrained=(planted("train", strength=0.0), planted("ood", strength=0.0)))


def test_a_contrast_of_decoding_is_the_difference_of_its_scores(decoded: DecodingResult) -> None:
    place = ["layer", "pair", "label", "quantity"]
    scores = decoded.table.rename(columns={"metric": "quantity"})
    code = where(scores, features="code").set_index(place)
    contrasts = decoded.contrasts.table
    assert "..." not in repr(decoded.contrasts)
    assert set(contrasts["against"]) == {"shuffled", "untrained", "residual", "chance", "layer 0"}
    for against, rows in contrasts.groupby("against"):
        mine = rows.set_index(place)
        if against == "chance":
            other = code["chance"]
        elif against == "layer 0":
            other = pd.concat([code["value"].xs(0, level="layer")], keys=[1], names=["layer"])
        else:
            other = where(scores, features=against).set_index(place)["value"]
        pd.testing.assert_series_equal(
            mine["value"], (code["value"] - other).loc[mine.index], check_names=False,
            check_exact=True)
    assert set(contrasts["n"]) == {120}
    assert set(contrasts["n_clusters"]) == {6}


def test_features_that_are_the_control_differ_by_nothing(planted: Planted) -> None:
    """In layer 0 the planted codes hold nothing, as the untrained ones."""
    codes = planted("train"), planted("ood")
    same = decode_codes(*codes, ["term_1"], layers=[0], n_shuffles=1, n_bootstrap=100,
                        untrained=(planted("train", strength=0.0), planted("ood", strength=0.0)))
    rows = same.contrasts.against("untrained", quantity="accuracy")
    assert (rows[["value", "low", "high"]] == 0.0).all(axis=None)


def test_a_single_shuffle_is_not_taken_for_too_few_combinations(planted: Planted) -> None:
    once = decode_codes(planted("train"), planted("ood"), ["term_1"], layers=[1], controls=False,
                        n_shuffles=1, n_bootstrap=100)
    assert "(a single shuffle has no interval)" in repr(once)
    assert "too few combinations" not in repr(once)


def test_several_splits_are_scored_by_the_same_probes(planted: Planted) -> None:
    train, ood, other = planted("train"), planted("ood"), planted("ood", seed=5)
    parts = CodesSubject([train, ood, other])
    reads = read(parts, [(str(i), len(codes)) for i, codes in enumerate(parts.parts)], ["code"],
                 pairs=None, layers=[1], controls=False, seed=0)
    both = decode_readings(parts, reads, ["term_1"], controls=False, n_shuffles=1, n_bootstrap=100)
    for heldout, found in zip((ood, other), both, strict=True):
        alone = decode_codes(train, heldout, ["term_1"], layers=[1], controls=False, n_shuffles=1,
                             n_bootstrap=100)
        for name, table in alone.tables().items():
            pd.testing.assert_frame_equal(found.tables()[name], table, check_exact=True)
        assert found.settings == alone.settings


def test_classes_are_compared_with_the_largest_other_cosine(planted: Planted) -> None:
    found = lc.similarity(lc.subject(planted("ood"), untrained=planted("ood", strength=0.0)),
                          label="term_1", n_bootstrap=100, n_samples=3)
    place = {"layer": 1, "pair": "query->query", "centring": "raw"}
    cosines = where(found.cosines, **place, features="code").pivot(
        index="row", columns="column", values="value")
    others = cosines.where(~np.eye(len(cosines), dtype=bool))
    rows = found.contrasts.against("largest other", **place, features="code")
    assert len(rows) == len(cosines) * (len(cosines) - 1) / 2
    for row in rows.to_dict("records"):
        third = others.loc[[row["row"], row["column"]]].drop(columns=[row["row"], row["column"]])
        assert row["value"] == pytest.approx(
            cosines.loc[row["row"], row["column"]] - third.max(axis=None), abs=1e-12)
    untrained = where(found.cosines, **place, features="untrained").set_index(["row", "column"])
    for row in found.contrasts.against("untrained", **place).to_dict("records"):
        both = row["row"], row["column"]
        assert row["value"] == pytest.approx(cosines.loc[both] - untrained.loc[both, "value"])


def test_purity_less_that_of_shuffled_labels_is_the_excess(planted: Planted) -> None:
    found = lc.knn_purity(lc.subject(planted("ood"), untrained=planted("ood", strength=0.0)),
                          labels=["term_1"], n_bootstrap=100)
    place = ["layer", "pair", "label", "among"]
    code = where(found.table, features="code").set_index(place)
    rows = found.contrasts.against("shuffled").set_index(place)
    np.testing.assert_array_equal(rows["value"], code.loc[rows.index, "excess"])
    at = {"layer": 1, "pair": "query->query", "among": ALL}
    assert found.contrasts.against("untrained", **at)["low"].iloc[0] > 0.2
    assert found.contrasts.against("shuffled", **at | {"layer": 0})["low"].iloc[0] < 0.0


def test_correlations_are_compared_by_the_same_replicates(planted: Planted) -> None:
    codes = planted("ood")
    names = sorted(codes.labels["term_1"].unique())
    distance = pd.DataFrame(1.0 - np.eye(len(names)), names, names)
    distance.iloc[0, 1] = distance.iloc[1, 0] = 0.5
    found = lc.topography(lc.subject(codes, untrained=planted("ood", strength=0.0)),
                          distances={"term_1": {"one": distance}}, n_bootstrap=100,
                          n_permutations=100)
    key = ["layer", "pair", "metric"]
    rho = found.table.pivot(index=key, columns="features", values="rho")
    for against in ("untrained", "residual"):
        rows = found.contrasts.against(against).set_index(key)["value"]
        np.testing.assert_array_equal(rows, (rho["code"] - rho[against]).loc[rows.index])


def contrasts(*rows: tuple[str, int, str, float, float]) -> Contrasts:
    return Contrasts(pd.DataFrame(
        [(label, layer, "code", "accuracy", other, value, value - width, value + width, 512, 34)
         for label, layer, other, value, width in rows],
        columns=list(contrast_columns("label", "layer", "features"))))


def test_words_say_where_the_code_is_most_surely_above_its_controls() -> None:
    said, = contrasts(
        ("rule", 0, "shuffled", 0.5, 0.1), ("rule", 0, "untrained", 0.1, 0.2),
        ("rule", 1, "shuffled", 0.3, 0.1), ("rule", 1, "untrained", 0.2, 0.1),
        ("rule", 1, "residual", 0.05, 0.01), ("rule", 1, "layer 0", -0.2, 0.1)).sentences()
    assert said.startswith("code above shuffled labels by 0.30 [0.20, 0.40], ")
    assert "below layer 0 by 0.20 [0.10, 0.30]" in said


def test_words_say_what_is_not_surely_above_and_leave_most_labels_to_the_table() -> None:
    said = contrasts(*((f"label {i}", 0, "shuffled", 0.1 * i, 0.15)
                       for i in range(MOST_SAID + 3))).sentences()
    assert len(said) == MOST_SAID + 1
    assert said[-1] == "7 of 9 surely above their controls (all in .contrasts)"
    assert said[0].startswith(f"label {MOST_SAID + 2}: code above")  # the largest first
    one, = contrasts(("rule", 0, "shuffled", 0.1, 0.15)).sentences()
    assert "not surely above shuffled labels by 0.10 [-0.05, 0.25]" in one


def test_results_begin_with_their_contrasts(decoded: DecodingResult) -> None:
    first = repr(decoded).splitlines()[0]
    assert first.startswith("DecodingResult: term_2: code above the untrained model by ")
    assert "(accuracy, layer 1, the best of 2, 120 problems, 6 combinations)" in first
