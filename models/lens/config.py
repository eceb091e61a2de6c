"""`model.cfg`: the `ModelConfig`, with the names by which TransformerLens' tools ask for it."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any

import torch

from latentcode.models.config import ModelConfig, kind_of


class LensConfig(ModelConfig):
    """A `ModelConfig` that also answers to TransformerLens' names.

    device, dtype  of the model's weights, when it was asked

    It equals the `ModelConfig` that it shows, and has its fields: nothing here is written to a
    run, and no hash changes.
    """

    device: torch.device
    dtype: torch.dtype

    attn_only = False
    default_prepend_bos = False
    eps = 1e-6
    final_rms = False
    n_ctx = sys.maxsize
    """Positions are relative or absent, so that no length is too long."""
    n_devices = 1
    n_key_value_heads = None
    normalization_type = "LN"
    """LayerNorm with weights of its own: nothing is folded into the layer that follows."""
    parallel_attn_mlp = False
    seed = None
    """Not known to a model: the seed of a run is `run.config.training.seed`."""
    tokenizer_name = None
    tokenizer_prepends_bos = False
    use_attn_in = False
    use_attn_result = False
    use_hook_mlp_in = False
    use_split_qkv_input = False

    @classmethod
    def of(cls, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> LensConfig:
        """Return what `model.cfg` shows of a configuration."""
        view = cls(**_fields(config))
        vars(view).update(device=device, dtype=dtype)
        return view

    @property
    def plain(self) -> ModelConfig:
        """The same without the names of TransformerLens."""
        return ModelConfig(**_fields(self))

    @property
    def act_fn(self) -> str:
        return "silu" if self.feedforward == "swiglu" else "gelu_new"

    @property
    def attention_dir(self) -> str:
        return "causal" if self.causal else "bidirectional"

    @property
    def d_vocab(self) -> int:
        """Of token ids; a model of vectors has the vocabulary of its answers alone."""
        return self.d_input if self.embedding == "token" else self.d_output

    @property
    def d_vocab_out(self) -> int:
        return self.d_output

    @property
    def experts_per_token(self) -> int | None:
        return self.top_k if self.feedforward == "moe" else None

    @property
    def gated_mlp(self) -> bool:
        return self.feedforward == "swiglu"

    @property
    def model_name(self) -> str:
        """The attention kind."""
        return kind_of(self)

    @property
    def num_experts(self) -> int | None:
        return self.n_experts if self.feedforward == "moe" else None

    @property
    def positional_embedding_type(self) -> str:
        return "relative_positional_bias" if self.positions == "t5" else self.positions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelConfig) and _fields(self) == _fields(other)

    def __hash__(self) -> int:
        return hash(self.plain)


def _fields(config: ModelConfig) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(ModelConfig)}
