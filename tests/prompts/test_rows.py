"""Features of rows, values and tokens of prompts: what the hooks show, of bridges and our own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from reading import read_prompt_rows
from small_language_models import SmallModels

import latentcode as lc
from latentcode.codes.features import WIDEST, read_features
from latentcode.errors import ConfigError, SplitError
from latentcode.models.pretrained import load_pretrained
from latentcode.prompts import LanguageModel, OwnLanguageModel, as_language_model

PLACES = ("France", "Peru", "Kenya", "Paris", "Rome", "Lima")


def open_model(which: str, small_models: SmallModels) -> LanguageModel:
    if which == "text-softmax":
        return OwnLanguageModel.of_run(lc.load_run(which))
    return as_language_model(load_pretrained(small_models(which)))


def frame(model: LanguageModel, **columns: Any) -> pd.DataFrame:
    """Return prompts of equally many tokens, to be read at two pairs."""
    texts = [f"The river in {place}" for place in PLACES]
    lengths = [len(model.encode(text)[0]) for text in texts]
    length = max(set(lengths), key=lengths.count)
    rows = [{"prompt": text, "label": i % 2, "pairs": {"a": (-1, "river"), "b": (2, 2)}}
            for i, text in enumerate(t for t, n in zip(texts, lengths, strict=True) if n == length)]
    assert len(rows) >= 2
    return pd.DataFrame(rows).assign(**columns)


@pytest.mark.parametrize("which", ["gpt2", "llama", "gemma2", "text-softmax"])
def test_features_are_what_the_hooks_show(which: str, small_models: SmallModels) -> None:
    model = open_model(which, small_models)
    prompts = lc.Prompts.from_frame(frame(model))
    names = ["code", "row", "row.pairs", "codes", "values", "residual", "tokens"]
    rows = read_prompt_rows(model, prompts, features=names, batch_size=2)
    tokens = prompts.tokenize(model)
    shown = ("attn.hook_pattern", "attn.hook_v", "hook_resid_pre")
    with torch.no_grad():
        _, seen = model.model.run_with_cache(
            torch.tensor(tokens.ids), names_filter=[f"blocks.1.{name}" for name in shown])
    at, query = torch.arange(len(prompts)), torch.tensor(tokens.query[:, 0])
    key = torch.tensor(tokens.key)
    pattern, values, stream = (seen[f"blocks.1.{name}"] for name in shown)
    row = pattern[at, :, query]
    expected = {
        "code": pattern[at, :, query, key[:, 0]], "row": row,
        "row.pairs": torch.stack([row[at, :, key[:, p]] for p in range(2)], -1),
        "codes": pattern, "values": values, "residual": stream[at, query],
        "tokens": stream}
    narrow = 0
    for name in names:
        flat = expected[name].flatten(1)
        assert rows.sizes[name, "1"] == flat.shape[1]
        assert rows.values[name, "1"].shape == (len(prompts), min(flat.shape[1], WIDEST))
        if flat.shape[1] <= WIDEST:
            narrow += 1
            np.testing.assert_allclose(rows.values[name, "1"], flat, rtol=1e-3, atol=1e-5)
    assert narrow >= 4
    assert rows.labels["label"].tolist() == prompts.labels["label"].tolist()
    codes = lc.extract(model, prompts)
    for layer in (0, 1):
        np.testing.assert_allclose(rows.values["code", str(layer)],
                                   codes.select(layer=layer, pair="a"), rtol=1e-3, atol=1e-5)
    other = read_prompt_rows(model, prompts, pair="b", features="code", layers=[1])
    np.testing.assert_allclose(other.values["code", "1"], codes.select(layer=1, pair="b"),
                               rtol=1e-3, atol=1e-5)
    assert rows.meta["pair"] == "a"


def test_rows_of_a_narrow_type_are_read(small_models: SmallModels) -> None:
    bridge = load_pretrained(small_models("gpt2"), dtype=torch.bfloat16)
    given = frame(as_language_model(bridge))
    found, exact = (read_prompt_rows(model, given, features=["row", "tokens"])
                    for model in (bridge, load_pretrained(small_models("gpt2"))))
    np.testing.assert_allclose(found.values["row", "0"], exact.values["row", "0"], atol=0.02)


def test_a_split_is_read_alone(small_models: SmallModels) -> None:
    bridge = load_pretrained(small_models("gpt2"))
    given = frame(as_language_model(bridge))
    given["split"] = ["ood", *["train"] * (len(given) - 1)]
    whole = read_prompt_rows(bridge, given, features=["residual"])
    subject = lc.subject(bridge, given)
    asked: dict[str, Any] = {"n": len(given), "pairs": "a", "features": ["residual"]}
    train, ood = (read_features(subject.reader(split, **asked), asked["features"])
                  for split in ("train", "ood"))
    both = np.concatenate([ood.values["residual", "1"], train.values["residual", "1"]])
    np.testing.assert_allclose(both, whole.values["residual", "1"], atol=1e-5)
    assert set(ood.labels["split"]) == {"ood"}
    assert (ood.meta["split"], ood.meta["pair"]) == ("ood", "a")
    with pytest.raises(SplitError, match="no prompt is of split 'test'; they are of ood, train"):
        subject.reader("test", **asked | {"n": 1})


def test_what_has_no_rows_is_one_error(small_models: SmallModels) -> None:
    bridge = load_pretrained(small_models("gpt2"))
    given = frame(as_language_model(bridge))
    longer = pd.concat([given, given.assign(prompt=given["prompt"] + " and then")])
    with pytest.raises(ConfigError, match=r"prompts have \d+, \d+ tokens; expected as many in e"):
        read_prompt_rows(bridge, longer, features="row")
