"""Does the k-nearest-neighbour probe find what was planted, as scikit-learn's classifier does?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import latentcode as lc
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError
from latentcode.probes.common.results import where

Planted = Callable[..., LatentCodes]
PAIR = "query->query"


def test_its_accuracy_is_that_of_scikit_learn(planted: Planted) -> None:
    train, heldout = planted("train"), planted("ood")
    found = lc.knn(train, heldout, "term_1", controls=False, pairs=PAIR, k=5, n_bootstrap=100)
    x, scored = (codes.select(layer=1, pair=PAIR).astype(float) for codes in (train, heldout))
    scaler = StandardScaler().fit(x)
    wanted = KNeighborsClassifier(5).fit(scaler.transform(x), train.labels["term_1"])
    accuracy = wanted.score(scaler.transform(scored), heldout.labels["term_1"])
    row = where(found.table, layer=1, features="code", quantity="accuracy")
    assert row["value"].item() == pytest.approx(accuracy, abs=1e-12)
    assert accuracy > 0.7
    share = where(found.table, layer=1, features="code", quantity="share")["value"].item()
    chances = wanted.predict_proba(scaler.transform(scored))
    classes = list(wanted.classes_)
    right = [classes.index(name) for name in heldout.labels["term_1"]]
    assert share == pytest.approx(chances[np.arange(len(scored)), right].mean(), abs=1e-12)
    with pytest.raises(ProbeError, match="k is 1000 for 180 training problems"):
        lc.knn(train, heldout, "term_1", controls=False, k=1_000)
