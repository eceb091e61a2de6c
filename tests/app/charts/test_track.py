"""Does the track show each layer's purity, and the sentence how much of a picture is kept?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from small_app import chosen_codes

from latentcode.app.charts import track
from latentcode.probes.projection.alignment import align_planes


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


def test_pictures_of_layers_are_turned_to_each_other() -> None:
    here = chosen_codes(pair="response->row3")
    found = track.aligned(here, "pca")
    assert found is not None
    assert list(found.coordinates) == [0, 1]
    assert track.aligned(here, "pca") is found
    assert list(track.aligned(chosen_codes(), "pca").coordinates) == [1]  # type: ignore[union-attr]


def test_the_sentence_says_what_is_kept() -> None:
    plane = np.random.default_rng(0).normal(size=(60, 2))
    planes = align_planes({0: plane, 2: -plane})
    said = track.kept_sentence(planes, 2, 0)
    assert said.startswith("From layer 0 to 2, 1.00 of")
    assert "1.00 of nearest neighbours" in said
    assert track.kept_sentence(planes, 0, 1) == ""
