"""The nearest codes are those that every distance, taken one by one, says."""

from __future__ import annotations

import numpy as np
import pytest
from random_texts import batches
from small_language_models import SmallModels

from latentcode.probes.heads.clusters import cluster_codes, nearest_codes, nearest_to_centres
from latentcode.probes.heads.codes import HeadSample, sample_codes
from latentcode.prompts import LanguageModel, load_language_model


@pytest.fixture(scope="module")
def asked(small_models: SmallModels) -> LanguageModel:
    return load_language_model(small_models("gpt2"))


@pytest.fixture(scope="module")
def sample(asked: LanguageModel) -> HeadSample:
    return sample_codes(asked, batches(asked, 30, 10), n=150)


def distances(x: np.ndarray, code: np.ndarray, metric: str) -> np.ndarray:
    if metric == "euclidean":
        return np.sqrt(((x - code) ** 2).sum(1))
    return 1 - x @ code / np.linalg.norm(x, axis=1) / np.linalg.norm(code)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("layer", [None, 1])
def test_they_are_the_nearest(sample: HeadSample, metric: str, layer: int | None) -> None:
    codes = sample.codes
    x = codes.scores[:, slice(None) if layer is None else [layer], 0].reshape(150, -1)
    x, text = x.astype(np.float64), codes.labels["text"].to_numpy()
    for row, own in ((7, True), (20, False)):
        expected = distances(x, x[row], metric)
        expected[text == text[row] if own else [row]] = np.inf
        found = nearest_codes(codes, row, layer=layer, n=8, metric=metric, other_texts=own)
        np.testing.assert_allclose(found["distance"], np.sort(expected)[:8], atol=1e-7)
        np.testing.assert_allclose(found["distance"], expected[found["number"]], atol=1e-7)
        assert (found["permuted"].diff().iloc[1:] >= 0).all()
        shown = codes.labels.loc[found["number"], "context"].tolist()
        assert found["context"].tolist() == shown


def test_centres(sample: HeadSample) -> None:
    clusters = cluster_codes(sample.codes, candidates=(3,), n_bootstrap=50)
    found = nearest_to_centres(sample.codes, clusters, n=4)
    assert len(found) == 4 * sum(len(centres) for centres in clusters.centres.values())
    x = sample.codes.scores[:, 0, 0].astype(np.float64)
    mine = found[(found["layer"] == "0") & (found["cluster"] == 1)]
    expected = np.sort(distances(x, clusters.centres["0"][1], "euclidean"))[:4]
    np.testing.assert_allclose(mine["distance"], expected, atol=1e-7)
