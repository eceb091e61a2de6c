"""Are texts prompts whose pairs follow patterns, or whole texts whose documents stay together?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from small_language_models import SmallModels

import latentcode as lc
from latentcode.errors import ConfigError, SplitError
from latentcode.models.pretrained import load_pretrained
from latentcode.prompts import PretrainedLanguageModel, as_language_model, load_language_model
from latentcode.prompts.text_prompts import PAIRS, pattern_prompts, whole_texts
from latentcode.tasks.text.tokens import PATTERNS

TEXTS = pd.DataFrame({
    "text": ["The capital of France is Paris and the capital of France is Paris (1) [2].",
             "in Rome we asked about a café and then in Rome we asked about Paris\n  in Lima (x)",
             "river river naïve naïve: the river of Kenya, the river of Peru, the river of Kenya",
             "x"],
    "kind": ["md", "py", "md", "py"]})
DOCUMENTS = pd.DataFrame({
    "text": ["The capital of France", "The river of\n Peru", "in Rome and then", "we asked in Lima",
             "The river  of Peru"],
    "document": ["a", "b", "a", "c", "d"], "kind": ["x", "y", "x", "y", "y"]})


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


def test_texts_are_prompts_and_documents_combinations(gpt2: Any) -> None:
    prompts = whole_texts(gpt2, DOCUMENTS)
    assert prompts.labels["prompt"].tolist() == DOCUMENTS["text"].tolist()
    assert prompts.labels["kind"].tolist() == DOCUMENTS["kind"].tolist()
    assert prompts.labels["combination"].tolist() == ["a", "b", "a", "c", "b"]
    tokens = prompts.tokenize(gpt2)
    model = as_language_model(gpt2)
    for i, text in enumerate(DOCUMENTS["text"]):
        ids, _ = model.encode(text)
        assert list(tokens.ids[i]) == ids
        last = len(ids) - 1
        assert tokens.query[i].tolist() == [last] * 3
        assert tokens.key[i].tolist() == [last - 1, 0, last]
    assert [pair.name for pair in prompts.pairs] == list(PAIRS)
    codes = lc.extract(gpt2, prompts)
    assert codes.scores.shape[:3] == (5, 2, 3)
    # Each text is a document unless it says so.
    alone = whole_texts(gpt2, DOCUMENTS["text"].tolist())
    assert alone.labels["combination"].tolist() == [0, 1, 2, 3, 1]


def test_a_split_divides_no_document(gpt2: Any) -> None:
    fine = DOCUMENTS.assign(split=["train", "ood", "train", "train", "ood"])
    assert whole_texts(gpt2, fine).rows("ood").tolist() == [1, 4]
    shared = DOCUMENTS.assign(split=["train", "ood", "ood", "train", "ood"])
    with pytest.raises(SplitError, match=r"row 0 .* and row 2 .* are one combination, 'a', and"):
        whole_texts(gpt2, shared)
    same = DOCUMENTS.assign(split=["train", "ood", "train", "train", "train"])
    with pytest.raises(SplitError, match=r"row 1 \('The.*row 4 \('The.* one combination, 'b'"):
        whole_texts(gpt2, same)
    with pytest.raises(SplitError, match=r"row 1 .*row 4 .* one combination, 1"):
        whole_texts(gpt2, same.drop(columns="document"))


@pytest.mark.parametrize(("given", "said"), [
    (DOCUMENTS.rename(columns={"text": "page"}), "no column 'text'"),
    (DOCUMENTS.assign(combination=1), "a column 'combination'; expected 'document'"),
    (DOCUMENTS.assign(text=["a b", " ", "c", "d", "e"]), "text of row 1 is ' '"),
    (DOCUMENTS.assign(document=["a", "b", None, "c", "d"]), "document of row 2 is missing"),
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
