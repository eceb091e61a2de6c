"""Codes whose clusters are planted are found, and those of random codes are no better than the
control."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score, silhouette_score

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError
from latentcode.probes.heads.clusters import cluster_codes, parted, permuted, texts_of, together
from latentcode.probes.heads.codes import SAMPLED

LAYERS, HEADS, TEXTS, PER_TEXT = 2, 4, 24, 12
CODE = np.zeros((2, LAYERS, HEADS))
CODE[0, 0, :2] = CODE[0, 1, 3] = CODE[1, 0, 2] = 0.8
"""Two clusters: heads 0.0, 0.1 and 1.3 act together, head 0.2 where they do not."""


def codes_of(scores: np.ndarray, n_texts: int = TEXTS) -> LatentCodes:
    n = len(scores)
    rng = np.random.default_rng(9)
    key, distance = rng.integers(0, 9, n), rng.integers(0, 4, n)
    labels = pd.DataFrame({
        "text": np.arange(n) % n_texts,
        "query_position": key + distance, "key_position": key, "distance": distance,
        "query_token": "q", "key_token": "k",
        "kind": np.where(key == 0, "first", np.where(distance == 0, "self", "other")),
        "drawn": np.where(rng.random(n) < 0.5, "attended", "uniform"), "context": "[[k]]<<q>>"})
    return LatentCodes(scores.astype(np.float32)[:, :, None], labels, (SAMPLED,),
                       tuple(range(LAYERS)), {"run": "planted", "split": "texts"})


def planted(noise: float = 0.1, seed: int = 0) -> tuple[LatentCodes, np.ndarray]:
    rng = np.random.default_rng(seed)
    cluster = (rng.random(TEXTS * PER_TEXT) < 0.3).astype(int)
    return codes_of(CODE[cluster] + noise * rng.random((len(cluster), LAYERS, HEADS))), cluster


def random_codes(seed: int = 0) -> LatentCodes:
    rng = np.random.default_rng(seed)
    return codes_of(rng.random((TEXTS * PER_TEXT, LAYERS, HEADS)))


def test_two_planted_clusters_are_found() -> None:
    codes, truth = planted()
    found = cluster_codes(codes, n_bootstrap=200)
    quality = found.tables["quality"].set_index("layer")
    assert quality.loc["all", "n_clusters"] == 2
    assert quality.loc["0", "n_clusters"] == 2
    assert adjusted_rand_score(found.assigned["all"], truth) == 1.0
    assert quality.loc["all", "difference_low"] > 0.1
    assert quality.loc["0", "difference_low"] > 0.0
    # In layer 1 one head alone tells the clusters apart, and what it does is permuted with nobody.
    assert abs(quality.loc["1", "difference"]) < 0.1
    assert quality.loc["all", "stability"] == 1.0 > quality.loc["all", "stability_permuted"]
    large, small = found.centres["all"]
    np.testing.assert_allclose(large, CODE[0].ravel() + 0.05, atol=0.02)
    np.testing.assert_allclose(small, CODE[1].ravel() + 0.05, atol=0.02)
    used = found.tables["cluster_heads"].query("layer == 'all' and low > 0.1")
    assert set(used[["cluster", "head_layer", "head"]].itertuples(index=False, name=None)) == {
        (0, 0, 0), (0, 0, 1), (0, 1, 3), (1, 0, 2)}
    shares = found.tables["clusters"].query("layer == 'all'")
    assert shares["share"].tolist() == [(truth == 0).mean(), (truth == 1).mean()]
    assert ((shares["low"] < shares["share"]) & (shares["share"] < shares["high"])).all()


def test_the_tables_say_what_is_in_the_sample() -> None:
    codes, _ = planted()
    found = cluster_codes(codes, candidates=(3,), n_bootstrap=100)
    labels = codes.labels
    for row in found.tables["clusters"].itertuples():
        mine = labels[found.assigned[row.layer] == row.cluster]
        assert row.n == len(mine)
        assert row.first == (mine["key_position"] == 0).mean()
        assert row.distance == mine["distance"].median()
    x = codes.scores[:, :, 0].reshape(len(codes), -1).astype(np.float64)
    nearest = found.tables["examples"].query("layer == 'all' and chosen == 'nearest'")
    for cluster, some in nearest.groupby("cluster"):
        mine = np.flatnonzero(found.assigned["all"] == cluster)
        distance = np.linalg.norm(x[mine] - x[mine].mean(0), axis=1)
        order = mine[np.argsort(distance)]
        assert some["number"].iloc[0] == order[0]
        assert some["text"].is_unique
        assert some["to_centre"].iloc[0] == pytest.approx(distance.min())
    quality = found.tables["quality"].set_index("layer").loc["all"]
    assert quality["n_clusters"] == 3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_codes_have_no_better_clusters_than_the_control(seed: int) -> None:
    found = cluster_codes(random_codes(seed), n_bootstrap=300, seed=seed)
    row = found.tables["quality"].set_index("layer").loc["all"]
    assert row["difference_low"] < 0.0 or row["difference"] < 0.03
    assert row["stability"] < 0.8


def test_silhouettes_are_those_of_texts_that_were_not_fitted_to() -> None:
    codes, _ = planted()
    found = cluster_codes(codes, candidates=(2,), n_bootstrap=100, seed=5)
    left = parted(texts_of(codes), (2, 1, 1), 5)[2]
    x = codes.scores[:, :, 0].reshape(len(codes), -1).astype(np.float64)[left]
    row = found.tables["quality"].set_index("layer").loc["all"]
    assert row["silhouette"] == pytest.approx(silhouette_score(x, found.assigned["all"][left]))
    assert row["n"] == left.sum()


def test_heads_that_act_together_are_found() -> None:
    codes, _ = planted(noise=0.4)
    found = together(codes, n_top=6, n_bootstrap=300)
    assert set(found["pairs"]) == {"all", "other"}
    best = found[found["pairs"] == "all"]
    expected = {(0, 0), (0, 1), (1, 3), (0, 2)}
    assert {(r.layer, r.head) for r in best.itertuples()} | {
        (r.other_layer, r.other_head) for r in best.itertuples()} == expected
    assert (best["difference"].abs() > 0.3).all()
    assert (best["permuted"].abs() < 0.3).all()
    against = best[(best["layer"] == 0) & (best["head"] == 2)
                   | (best["other_layer"] == 0) & (best["other_head"] == 2)]
    assert len(against) == 3
    assert (against["difference_high"] < 0.0).all()
    among = best.drop(against.index)
    assert (among["difference_low"] > 0.0).all()


def test_heads_of_random_codes_do_not_act_together() -> None:
    above = total = 0
    for seed in range(6):
        found = together(random_codes(seed), n_top=5, n_bootstrap=300, seed=seed)
        above += int(((found["difference_low"] > 0) | (found["difference_high"] < 0)).sum())
        total += len(found)
    assert above <= 0.15 * total


def test_heads_are_permuted_within_texts() -> None:
    rng = np.random.default_rng(0)
    text = np.repeat(np.arange(5), 20)
    x = np.arange(500.0).reshape(100, 5)
    shuffled = permuted(x, text, rng)
    for t in range(5):
        for head in range(5):
            assert set(shuffled[text == t, head]) == set(x[text == t, head])
    assert not np.array_equal(np.argsort(shuffled[:, 0]), np.argsort(shuffled[:, 1]))
    few = permuted(x, np.arange(100), rng)  # a pair of each text: neighbours are taken together
    assert (few != x).mean() > 0.7
    assert (np.abs(few - x).max() < 16 * 5)


def test_what_cannot_be_clustered() -> None:
    codes, _ = planted()
    with pytest.raises(ProbeError, match="codes are of 3 text"):
        cluster_codes(codes[codes.labels["text"].to_numpy() < 3])
    with pytest.raises(ProbeError, match="expected more than the 12 clusters"):
        cluster_codes(codes[:40], candidates=(12,))
    assert cluster_codes(codes[:40], n_bootstrap=50).tables["quality"]["n_clusters"].max() <= 8
    constant = codes_of(np.full((TEXTS * PER_TEXT, LAYERS, HEADS), 0.5))
    found = cluster_codes(constant, n_bootstrap=50)
    assert found.tables["quality"]["silhouette"].isna().all()
    assert (found.tables["quality"]["n_clusters"] == 1).all()
    assert together(constant, n_bootstrap=50).empty
