"""What the comparison of precisions says, on numbers worked out by hand and on real models."""

from __future__ import annotations

import numpy as np
import pytest
from initial_weights import OTHER_WEIGHTS

from latentcode.experiments.studies.precision import LARGEST_RATIO, compare, figure, logit_ratio

STEPS = [500, 1_000, 2_000]


def test_curves_agree_within_two_standard_errors_of_their_difference() -> None:
    exact = np.array([[0.1, 0.4, 0.5], [0.3, 0.6, 0.7]])  # at every step: se of the mean 0.1
    limit = 2.0 * np.sqrt(0.1**2 + 0.1**2)
    for shift, agrees in ((0.99 * limit, True), (1.01 * limit, False)):
        rough = exact.copy()
        rough[:, 2] += shift
        rough[:, 0] += 9.0  # before the first step that is judged
        result = compare({"hyla": {"float32": exact, "bf16_mlp": rough}}, STEPS)["hyla"]
        assert result["agrees"] is agrees
        assert result["standard_error"] == pytest.approx([limit / 2.0] * 3)
        assert result["difference"] == pytest.approx([9.0, 0.0, shift])
    assert len(figure({"hyla": result, "softmax": result}).axes) == 2


@pytest.mark.parametrize("kind", ["softmax", "hyla"])
def test_bfloat16_in_the_feed_forward_layers_leaves_logits_within_a_hundredth(kind: str) -> None:
    ratio = logit_ratio("logic", kind, "bf16_mlp", n=64)
    assert 0.0 < ratio <= (2 * LARGEST_RATIO if OTHER_WEIGHTS else LARGEST_RATIO)
    assert ratio < logit_ratio("logic", kind, "bf16", n=64)
