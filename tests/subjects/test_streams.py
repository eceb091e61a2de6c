"""Texts become batches: nothing is lost, each is read as asked, and what cannot be is said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hand_built_heads import known_heads, sentences
from small_language_models import SmallModels
from small_text import WordTokenizer

from latentcode.errors import ConfigError
from latentcode.prompts import LanguageModel, Prompts
from latentcode.prompts.texts import Texts
from latentcode.subjects.streams import stream_texts

Row = tuple[int, list[int], list[int]]
TEXTS = sentences(30)
END, ENCODE = WordTokenizer.end, WordTokenizer().encode


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return known_heads()


def rows_of(texts: Texts) -> list[Row]:
    """Return number, tokens and what is read of every text, in the order of their numbers."""
    rows: list[Row] = []
    for batch in texts.batches():
        for text, tokens, length, targets, read in zip(
                batch.text, batch.tokens, batch.lengths, batch.targets, batch.read, strict=True):
            assert not bool(read[int(length):].any())
            rows.append((int(text), tokens[:length].tolist(), targets[read].tolist()))
    return sorted(rows)


def expected(texts: list[str], longest: int | None = None) -> list[Row]:
    ids = [[END, *row] for row in ENCODE(texts)]
    return [(i, row[:longest], row[1:None if longest is None else longest + 1])
            for i, row in enumerate(ids)]


def in_list(texts: list[str], folder: Path) -> Any:
    return texts


def in_frame(texts: list[str], folder: Path) -> Any:
    return pd.DataFrame({"text": texts, "kind": "any"})


def in_lines(texts: list[str], folder: Path) -> Any:
    (folder / "texts.txt").write_text("\n".join(["", *texts, ""]), encoding="utf-8")
    return folder / "texts.txt"


def in_objects(texts: list[str], folder: Path) -> Any:
    lines = [json.dumps({"text": text, "kind": "any"}) for text in texts]
    (folder / "texts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return str(folder / "texts.jsonl")


def one_by_one(texts: list[str], folder: Path) -> Any:
    return (text for text in texts)


@pytest.mark.parametrize("given", [in_list, in_frame, in_lines, in_objects, one_by_one])
@pytest.mark.parametrize("longest", [None, 12])
def test_every_text_is_read_once_however_it_is_given(
    given: Callable[[list[str], Path], Any], longest: int | None, model: LanguageModel,
    tmp_path: Path,
) -> None:
    texts = stream_texts(model, given(TEXTS, tmp_path), longest=longest, tokens_at_once=40)
    assert rows_of(texts) == expected(TEXTS, longest)
    assert rows_of(texts) == expected(TEXTS, longest)  # and again


def test_batches_are_as_large_as_asked_and_of_similar_lengths(model: LanguageModel) -> None:
    lengths = {len(row) for _, row, _ in expected(TEXTS)}
    assert len(lengths) > 6
    batches = list(stream_texts(model, TEXTS, tokens_at_once=60).batches())
    assert all(len(batch) == 1 or batch.tokens.numel() <= 60 for batch in batches)
    assert sum(batch.tokens.numel() for batch in batches) < 1.1 * sum(
        int(batch.lengths.sum()) for batch in batches)
    assert len(batches) < len(TEXTS) / 2


@pytest.mark.parametrize("given", [in_list, in_lines, in_objects])
def test_progress_is_how_much_is_read(
    given: Callable[[list[str], Path], Any], model: LanguageModel, tmp_path: Path
) -> None:
    texts = stream_texts(model, given(TEXTS, tmp_path), tokens_at_once=5)
    after: list[int] = []
    list(texts.batches(lambda done, total: after.append(done)))
    assert len(after) > 3
    assert after == sorted(after)
    assert after[-1] == texts.source.total


def test_the_first_texts_alone(model: LanguageModel) -> None:
    texts = stream_texts(model, TEXTS, n=7, tokens_at_once=5)
    assert rows_of(texts) == expected(TEXTS)[:7]


def test_texts_that_are_read_again_stay_what_they_are(model: LanguageModel) -> None:
    texts = stream_texts(model, TEXTS, n=7, longest=3, tokens_at_once=5)
    again = stream_texts(texts)
    assert again.settings == texts.settings
    assert rows_of(again) == expected(TEXTS, 3)[:7]
    assert rows_of(stream_texts(texts, n=2)) == expected(TEXTS, 3)[:2]


def test_of_prompts_the_answer_is_read_after_the_last_token(
    model: LanguageModel, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"prompt": TEXTS[:4], "answer": [" kaba", " loda", " kaba", " kaba"],
                          "query": -1, "key": 0, "combination": ["a", "b", "a", "c"]})
    lines = [json.dumps(row) for row in frame[["prompt", "answer"]].to_dict("records")]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "places.jsonl").write_text(
        "\n".join(json.dumps(row) for row in frame.to_dict("records")), encoding="utf-8")
    wanted = [(tokens, [ENCODE([answer])[0][0]]) for (_, tokens, _), answer in zip(
        expected(TEXTS[:4]), frame["answer"], strict=True)]
    for given, numbers in ((frame, [0, 1, 0, 2]), (Prompts.from_frame(frame), [0, 1, 0, 2]),
                           (tmp_path / "places.jsonl", [0, 1, 0, 2]),
                           (frame[["prompt", "answer"]], range(4)),
                           (tmp_path / "prompts.jsonl", range(4))):
        found = rows_of(stream_texts(model, given))
        assert found == sorted((number, *row) for number, row in zip(numbers, wanted, strict=True))
    texts = stream_texts(model, frame)
    assert texts.problems is not None
    batch, = texts.batches()
    assert bool((batch.read.nonzero()[:, 1] == batch.lengths - 1).all())
    # Two prompts are of one combination, and still two.
    assert sorted(zip(batch.rows.tolist(), batch.text.tolist(), strict=True)) == [
        (0, 0), (1, 1), (2, 0), (3, 2)]
    without = stream_texts(model, frame.drop(columns="answer"))
    assert all(said == [] for _, _, said in rows_of(without))


def test_padding_is_said_to_a_pretrained_model(small_models: SmallModels) -> None:
    texts = ["The capital of France is Paris", "The river"]
    batch, = stream_texts(small_models("gpt2"), texts, prepend_bos=False).batches()
    assert batch.padding["attention_mask"].sum(1).tolist() == batch.lengths.tolist()
    tokens = torch.arange(batch.tokens.shape[1])[None] < batch.lengths[:, None]
    torch.testing.assert_close(batch.padding["attention_mask"], tokens.long())


def test_a_run_reads_excerpts_of_its_own_text() -> None:
    texts = stream_texts("text-softmax", n=5)
    rows = rows_of(texts)
    assert len(rows) == 5
    assert all(row[1][1:] == row[2][:-1] for row in rows)
    assert {len(row[1]) for row in rows} == {texts.model.context}


@pytest.mark.parametrize(("texts", "options", "message"), [
    ([" kaba" * 30], {}, "31 tokens; expected at most 24, the context of the model. longest=24"),
    ([" kaba" * 3], {"longest": 30}, "longest is 30; expected at most 24"),
    ([" kaba", 3], {}, "text 1 is 3; expected text"),
    ("nowhere.txt", {}, "'nowhere.txt', which is no file"),
    (pd.DataFrame({"words": [" kaba"]}), {}, "have the columns ['words']"),
    (pd.DataFrame({"prompt": [" kaba"], "answer": [" loda"]}), {"longest": 4}, "cuts texts"),
])
def test_what_cannot_be_read_is_said(
    texts: Any, options: dict[str, Any], message: str, model: LanguageModel
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        list(stream_texts(model, texts, **options).batches())
