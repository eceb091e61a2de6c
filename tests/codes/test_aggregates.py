"""Are the numbers of a whole pattern those of their equations, each text by itself?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from reading import read_prompt_rows
from small_language_models import SmallModels

import latentcode as lc
from latentcode.codes.features import AGGREGATES, MEAN_RESIDUAL, TOP_K, WIDEST, lap_eigvals
from latentcode.errors import ConfigError
from latentcode.models.pretrained import load_pretrained
from latentcode.prompts import as_language_model


def causal(n: int, heads: int, length: int, seed: int = 0) -> torch.Tensor:
    scores = torch.randn(n, heads, length, length, generator=torch.Generator().manual_seed(seed))
    return scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf).softmax(-1)


def by_numpy(name: str, a: np.ndarray) -> np.ndarray:
    """Return an aggregate of one pattern [T, T], computed otherwise."""
    n = len(a)
    if name == "lap_eigvals":
        received = np.array([np.mean([a[u, i] for u in range(i, n)]) for i in range(n)])
        return np.sort(np.linalg.eigvals(np.diag(received) - a).real)[::-1][:TOP_K]
    if name == "attn_log_det":
        return np.linalg.slogdet(a)[1] / n
    whole = np.abs(a).sum(1, keepdims=True)
    found = {
        "attn_sum": [row.sum() for row in a],
        "entropy": [-sum(p * np.log(p) for p in row if p > 0) for row in np.abs(a) / whole],
        "distance": [sum(p * abs(q - k) for k, p in enumerate(row))
                     for q, row in enumerate(np.abs(a) / whole)],
        "first_token": [a[q, 0] for q in range(1, n)],
        "previous_token": [a[q, q - 1] for q in range(1, n)]}
    return np.mean(found[name])


@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("signed", [False, True])
def test_they_are_what_their_equations_say(name: str, signed: bool) -> None:
    codes = causal(3, 2, 12)
    if signed:
        codes[:, 1] *= torch.randn(12, 12, generator=torch.Generator().manual_seed(1))
    expected = np.array([[by_numpy(name, head.double().numpy()) for head in one] for one in codes])
    found = AGGREGATES[name](codes)
    np.testing.assert_allclose(found, expected.reshape(3, -1), rtol=1e-4, atol=1e-5)


def test_patterns_of_one_kind_have_its_number() -> None:
    previous = torch.eye(12).roll(-1, 1)[None, None].repeat(1, 2, 1, 1)
    previous[:, :, 0] = torch.eye(12)[0]
    first = torch.zeros(1, 2, 12, 12)
    first[..., 0] = 1.0
    for codes, shares in ((previous, (1.0, 1 / 11, 0.0, 11 / 12)),
                          (first, (1 / 11, 1.0, 0.0, 5.5))):
        for name, share in zip(("previous_token", "first_token", "entropy", "distance"), shares,
                               strict=True):
            assert AGGREGATES[name](codes)[0, 1].item() == pytest.approx(share, abs=1e-6), name


def test_eigenvalues_need_enough_tokens_of_causal_attention() -> None:
    assert lap_eigvals(causal(1, 2, 5), k=5).shape == (1, 10)
    with pytest.raises(ConfigError, match="needs texts of 10 tokens, and this one has 5"):
        lap_eigvals(causal(1, 2, 5))
    with pytest.raises(ConfigError, match="attend to later tokens"):
        lap_eigvals(torch.full((1, 2, 12, 12), 1 / 12))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_softmax_has_rows_of_one_whatever_their_rounding(dtype: torch.dtype) -> None:
    for length in (5, 40, 300):
        assert (AGGREGATES["attn_sum"](causal(2, 2, length).to(dtype)) == 1.0).all()
    assert AGGREGATES["attn_sum"](0.9 * causal(1, 1, 20)).item() == pytest.approx(0.9, abs=1e-5)


WORDS = ("The", " river", " in", " Paris", " was", " then", " naïve", " and", " Rome", " is")


def texts() -> pd.DataFrame:
    """Return prompts of several lengths, each at least twice, in no order."""
    rng = np.random.default_rng(0)
    lengths = [12, 14, 12, 20, 14, 20, 13, 20]
    return pd.DataFrame({"prompt": ["".join(rng.choice(WORDS, n)) for n in lengths],
                         "query": -1, "key": -2, "number": range(len(lengths))})


@pytest.mark.parametrize("which", ["gpt2", "llama"])
def test_prompts_of_different_lengths_are_read_as_alone(
    which: str, small_models: SmallModels
) -> None:
    model, prompts = as_language_model(load_pretrained(small_models(which))), texts()
    names = ["code", "residual", MEAN_RESIDUAL, *AGGREGATES]
    rows = read_prompt_rows(model, prompts, features=names, batch_size=2)
    assert rows.labels["number"].tolist() == list(range(len(prompts)))
    for i in range(len(prompts)):
        ids, _ = model.encode(prompts["prompt"][i])
        with torch.no_grad():
            _, seen = model.model.run_with_cache(torch.tensor([ids]))
        for layer in (0, 1):
            pattern = seen[f"blocks.{layer}.attn.hook_pattern"].float()
            expected = {name: AGGREGATES[name](pattern)[0] for name in AGGREGATES}
            expected |= {"code": pattern[0, :, -1, -2],
                         "residual": seen[f"blocks.{layer}.hook_resid_pre"][0, -1],
                         MEAN_RESIDUAL: seen[f"blocks.{layer}.hook_resid_pre"][0].mean(0)}
            for name, values in expected.items():
                np.testing.assert_allclose(rows.values[name, str(layer)][i], values, rtol=1e-3,
                                           atol=1e-4, err_msg=name)
    for name in AGGREGATES:  # layers stand side by side
        both = np.concatenate([rows.values[name, layer] for layer in "01"], axis=1)
        np.testing.assert_array_equal(rows.values[name, "all"], both)
    assert ("code", "all") not in rows.values


def test_many_layers_together_are_projected(
    small_models: SmallModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentcode.codes.features.WIDEST", 50)
    rows = read_prompt_rows(load_pretrained(small_models("gpt2")), texts(),
                            features=["lap_eigvals", "entropy"])
    assert rows.values["lap_eigvals", "0"].shape[1] == 4 * TOP_K
    assert rows.values["lap_eigvals", "all"].shape[1] == 50 < WIDEST
    assert rows.sizes["lap_eigvals", "all"] == 2 * 4 * TOP_K
    assert rows.values["entropy", "all"].shape[1] == 8


@pytest.mark.usefixtures("own_names")
def test_what_depends_on_the_length_is_refused(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("gpt2"))
    short = pd.concat([texts(), texts()[:1].assign(prompt="The river in")])
    with pytest.raises(ConfigError, match=r"10 tokens, and row 8 \('The river in'\) has 4; .*k=5"):
        read_prompt_rows(model, short, features=["entropy", "lap_eigvals"])
    with pytest.raises(ConfigError, match="prompts have 13, 14, 15, 21 tokens"):
        read_prompt_rows(model, texts(), features=["entropy", "row"])
    lc.register_features("diagonal")(lambda codes: codes.diagonal(0, -2, -1).flatten(1))
    with pytest.raises(ConfigError, match=r"'diagonal' have 56 numbers for some .*52 for others"):
        read_prompt_rows(model, texts(), features=["diagonal"])
