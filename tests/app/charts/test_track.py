"""Does the track show each layer's purity?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from small_app import chosen_codes

from latentcode.app.charts import track


def test_a_layer_that_knows_nothing_has_no_point(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = chosen_codes()
    table = track.over_layers(chosen, "rule_0")  # which the bars call rule
    assert table["layer"].tolist() == [0, 1]
    assert np.isnan(table["purity"][0])
    assert table["purity"][1] == 1.0
    assert table["shuffled"][1] < 0.7
    drawn: list[tuple[Mapping[str, Any], Sequence[int], str]] = []
    monkeypatch.setattr(track, "pick", lambda name, data, options, *, key, shown:
                        drawn.append((data, options, key)))
    track.show(chosen, "rule")
    (data, options, key), = drawn
    json.dumps(data, allow_nan=False)
    assert (options, key, data["current"]) == ((0, 1), "layer", 1)
    assert "agree on rule" in data["measured"]
    assert [place["value"] for place in data["places"]] == [None, 1.0]
    assert data["places"][0]["told"] == "layer 0: nothing to separate"
    assert "layer 1: 1.00 of" in data["places"][1]["told"]
