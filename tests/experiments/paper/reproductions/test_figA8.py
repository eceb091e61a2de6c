"""How many heads codes use."""

from __future__ import annotations

import numpy as np
import pytest

from latentcode.experiments.paper.reproductions.mean_codes import in_use


@pytest.mark.parametrize(("code", "heads"), [
    ([0.0, -3.0, 0.0, 0.0], 1.0),
    ([1.0, -1.0, 1.0, 1.0], 4.0),
    ([2.0, 1.0, 0.0, 0.0], 9.0 / 5.0),
    ([2e-200, 1e-200, 0.0, 0.0], 9.0 / 5.0),
    ([0.0, 0.0, 0.0, 0.0], np.nan),
])
def test_heads_in_use(code: list[float], heads: float) -> None:
    assert in_use(np.array(code)) == pytest.approx(heads, nan_ok=True)
