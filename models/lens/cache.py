"""The activations of a run, whose sums are the residual stream, or are refused."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformer_lens import ActivationCache

from latentcode.errors import check
from latentcode.models.config import ModelConfig


class LensCache(ActivationCache):
    """TransformerLens' `ActivationCache`, which refuses what would not be what it is called.

    Heads     sum_h W_O^h z_qh + b_O is a layer's output for every attention kind, but z_qh is what
              head h contributes only where no other head has a part in it
    Neurons   those of an expert count by its gate, which TransformerLens does not know of
    Blocks    cross-attention writes to the residual stream, too
    """

    model: Any
    """A `LensSurface`."""

    def compute_head_results(self) -> None:
        self._check_heads("compute_head_results")
        super().compute_head_results()

    def stack_head_results(self, *args: Any, **kwargs: Any) -> Any:
        self._check_heads("stack_head_results")
        return super().stack_head_results(*args, **kwargs)

    def get_neuron_results(self, *args: Any, **kwargs: Any) -> Tensor:
        self._check_neurons("get_neuron_results")
        return super().get_neuron_results(*args, **kwargs)

    def stack_neuron_results(self, *args: Any, **kwargs: Any) -> Any:
        self._check_neurons("stack_neuron_results")
        return super().stack_neuron_results(*args, **kwargs)

    def decompose_resid(self, *args: Any, **kwargs: Any) -> Any:
        self._check_blocks("decompose_resid")
        return super().decompose_resid(*args, **kwargs)

    def get_full_resid_decomposition(self, *args: Any, **kwargs: Any) -> Any:
        self._check_heads("get_full_resid_decomposition")
        self._check_blocks("get_full_resid_decomposition")
        return super().get_full_resid_decomposition(*args, **kwargs)

    def apply_slice_to_batch_dim(self, batch_slice: Any) -> LensCache:
        part = super().apply_slice_to_batch_dim(batch_slice)
        return LensCache(part.cache_dict, self.model, has_batch_dim=part.has_batch_dim)

    def _check_heads(self, method: str) -> None:
        self.model.check_alone(f"cache.{method}")
        why = why_heads_mix(self.model.config)
        check(not why, f"cache.{method}: {why}; expected softmax or no normalisation and value "
              "network 'linear' (cache['z', l] with model.W_O sums to a layer's output here, too, "
              "but no term is one head's own; or use cache['attn_out', l])")

    def _check_neurons(self, method: str) -> None:
        check(self.model.config.feedforward != "moe", f"cache.{method}: the neurons of experts "
              "count by their gate, which it leaves out; expected feedforward 'gelu' or 'swiglu' "
              "(use cache['mlp_out', l], or multiply cache['post', l] by blocks.l.mlp.hook_gate)")

    def _check_blocks(self, method: str) -> None:
        check(not self.model.config.cross_attention, f"cache.{method}: it leaves out what "
              "cross-attention writes, so that its sum is not the residual stream; use "
              "cache.accumulated_resid, and blocks.l.hook_cross_attn_out")


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
