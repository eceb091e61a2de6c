"""Do names resolve to the right columns, and do labels that cannot be decoded say so?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError
from latentcode.probes.common.labels import Target, groups_of, make_target


def target_of(
    train: LatentCodes, heldout: LatentCodes, name: str, pair: str = "query->query"
) -> Target:
    return make_target(train.labels, heldout.labels, name, train.pair(pair))


def test_a_column_is_a_single_label(planted: Callable[..., LatentCodes]) -> None:
    train, heldout = planted("train"), planted("ood")
    target = target_of(train, heldout, "term_2")
    assert target.columns == ("term_2",)
    assert not target.multilabel
    assert target.classes == ("t1", "t2", "t3", "t4", "t5")
    assert (target.train.sum(axis=1) == 1).all()
    names = np.array(target.classes)[target.heldout.argmax(axis=1)]
    assert (names == heldout.labels["term_2"]).all()


def test_a_pair_resolves_its_own_label(planted: Callable[..., LatentCodes]) -> None:
    train, heldout = planted("train"), planted("ood")
    assert target_of(train, heldout, "term", "query->query").columns == ("term_1",)
    assert target_of(train, heldout, "term", "query->example").columns == ("term_2",)


def test_a_group_says_which_values_occur(planted: Callable[..., LatentCodes]) -> None:
    train, heldout = planted("train"), planted("ood")
    target = target_of(train, heldout, "terms")
    assert target.multilabel
    assert target.columns == ("term_1", "term_2")
    assert (target.heldout.sum(axis=1) == 2).all()
    for row, label in zip(target.heldout, heldout.labels.itertuples(), strict=True):
        assert {c for c, has in zip(target.classes, row, strict=True) if has} == {
            label.term_1, label.term_2}


def test_classes_that_training_lacks_are_counted(planted: Callable[..., LatentCodes]) -> None:
    train, heldout = planted("train"), planted("ood")
    without = train.subset((train.labels["term_1"] != "t3").to_numpy())
    target = target_of(without, heldout, "term_1")
    assert target.n_unseen == (heldout.labels["term_1"] == "t3").sum() == 20


def test_instances_are_clustered_by_combination(planted: Callable[..., LatentCodes]) -> None:
    train = planted("train")
    clusters = groups_of(train.labels)
    assert sorted(set(clusters)) == list(range(9))
    assert (train.labels.groupby(clusters)["combination"].nunique() == 1).all()
    bare = replace(train, labels=train.labels.drop(columns="combination"))
    with pytest.raises(ProbeError, match="no column 'combination'"):
        groups_of(bare.labels)
