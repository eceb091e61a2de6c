"""Are prompts of texts asked where a token was seen before, and labelled by the text itself?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from small_language_models import SmallModels

import latentcode as lc
from latentcode.models.pretrained import load_pretrained
from latentcode.prompts import PretrainedLanguageModel, load_language_model
from latentcode.prompts.text_prompts import pattern_prompts
from latentcode.tasks.text.tokens import PATTERNS

TEXTS = pd.DataFrame({
    "text": ["The capital of France is Paris and the capital of France is Paris (1) [2].",
             "in Rome we asked about a café and then in Rome we asked about Paris\n  in Lima (x)",
             "river river naïve naïve: the river of Kenya, the river of Peru, the river of Kenya",
             "x"],
    "kind": ["md", "py", "md", "py"]})


@pytest.fixture(scope="module")
def gpt2(small_models: SmallModels) -> Any:
    return load_pretrained(small_models("gpt2"))


@pytest.mark.parametrize("name", ["gpt2", "text-softmax"])
@pytest.mark.parametrize("prepend_bos", [None, False])
def test_pairs_and_labels_are_those_of_the_tokens(
    gpt2: Any, name: str, prepend_bos: bool | None
) -> None:
    model = load_language_model(gpt2 if name == "gpt2" else name)
    prompts = pattern_prompts(model, TEXTS, per_text=5, prepend_bos=prepend_bos)
    tokens = prompts.tokenize(model, prepend_bos)
    assert [pair.name for pair in prompts.pairs] == list(PATTERNS)
    assert set(prompts.labels["combination"]) == {0, 1, 2}  # the last is too short
    for row, label in prompts.labels.iterrows():
        whole, _ = model.encode(TEXTS["text"][label.combination], prepend_bos)
        ids, query = list(tokens.ids[row]), len(tokens.ids[row]) - 1
        assert ids == whole[:query + 1]
        assert set(tokens.query[row]) == {query}
        same = max(s for s in range(query) if ids[s] == ids[query])
        assert tokens.key[row].tolist() == [same + 1, same, query - 1, 0, query]
        assert label.target == model.texts([whole[query + 1]])[0]
        assert label.copied == (whole[query + 1] == ids[same + 1])
        assert label.kind == TEXTS["kind"][label.combination]
    assert 0 < prompts.labels["copied"].mean() < 1


def test_prompts_can_be_read_and_depend_on_the_seed(gpt2: Any) -> None:
    prompts, again, others = (pattern_prompts(gpt2, list(TEXTS["text"]), seed=seed, per_text=2,
                                                 pairs=["query->induction"]) for seed in (0, 0, 1))
    assert prompts.digest() == again.digest() != others.digest()
    codes = lc.extract(gpt2, prompts)
    assert codes.scores.shape[:3] == (len(prompts), 2, 1)
    assert len(prompts) == 6


def test_the_space_before_a_word_is_kept() -> None:
    class Pieces:
        is_fast, eos_token_id, bos_token_id, pad_token_id = True, 0, None, None

        def __len__(self) -> int:
            return 3

        def batch_decode(self, rows: list[list[int]]) -> list[str]:
            return [("</s>", "the", "he")[i] for (i,) in rows]

        def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
            return [("</s>", "\u2581the", "he")[i] for i in ids]

    model = SimpleNamespace(tokenizer=Pieces(), cfg=None)
    assert PretrainedLanguageModel(model).table.pieces == ("</s>", " the", "he")


def test_texts_of_a_document_are_one_combination(gpt2: Any) -> None:
    texts = pd.concat([TEXTS[:3], TEXTS[:1].assign(text="  " + TEXTS["text"][0])])
    found = pattern_prompts(gpt2, texts).labels
    assert set(found["combination"]) == {0, 1, 2}  # the last is the first but for white space
    found = pattern_prompts(gpt2, texts.assign(document=["a", "b", "b", "c"])).labels
    assert found.groupby("document")["combination"].unique().map(list).to_dict() == {
        "a": ["a"], "b": ["b"], "c": ["a"]}
