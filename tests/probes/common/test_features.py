"""Are features what they are called, and are other instances recognised?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, UnknownNameError, chosen
from latentcode.probes.common.harness import check_same_instances, origin
from latentcode.probes.common.statistics import varies

Planted = Callable[..., LatentCodes]


@pytest.mark.parametrize(("name", "mine", "theirs"), [
    ("task", {"inputs": "uniform", "size": (1, 2)}, {"inputs": "fixed_context", "size": (1, 2)}),
    ("split", "ood", "train"), ("seed", 0, 1)])
def test_equal_labels_do_not_make_the_same_instances(
    planted: Planted, name: str, mine: object, theirs: object
) -> None:
    codes = planted("ood")
    first, other = (replace(codes, meta={**codes.meta, name: value}) for value in (mine, theirs))
    with pytest.raises(ProbeError, match=f"the others are of other instances: their {name} is"):
        check_same_instances(first, other, "others")
    without = replace(codes, meta={})
    check_same_instances(first, without, "others")
    check_same_instances(first, first, "others")


def test_codes_that_were_saved_are_of_the_same_task(planted: Planted) -> None:
    codes = planted("ood")
    kept, read = (replace(codes, meta={"task": {"size": size}}) for size in ((1, 2), [1, 2]))
    check_same_instances(kept, read, "others")


def test_names_are_chosen_once() -> None:
    assert chosen("layer", None, [0, 1]) == (0, 1)
    assert chosen("layer", [1], [0, 1]) == (1,)
    with pytest.raises(ProbeError, match="layers repeats 1; expected different ones"):
        chosen("layer", [1, 0, 1], [0, 1])
    with pytest.raises(UnknownNameError, match="unknown layer"):
        chosen("layer", [2], [0, 1])


def test_the_origin_says_how_many_instances_of_what(planted: Planted) -> None:
    codes = replace(planted("ood", instances=4), meta={
        "run": "a", "run_id": "x1", "task": {"kind": "logic"}, "model": {}})
    assert origin(codes) == {"n": 24, "run": "a", "run_id": "x1", "task": {"kind": "logic"}}


def test_equal_points_do_not_vary_however_many_they_are() -> None:
    point = np.random.default_rng(0).normal(size=(1, 16)).astype(np.float32)
    # Strided, as codes of one layer and pair are.
    points = np.repeat(point, 8_000, axis=0)[:, None, None].repeat(3, axis=1)[:, 1, 0]
    assert not varies(points)
    points = points.copy()
    points[17, 3] += 1e-2
    assert varies(points)
