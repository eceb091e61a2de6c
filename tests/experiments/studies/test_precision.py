"""What the comparison of precisions says, on numbers worked out by hand and on real models."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from initial_weights import OTHER_WEIGHTS

from latentcode.experiments.studies.learning_equivalence.measuring import KINDS
from latentcode.experiments.studies.precision.measuring import (
    LARGEST_RATIO,
    compare,
    figures,
    logit_ratio,
)

STEPS = [500, 1_000, 2_000]


@pytest.mark.parametrize(("share", "agrees"), [(0.99, True), (1.01, False)])
def test_curves_agree_within_two_standard_errors_of_their_difference(
    share: float, agrees: bool
) -> None:
    exact = np.array([[0.1, 0.4, 0.5], [0.3, 0.6, 0.7]])  # at every step: se of the mean 0.1
    limit = 2.0 * np.sqrt(0.1**2 + 0.1**2)
    rough = exact.copy()
    rough[:, 2] += share * limit
    rough[:, 0] += 9.0  # before the first step that is judged
    curves = pd.DataFrame([
        {"kind": kind, "precision": precision, "seed": seed, "step": step, "value": value}
        for kind in KINDS for precision, values in (("float32", exact), ("bf16_mlp", rough))
        for seed, of_seed in enumerate(values) for step, value in zip(STEPS, of_seed, strict=True)])
    result = compare(curves)
    assert len(result) == len(KINDS) * len(STEPS)
    for _, of_kind in result.groupby("kind"):
        assert of_kind["agrees"].tolist() == [agrees] * 3
        assert of_kind["standard_error"].tolist() == pytest.approx([limit / 2.0] * 3)
        assert of_kind["difference"].tolist() == pytest.approx([9.0, 0.0, share * limit])
    (drawn,) = figures({"curves": curves}).values()
    assert len(drawn.axes) == 2


@pytest.mark.parametrize("kind", ["softmax", "hyla"])
def test_bfloat16_in_the_feed_forward_layers_leaves_logits_within_a_hundredth(kind: str) -> None:
    ratio = logit_ratio("logic", kind, "bf16_mlp", n=64)
    assert 0.0 < ratio <= (2 * LARGEST_RATIO if OTHER_WEIGHTS else LARGEST_RATIO)
    assert ratio < logit_ratio("logic", kind, "bf16", n=64)
