"""Are whole texts prompts, those of a document together, and none of them in two splits?"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from small_language_models import SmallModels

import latentcode as lc
from latentcode.errors import ConfigError, SplitError
from latentcode.models.pretrained import load_pretrained
from latentcode.prompts import as_language_model
from latentcode.prompts.text_prompts import PAIRS, whole_texts

TEXTS = pd.DataFrame({
    "text": ["The capital of France", "The river of\n Peru", "in Rome and then", "we asked in Lima",
             "The river  of Peru"],
    "document": ["a", "b", "a", "c", "d"], "kind": ["x", "y", "x", "y", "y"]})


@pytest.fixture(scope="module")
def gpt2(small_models: SmallModels) -> Any:
    return load_pretrained(small_models("gpt2"))


def test_texts_are_prompts_and_documents_combinations(gpt2: Any) -> None:
    prompts = whole_texts(gpt2, TEXTS)
    assert prompts.labels["prompt"].tolist() == TEXTS["text"].tolist()
    assert prompts.labels["kind"].tolist() == TEXTS["kind"].tolist()
    assert prompts.labels["combination"].tolist() == ["a", "b", "a", "c", "b"]
    tokens = prompts.tokenize(gpt2)
    model = as_language_model(gpt2)
    for i, text in enumerate(TEXTS["text"]):
        ids, _ = model.encode(text)
        assert list(tokens.ids[i]) == ids
        last = len(ids) - 1
        assert tokens.query[i].tolist() == [last] * 3
        assert tokens.key[i].tolist() == [last - 1, 0, last]
    assert [pair.name for pair in prompts.pairs] == list(PAIRS)
    codes = lc.extract(gpt2, prompts)
    assert codes.scores.shape[:3] == (5, 2, 3)
    # Each text is a document unless it says so.
    alone = whole_texts(gpt2, TEXTS["text"].tolist())
    assert alone.labels["combination"].tolist() == [0, 1, 2, 3, 1]


def test_a_split_divides_no_document(gpt2: Any) -> None:
    fine = TEXTS.assign(split=["train", "ood", "train", "train", "ood"])
    assert whole_texts(gpt2, fine).rows("ood").tolist() == [1, 4]
    shared = TEXTS.assign(split=["train", "ood", "ood", "train", "ood"])
    with pytest.raises(SplitError, match="document 'a' is in splits train, ood; expected each"):
        whole_texts(gpt2, shared)
    same = TEXTS.assign(split=["train", "ood", "train", "train", "train"])
    with pytest.raises(SplitError, match=r"same.* documents b, d,.*row 1 \('The.*row 4 \('The"):
        whole_texts(gpt2, same)
    with pytest.raises(SplitError, match=r"the same.*row 1 .*row 4 "):
        whole_texts(gpt2, same.drop(columns="document"))


@pytest.mark.parametrize(("given", "said"), [
    (TEXTS.rename(columns={"text": "page"}), "no column 'text'"),
    (TEXTS.assign(combination=1), "a column 'combination'; expected 'document'"),
    (TEXTS.assign(text=["a b", " ", "c", "d", "e"]), "text of row 1 is ' '"),
    (TEXTS.assign(document=["a", "b", None, "c", "d"]), "document of row 2 is missing"),
    (["The river", "river " * 100], r"row 1 .* tokens; expected at most 64, the context"),
])
def test_what_is_no_text_is_named(gpt2: Any, given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        whole_texts(gpt2, given)


def test_a_single_token_and_a_pattern_that_is_too_large_are_named(
    gpt2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"row 0 \('a'\) has a single token"):
        whole_texts(gpt2, ["a"], prepend_bos=False)
    monkeypatch.setattr("latentcode.prompts.text_prompts.LARGEST", 2_000)
    with pytest.raises(ConfigError, match=r"row 1 .* has \d+ tokens, and the pattern .*'document'"):
        whole_texts(gpt2, ["The river", "river river " * 10])
