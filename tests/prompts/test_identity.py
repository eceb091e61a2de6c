"""Texts are the same where their tokens are: in splits, documents and intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hand_built_heads import known_heads, sentences
from same_token import same_token_model
from small_text import WORDS
from tokenizer_families import bridge_of

import latentcode as lc
from latentcode.errors import SplitError
from latentcode.prompts import Prompts
from latentcode.prompts.prompts import joined
from latentcode.prompts.text_prompts import pattern_prompts, whole_texts
from latentcode.prompts.texts import TextNumbers

CITIES = ("oslo", "bern", "riga", "kyiv", "rome", "lima")


@pytest.fixture(scope="module")
def careless() -> Any:
    """A model whose tokenizer tells neither capitals, nor widths of letters, nor spaces."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate(("<s>", "<unk>", "the", "town", *CITIES))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return bridge_of(PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="<s>", unk_token="<unk>"))


def forms(city: str) -> list[str]:
    """Return texts that are one to `careless`: of other capitals, widths, spaces."""
    wide = "".join(chr(ord(letter) + 0xFEE0) for letter in city)
    return [f"the town {city}", f"The TOWN {city.title()}", f"the  town {wide}",
            f"the town {city}\n"]


def framed() -> pd.DataFrame:
    texts = [text for city in CITIES for text in forms(city)]
    return pd.DataFrame({"prompt": texts, "query": -1, "key": 0,
                         "label": np.repeat(["a", "b", "a", "b", "a", "b"], 4)})


def test_groups_that_share_anything_are_one_however_far() -> None:
    assert joined("abcd", [1, 1, 2, 3], [5, 6, 6, 7]) == ["a", "a", "a", "d"]
    assert joined([3, 1, 3, 1], [0, 1, 2, 3]) == [3, 1, 3, 1]


def test_numbers_of_texts_are_those_of_the_first_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = TextNumbers()
    assert [numbers.number(row) for row in ([1, 2], [1], [1, 2], [2])] == [0, 1, 0, 2]
    numbers.skip()
    assert numbers.number([9]) == 4
    monkeypatch.setattr("latentcode.prompts.texts.REMEMBERED", 4)
    later = [numbers.number(row) for row in ([7, 7], [1], [7, 7], [8])]
    assert later[0] == later[2] != later[3]
    assert later[1] == 1
    assert min(later[0], later[3]) > 4
    assert max(later) < 2**63


def test_prompts_of_the_same_tokens_are_on_one_side_of_a_split(careless: Any) -> None:
    subject = lc.subject(careless, framed())
    tokens = [tuple(ids) for ids in subject.prompts.tokenize(subject.language_model).ids]
    groups = subject.prompts.labels["combination"]
    assert groups.nunique() == len(set(tokens)) == len(CITIES)
    assert (pd.factorize(groups)[0] == pd.factorize(pd.Series(tokens))[0]).all()
    for seed in range(4):
        split = subject.divided(0.4, seed, "label").prompts.labels["split"]
        sides = pd.DataFrame({"tokens": tokens, "split": split})
        assert (sides.groupby("tokens")["split"].nunique() == 1).all()
    codes = lc.extract(careless, framed())
    assert codes.labels["combination"].tolist() == groups.tolist()


def test_a_given_split_divides_no_tokens(careless: Any) -> None:
    fine = framed().assign(split=np.repeat(["train", "ood"], 12))
    assert lc.subject(careless, fine).prompts.labels["split"].tolist() == fine["split"].tolist()
    with pytest.raises(SplitError, match=r"row 0 \('the town oslo'\) and row 1 .* same tokens"):
        lc.subject(careless, framed().assign(split=["train", "ood"] * 12))
    divided = Prompts.from_frame(framed()).for_model(careless).split(0.4)
    assert lc.subject(careless, divided).prompts is divided


def test_documents_that_share_tokens_are_one(careless: Any) -> None:
    texts = pd.DataFrame({"text": forms("oslo") + forms("bern"), "document": list("abcdefgh")})
    assert whole_texts(careless, texts).labels["combination"].tolist() == ["a"] * 4 + ["e"] * 4


def test_no_prompt_of_texts_that_begin_alike_is_in_two_combinations() -> None:
    model = same_token_model()
    rng = np.random.default_rng(0)
    head = "".join(f" {word}" for word in [*WORDS[:8], *WORDS[:8]])
    texts = [head + "".join(f" {word}" for word in rng.choice(WORDS[8:20], 30)) for _ in range(12)]
    n_head = len(model.encode(head)[0])
    for longest in (n_head, n_head + 4, 256):
        prompts = pattern_prompts(model, texts, longest=longest, per_text=8)
        rows = prompts.labels.assign(tokens=[tuple(ids) for ids in prompts.tokenize(model).ids])
        assert (rows.groupby("tokens")["combination"].nunique() == 1).all()
        # Cut where they are alike, they are one document.
        assert (rows["combination"].nunique() == 1) is (longest == n_head)
        assert lc.subject(model, prompts).prompts.labels["combination"].equals(
            rows["combination"])


@pytest.mark.parametrize("order", ["in turn", "one after another"])
def test_copies_of_texts_are_one_to_the_bootstrap(order: str) -> None:
    model, texts = known_heads(), sentences(6)
    copies = texts * 10 if order == "in turn" else [text for text in texts for _ in range(10)]
    once, often = (lc.heads(model, given, n_bootstrap=100, controls=False, effects=["mean"])
                   for given in (texts, copies))
    columns = ["value", "low", "high"]
    np.testing.assert_allclose(often.heads[columns], once.heads[columns], rtol=1e-5, atol=1e-7)
    assert often.effects["n_clusters"].tolist() == once.effects["n_clusters"].tolist() == (
        [6] * len(once.effects))
    assert any("60 texts count as 6" in note for note in often.caveats)
    assert not any("count as" in note for note in once.caveats)


def test_texts_that_are_one_to_the_model_are_one_to_the_bootstrap(careless: Any) -> None:
    many = [text for city in CITIES for text in forms(city)]
    prompts = pd.DataFrame({"prompt": many, "answer": 4})
    for given, n in ((many, 6), ([f"{text} oslo" for text in many], 6), (prompts, 6)):
        options = {} if given is prompts else {"longest": 3}
        heads = lc.heads(careless, given, n_bootstrap=100, controls=False, **options)
        assert (heads.settings["n_texts"], heads.settings["n_groups"]) == (24, n)
    cut = lc.heads(careless, [f"the town {city}" for city in CITIES], n_bootstrap=100,
                   controls=False, longest=2)
    assert (cut.heads["low"].isna().all(), cut.settings["n_groups"]) == (True, 1)
