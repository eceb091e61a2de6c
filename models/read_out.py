"""Where do tokens go their own ways? Behind it no token needs the others, and logits are large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

from latentcode.errors import check
from latentcode.models.modes import evaluating
from latentcode.models.transformer import HookedTransformer


def read_out_hook(model: Any) -> str:
    """Return the hook through which the residual stream [B, T, D] passes to the read-out.

    The tokens that a hook there leaves are those that have logits. `ConfigError` for a bridge
    without one, which is no language model.
    """
    if isinstance(model, HookedTransformer):
        return f"blocks.{model.config.n_layers - 1}.hook_resid_post"
    name = "unembed.hook_in"
    check(name in model.hook_dict, f"the model has no hook {name}; expected a language model")
    return name


def last_token(stream: Tensor, hook: object) -> Tensor:
    """Leave the last token: the logits of all of them would be larger than everything else."""
    return stream[..., -1:, :]


def look(
    model: Any, inputs: Tensor, hooks: Iterable[tuple[str, Callable[..., Any]]],
    padding: Mapping[str, Tensor] | None = None,
) -> None:
    """Pass inputs through a model for what its hooks show, of the logits none but the last token's.

    inputs   token ids [B, T], or vectors [B, T, d_input]
    padding  what the model is told of padding, by the names of its arguments [B, T]
    """
    with evaluating(model):
        model.run_with_hooks(inputs, **(padding or {}), fwd_hooks=[
            *hooks, (read_out_hook(model), last_token)])
