"""Do features of whole texts tell what they can, and no more than words do where words tell it?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from same_token import ordered_texts, same_token_model, worded_texts

import latentcode as lc
from latentcode.errors import ConfigError, SplitError
from latentcode.probes.common.harness import bags_of_tokens
from latentcode.probes.common.results import where
from latentcode.probes.decoding import DecodingResult
from latentcode.subjects.prompts import TextSubject

FEATURES = ["distance", "lap_eigvals", "code"]
FEW: dict[str, Any] = {"n_bootstrap": 200, "n_shuffles": 2, "metrics": "accuracy"}


@pytest.fixture(scope="module")
def ordered() -> DecodingResult:
    return lc.decode(same_token_model(), ordered_texts(40), ["kind"], features=FEATURES, **FEW)


def score(result: DecodingResult, features: str) -> Any:
    return where(result.table, features=features).iloc[0]


def test_order_is_in_the_pattern_and_not_in_the_bag(ordered: DecodingResult) -> None:
    assert list(ordered.table["features"].unique()) == [
        "distance", "untrained distance", "shuffled distance", "lap_eigvals",
        "untrained lap_eigvals", "shuffled lap_eigvals", "code", "residual", "bag", "untrained",
        "shuffled"]
    assert score(ordered, "bag").value == 0.5 == score(ordered, "bag").chance
    for features in ("distance", "lap_eigvals"):
        assert score(ordered, features).value == 1.0
        over = ordered.contrasts.against("bag", features=features).iloc[0]
        assert over["value"] == 0.5
        assert 0.0 < over["low"] <= 0.5 <= over["high"]
        assert over["n_clusters"] == score(ordered, features).n_heldout_combinations == 12
        assert over["n"] == score(ordered, features).n_heldout == 24
    # At the last token of a word said at once again, the code of the previous one is 1/2.
    assert score(ordered, "code").value == 1.0


def test_words_that_tell_all_are_no_finding_about_attention() -> None:
    result = lc.decode(same_token_model(), worded_texts(120), ["kind"],
                       features=["lap_eigvals", "entropy"], **FEW)
    assert score(result, "bag").value > 0.9
    assert score(result, "bag").chance < 0.65
    for features in ("lap_eigvals", "entropy"):
        over = result.contrasts.against("bag", features=features).iloc[0]
        assert over["high"] < 0.0


def test_the_result_says_so(ordered: DecodingResult, tmp_path: Path) -> None:
    assert ordered.settings["whole_texts"]
    assert ordered.settings["controls"] == ["residual", "bag", "untrained", "shuffled"]
    assert not ordered.missing_controls
    assert "the bag of tokens by 0.50" in "".join(ordered.said())
    again = DecodingResult.load(ordered.save(tmp_path / "found"))
    pd.testing.assert_frame_equal(again.table, ordered.table, check_dtype=False)


def test_codes_alone_have_the_same_controls(ordered: DecodingResult) -> None:
    alone = lc.decode(same_token_model(), ordered_texts(40), ["kind"], **FEW)
    assert list(alone.table["features"]) == ["code", "residual", "bag", "untrained", "shuffled"]
    for features in ("code", "bag", "residual"):
        assert score(alone, features).value == score(ordered, features).value
    assert alone.is_of_codes
    alone.figure()


def test_what_is_anywhere_in_the_stream_can_stand_beside() -> None:
    """The mean of one-hot embeddings has the words of a text, as its bag, and no order."""
    result = lc.decode(same_token_model(), ordered_texts(40), ["kind"],
                       features=["distance", "mean_residual"], **FEW)
    assert score(result, "mean_residual").value == 0.5
    over = result.contrasts.against("mean_residual", features="distance").iloc[0]
    assert over["value"] == 0.5
    assert over["low"] > 0.0
    words = lc.decode(same_token_model(), worded_texts(120), ["kind"], features="mean_residual",
                      **FEW)
    assert score(words, "mean_residual").value > 0.8


def test_the_bag_is_fitted_once_and_stands_at_every_pair_and_width() -> None:
    result = lc.decode(same_token_model(), worded_texts(40), ["kind"], features="distance",
                       pairs="all", widths=[2, 8], controls=True, heldout=0.4, **FEW)
    bags = where(result.table, features="bag")
    assert bags["width"].tolist() == [2, 8] * 3
    assert bags["pair"].nunique() == 3
    assert bags.groupby("width")["value"].nunique().tolist() == [1, 1]
    assert not where(result.table, features="residual").empty


def test_what_cannot_be_scored_is_refused() -> None:
    model, texts = same_token_model(), ordered_texts(10)
    alone = texts.assign(kind=["rare" if document == "d3" else "common"
                               for document in texts["document"]])
    with pytest.raises(SplitError, match="class 'rare' are of one document, 'd3'"):
        lc.decode(model, alone, ["kind"], **FEW)
    rare = texts.assign(kind=["rare" if document in ("d3", "d4") else "common"
                              for document in texts["document"]])
    said = []
    subject = lc.subject(model, rare)
    assert isinstance(subject, TextSubject)
    for seed in range(6):
        try:
            subject.about(["kind"]).divided(0.3, seed, "kind")
        except SplitError as error:
            said.append(str(error))
    assert 0 < len(said) < 6
    assert all("held-out texts are of class 'common' (documents d" in one for one in said)


def test_labels_say_whether_the_texts_or_tokens_are_meant() -> None:
    texts = ordered_texts(6)
    of = lc.subject(same_token_model(), texts)
    assert isinstance(of, TextSubject)
    assert of.about(["copied"]) is of
    assert len(of.about(["kind"]).n_of("n", None, 1, "train") * [0]) == len(texts)
    with pytest.raises(ConfigError, match="labels kind are of whole texts, and copied not"):
        of.about(["kind", "copied"])
    unlabelled = lc.subject(same_token_model(), list(texts["text"]))
    assert isinstance(unlabelled, TextSubject)
    assert unlabelled.about(["kind"]).whole_texts is False


def test_a_registered_probe_asks_whole_texts() -> None:
    found = lc.knn(same_token_model(), ordered_texts(40), ["kind"], features=["distance"],
                   pairs="last->first", n_bootstrap=200)
    assert set(found.table["features"]) == {
        "distance", "shuffled distance", "untrained distance", "residual", "bag"}
    assert where(found.table, features="distance")["value"].iloc[0] > 0.9
    assert found.contrasts.against("bag")["low"].iloc[0] > 0.0
    assert not found.missing_controls
    assert "bag" in found.summary()


def test_a_bag_counts_the_tokens_of_training_texts() -> None:
    x, heldout = bags_of_tokens([[[5, 3, 5], [3, 8]], [[5, 9, 9, 9]]])
    np.testing.assert_allclose(x, np.log([[2, 3, 1, 3], [2, 1, 2, 2]]), rtol=1e-6)
    np.testing.assert_allclose(heldout, np.log([[1, 2, 1, 4]]), rtol=1e-6)
