"""What the tools of TransformerLens ask of a model, answered by ours or refused in one line."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens import ActivationCache, FactoredMatrix, HookedRootModule
from transformer_lens.utilities.matrix import composition_scores

from latentcode.errors import MissingMemberError, check
from latentcode.models.config import ModelConfig, kind_of
from latentcode.models.hooks import locked

if TYPE_CHECKING:
    from latentcode.models.blocks import Embed, LayerNorm, Unembed

_TEXT = "it reads the instances of a task, not text; use task.render and batch.targets"
_ANSWER = "answers are read off at once, no token follows from another; use model(inputs)"
_INPUTS = "queries, keys and values of all heads have one input; use hook_q, hook_k or hook_v"
_WEIGHTS = ("weights stay as they were trained; use tokens_to_residual_directions, which folds in "
            "the weight of ln_final")
_POSITIONS = "no position is added to the residual stream; use blocks[l].attn.rel_pos_bias"
_DATA = "problems come from the task; use task.sample"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("tokenizer", "set_tokenizer", "to_string", "to_str_tokens", "to_single_token",
                     "to_single_str_token", "get_token_position"), _TEXT),
    **dict.fromkeys(("generate", "generate_stream", "hf_generate"), _ANSWER),
    "loss_fn": "the loss belongs to the task; use task.loss",
    **dict.fromkeys(("set_use_split_qkv_input", "set_use_attn_in", "set_use_hook_mlp_in"), _INPUTS),
    "set_use_attn_result": "results are computed from hook_z; use cache.stack_head_results",
    **dict.fromkeys(("enable_compatibility_mode", "process_weights", "process_weights_",
                     "fold_layer_norm", "fold_value_biases", "center_writing_weights",
                     "center_unembed", "refactor_factored_attn_matrices",
                     "load_and_process_state_dict"), _WEIGHTS),
    **dict.fromkeys(("W_pos", "W_E_pos", "pos_embed", "hook_pos_embed"), _POSITIONS),
    **dict.fromkeys(("load_sample_training_dataset", "sample_datapoint"), _DATA),
    "input_to_embed": "embedding is one step; use run_with_cache, and cache['embed']",
}
"""Members of TransformerLens' models that ours do not have, and what to use instead."""


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
        experts = config.feedforward == "moe"
        vars(view).update(
            device=device, dtype=dtype, model_name=kind_of(config),
            act_fn="silu" if config.feedforward == "swiglu" else "gelu_new",
            attention_dir="causal" if config.causal else "bidirectional",
            # A model of vectors has the vocabulary of its answers alone.
            d_vocab=config.d_input if config.embedding == "token" else config.d_output,
            d_vocab_out=config.d_output, gated_mlp=config.feedforward == "swiglu",
            num_experts=config.n_experts if experts else None,
            experts_per_token=config.top_k if experts else None,
            positional_embedding_type=(
                "relative_positional_bias" if config.positions == "t5" else config.positions))
        return view

    @property
    def plain(self) -> ModelConfig:
        """The same without the names of TransformerLens."""
        return ModelConfig(**_fields(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelConfig) and _fields(self) == _fields(other)

    def __hash__(self) -> int:
        return hash(self.plain)


def _fields(config: ModelConfig) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(ModelConfig)}


