"""A probe is not scored on what it was fitted on, unless that is what is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decoded_codes import decode_codes

import latentcode as lc
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError
from latentcode.probes.common.labels import shared_combinations, shared_instances

Planted = Callable[..., LatentCodes]
FAST: dict[str, Any] = {"controls": False, "n_shuffles": 1, "n_bootstrap": 100, "layers": 1,
                        "pairs": "query->query"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> lc.Run:
    folder = tmp_path_factory.mktemp("run") / "untrained"
    return lc.Run.create(folder, lc.preset("smoke", "sraven", "softmax"))


def test_training_and_heldout_splits_share_nothing(run: lc.Run, planted: Planted) -> None:
    train, ood = (lc.extract(run, split=split, n=40, untrained=True) for split in ("train", "ood"))
    assert shared_combinations(train, ood) == shared_combinations(planted(), planted("ood")) == 0


def test_one_extraction_is_known_by_where_it_comes_from(run: lc.Run, tmp_path: Path) -> None:
    """Of another model, another number of instances, from the disk: the problems are the same."""
    codes = lc.extract(run, split="train", n=40, untrained=True)
    more = lc.extract(run, split="train", n=60, layers=0, untrained=True, batch_size=7)
    other = replace(codes, scores=codes.scores + 1.0, meta={**codes.meta, "run": "another"})
    read = LatentCodes.load(codes.save(tmp_path / "codes"))
    for heldout, n in ((codes, 40), (more, 40), (other, 40), (read, 40)):
        assert shared_instances(codes, heldout) == (
            n, "both are of split 'train' with seed 0")
        with pytest.raises(ProbeError, match=r"40 of \d+ held-out instances are training inst.*"
                                             r"split 'train' with seed 0"):
            shared_combinations(codes, heldout, "combinations")


def test_parts_and_other_seeds_share_combinations(run: lc.Run) -> None:
    codes = lc.extract(run, split="train", n=400, untrained=True)
    halves = codes[:200], codes[200:]
    assert shared_instances(*halves)[0] == 0
    by_number = 20, "both are of split 'train' with seed 0"
    another = replace(codes, scores=codes.scores + 1.0)
    for other in (codes, another):
        assert shared_instances(codes[:220], other[200:]) == by_number
        assert shared_instances(codes[200:], other[[5, *range(381, 400), 381]])[0] == 20
    test = lc.extract(run, split="test", n=100, untrained=True)
    for train, heldout in (halves, (codes, test)):
        with pytest.raises(ProbeError, match="held-out combinations occur in training, such as '"):
            shared_combinations(train, heldout)
        combinations = set(train.labels["combination"]) & set(heldout.labels["combination"])
        assert shared_combinations(train, heldout, "combinations") == len(combinations) > 0


def again(codes: LatentCodes) -> LatentCodes:
    return replace(codes, meta={**codes.meta, "run": "again"})


def test_probes_refuse_what_they_were_fitted_on(planted: Planted) -> None:
    train = planted("train")
    for heldout in (train, train[::2]):
        with pytest.raises(ProbeError, match=f"{len(heldout)} of {len(heldout)} held-out instances "
                                             "are training instances, too .their labels and codes"):
            decode_codes(train, heldout, "term_1", **FAST)
        with pytest.raises(ProbeError, match="are training instances, too"):
            lc.align([lc.subject(train, heldout), lc.subject(again(train), again(heldout))],
                     labels="term_1", controls=False)
    fresh = planted("train", seed=1)
    with pytest.raises(ProbeError, match="9 of 9 held-out combinations occur in training, such as"):
        decode_codes(train, fresh, "term_1", **FAST)


def test_what_is_allowed_is_said_in_the_result(planted: Planted) -> None:
    train = planted("train")
    own = decode_codes(train, train, "term_1", allow_overlap="instances", **FAST)
    fresh = decode_codes(train, planted("train", seed=1), "term_1",
                            allow_overlap="combinations", **FAST)
    apart = decode_codes(train, planted("ood"), "term_1", **FAST)
    for result, what in ((own, "was fitted on"), (fresh, "new instances")):
        note, = result.caveats[1:]
        assert note.startswith("9 held-out combinations")
        assert what in note
    assert not any("occur in training" in note for note in apart.caveats)
    asked = "allow_overlap", "shared_combinations"
    assert [own.settings[name] for name in asked] == ["instances", 9]
    assert [apart.settings[name] for name in asked] == ["nothing", 0]


def test_codes_that_all_look_alike_can_be_let_through(planted: Planted) -> None:
    """Of codes that say nothing of themselves, what looks the same is taken for the same."""
    train = planted("train")
    bare = replace(train, scores=np.zeros_like(train.scores), meta={},
                   labels=train.labels[["combination"]])
    assert shared_instances(bare, bare[:3])[0] == 3
    assert shared_combinations(bare, bare[:3], "instances") == 1
