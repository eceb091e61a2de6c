"""Prompts: positions are found or refused by row, and codes are those of the model, in order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_bridges import make
from small_language_models import SmallModels, make_tokenizer
from torch import Tensor

import latentcode as lc
from latentcode.codes.reader import Reader
from latentcode.errors import (
    ArtifactError,
    ConfigError,
    LatentCodeError,
    SplitError,
)
from latentcode.models.pretrained import load_pretrained
from latentcode.prompts import Prompts
from latentcode.prompts import codes as prompt_codes
from latentcode.tasks.text.tokenizer import token_names

ROWS = [
    {"prompt": "The capital of France is", "query": -1, "key": "France", "label": "city"},
    {"prompt": "The river in Italy", "query": "Italy", "key": "river", "label": "river"},
    {"prompt": "The capital of Peru is Lima and then we asked about the capital of Kenya",
     "query": -1, "key": "Kenya", "label": "city"},
    {"prompt": "naïve café in Lima", "query": -1, "key": "café", "label": "river"},
    {"prompt": "The river is", "query": 2, "key": 0, "label": "river"},
    {"prompt": "The river in Italy and then we asked", "query": -1, "key": "river",
     "label": "city"},
]


@pytest.fixture(scope="module")
def gpt2(small_models: SmallModels) -> Any:
    return load_pretrained(small_models("gpt2"))


def frame(*rows: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(rows or ROWS)


@pytest.mark.parametrize(("architecture", "batch_size"), [
    ("gpt2", 1), ("gpt2", 4), ("llama", 4), ("neox", 4)])
def test_codes_are_those_of_every_prompt_alone(
    small_models: SmallModels, architecture: str, batch_size: int
) -> None:
    model = load_pretrained(small_models(architecture))
    prompts = Prompts.from_frame(frame())
    codes = lc.extract(model, prompts, residuals=True, batch_size=batch_size)
    assert codes.scores.shape == (6, 2, 1, 4)
    assert codes.labels["prompt"].tolist() == [row["prompt"] for row in ROWS]
    assert codes.labels["label"].tolist() == [row["label"] for row in ROWS]
    hooks = [f"blocks.{layer}.{point}" for layer in range(2)
             for point in ("attn.hook_pattern", "hook_resid_pre")]
    for i, row in enumerate(ROWS):
        q, k = codes.labels.loc[i, ["query_position", "key_position"]]
        with torch.no_grad():
            logits, shown = model.run_with_cache(model.to_tokens(row["prompt"]), names_filter=hooks)
        for layer in range(2):
            pattern, residual = (shown[hook][0] for hook in hooks[2 * layer:2 * layer + 2])
            assert pattern[:, q, k].min() > 0
            np.testing.assert_allclose(codes.scores[i, layer, 0], pattern[:, q, k], atol=1e-6)
            np.testing.assert_allclose(codes.residuals[i, layer, 0], residual[q], atol=1e-5)
        answer = int(logits[0, -1].argmax())
        named = token_names(model.tokenizer.backend_tokenizer, [answer])
        assert codes.labels.loc[i, "next_token"] == named[0]
    assert codes.labels["key_token"].tolist()[:4] == [" France", " river", " Kenya", " café"]
    assert codes.labels["query_token"].tolist()[:2] == [" is", " Italy"]


def test_padding_side_and_beginning_follow_the_model(gpt2: Any) -> None:
    prompts = Prompts.from_frame(frame())
    expected = lc.extract(gpt2, prompts)
    side = gpt2.tokenizer.padding_side
    try:
        gpt2.tokenizer.padding_side = "left"
        np.testing.assert_array_equal(lc.extract(gpt2, prompts).scores, expected.scores)
    finally:
        gpt2.tokenizer.padding_side = side
    for prepend_bos in (None, False, True):
        tokens = prompts.tokenize(gpt2, prepend_bos)
        for ids, text in zip(tokens.ids, prompts.labels["prompt"], strict=True):
            assert list(ids) == gpt2.to_tokens(text, prepend_bos=prepend_bos)[0].tolist()
    bare = lc.extract(lc.subject(gpt2, prompts, prepend_bos=False))
    assert (expected.labels["key_position"] - bare.labels["key_position"]).tolist() == [
        1, 1, 1, 1, 0, 1]
    assert bare.labels["key_token"].tolist()[4] == "The"


def test_several_named_pairs(gpt2: Any) -> None:
    rows = [{"prompt": row["prompt"], "combination": "a", "label": row["label"], "role_0": "x",
             "role_1": "y", "pairs": {"last->first": [-1, 0], "last->last": [-1, -1]}}
            for row in ROWS]
    codes = lc.extract(gpt2, frame(*rows), layers=[1], residuals=True)
    assert codes.scores.shape == (6, 1, 2, 4)
    assert codes.query_of_pair == (0, 0)  # one residual stream serves both
    single = lc.extract(gpt2, frame(*(
        {"prompt": row["prompt"], "query": -1, "key": 0} for row in ROWS)), layers=[1])
    np.testing.assert_array_equal(codes.select(layer=1, pair="last->first"),
                                  single.select(layer=1, pair="query->key"))
    assert (codes.label("key_token", "last->last") == codes.label("query_token", "last->first")
            ).all()
    assert codes.label("role", "last->last").tolist() == ["y"] * 6
    assert "key_position_1" in codes.labels


def test_a_file_says_the_same_as_a_frame(gpt2: Any, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n\n".join(map(json.dumps, ROWS)) + "\n", encoding="utf-8")
    prompts = Prompts.read(path)
    assert prompts.digest() == Prompts.from_frame(frame()).digest()
    assert prompts.digest() != Prompts.from_frame(frame(*ROWS[:5])).digest()
    codes = lc.extract(gpt2, path, out=tmp_path / "codes", batch_size=2)
    in_memory = lc.extract(gpt2, frame(), batch_size=2)
    np.testing.assert_array_equal(codes.scores, in_memory.scores)
    pd.testing.assert_frame_equal(codes.labels, in_memory.labels)
    assert lc.LatentCodes.load(tmp_path / "codes").meta["run"] == "gpt2"


def test_an_interrupted_extraction_goes_on(
    gpt2: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from latentcode.codes import latent_codes as codes
    from latentcode.codes import resume as partial_codes

    for module in (codes, partial_codes):
        monkeypatch.setattr(module, "SHARD", 2)
    monkeypatch.setattr(prompt_codes, "BLOCK", 2)
    out = tmp_path / "codes"

    def stop(done: int, total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lc.extract(gpt2, frame(), out=out, batch_size=1, progress=stop)
    with pytest.raises(LatentCodeError, match="other settings"):
        lc.extract(gpt2, frame(*ROWS[::-1]), out=out, batch_size=1)
    seen: list[int] = []
    resumed = lc.extract(gpt2, frame(), out=out, batch_size=1,
                                 progress=lambda done, total: seen.append(done))
    assert seen == [5, 6]
    np.testing.assert_array_equal(resumed.scores, lc.extract(gpt2, frame(),
                                                                     batch_size=1).scores)


def test_long_prompts_share_no_batch(gpt2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, ...]] = []
    run = gpt2.run_with_hooks

    def count(tokens: Tensor, **settings: Any) -> Tensor:
        sizes.append(tuple(tokens.shape))
        logits: Tensor = run(tokens, **settings)
        assert logits.shape == (len(tokens), 1, 400)
        return logits

    monkeypatch.setattr(prompt_codes, "PATTERN_BYTES", 4 * 4 * 2 * 8**2)
    prompts = Prompts.from_frame(frame())
    source = prompt_codes.PromptSource(gpt2, prompts)
    reader = Reader(gpt2, source, batch_size=32, meta={})
    monkeypatch.setattr(gpt2, "run_with_hooks", count)
    reader.read()
    lengths = sorted(map(len, source.tokens.ids))
    assert sum(b for b, _ in sizes) == 6
    assert all(b == 1 or b * t**2 <= 2 * 8**2 for b, t in sizes)
    assert max(b for b, _ in sizes) > 1
    assert max(t for _, t in sizes) == lengths[-1]
    assert [t for _, t in sizes] == sorted(t for _, t in sizes)


def test_a_model_that_looks_ahead_in_padded_batches_is_refused_there(tmp_path: Path) -> None:
    make("OpenAIGPTLMHeadModel", tmp_path / "gpt1")  # whose bridge forgets causality under a mask
    model = load_pretrained(tmp_path / "gpt1")
    lengths = frame(*({"prompt": " ".join(map(str, range(1, n))), "query": -1, "key": 0}
                      for n in (4, 9)))
    with pytest.raises(ConfigError, match=r"layer 0 of model 'gpt1' .* later ones in a padded "
                                          r"batch; expected batch_size=1, or a model in which"):
        lc.extract(model, lengths)
    assert len(lc.extract(model, lengths, batch_size=1)) == 2


@pytest.mark.parametrize(("spoil", "message"), [
    (lambda weight: weight[0, 0].fill_(float("nan")),
     r"model '\w+' has weights that are NaN or infinite, \S*attn\S* among them; expected"),
    (lambda weight: weight.copy_(3e38 * weight.sign()),
     r"layer [01] of model .* gives codes that are NaN, though its weights are finite"),
])
def test_numbers_that_are_not_finite_are_not_taken_for_a_look_ahead(
    small_models: SmallModels, spoil: Any, message: str
) -> None:
    model = load_pretrained(small_models("gpt2"))
    with torch.no_grad():
        spoil(dict(model.named_parameters())[next(
            name for name, _ in model.named_parameters() if "attn" in name and "weight" in name)])
    with pytest.raises(ConfigError, match=message):
        lc.extract(model, frame(ROWS[0]))


def test_what_cannot_be_read_is_named(gpt2: Any, tmp_path: Path) -> None:
    good = ROWS[0]
    for row, message in (
        ({**good, "key": "Spain"}, r"row 1 \('The capital of France is'\) names the text 'Spain', "
                                   "which does not occur"),
        ({**good, "prompt": "Lima is Lima", "key": "Lima"}, "row 1 .* occurs more than once"),
        ({**good, "key": 99}, "row 1 .* names token 99; expected -"),
        ({**good, "query": 1, "key": "France"}, "row 1 .* has key . after query 1"),
        ({**good, "prompt": "Lima " * 80, "key": 0}, "row 1 .* expected at most 64"),
        ({**good, "key": ""}, r"row 1 .* is .*''.; expected \[query, key\]"),
        ({**good, "prompt": None}, "prompt of row 1 is .*; expected text"),
        ({**good, "label": None}, "label 'label' of row 1 is missing"),
    ):
        # Before they are divided, and counted in what was given, not within a split.
        divided = [{**r, "split": split, "combination": split} for r, split in (
            (good, "train"), (row, "ood"))]
        for rows in ((good, row), divided):
            with pytest.raises(ConfigError, match=message):
                lc.decode(gpt2, frame(*rows), labels=["label"])
    for rows, message in (
        ([], "there are no prompts"),
        ([{**good, "pairs": {"a": [0, 0]}}], "expected query and key, or pairs"),
        ([{"prompt": "a", "pairs": {"x": [0]}}], "pair 'x' of row 0"),
        ([{"prompt": "a", "pairs": {"x": [0, 0]}}, {"prompt": "a", "pairs": {"y": [0, 0]}}],
         "pairs of row 1"),
        ([{**good, "split": "test"}], "split of row 0 .* 'test'; expected one of: train, ood"),
        ([{**good, "key_token_0": "a"}], "as what the extraction adds"),
        *(([{**good, "year": year}], "label 'year' of row 0 is .* 64 bits")
          for year in (10**400, -2**63, float("inf"))),
    ):
        with pytest.raises(ConfigError, match=message):
            Prompts.from_frame(pd.DataFrame(rows))
    path = tmp_path / "prompts.jsonl"
    for text, message in (
        ("{}\n[1]", "line 2 is '\\[1\\]'; expected an object"),
        ("{\n", "line 1 is not JSON"), (json.dumps("\udc80"), "1 is not .*surrog"),
        (f"{json.dumps(good)}\n\n{json.dumps({'prompt': 'a'})}", "line 3 has the columns"),
    ):
        path.write_text(text)
        with pytest.raises(ArtifactError, match=message):
            Prompts.read(path)


def prompts_of(combinations: list[int], labels: list[int]) -> Prompts:
    return Prompts.from_frame(pd.DataFrame({
        "prompt": [f"p{i}" for i in range(len(labels))], "query": 0, "key": 0,
        "combination": combinations, "label": labels}))


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2)), min_size=2, max_size=40),
       st.floats(0.05, 0.8), st.integers(0, 3))
def test_a_split_holds_out_combinations_and_no_label(
    rows: list[tuple[int, int]], heldout: float, seed: int
) -> None:
    prompts = prompts_of(*map(list, zip(*rows, strict=True)))
    wanted = max(1, round(heldout * prompts.labels["combination"].nunique()))
    try:
        labels = prompts.split(heldout, seed).labels
    except SplitError:
        return
    train, ood = (labels[labels["split"] == name] for name in ("train", "ood"))
    assert not set(train["combination"]) & set(ood["combination"])
    assert ood["combination"].nunique() == wanted
    assert set(ood["label"]) <= set(train["label"])
    pd.testing.assert_frame_equal(labels, prompts.split(heldout, seed).labels)


def test_splits_depend_on_the_seed_and_may_be_impossible() -> None:
    prompts = prompts_of(list(range(20)), [0, 1] * 10)
    splits = {tuple(prompts.split(0.3, seed).labels["split"]) for seed in range(4)}
    assert len(splits) == 4
    assert {split.count("ood") for split in splits} == {6}
    with pytest.raises(SplitError, match=r"2 of 3 combinations cannot be held out"):
        prompts_of([0, 1, 2], [0, 1, 1]).split(0.6)
    with pytest.raises(ConfigError, match="already"):
        prompts.split().split()


def test_a_tokenizer_without_a_beginning_is_not_asked_for_one() -> None:
    model = _Tokens()
    model.tokenizer = make_tokenizer()
    model.tokenizer.bos_token = None
    prompts = Prompts.from_frame(frame())
    assert prompts.tokenize(model).ids == prompts.tokenize(model, False).ids
    with pytest.raises(ConfigError, match=r"prepend_bos is True, .* has no BOS token"):
        prompts.tokenize(model, True)


def test_prompts_of_equal_text_are_one_combination_by_default() -> None:
    rows = [{"prompt": text, "query": 0, "key": 0} for text in ("a", "b", "a", "c", "b")]
    assert Prompts.from_frame(frame(*rows)).labels["combination"].tolist() == [0, 1, 0, 3, 1]


class _Tokens:
    """As much of a model as tokenizing asks for."""

    class cfg:
        n_ctx = None
        causal = True
        default_prepend_bos = True
        tokenizer_prepends_bos = False

    tokenizer = make_tokenizer()


@given(st.text(st.sampled_from("aeiou lmnéï½🙂 \n"), min_size=1, max_size=12), st.data())
def test_a_piece_of_text_is_found_at_its_last_character(text: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(begin + 1, len(text)))
    piece = text[begin:end]
    prompts = Prompts.from_frame(frame({"prompt": text, "query": -1, "key": piece}))
    model = _Tokens()
    if text.find(piece, text.find(piece) + 1) >= 0:
        with pytest.raises(ConfigError, match="more than once"):
            prompts.tokenize(model)
        return
    tokens = prompts.tokenize(model)
    at = int(tokens.key[0, 0])
    # A token of this tokenizer is written with one character per byte.
    size = [len(t) for t in model.tokenizer.convert_ids_to_tokens(tokens.ids[0][1:])]
    assert sum(size[:at - 1]) < len(text[:end].encode()) <= sum(size[:at])


@pytest.mark.parametrize("given", ["text-softmax", "zoo:text-softmax", "folder"])
def test_a_model_trained_here_has_no_bridge(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", None)  # nothing is looked up
    named: Any = lc.load_run("text-softmax").path if given == "folder" else given
    for ask in (lc.load_pretrained, lc.check_model):
        with pytest.raises(ConfigError, match=r"trained here; expected a pretrained .* needs no "
                                              r"bridge: latentcode\.prompts\.load_language_model"):
            ask(named)
