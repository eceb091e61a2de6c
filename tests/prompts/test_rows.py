"""Features of rows, values and tokens of prompts: what the hooks show, of bridges and our own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from small_language_models import SmallModels

import latentcode as lc
from latentcode.codes.rows import WIDEST, RowBatch, gather_rows, read_rows
from latentcode.errors import ConfigError, SplitError, UnknownNameError
from latentcode.models.pretrained import load_pretrained
from latentcode.prompts import LanguageModel, OwnLanguageModel, as_language_model
from latentcode.prompts.rows import read_prompt_rows

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
    assert rows.meta["prompts"] == prompts.digest()
    assert (rows.meta["split"], rows.meta["pair"], rows.meta["prepend_bos"]) == (
        "prompts", "a", model.begins())


def test_rows_of_a_run_are_those_of_its_model_in_hand() -> None:
    run = lc.load_run("text-softmax")
    task, batch = lc.make_task(run.config.task), lc.instances(run, n=10)
    expected = read_rows(run.load_model(), task, n=10, layers=[1], batch_size=4)
    query, key = (found[:, 0] for found in task.positions(list(task.pairs)[:1], batch))
    whole = RowBatch(batch.inputs, query, key, task.labels(batch), task.key_sets(batch))
    found = gather_rows(run.load_model(), [whole], n=10, layers=[1], batch_size=4)
    assert found.sizes == expected.sizes
    assert set(found.values) == set(expected.values)
    for place, values in expected.values.items():
        assert np.array_equal(found.values[place], values), place
    pd.testing.assert_frame_equal(found.labels, expected.labels)


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
    of = lc.subject(bridge, given)
    train, ood = (of.rows(split, n=len(given), pair="a", features=["residual"])
                  for split in ("train", "ood"))
    both = np.concatenate([ood.values["residual", "1"], train.values["residual", "1"]])
    np.testing.assert_allclose(both, whole.values["residual", "1"], atol=1e-5)
    assert set(ood.labels["split"]) == {"ood"}
    assert (whole.meta["split"], ood.meta["split"]) == ("prompts", "ood")
    with pytest.raises(SplitError, match="no prompt is of split 'test'; they are of ood, train"):
        of.rows("test", n=1, pair="a", features=["residual"])


def test_what_has_no_rows_is_one_error(small_models: SmallModels) -> None:
    bridge = load_pretrained(small_models("gpt2"))
    given = frame(as_language_model(bridge))
    longer = pd.concat([given, given.assign(prompt=given["prompt"] + " and then")])
    with pytest.raises(ConfigError, match=r"prompts have \d+, \d+ tokens; expected as many in e"):
        read_prompt_rows(bridge, longer)
    with pytest.raises(UnknownNameError, match="unknown pair 'c'; expected one of: a, b"):
        read_prompt_rows(bridge, given, pair="c")


def test_batches_have_one_layout_and_are_as_many_as_said(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("gpt2"))

    def batch(n: int, length: int, n_keys: int = 2) -> RowBatch:
        at = torch.full((n,), 3)
        return RowBatch(torch.ones(n, length, dtype=torch.int64), at, at - 1,
                        pd.DataFrame({"number": range(n)}), {"some": at[:, None].expand(n, n_keys)})

    assert len(gather_rows(model, [batch(2, 5), batch(1, 5)], n=3).labels) == 3
    for batches, message in (
        ([batch(2, 5), batch(1, 6)], "instances have 6 tokens, .*others 5 tokens"),
        ([batch(2, 5), batch(1, 5, 3)], "have 5 tokens, 3 tokens in row.some, others 5 tokens, 2"),
        ([batch(2, 5)], "n is 3, but there are 2 instances; expected as many"),
        ([batch(2, 5), batch(2, 5)], "n is 3, but there are 4 instances at least; expected as ma"),
    ):
        with pytest.raises(ConfigError, match=message):
            gather_rows(model, batches, n=3)
