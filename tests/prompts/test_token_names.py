"""No two tokens are shown as one, and texts that are generated go on where the prompt ends."""

from __future__ import annotations

import pandas as pd
import pytest
from tokenizer_families import FAMILIES, bridge_of, make_tokenizer

import latentcode as lc
from latentcode.probes.generation import continuation
from latentcode.prompts import as_language_model, load_language_model
from latentcode.tasks.text.render import Drawing

TEXTS = ("un unre", "reun", "do ü", "東 caf\u00e9", "京 cafe\u0301", "<0xE6>")


@pytest.mark.parametrize("family", list(FAMILIES))
def test_no_two_tokens_have_one_name(family: str) -> None:
    tokenizer = make_tokenizer(family)
    model = as_language_model(bridge_of(tokenizer))
    names = model.texts(range(len(tokenizer) + 3))
    assert len(set(names)) == len(names)
    assert not any("\ufffd" in name or not name for name in names)
    rows = pd.DataFrame([{"prompt": text, "query": -1, "key": i} for text in TEXTS
                         for i in range(len(model.encode(text)[0]))])
    labels = lc.extract(model, rows).labels
    ids = [model.encode(text)[0][i] for text, i in zip(rows["prompt"], rows["key"], strict=True)]
    assert (pd.factorize(labels["key_token"])[0] == pd.factorize(pd.Series(ids))[0]).all()
    for seed in range(3):
        found = lc.generate(model, TEXTS[seed], max_new_tokens=8, temperature=1.0, seed=seed)
        new = list(found.tokens[found.n_prompt:])
        assert found.table["text"].tolist() == model.texts(new)
        assert tokenizer.decode(list(found.tokens)).endswith(found.text)


def test_names_say_what_a_token_is() -> None:
    pieces = as_language_model(bridge_of(make_tokenizer("sentencepiece BPE, BOS unused")))
    assert {"▁un", "un", "re"} <= set(pieces.texts(range(pieces.vocabulary)))
    letters = as_language_model(bridge_of(make_tokenizer("byte-level BPE, BOS unused")))
    known = set(letters.texts(range(letters.vocabulary)))
    assert {" caf\u00e9", "un", "<0x80>", " <0xE6><0x9D>"} <= known


@pytest.mark.parametrize(("family", "prompt", "after"), [
    ("sentencepiece BPE, BOS unused", "un", " re"),
    ("sentencepiece BPE, BOS by template", "un", "re"),
    ("byte-level BPE, BOS unused", "un", " un"),
    ("byte-level BPE, BOS unused", "un", "東 "),
    ("WordLevel without BOS", "un", " re do"),
])
def test_what_comes_next_keeps_its_spaces(family: str, prompt: str, after: str) -> None:
    model = as_language_model(bridge_of(make_tokenizer(family)))
    whole, _ = model.encode(prompt + after)
    n_prompt = len(model.encode(prompt)[0])
    assert continuation(model, whole[:n_prompt], whole[n_prompt:]) == after
    for cut in range(1, len(whole)):
        assert model.decode(whole).endswith(continuation(model, whole[:cut], whole[cut:]))


def test_tokens_of_models_of_ours_have_names_of_their_own() -> None:
    names = load_language_model("text-softmax").table.names
    assert len(set(names)) == len(names)
    assert "<0xE2>" in names
    pieces = ["\ufffd"] * 4
    assert not Drawing(pieces, 2, 1, 0, "", tokens=[5, 6, 5, 7]).copied
    assert Drawing(pieces, 2, 1, 0, "", tokens=[5, 6, 5, 6]).copied
