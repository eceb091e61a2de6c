"""Of a model in which not every layer has attention, those that have are asked."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from prompt_pairs import pairs_of
from small_language_models import SmallModels

import latentcode as lc
from latentcode.models.pretrained import load_pretrained

FEW: dict[str, Any] = {"n_bootstrap": 100}

@pytest.fixture(scope="module")
def hybrid(small_models: SmallModels) -> Any:
    return load_pretrained(small_models("lfm2"))


@pytest.fixture(scope="module")
def pairs(hybrid: Any) -> pd.DataFrame:
    return pd.DataFrame(pairs_of(hybrid, ("The capital of {}",)))


def test_codes_and_patches_are_of_layers_with_attention(hybrid: Any, pairs: Any) -> None:
    codes = lc.extract(hybrid, pairs)
    assert tuple(codes.layers) == (1,)
    assert codes.scores.shape == (len(pairs), 1, 1, 4)
    result = lc.intervene(hybrid, pairs, among="answers", n=8, **FEW)
    assert set(result.table["layers"]) == {"1"}
    stream = lc.intervene(hybrid, pairs, lc.Patch("interchange", "everything", 2, site="residual"),
                          among="answers", n=8, **FEW)
    assert len(stream.table) > 0
    assert set(lc.attribute(hybrid, pairs, among="answers", n=8, n_patched=4, n_points=1,
                            n_checked=2, n_ranked=2, **FEW).maps["layer"]) == {1}
