"""Does the track show each layer's purity?"""

from __future__ import annotations

import numpy as np
from small_app import chosen_codes

from latentcode.app.charts import track


def test_a_layer_that_knows_nothing_has_no_point() -> None:
    chosen = chosen_codes()
    table = track.over_layers(chosen, "rule_0")  # which the bars call rule
    assert table["layer"].tolist() == [0, 1]
    assert np.isnan(table["purity"][0])
    assert table["purity"][1] == 1.0
    assert table["shuffled"][1] < 0.7
