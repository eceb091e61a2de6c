"""Official configurations and weights, in and out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from latentcode.errors import ArtifactError, LatentCodeError
from latentcode.experiments.official.checkpoints import (
    MIXERS,
    config_to_flax,
    model_from_flax,
    params_to_flax,
)
from latentcode.models.config import ModelConfig, with_kind
from latentcode.models.transformer import HookedTransformer

SMALL = ModelConfig(d_input=5, d_output=1, n_layers=2, d_model=12, n_heads=3, d_head=2, d_head_v=4,
                    d_mlp=10, n_buckets=7, max_distance=7)
LIKE = {
    "logic": SMALL,
    "sraven": replace(SMALL, d_input=6, d_output=6, positions="none", attention_dropout=0.0),
    "lang": replace(SMALL, d_input=11, d_output=11, embedding="token", readout="tied", causal=True,
                    feedforward="swiglu"),
}


@pytest.mark.parametrize("like", LIKE)
@pytest.mark.parametrize("kind", MIXERS.values())
def test_export_and_import_keep_configuration_and_weights(kind: str, like: str) -> None:
    model = HookedTransformer(with_kind(LIKE[like], kind), seed=3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    official, params = config_to_flax(model.cfg), params_to_flax(model)
    again = model_from_flax(official, params)
    assert again.cfg == model.cfg
    for (name, mine), theirs in zip(
            model.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(mine, theirs), name
    assert {k: v.tobytes() for k, v in params_to_flax(again).items()} == {
        k: v.tobytes() for k, v in params.items()}


def test_exported_weights_are_copies() -> None:
    model = HookedTransformer(SMALL)
    params_to_flax(model)["decoder_norm/bias"][:] = 5.0
    assert not model.ln_final.b.any()


def test_attention_dropout_that_is_not_mentioned_is_a_tenth() -> None:
    model = HookedTransformer(replace(SMALL, attention_dropout=0.0))
    official = config_to_flax(model.cfg)
    assert model_from_flax(official, params_to_flax(model)).cfg.attention_dropout == 0.0
    del official["attention_dropout_rate"]
    assert model_from_flax(official, params_to_flax(model)).cfg.attention_dropout == 0.1


def test_a_language_configuration_needs_no_output_dim() -> None:
    model = HookedTransformer(LIKE["lang"])
    official = {**config_to_flax(model.cfg), "moe_num": -1, "moe_top_k": -1}
    del official["output_dim"]
    assert model_from_flax(official, params_to_flax(model)).cfg == model.cfg


@pytest.mark.parametrize(("changes", "message"), [
    ({"sequence_mixer": "swiglu_hypatt"}, "unknown official sequence_mixer 'swiglu_hypatt'"),
    ({"num_heads": 5}, "qk_dim is 6; expected a multiple of num_heads = 5"),
    ({"norm": "rms"}, "norm is 'rms'"), ({"output_dim": -1}, "output_dim is -1"),
    ({"rotary": True}, r"unknown field\(s\) rotary"), ({"vocab_size": 9}, "embedding/embedding"),
    ({"num_layers": 1}, "unknown transformer_block_1"),
    ({"num_layers": 3}, "lack transformer_block_2"), ({"mlp_dim": 11}, "Dense_0/kernel.*shape"),
])
def test_what_is_wrong_with_a_configuration_is_said(changes: dict[str, Any], message: str) -> None:
    model = HookedTransformer(SMALL)
    with pytest.raises(LatentCodeError, match=message):
        model_from_flax({**config_to_flax(SMALL), **changes}, params_to_flax(model))


def test_what_is_wrong_with_a_parameter_is_said() -> None:
    official, params = config_to_flax(SMALL), params_to_flax(HookedTransformer(SMALL))
    path = "transformer_block_1/sequence_mixer/query/kernel"
    cases: list[tuple[np.ndarray, str]] = [
        (params[path].transpose(1, 0, 2), r"shape \(3, 12, 2\).*expected \(12, 3, 2\)"),
        (params[path].astype(np.float64), "float64.*float32"),
        (np.full_like(params[path], np.nan), "NaN")]
    for value, message in cases:
        with pytest.raises(ArtifactError, match=f"{path}.*{message}"):
            model_from_flax(official, {**params, path: value})