class VectorTokens(Tensor):
    """Ids int64 [B, T] of vectors [B, T, d_input], which they bring along.

    Equal vectors have equal ids, so that detectors of repeated tokens see what is repeated. What
    else is made of them than a part or a deep copy has lost its vectors and is refused, as are ids
    that were edited, be it through a part of them.
    """

    _vectors: Tensor
    _unedited: int

    @classmethod
    def of(cls, vectors: Float[Tensor, "B T d_input"]) -> VectorTokens:
        """Return the ids of a batch of vectors."""
        _, ids = torch.unique(vectors.detach().flatten(0, -2), dim=0, return_inverse=True)
        return ids.view(vectors.shape[:-1]).as_subclass(cls)._standing_for(vectors)

    def _standing_for(self, vectors: Tensor) -> VectorTokens:
        self._vectors, self._unedited = vectors, _edits(self)
        return self

    def __getitem__(self, key: Any) -> Tensor:
        part = super().__getitem__(key)
        # Of vectors, the last axis is another one.
        counts_from_the_end = any(k is ... for k in (key if isinstance(key, tuple) else (key,)))
        if isinstance(part, VectorTokens) and self._has_vectors and not counts_from_the_end:
            part._standing_for(self._vectors[key])
        return part

    def __deepcopy__(self, memo: dict[int, Any]) -> VectorTokens:
        if id(self) not in memo:
            memo[id(self)] = self.clone()
            if self._has_vectors:
                memo[id(self)]._standing_for(copy.deepcopy(self._vectors, memo))
        copied: VectorTokens = memo[id(self)]
        return copied

    @property
    def _has_vectors(self) -> bool:
        return "_vectors" in vars(self) and _edits(self) == self._unedited

    @property
    def vectors(self) -> Float[Tensor, "... d_input"]:
        """The vectors that they are the ids of; `ConfigError` where they are lost."""
        check(self._has_vectors, f"token ids of shape {tuple(self.shape)} were made "
              "of what model.to_tokens returned and have lost their vectors; expected "
              "model.to_tokens of the vectors that are meant")
        return self._vectors


def _edits(tokens: Tensor) -> int:
    """Count the edits in place of the memory behind a tensor, which inference mode does not."""
    return 0 if tokens.is_inference() else tokens._version


def _checked(method: str, *parts: str) -> Callable[..., Any]:
    """Return a method of `ActivationCache` that is refused where some parts are not what it takes
    them for: `heads`, `neurons` or `blocks`."""

    def call(cache: LensCache, *args: Any, **kwargs: Any) -> Any:
        for part in parts:
            cache.check_parts(method, part)
        return getattr(super(LensCache, cache), method)(*args, **kwargs)

    call.__name__ = method
    return call


class LensCache(ActivationCache):
    """TransformerLens' `ActivationCache`, which refuses what would not be what it is called.

    Heads     sum_h W_O^h z_qh + b_O is a layer's output for every attention kind, but z_qh is what
              head h contributes only where no other head has a part in it
    Neurons   those of an expert count by its gate, which TransformerLens does not know of
    Blocks    cross-attention writes to the residual stream, too
    """

    model: Any
    """A `LensSurface`."""

    compute_head_results = _checked("compute_head_results", "heads")
    stack_head_results = _checked("stack_head_results", "heads")
    get_neuron_results = _checked("get_neuron_results", "neurons")
    stack_neuron_results = _checked("stack_neuron_results", "neurons")
    decompose_resid = _checked("decompose_resid", "blocks")
    get_full_resid_decomposition = _checked("get_full_resid_decomposition", "heads", "blocks")

    def apply_slice_to_batch_dim(self, batch_slice: Any) -> LensCache:
        part = super().apply_slice_to_batch_dim(batch_slice)
        return LensCache(part.cache_dict, self.model, has_batch_dim=part.has_batch_dim)

    def check_parts(self, method: str, part: str) -> None:
        """Raise `ConfigError` where heads, neurons or blocks are not what a method sums."""
        config = self.model.config
        if part == "heads":
            self.model.check_alone(f"cache.{method}")
            why = why_heads_mix(config)
            check(not why, f"cache.{method}: {why}; expected softmax or no normalisation and value "
                  "network 'linear' (cache['z', l] with model.W_O sums to a layer's output here, "
                  "too, but no term is one head's own; or use cache['attn_out', l])")
        elif part == "neurons":
            check(config.feedforward != "moe", f"cache.{method}: the neurons of experts count by "
                  "their gate, which it leaves out; expected feedforward 'gelu' or 'swiglu' (use "
                  "cache['mlp_out', l], or multiply cache['post', l] by blocks.l.mlp.hook_gate)")
        else:
            check(not config.cross_attention, f"cache.{method}: it leaves out what cross-attention "
                  "writes, so that its sum is not the residual stream; use cache.accumulated_resid,"
                  " and blocks.l.hook_cross_attn_out")


