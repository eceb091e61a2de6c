"""What does each head add to the logit of the next token, directly? (direct logit attribution)

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
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.codes.reader import Hooks
from latentcode.models.blocks import LayerNorm
from latentcode.models.dense import LAYER_NORM_EPSILON
from latentcode.models.hooks import see
from latentcode.models.layers import attention_layers
from latentcode.models.modes import evaluating
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.heads.batches import TextBatch

DIRECT = "direct_logit_attribution"
N_TRIED = 8
"""Tokens on which it is tried what heads write."""
NEAR = 1e-3
"""How far sums may be from what the model shows, relative to its largest number."""
SCALE, LEAVING = "ln_final.hook_scale", "unembed.hook_in"
STREAM = "hook_resid_pre", "hook_resid_mid", "hook_mlp_out", "hook_resid_post"
ZS = "attn.hook_z", "attn.o.hook_in"
"""Hooks of which one shows what goes into the output projection."""
POST_NORMS = ("ln1_post",)
"""Names of a norm behind attention."""


@dataclass(frozen=True)
class Norm:
    """y = (x [- mean x]) / scale * weight + bias

    scale  the hook that shows it, [B, T, 1]
    """

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

    def linear(self, x: Float[Tensor, "... D"], scale: Tensor) -> Float[Tensor, "... D"]:
        """Return what a part x of the stream makes of the output, with the scale frozen."""
        return (x - x.mean(-1, keepdim=True) if self.centres else x) / scale * self.weight

    def whole(self, x: Float[Tensor, "... D"], scale: Tensor) -> Float[Tensor, "... D"]:
        """Return the output y of all of the stream."""
        y = self.linear(x, scale)
        return y if self.bias is None else y + self.bias

    def back(self, u: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        """Return g with g . x = s linear(x) . u."""
        g = u * self.weight
        return g - g.mean(-1, keepdim=True) if self.centres else g


@dataclass(frozen=True)
class Write:
    """How the heads of a layer write to the residual stream: factor * post(sum_h z_h W_O^h).

    z     the hook that shows z [B, T, H, d]
    W_O   [H d, D]
    post  the norm behind the output projection, where there is one
    """

    z: str
    W_O: Float[Tensor, "Hd D"]
    post: Norm | None
    factor: float


class DirectLogits:
    """What heads of a model write, as far as it is known.

    layers   those with attention
    writes   layer -> how its heads write
    lacking  layer -> why there is no number
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.writes: dict[int, Write] = {}
        self.lacking: dict[int, str] = {}
        self.layers, self.n_heads = attention_layers(model), int(model.cfg.n_heads)
        ours = isinstance(model, HookedTransformer)
        self.entering = (f"blocks.{self.layers[-1]}.hook_resid_post" if ours
                         else "ln_final.hook_in")
        # Of ours no more than the last token gets to the norm: its scale is known before.
        self.scale_at = self.entering if ours else SCALE
        self.scale_of: Callable[[Tensor], Tensor] = _scale_of_ours if ours else _as_it_is
        with evaluating(model):
            logits, seen = see(model, self._tokens(), [self.entering, self.scale_at, LEAVING, *(
                name for layer in self.layers for name in self._shown(layer))])
            why = self._why_no_read_out(logits, seen)
            for layer in self.layers:
                found = self._tried(layer, seen) if why is None else why
                if isinstance(found, Write):
                    self.writes[layer] = found
                else:
                    self.lacking[layer] = found

    def notes(self) -> list[str]:
        """Say which layers have no number, and why."""
        by_reason: dict[str, list[int]] = {}
        for layer, why in self.lacking.items():
            by_reason.setdefault(why, []).append(layer)
        return [f"No direct logit attribution of "
                f"{'any layer' if len(layers) == len(self.layers) else f'layers {layers}'}: {why}."
                for why, layers in by_reason.items()]

    def of(self, batch: TextBatch) -> OfBatch:
        """Return what attributes the logits of a batch while it passes."""
        return OfBatch(self, batch)

    def _tokens(self) -> Int[Tensor, "1 T"]:
        weight = next(self.model.parameters())
        context = int(getattr(self.model.cfg, "n_ctx", None) or N_TRIED)
        n = max(1, min(N_TRIED, context, int(self.model.W_U.shape[1]) - 1))
        return torch.arange(1, n + 1, device=weight.device)[None]

    def _shown(self, layer: int) -> list[str]:
        """Return the hooks of a layer, some of which show what its heads write."""
        return [f"blocks.{layer}.{name}" for name in (
            *ZS, *STREAM, *(f"{norm}.hook_scale" for norm in POST_NORMS))]

    def _why_no_read_out(self, logits: Tensor, seen: Mapping[str, Tensor]) -> str | None:
        """Try the final norm and the unembedding; return what is amiss with them."""
        model = self.model
        if not hasattr(model, "ln_final") or self.scale_at not in model.hook_dict:
            return "the model shows no final norm"
        if not {self.entering, self.scale_at} <= set(seen):
            return "the model does not show what its final norm does"
        self.final = Norm.of(model.ln_final, self.scale_at)
        read = self.final.whole(seen[self.entering], self.scale_of(seen[self.scale_at]))
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

    def _tried(self, layer: int, seen: Mapping[str, Tensor]) -> Write | str:
        """Return how the heads of a layer write, or why it is not known."""
        block = self.model.blocks[layer]
        if getattr(getattr(block.attn, "cfg", None), "value_network", "linear") != "linear":
            return ("of the value network that the codes of all heads generate together (HYLA) no "
                    "part is a single head's")
        weight, bias = _weights(block.attn)
        if weight is None:
            return "attention has no output projection by heads"
        at = f"blocks.{layer}."
        post = next((f"{at}{name}.hook_scale" for name in POST_NORMS if hasattr(block, name)), "")
        stream = seen.get(f"{at}hook_resid_pre")
        added = _added(*(seen.get(at + name) for name in STREAM))
        if stream is None or added is None:
            return "what attention adds to the residual stream is not shown"
        for z in ZS:
            heads = seen.get(at + z)
            if heads is None or heads.flatten(2).shape[-1] != len(weight):
                continue
            total = heads.flatten(2) @ weight
            total = total if bias is None else total + bias
            # The norm first: in types of few bits sums without it can be as near, at some factor.
            norms = [None] if post not in seen else [
                Norm.of(getattr(block, post.split(".")[2]), post), None]
            for norm in norms:
                whole = total if norm is None else norm.whole(total, seen[post])
                factor = _factor(added, whole)
                # A small difference of two large streams is known less well.
                if _near(factor * whole, added, of=stream):
                    return Write(at + z, weight, norm, factor)
        return "what its heads write does not sum to what attention adds to the residual stream"


