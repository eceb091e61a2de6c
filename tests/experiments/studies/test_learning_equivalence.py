"""Whether our learning curves agree with the official ones, on curves that are made up."""

from __future__ import annotations

import pandas as pd
import pytest

from latentcode.experiments.studies.learning_equivalence.measuring import (
    DEVIATIONS,
    FROM_STEP,
    compare,
    figures,
    official_curves,
)


@pytest.mark.parametrize(("away", "agrees"), [
    (0.9 * DEVIATIONS, True), (1.1 * DEVIATIONS, False), (-1.1 * DEVIATIONS, False)])
def test_a_curve_agrees_within_some_deviations_of_the_seeds(away: float, agrees: bool) -> None:
    official = official_curves()
    # Two seeds around a mean that the official value is `away` of their deviations from.
    ours = pd.DataFrame([
        {"kind": kind, "seed": seed, "step": step, "value": value - away * 0.1 * 2**0.5 + side}
        for kind in ("hyla", "softmax") for seed, side in enumerate((-0.1, 0.1))
        for step, value in zip(official["steps"], official[kind]["ood_r2"], strict=True)])
    found = compare(ours)
    assert found["deviations"].tolist() == pytest.approx([away] * len(found))
    judged = found["step"] >= FROM_STEP
    assert set(found.loc[judged, "agrees"]) == {agrees}
    assert found.loc[~judged, "agrees"].isna().all()
    (drawn,) = figures({"ours": ours, "compared": found}).values()
    assert len(drawn.axes) == 2
