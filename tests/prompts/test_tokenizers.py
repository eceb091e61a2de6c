"""Ten families of tokenizers: the ids of a prompt are those of the tokenizer itself."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import pytest
from tokenizer_families import FAMILIES, WORDS, bridge_of, make_tokenizer

import latentcode as lc
from latentcode.errors import ConfigError
from latentcode.prompts import LanguageModel, as_language_model

SETTINGS = [(family, add_bos) for family in FAMILIES for add_bos in (None, True, False)
            if not (add_bos and FAMILIES[family].bos is None)]


def ids_of(model: LanguageModel, texts: Sequence[str], prepend_bos: bool | None) -> list[list[int]]:
    return [model.encode(text, prepend_bos)[0] for text in texts]


@pytest.mark.parametrize(("family", "add_bos"), SETTINGS)
def test_the_ids_are_those_of_the_tokenizer(family: str, add_bos: bool | None) -> None:
    tokenizer = make_tokenizer(family, add_bos)
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    plain = [f"{WORDS[0]} {WORDS[1]}", f"{WORDS[2]}{WORDS[3]}", f" {WORDS[4]}", f"{WORDS[0]} \n"]
    begun = [] if bos is None else [f"{tokenizer.bos_token}{text}" for text in plain]
    bare = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (*plain, *begun)]
    whole = [tokenizer(text)["input_ids"] for text in plain]
    bridge = bridge_of(tokenizer)
    model = as_language_model(bridge)
    appended = eos is not None and whole[0][-1] == eos
    expected = [ids[:-1] if appended else ids for ids in whole]
    assert ids_of(model, plain, None) == expected
    adds = bos is not None and expected[0][0] == bos
    assert model.begins() is bridge.cfg.default_prepend_bos is adds
    if add_bos is not None and FAMILIES[family].follows:
        assert adds is add_bos
    for prepend_bos in (None, True, False) if begun else (None, False):
        found = ids_of(model, begun, prepend_bos)
        assert found == bare[len(plain):], "a text that begins with BOS gets no second one"
        assert ids_of(model, plain, prepend_bos) == [
            [*([bos] if (adds and prepend_bos is None) or prepend_bos else []),
             *(ids[1:] if adds else ids)] for ids in expected]
    if bos is None:
        with pytest.raises(ConfigError, match=r"prepend_bos is True, .* has no BOS token"):
            model.begins(True)
    fresh = model.untrained(1)
    assert ids_of(fresh, [*plain, *begun], None) == ids_of(model, [*plain, *begun], None)


@pytest.mark.parametrize("prepend_bos", [None, True, False])
def test_results_say_how_texts_begin(prepend_bos: bool | None) -> None:
    bridge = bridge_of(make_tokenizer("byte-level BPE, BOS unused", None))
    text = f"{WORDS[0]} {WORDS[1]}"
    prompts = pd.DataFrame({"prompt": [text, f"<s>{text}"], "query": -1, "key": -2})
    subject = lc.subject(bridge, prompts, prepend_bos=prepend_bos)
    begins = bool(prepend_bos)
    said = "'<s>' before each text that does not begin with it" if begins else (
        "none but the text's own")
    for settings in (
        lc.extract(subject).meta, subject.settings,
        lc.generate(bridge, text, max_new_tokens=1, prepend_bos=prepend_bos).settings,
        lc.heads(bridge, [text, f"<s>{text}"], prepend_bos=prepend_bos, effects=[],
                 controls=False).settings,
    ):
        assert (settings["prepend_bos"], settings["bos"]) == (begins, said)


def test_a_tokenizer_that_is_set_later_is_followed() -> None:
    bridge = bridge_of(make_tokenizer("byte-level BPE, BOS unused", None))
    bridge.tokenizer = bridge_of(make_tokenizer("WordLevel, BOS by template", None)).tokenizer
    assert as_language_model(bridge).tokenizer is bridge.tokenizer