def _weights(attention: Any) -> tuple[Tensor | None, Tensor | None]:
    """Return W_O [H d, D] and b_O; None where there is none."""
    try:
        weight, bias = attention.W_O, attention.b_O
    except Exception:  # bridges of other kinds of attention say so in many ways
        return None, None
    if not isinstance(weight, Tensor) or weight.ndim != 3:
        return None, None
    return weight.detach().flatten(0, 1), None if bias is None else bias.detach()


def _added(
    before: Tensor | None, middle: Tensor | None, fed: Tensor | None, after: Tensor | None
) -> Tensor | None:
    """Return what attention adds to the stream; beside a parallel feed-forward it is what that
    does not."""
    if before is not None and middle is not None:
        return middle - before
    if before is not None and fed is not None and after is not None:
        return after - before - fed
    return None


class OfBatch:
    """The direct logit attribution of one batch, summed over the read positions of each text.

    Its hooks keep of each layer [N, H] numbers, N the read positions, and in the end the scale.
    """

    def __init__(self, direct: DirectLogits, batch: TextBatch) -> None:
        self.direct, self.batch = direct, batch
        self.text, self.place = batch.read.nonzero(as_tuple=True)
        self.found: dict[int, Tensor] = {}
        self.scale: Tensor | None = None
        if direct.writes:
            target = batch.targets[self.text, self.place]
            self.back = direct.final.back(direct.W_U.T[target] - direct.mean)

    def hooks(self) -> Hooks:
        """Return what to hook into the pass."""
        if not self.direct.writes or not len(self.text):
            return []
        hooks: Hooks = [(self.direct.scale_at, self._keep_scale)]
        for layer, write in self.direct.writes.items():
            hooks.append((write.z, self._attribute(layer, write)))
            if write.post is not None:
                hooks.append((write.post.scale, self._divide(layer)))
        return hooks

    def sums(self) -> Float[Tensor, "B L H"]:
        """Return the sums over read positions, by layer with attention; NaN where nothing is
        known."""
        direct, batch = self.direct, self.batch
        out = torch.zeros(
            len(batch), len(direct.layers), direct.n_heads, device=batch.tokens.device)
        for i, layer in enumerate(direct.layers):
            if layer in direct.lacking:
                out[:, i] = torch.nan
            elif layer in self.found:
                assert self.scale is not None
                out[:, i].index_add_(
                    0, self.text, (self.found[layer] / self.scale).to(out.dtype))
        return out

    def _keep_scale(self, shown: Tensor, hook: object) -> None:
        self.scale = self.direct.scale_of(shown[self.text, self.place]).float()

    def _attribute(self, layer: int, write: Write) -> Callable[..., None]:
        factor = write.factor * self.direct.logit_factor

        def store(z: Tensor, hook: object) -> None:
            u = self.back if write.post is None else write.post.back(self.back)
            seen = z[self.text, self.place].flatten(1)  # [N, H d]
            heads = (seen * (u @ write.W_O.T)).unflatten(1, (self.direct.n_heads, -1))
            self.found[layer] = factor * heads.sum(-1).float()
        return store

    def _divide(self, layer: int) -> Callable[..., None]:
        def divide(scale: Tensor, hook: object) -> None:
            self.found[layer] = self.found[layer] / scale[self.text, self.place].float()
        return divide


def _as_it_is(scale: Tensor) -> Tensor:
    return scale


def _scale_of_ours(stream: Float[Tensor, "... D"]) -> Float[Tensor, "... 1"]:
    """Return the scale that `LayerNorm` gives a stream."""
    variance = stream.var(dim=-1, keepdim=True, correction=0)
    return (variance + LAYER_NORM_EPSILON).sqrt()


def _factor(shown: Tensor, whole: Tensor) -> float:
    """Return c with shown = c whole, as well as it can be; exactly 1 where it is about that."""
    x, y = shown.double().flatten(), whole.double().flatten()
    size = float(y @ y)
    factor = float(x @ y) / size if size > 0.0 else 1.0
    about = max(NEAR, torch.finfo(shown.dtype).eps)
    return 1.0 if abs(factor - 1.0) < about else factor


def _near(found: Tensor, shown: Tensor, of: Tensor | None = None) -> bool:
    """Whether numbers are those that are shown, up to rounding of their type, and of `of`'s."""
    rounding = torch.finfo(shown.dtype).eps
    most = float(shown.abs().max())
    allowed = max(NEAR, 16 * rounding) * most
    if of is not None:
        allowed += 16 * rounding * float(of.abs().max())
    return bool((found - shown).abs().max() <= allowed)
