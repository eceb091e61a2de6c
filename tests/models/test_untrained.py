"""Fresh weights of the same configuration: seeded, apart from the trained ones, nobody else's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_language_models import SmallModels

import latentcode as lc
from latentcode.models.pretrained import load_pretrained, untrained
from latentcode.models.transformer import HookedTransformer

TOKENS = torch.randint(1, 300, (2, 6), generator=torch.Generator().manual_seed(0))


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: weight.detach() for name, weight in model.named_parameters()}


def same(one: Any, other: Any) -> bool:
    assert set(weights(one)) == set(weights(other))
    return all(torch.equal(weight, weights(other)[name]) for name, weight in weights(one).items())


@pytest.mark.parametrize("which", ["text-softmax", "gpt2", "llama", "gemma2"])
def test_fresh_weights_are_seeded_and_leave_the_rest_alone(
    which: str, small_models: SmallModels
) -> None:
    model: Any = (lc.load_model(which) if which == "text-softmax"
                  else load_pretrained(small_models(which)))
    before = {name: weight.clone() for name, weight in weights(model).items()}
    state = torch.random.get_rng_state()
    first, again, other = (untrained(model, seed) for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert type(first) is type(model)
    assert not first.training
    assert same(first, again)
    assert not same(first, other)
    assert not same(first, model)
    assert all(torch.equal(weight, weights(model)[name]) for name, weight in before.items())
    with torch.no_grad():
        logits, trained = first(TOKENS), model(TOKENS)
    assert logits.shape == trained.shape
    assert (logits - trained).abs().max() > 1e-2


def test_of_a_run_they_are_its_initial_weights() -> None:
    run = lc.load_run("text-softmax")
    initial = HookedTransformer(run.config.model, seed=run.config.training.seed)
    assert same(untrained(run.load_model(), run.config.training.seed), initial)


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma2"])
def test_of_a_bridge_they_are_those_of_its_name(
    architecture: str, small_models: SmallModels
) -> None:
    folder = small_models(architecture)
    model = untrained(load_pretrained(folder), 5)
    named = load_pretrained(folder, untrained=True, seed=5)
    assert same(model, named)
    with torch.no_grad():
        assert torch.equal(model(TOKENS), named(TOKENS))
    assert model.cfg.model_name == named.cfg.model_name
    assert torch.equal(model.to_tokens("Lima and Rome"), named.to_tokens("Lima and Rome"))


def test_they_have_the_type_of_the_model(small_models: SmallModels) -> None:
    bridge = load_pretrained(small_models("gpt2"), dtype=torch.float64)
    for model in (bridge, lc.load_model("text-softmax").double()):
        assert {w.dtype for w in untrained(model).parameters()} == {torch.float64}
