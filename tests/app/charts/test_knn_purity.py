"""Do the table and the sentence say what the codes were drawn to separate, and no more?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from small_app import chosen_codes, drawn_codes

from latentcode.app.charts import knn_purity


def test_what_the_codes_were_drawn_by_is_separated_best() -> None:
    here = chosen_codes()
    table = knn_purity.knn_purity(here)
    assert table["label"].iloc[0] == "rule"
    assert table["excess"].is_monotonic_decreasing
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
    assert knn_purity.knn_purity(few).empty
    assert knn_purity.sentence(few, "rule") == ""


def test_labels_from_files_are_no_markup() -> None:
    codes = drawn_codes()
    labels = codes.labels.drop(columns="rule_0").assign(**{"**<b>": codes.labels["rule_0"]})
    assert r"\*\*\<b>" in knn_purity.sentence(chosen_codes(replace(codes, labels=labels)), "loss")
