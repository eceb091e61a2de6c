"""The control of every probe: the same architecture with weights that learned nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from latentcode.errors import check
from latentcode.models.pretrained import bridge_of, fresh_network, tokenizer_of
from latentcode.seeds import checked_seed

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

    from latentcode.models.transformer import HookedTransformer


def untrained(model: Any, seed: int = 0) -> HookedTransformer | TransformerBridge:
    """Return a model of the same configuration with fresh weights, drawn from a seed.

    model  a `HookedTransformer` or a `TransformerBridge`; it stays as it is
    seed   of a `HookedTransformer`, as in its constructor: with `run.config.training.seed` these
           are the initial weights of a run; of a bridge, as in `load_pretrained(untrained=True)`

    Device and type of the weights are those of the model, evaluation mode is on, and no generator
    of torch is moved on. `ConfigError` for an ensemble, and for a bridge in TransformerLens'
    compatibility mode, whose weights were folded.
    """
    from latentcode.models.transformer import HookedTransformer

    seed = checked_seed(seed)
    weight = next(model.parameters())
    if isinstance(model, HookedTransformer):
        model.check_alone("untrained weights")
        return HookedTransformer(model.config, seed).to(weight.device, weight.dtype).eval()
    check(not getattr(model, "compatibility_mode", False), f"model {model.cfg.model_name!r} is a "
          "bridge in compatibility mode, whose weights were folded; expected one as "
          "boot_transformers or lc.load_pretrained returns it")
    network = fresh_network(model.original_model.config, weight.dtype, seed)
    return bridge_of(
        str(model.cfg.model_name), network.to(weight.device).eval(), tokenizer_of(model))
