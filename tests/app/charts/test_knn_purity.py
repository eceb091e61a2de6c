"""Do the bars and the sentence say what the codes were drawn to separate, and no more?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import streamlit as st
from small_app import chosen_codes, drawn_codes, open_folders, shown, text

from latentcode.app.charts import knn_purity


def test_what_the_codes_were_drawn_by_is_separated_best() -> None:
    here = chosen_codes()
    table = knn_purity.knn_purity(here)
    assert table is not None
    assert table["label"].iloc[0] == "rule"
    assert table[table["among"] == "all"]["excess"].is_monotonic_decreasing
    assert set(table["label"]) == {"rule", "combination", "loss", "accuracy"}
    assert knn_purity.best_label(here) == "rule"
    assert knn_purity.best_label(here, ["loss", "accuracy"]) is None
    said = knn_purity.sentence(here, "rule_0")  # another name of the best one
    assert "**rule** best: 1.00 of" in said


def test_where_nothing_is_separated_the_sentence_says_so() -> None:
    codes = drawn_codes()
    noise = np.random.default_rng(0).normal(size=codes.scores.shape).astype(np.float32)
    here = chosen_codes(replace(codes, scores=noise))
    assert knn_purity.best_label(here) is None
    assert "no label: at best **" in knn_purity.sentence(here, "rule")
    constant = chosen_codes(layer=0)
    assert knn_purity.best_label(constant) is None
    assert knn_purity.sentence(constant, "rule") == knn_purity.SAME
    few = chosen_codes(codes.subset(np.arange(3)))
    assert knn_purity.knn_purity(few) is None
    assert knn_purity.sentence(few, "rule") == ""


def test_labels_from_files_are_no_markup() -> None:
    codes = drawn_codes()
    labels = codes.labels.drop(columns="rule_0").assign(**{"**<b>": codes.labels["rule_0"]})
    assert r"\*\*\<b>" in knn_purity.sentence(chosen_codes(replace(codes, labels=labels)), "loss")


def test_a_click_chooses_the_colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_codes().save(tmp_path / "runs" / "codes")
    open_folders(monkeypatch, [tmp_path / "runs"])
    test = shown("explore", model="runs/codes", projection="PCA", colour="loss")
    assert "; loss " in text(test)
    # What the callback of a click does, before the page runs again.
    test.session_state["colour"] = "rule"
    test.session_state["colour was clicked"] = True
    test.run()
    assert not test.exception
    assert test.selectbox(key="colour").value == "rule"
    assert "; loss" not in text(test)
    assert "colour was clicked" not in test.session_state


def test_only_what_is_offered_can_be_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    callbacks: list[Any] = []
    monkeypatch.setattr(st.components.v2, "component", lambda name, **parts: (
        lambda **mounted: callbacks.append(mounted["on_picked_change"])))
    state: dict[str, Any] = {"layer": 1}
    monkeypatch.setattr(st, "session_state", state)
    knn_purity.pick("knn_purity", {}, [0, 1], key="layer", shown=1)
    for value, kept in ((7, 1), (None, 1), ("0", 1), (0, 0)):
        state["knn_purity chart"] = {"picked": value}
        callbacks[0]()
        assert state["layer"] == kept
        assert state.get("layer was clicked", False) == (value == 0)


def test_a_layer_that_knows_nothing_has_no_point() -> None:
    chosen = chosen_codes()
    table = knn_purity.over_layers(chosen, "rule_0")  # which the bars call rule
    assert table["layer"].tolist() == [0, 1]
    assert np.isnan(table["purity"][0])
    assert table["purity"][1] == 1.0
    assert table["shuffled"][1] < 0.7