def why_heads_mix(config: ModelConfig) -> str:
    """Why is z_qh not the work of head h alone? The empty string where it is."""
    if config.value_network in ("hyla", "hyla_linear", "deep"):
        return (f"in value network {config.value_network!r} each head reads out hidden units that "
                "all heads make together")
    if config.normalization in ("rms_head", "softmax_rms_head"):
        return (f"normalization {config.normalization!r} divides the code of each head by what "
                "all heads attend to together")
    own = [name for name in (config.value_network, config.normalization)
           if name not in ("linear", "softmax", "none")]
    return f"{own[0]!r} is not known to keep heads apart" if own else ""


def _stacked(part: str, weight: str, shape: str) -> property:
    """A property: one weight of all layers. Where the layers have none, it is a bias of zero."""

    def stack(model: LensSurface) -> Tensor:
        model.check_alone(f"model.{weight}")
        layers = [getattr(block, part) for block in model.blocks]
        if getattr(layers[0], weight, None) is not None:
            return torch.stack([getattr(layer, weight) for layer in layers])
        check(weight.startswith("b_"), f"model.{weight}: feed-forward layers of type "
              f"{model.config.feedforward!r} have no such weight")
        return torch.stack([torch.zeros_like(getattr(layer, f"W{weight[1:]}")[..., 0, :])
                            for layer in layers])

    return property(stack, doc=f"{shape}, the weights of all layers.")


