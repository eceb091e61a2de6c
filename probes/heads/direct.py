"""Direct logit attribution: what each head adds to the logit of the next token.

    DLA_h = ((c_h - mean c_h) / s * w) . (W_U[:, t] - mean_v W_U[:, v]),    c_h = z_h W_O^h

of a read position whose next token is t, with the final norm's weight w and its scale s of the
whole stream, frozen: TransformerLens' `apply_ln_to_stack` and `logit_attrs`, against the mean of
the vocabulary, as a constant on all logits says nothing. An RMS norm takes no mean of c_h away. The
unembedding is projected back through the frozen norm and W_O^h, u = W_O^h (w * u_t) / s, so that no
stack of heads [L, H, B, T, D] is made. A norm behind attention (Gemma 2) is frozen in the same way.

Whether a layer is what this says is tried, not assumed: on a few tokens the writes of the heads
have to sum to what attention adds to the residual stream, and what is read out to the logits.
Where they do not, there is no number, and `DirectLogits.lacking` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.models.blocks import LAYER_NORM_EPSILON, LayerNorm
from latentcode.models.hooks import attention_layers, evaluating, see
from latentcode.models.transformer import HookedTransformer
from latentcode.prompts.texts import TextBatch

Hooks: TypeAlias = list[tuple[str, Callable[..., None]]]
DIRECT = "direct_logit_attribution"
N_TRIED = 8
"""Tokens on which it is tried what heads write."""
NEAR = 1e-3
"""How far sums may be from what the model shows, relative to its largest number."""
SCALE, LEAVING = "ln_final.hook_scale", "unembed.hook_in"
STREAM = "hook_resid_pre", "hook_resid_mid", "hook_mlp_out", "hook_resid_post"
ZS = "attn.hook_z", "attn.o.hook_in"
"""Hooks of which one shows the input of the output projection."""
POST_NORM = "ln1_post"
"""Name of a norm behind attention."""


@dataclass(frozen=True)
class Norm:
    """y = (x [- mean x]) / scale * weight + bias, with `scale` the hook that shows it [B, T, 1]."""

    scale: str
    weight: Tensor
    bias: Tensor | None
    centres: bool

    @classmethod
    def of(cls, module: Any, scale: str) -> Norm:
        """Read a norm of ours or of a bridge."""
        if isinstance(module, LayerNorm):
            return cls(scale, module.w.detach(), module.b.detach(), True)
        component, offset = module.original_component, float(module.uses_weight_offset)
        weight, bias = (getattr(component, name, None) for name in ("weight", "bias"))
        return cls(scale, torch.tensor(1.0) if weight is None else offset + weight.detach(),
                   None if bias is None else bias.detach(), not module.uses_rms_norm)

    def output(self, x: Float[Tensor, "... D"], scale: Tensor) -> Float[Tensor, "... D"]:
        """Return y."""
        y = (x - x.mean(-1, keepdim=True) if self.centres else x) / scale * self.weight
        return y if self.bias is None else y + self.bias

    def back(self, u: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        """Return g with g . x = scale (y(x) - bias) . u."""
        g = u * self.weight
        return g - g.mean(-1, keepdim=True) if self.centres else g


@dataclass(frozen=True)
class Write:
    """How the heads of a layer write to the residual stream: factor * post(sum_h z_h W_O^h).

    Attributes:
        z: The hook that shows z [B, T, H, d].
        W_O: [H d, D]
        post: The norm behind the output projection, where there is one.
        factor: A constant that some architectures multiply by.
    """

    z: str
    W_O: Float[Tensor, "Hd D"]
    post: Norm | None
    factor: float


class DirectLogits:
    """What the heads of a model write, as far as it is known.

    Attributes:
        layers: Those with attention.
        writes: By layer, how its heads write.
        lacking: By layer, why there is no number.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.writes: dict[int, Write] = {}
        self.lacking: dict[int, str] = {}
        self.layers, self.n_heads = attention_layers(model), int(model.cfg.n_heads)
        self.ours = isinstance(model, HookedTransformer)
        self.entering = (f"blocks.{self.layers[-1]}.hook_resid_post" if self.ours
                         else "ln_final.hook_in")
        # Of ours no more than the last token gets to the norm: its scale is known before.
        self.scale_hook = self.entering if self.ours else SCALE
        context = int(getattr(model.cfg, "n_ctx", None) or N_TRIED)
        n = max(1, min(N_TRIED, context, int(model.W_U.shape[1]) - 1))
        tokens = torch.arange(1, n + 1, device=next(model.parameters()).device)[None]
        shown = [f"blocks.{layer}.{name}" for layer in self.layers
                 for name in (*ZS, *STREAM, f"{POST_NORM}.hook_scale")]
        with evaluating(model):
            logits, seen = see(model, tokens, [self.entering, self.scale_hook, LEAVING, *shown])
            reason = self._try_read_out(logits, seen)
            for layer in self.layers:
                write = reason or self._try_layer(layer, seen)
                if isinstance(write, Write):
                    self.writes[layer] = write
                else:
                    self.lacking[layer] = write

    def notes(self) -> list[str]:
        """Return which layers have no number, and why."""
        by_reason: dict[str, list[int]] = {}
        for layer, reason in self.lacking.items():
            by_reason.setdefault(reason, []).append(layer)
        return [f"No direct logit attribution of "
                f"{'any layer' if len(layers) == len(self.layers) else f'layers {layers}'}: "
                f"{reason}." for reason, layers in by_reason.items()]

    def attribute(self, batch: TextBatch) -> tuple[Hooks, Callable[[], Float[Tensor, "B L H"]]]:
        """Return hooks for the pass of a batch, and what returns the attribution after it.

        The attribution is summed over the read positions of each text, by layer with attention; NaN
        where none is known. Hooks keep of each layer [N, H] numbers, N the read positions, and in
        the end the scale.
        """
        text, place = batch.read.nonzero(as_tuple=True)
        by_layer: dict[int, Tensor] = {}
        scales: list[Tensor] = []
        hooks: Hooks = []
        if self.writes and len(text):
            back = self.final.back(self.W_U.T[batch.targets[text, place]] - self.mean)

            def keep_scale(shown: Tensor, hook: object) -> None:
                scales.append(self._scale(shown[text, place]).float())

            def attribute(layer: int, write: Write) -> Callable[..., None]:
                def store(z: Tensor, hook: object) -> None:
                    u = back if write.post is None else write.post.back(back)
                    heads = z[text, place].flatten(1) * (u @ write.W_O.T)  # [N, H d]
                    by_head = heads.unflatten(1, (self.n_heads, -1)).sum(-1)
                    by_layer[layer] = write.factor * self.logit_factor * by_head.float()
                return store

            def divide(layer: int) -> Callable[..., None]:
                def store(scale: Tensor, hook: object) -> None:
                    by_layer[layer] = by_layer[layer] / scale[text, place].float()
                return store

            hooks.append((self.scale_hook, keep_scale))
            for layer, write in self.writes.items():
                hooks.append((write.z, attribute(layer, write)))
                if write.post is not None:
                    hooks.append((write.post.scale, divide(layer)))

        def sums() -> Tensor:
            out = torch.zeros(
                len(batch), len(self.layers), self.n_heads, device=batch.tokens.device)
            for i, layer in enumerate(self.layers):
                if layer in self.lacking:
                    out[:, i] = torch.nan
                elif layer in by_layer:
                    out[:, i].index_add_(0, text, (by_layer[layer] / scales[0]).to(out.dtype))
            return out

        return hooks, sums

    def _scale(self, shown: Float[Tensor, "... D"]) -> Float[Tensor, "... 1"]:
        """Return the scale of the final norm: of ours that which `LayerNorm` gives a stream."""
        if not self.ours:
            return shown
        variance = shown.var(dim=-1, keepdim=True, correction=0)
        return (variance + LAYER_NORM_EPSILON).sqrt()

    def _try_read_out(self, logits: Tensor, seen: Mapping[str, Tensor]) -> str | None:
        """Try the final norm and the unembedding; return what is amiss with them."""
        model = self.model
        if not hasattr(model, "ln_final") or self.scale_hook not in model.hook_dict:
            return "the model shows no final norm"
        if not {self.entering, self.scale_hook} <= set(seen):
            return "the model does not show what its final norm does"
        self.final = Norm.of(model.ln_final, self.scale_hook)
        read = self.final.output(seen[self.entering], self._scale(seen[self.scale_hook]))
        if LEAVING in seen and not _near(read, seen[LEAVING]):
            return "what is read out is not the final norm of the residual stream"
        self.W_U: Tensor = model.W_U.detach()
        self.mean = self.W_U.mean(1)
        plain = read.to(self.W_U.dtype) @ self.W_U  # scales of an RMS norm are float32
        if getattr(model, "b_U", None) is not None:
            plain = plain + model.b_U
        cap = getattr(model.cfg, "output_logits_soft_cap", -1.0) or -1.0
        # What caps logits leaves their order; what is attributed is the logit before it.
        shown = cap * torch.atanh((logits / cap).clamp(-1 + 1e-6, 1 - 1e-6)) if cap > 0 else logits
        self.logit_factor = _factor(shown, plain)
        if not _near(self.logit_factor * plain, shown):
            return "logits are not the unembedding of what the final norm puts out"
        return None

    def _try_layer(self, layer: int, seen: Mapping[str, Tensor]) -> Write | str:
        """Return how the heads of a layer write, or why it is not known."""
        block, at = self.model.blocks[layer], f"blocks.{layer}."
        if getattr(getattr(block.attn, "cfg", None), "value_network", "linear") != "linear":
            return ("of the value network that the codes of all heads generate together (HYLA) no "
                    "part is a single head's")
        try:
            weight, bias = block.attn.W_O, block.attn.b_O
        except Exception:  # bridges of other kinds of attention say so in many ways
            weight = None
        if not isinstance(weight, Tensor) or weight.ndim != 3:
            return "attention has no output projection by heads"
        weight = weight.detach().flatten(0, 1)
        before, middle, fed, after = (seen.get(at + name) for name in STREAM)
        if before is not None and middle is not None:
            added = middle - before
        elif before is not None and fed is not None and after is not None:
            added = after - before - fed  # beside a parallel feed-forward layer
        else:
            return "what attention adds to the residual stream is not shown"
        # The norm first: in types of few bits sums without it can be as near, at some factor.
        norms: list[Norm | None] = [None]
        if hasattr(block, POST_NORM) and f"{at}{POST_NORM}.hook_scale" in seen:
            norms.insert(0, Norm.of(getattr(block, POST_NORM), f"{at}{POST_NORM}.hook_scale"))
        for z in ZS:
            heads = seen.get(at + z)
            if heads is None or heads.flatten(2).shape[-1] != len(weight):
                continue
            total = heads.flatten(2) @ weight
            total = total if bias is None else total + bias.detach()
            for norm in norms:
                whole = total if norm is None else norm.output(total, seen[norm.scale])
                factor = _factor(added, whole)
                # A small difference of two large streams is known less well.
                if _near(factor * whole, added, stream=before):
                    return Write(at + z, weight, norm, factor)
        return "what its heads write does not sum to what attention adds to the residual stream"


def _factor(shown: Tensor, whole: Tensor) -> float:
    """Return c with shown = c whole, as well as it can be; exactly 1 where it is about that."""
    x, y = shown.double().flatten(), whole.double().flatten()
    size = float(y @ y)
    factor = float(x @ y) / size if size > 0.0 else 1.0
    about = max(NEAR, torch.finfo(shown.dtype).eps)
    return 1.0 if abs(factor - 1.0) < about else factor


def _near(computed: Tensor, shown: Tensor, stream: Tensor | None = None) -> bool:
    """Whether numbers are those shown, up to rounding of their type and of the stream's size."""
    rounding = torch.finfo(shown.dtype).eps
    allowed = max(NEAR, 16 * rounding) * float(shown.abs().max())
    if stream is not None:
        allowed += 16 * rounding * float(stream.abs().max())
    return bool((computed - shown).abs().max() <= allowed)