class LensSurface(HookedRootModule):
    """What TransformerLens' tools ask of a model beyond its hooks.

    All of it is about one model: of an ensemble, `ConfigError`. What cannot be answered is a
    `MissingMemberError` that says what to use instead. L layers, H heads, D d_model.
    """

    config: ModelConfig
    n_members: int | None
    embed: Embed
    unembed: Unembed | None
    ln_final: LayerNorm
    blocks: nn.ModuleList

    W_Q = _stacked("attn", "W_Q", "[L, H, D, d_head]")
    W_K = _stacked("attn", "W_K", "[L, H, D, d_head]")
    W_V = _stacked("attn", "W_V", "[L, H, D, d_head_v]")
    W_O = _stacked("attn", "W_O", "[L, H, d_head_v, D]")
    b_Q = _stacked("attn", "b_Q", "[L, H, d_head]")
    b_K = _stacked("attn", "b_K", "[L, H, d_head]")
    b_V = _stacked("attn", "b_V", "[L, H, d_head_v]")
    b_O = _stacked("attn", "b_O", "[L, D]")
    W_in = _stacked("mlp", "W_in", "[L, D, d_mlp], with an axis of experts behind L for `moe`")
    W_gate = _stacked("mlp", "W_gate", "[L, D, d_mlp] of `swiglu`, [L, D, n_experts] of `moe`")
    W_out = _stacked("mlp", "W_out", "[L, d_mlp, D], with an axis of experts behind L for `moe`")
    b_in = _stacked("mlp", "b_in", "[L, d_mlp], zero without biases")
    b_out = _stacked("mlp", "b_out", "[L, D], zero without biases")

    @property
    def cfg(self) -> LensConfig:
        """The `ModelConfig`, with the names by which TransformerLens' tools ask for it."""
        weight = self.embed.W_E
        return LensConfig.of(self.config, weight.device, weight.dtype)

    @property
    def W_E(self) -> Float[Tensor, "d_input D"]:
        """Embedding: of token ids, or the matrix that vectors are multiplied by (plus b_E)."""
        self.check_alone("model.W_E")
        return self.embed.W_E

    @property
    def b_E(self) -> Float[Tensor, " D"]:
        """What is added to x W_E, zero for token ids."""
        self.check_alone("model.b_E")
        return torch.zeros_like(self.W_E[0]) if self.embed.b_E is None else self.embed.b_E

    @property
    def W_U(self) -> Float[Tensor, "D d_output"]:
        """Read-out; W_E^T / sqrt(D) where it is tied to the embedding."""
        self.check_alone("model.W_U")
        if self.unembed is None:
            return self.embed.W_E.T / math.sqrt(self.config.d_model)
        return self.unembed.W_U

    @property
    def b_U(self) -> Float[Tensor, " d_output"]:
        """Bias of the read-out, zero where it is tied to the embedding."""
        self.check_alone("model.b_U")
        return torch.zeros_like(self.W_U[0]) if self.unembed is None else self.unembed.b_U

    @property
    def QK(self) -> FactoredMatrix:
        """W_Q^h W_K^hT of all layers and heads, [L, H, D, D]; rotary positions stand between."""
        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    @property
    def OV(self) -> FactoredMatrix:
        """W_V^h W_O^h of all layers and heads, [L, H, D, D], where a head's value is linear."""
        config = self.config
        check(config.value_network == "linear" and config.nonlinearity == "identity",
              f"model.OV: value network {config.value_network!r} with {config.nonlinearity!r} is "
              "no matrix W_V W_O of one head; use lc.value_network, the map that a code generates")
        return FactoredMatrix(self.W_V, self.W_O)

    @property
    def all_head_labels(self) -> list[str]:
        """L0H0, L0H1, ..., in the order of stacked heads."""
        return [f"L{layer}H{head}" for layer in range(self.config.n_layers)
                for head in range(self.config.n_heads)]

    def all_composition_scores(self, mode: str) -> Float[Tensor, "L H L H"]:
        """||W_OV W||_F / (||W_OV||_F ||W||_F), W = W_QK, W_QK^T, W_OV for mode Q, K, V.

        Of a head (first axes) with those of later layers, else 0.
        """
        left, circuits = self.OV, {"Q": self.QK, "K": self.QK.T, "V": self.OV}
        check(mode in circuits, f"mode is {mode!r}; expected one of {', '.join(circuits)}")
        layer = torch.arange(self.config.n_layers, device=self.W_Q.device)
        later = layer[:, None, None, None] < layer[:, None]
        return torch.where(later, composition_scores(left, circuits[mode]), 0.0)

    def tokens_to_residual_directions(
        self, tokens: int | str | Int[Tensor, "..."]
    ) -> Float[Tensor, "... D"]:
        """w_ln W_U[:, token]: the direction in which LN(x), before its weights, is read.

        With the weight of the last LayerNorm folded in, the attributions of what sums to the
        residual stream sum to the logit, less the constant `b_ln W_U + b_U`. `ConfigError` for what
        is no token id.
        """
        if isinstance(tokens, str):
            self._refuse("to_single_token")
        index = torch.as_tensor(tokens, device=self.W_U.device)
        known = (index >= 0) & (index < self.W_U.shape[1])
        check(bool(known.all()), f"tokens are {tokens}; expected "
              f"ids from 0 to {self.W_U.shape[1] - 1}")
        directions = self.W_U.T[index if index.numel() != 1 else int(index)]
        return directions * self.ln_final.w

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " D"]:
        """Sum of b_O and b_out of the layers before `layer`, with its own b_O for `mlp_input`."""
        check(not self.config.cross_attention, "model.accumulated_bias: cross-attention writes to "
              "the residual stream, too; use cache.accumulated_resid")
        total = self.b_O[:layer + mlp_input].sum(dim=0)
        has_bias = include_mlp_biases and self.config.feedforward == "gelu"
        return total + self.b_out[:layer].sum(dim=0) if has_bias else total

    def tl_parameters(self) -> dict[str, Tensor]:
        """Weights by TransformerLens' names, without experts, which its tools do not know."""
        self.check_alone("model.tl_parameters")
        own = {name: weight for name, weight in self.named_parameters()
               if self.config.feedforward != "moe" or ".mlp." not in name}
        return {**own, "unembed.W_U": self.W_U, "unembed.b_U": self.b_U}

    def to_tokens(self, inputs: object) -> Int[Tensor, "B T"]:
        """Return ids of a batch, for tools that count positions on its last axis.

        inputs  vectors [B, T, d_input], whose ids the model takes in place of them, or ids [B, T],
                which are returned as they are
        """
        if not isinstance(inputs, Tensor):
            self._refuse("to_single_token")
        self.check_alone("model.to_tokens")
        return VectorTokens.of(inputs) if inputs.is_floating_point() else inputs

    @contextmanager
    def hooks(self, *args: Any, **kwargs: Any) -> Iterator[LensSurface]:
        """As in TransformerLens, under the lock of the model; `run_with_hooks` and
        `run_with_cache` come here."""
        with locked(self), super().hooks(*args, **kwargs):
            yield self

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """As in TransformerLens; `transformer_lens.patching` is refused vectors.

        It would take their width for the number of positions.
        """
        vectors = bool(args) and isinstance(args[0], Tensor) and args[0].is_floating_point()
        check(not vectors or not any(map(_counts_positions, kwargs.get("fwd_hooks", ()))),
              "transformer_lens.patching takes the last axis of its tokens for positions; expected "
              "model.to_tokens(inputs) in place of the vectors")
        return super().run_with_hooks(*args, **kwargs)

    def run_with_cache(
        self, *args: Any, return_cache_object: bool = True, **kwargs: Any
    ) -> tuple[Tensor, LensCache | dict[str, Tensor]]:
        """Return (logits, cache); `cache["pattern", 0]` is the code of layer 0, [B, H, Q, K]."""
        check(not kwargs.get("incl_bwd"), "run_with_cache(incl_bwd=True) needs a loss, which "
              "belongs to the task; use model.hooks(bwd_hooks=...) around task.loss(...).backward")
        logits, cache = super().run_with_cache(*args, **kwargs)
        if kwargs.get("pos_slice") is not None:
            experts = ("mlp.hook_pre", "mlp.hook_post") if self.config.feedforward == "moe" else ()
            other = [name for name in cache if name.endswith(("hook_value_hidden", *experts))]
            check(not other, f"run_with_cache(pos_slice=...): {', '.join(other)} would be sliced "
                  "along another axis than positions; leave them out by names_filter")
        if return_cache_object:
            removed = kwargs.get("remove_batch_dim", False)
            return logits, LensCache(cache, self, has_batch_dim=not removed)
        return logits, cache

    @classmethod
    def from_pretrained(cls, name: object, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: models of this class come from runs."""
        raise MissingMemberError(
            f"{cls.__name__}.from_pretrained: models of this class come from runs and the zoo; "
            f"use lc.load_run({name!r}).load_model(), or lc.load_pretrained for language models")

    boot_transformers = from_pretrained

    def check_alone(self, what: str) -> None:
        """Raise `ConfigError` for an ensemble."""
        check(self.n_members is None, f"{what} of an ensemble of {self.n_members} models; "
              "expected one model")

    def __getattr__(self, name: str) -> Tensor | nn.Module:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in REFUSED:
                self._refuse(name)
            raise

    def _refuse(self, name: str) -> NoReturn:
        raise MissingMemberError(
            f"{type(self).__name__} has no {name}: {REFUSED[name]}") from None


def _counts_positions(named: Sequence[Any]) -> bool:
    """Whether a hook (name, function) is one of `transformer_lens.patching`."""
    function = getattr(named[1], "func", named[1])
    return getattr(function, "__module__", "") == "transformer_lens.patching"
