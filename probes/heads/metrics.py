"""Metrics of all heads over texts: what they attend to, and what they add to the logits.

Of a head with the pattern a_qk (a softmax: sum_k a_qk = 1), token x_q at query q, all q >= 1:

    previous_token      a_q,q-1
    duplicate_token     sum_k a_qk over k < q with x_k = x_q
    induction           sum_k a_qk over 1 <= k <= q with x_k-1 = x_q, k - 1 < q
    first_token         a_q,0
    distance            sum_k a_qk (q - k), in tokens
    entropy             -sum_k a_qk ln a_qk, in nats
    normalized_entropy  the same over ln(q + 1), the entropy of a query that attends to all alike

A metric is the mean over the queries of all texts. Queries without such a key (no earlier
occurrence of their token) are left out, so that a head that always attends to one scores 1; the
first token, which can attend to nothing but itself, is left out everywhere. The first three are the
patterns of TransformerLens' `detect_head`, which divides by all queries instead; induction is the
prefix matching of Olsson et al. (2022), on texts as they are in place of repeated random tokens.
The last metric is the direct logit attribution, what each head adds to the logit of the next token:

    DLA_h = ((c_h - mean c_h) / s * w) . (W_U[:, t] - mean_v W_U[:, v]),    c_h = z_h W_O^h

of a read position whose next token is t, with the final norm's weight w and its scale s of the
whole stream, frozen: TransformerLens' `apply_ln_to_stack` and `logit_attrs`, against the mean of
the vocabulary, as a constant on all logits says nothing. An RMS norm takes no mean of c_h away. The
unembedding is projected back through the frozen norm and W_O^h, so that no stack of heads
[L, H, B, T, D] is made. A norm behind attention (Gemma 2) is frozen in the same way. On a few
tokens it is tried whether the writes of the heads sum to what attention adds to the residual
stream, and what is read out to the logits; where they do not, there is no number.

One forward pass of each batch gives the metrics of all heads. Sums over groups of texts alone are
kept, which the bootstrap resamples: memory does not grow with the number of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.errors import check, is_out_of_memory
from latentcode.models.blocks import LAYER_NORM_EPSILON, LayerNorm
from latentcode.models.hooks import attention_layers, evaluating, look, see
from latentcode.models.hypernetwork import gates
from latentcode.models.pretrained import layout
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.common.statistics import (
    LEVEL,
    Resampled,
    contrast_columns,
    resampled_ratios,
    same_weights,
)
from latentcode.progress import Progress
from latentcode.prompts.texts import TextBatch, Texts

Hooks = list[tuple[str, Callable[..., None]]]
CONTROLS = ("control", "control_low", "control_high")
DIFFERENCE = ("difference", "difference_low", "difference_high")
"""The control, and the difference from it, with their intervals."""
COLUMNS = ("layer", "head", "metric", "value", "low", "high", *CONTROLS, "n")
CONTRASTS = contrast_columns("layer", "head", "features")
GROUPS = 256
"""Groups of texts of which sums are kept, and which the bootstrap resamples: text i is in group
i mod 256, by itself where there are no more texts."""
DIRECT = "direct_logit_attribution"
NEAR = 1e-3
"""How far sums may be from what the model shows, relative to its largest number."""
LEAVING = "unembed.hook_in"
STREAM = "hook_resid_pre", "hook_resid_mid", "hook_mlp_out", "hook_resid_post"
ZS = "attn.hook_z", "attn.o.hook_in"
"""Hooks of which one shows the input of the output projection."""
POST_NORM = "ln1_post"
METRICS: Mapping[str, str] = {
    "previous_token": "attention to the token before",
    "duplicate_token": "attention to earlier occurrences of the same token",
    "induction": "attention to what followed earlier occurrences of the same token",
    "first_token": "attention to the first token",
    "distance": "mean distance attended, in tokens",
    "entropy": "entropy of attention, in nats",
    "normalized_entropy": "entropy over that of equal attention to all keys"}
"""Metrics of patterns, in the order of their axis."""
OBSERVED = (*METRICS, DIRECT)
"""All metrics, in the order of the last axis M."""
QUERIES_AT_ONCE = 64
"""Queries whose logarithms are taken at once, up to the last key that they see."""


class PatternMetrics:
    """Sums of the metrics of patterns over the queries of a batch, causal and padded on the right.

    Attributes:
        keys: [B, 5, QK], weight of each key for each query in the first metrics, zero where the
            query is left out.
        queries: [B, Q, 2], 1 and 1 / ln(q + 1), weights of the entropy of a query, likewise.
        n: [B, 7], queries that each metric of each text is a mean over.
    """

    def __init__(self, batch: TextBatch) -> None:
        tokens = batch.tokens
        n_texts, width = tokens.shape
        place = torch.arange(width, device=tokens.device)
        query, key = place[:, None], place[None]
        inside = (place[None] < batch.lengths[:, None]) & (place >= 1)  # [B, Q]
        same = (tokens[:, :, None] == tokens[:, None, :]) & (key < query)  # [B, Q, K]
        following = torch.zeros_like(same)  # key k, where k - 1 is an earlier occurrence
        following[:, :, 1:] = same[:, :, :-1]
        weights = (key == query - 1, same, following, key == 0, (query - key).clamp(min=0))
        keys = torch.empty(n_texts, len(weights), width, width, device=tokens.device)
        for metric, weight in enumerate(weights):
            keys[:, metric] = weight * inside[:, :, None]
        self.keys = keys.flatten(2)
        self.queries = torch.stack(
            [inside, inside / (place + 1.0).log().clamp(min=1e-9)], dim=-1)
        self.n = inside.sum(1, dtype=keys.dtype)[:, None].repeat(1, len(METRICS))
        for metric, keys_there in ((1, same), (2, following)):
            self.n[:, metric] = (keys_there.any(-1) & inside).sum(1)

    def sums(self, pattern: Float[Tensor, "B H Q K"]) -> Float[Tensor, "B H 7"]:
        """Return the sums over queries of all heads of a layer."""
        pattern = pattern.to(self.keys.dtype)
        summed = torch.bmm(pattern.flatten(2), self.keys.transpose(1, 2))
        n_queries = pattern.shape[2]
        entropy = pattern.new_empty(pattern.shape[:3])
        for first in range(0, n_queries, QUERIES_AT_ONCE):
            end = min(first + QUERIES_AT_ONCE, n_queries)
            a = pattern[:, :, first:end, :end]  # later keys get nothing, and 0 ln 0 = 0
            entropy[:, :, first:end] = -torch.einsum(
                "bhqk,bhqk->bhq", a, a.clamp(min=1e-30).log_())
        return torch.cat([summed, torch.bmm(entropy, self.queries)], dim=-1)


def as_shares(pattern: Float[Tensor, "B H Q K"]) -> Float[Tensor, "B H Q K"]:
    """|a_qk| / sum_j |a_qj|, of codes of any normalisation; 0 where a query has no code at all."""
    size = pattern.abs()
    total = size.sum(-1, keepdim=True)
    return size / torch.where(total > 0, total, 1.0)


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

    `z` is the hook that shows z [B, T, H, d]; `post` a norm behind the output projection.
    """

    z: str
    W_O: Float[Tensor, "Hd D"]
    post: Norm | None
    factor: float


class DirectLogits:
    """How the heads of each layer with attention write (`writes`), or why it is not known
    (`lacking`).
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
        self.scale_hook = self.entering if self.ours else "ln_final.hook_scale"
        n = max(1, min(8, getattr(model.cfg, "n_ctx", None) or 8, model.W_U.shape[1] - 1))
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
        notes = []
        for reason in dict.fromkeys(self.lacking.values()):
            layers = [layer for layer in self.lacking if self.lacking[layer] == reason]
            where = "any layer" if len(layers) == len(self.layers) else f"layers {layers}"
            notes.append(f"No direct logit attribution of {where}: {reason}.")
        return notes

    def attribute(self, batch: TextBatch) -> tuple[Hooks, Float[Tensor, "B L H"]]:
        """Return hooks for the pass of a batch, and the attribution, which they fill in.

        The attribution is summed over the read positions of each text, by layer with attention; NaN
        where none is known. Hooks keep of each layer [N, H] numbers, N the read positions.
        """
        text, place = batch.read.nonzero(as_tuple=True)
        total = torch.zeros(len(batch), len(self.layers), self.n_heads, device=batch.tokens.device)
        total[:, [layer in self.lacking for layer in self.layers]] = torch.nan
        if not self.writes or not len(text):
            return [], total
        answers = batch.answers
        wanted = self.W_U.T[answers.clamp_min(0)] * (answers >= 0)[..., None].to(self.W_U)
        wanted = wanted.sum(1) / (answers >= 0).sum(1, keepdim=True)  # of a set the mean direction
        back = self.final.back(wanted - self.mean)
        by_layer: dict[int, Tensor] = {}

        def attribute(z: Tensor, hook: object, layer: int, write: Write) -> None:
            u = back if write.post is None else write.post.back(back)
            heads = z[text, place].flatten(1) * (u @ write.W_O.T)  # [N, H d]
            by_head = heads.unflatten(1, (self.n_heads, -1)).sum(-1)
            by_layer[layer] = write.factor * self.logit_factor * by_head.float()

        def divide(scale: Tensor, hook: object, layer: int) -> None:
            by_layer[layer] = by_layer[layer] / scale[text, place].float()

        def add(shown: Tensor, hook: object) -> None:  # behind the last layer
            scale = self._scale(shown[text, place]).float()
            for layer, by_head in by_layer.items():
                total[:, self.layers.index(layer)].index_add_(0, text, by_head / scale)

        hooks: Hooks = [(self.scale_hook, add)]
        for layer, write in self.writes.items():
            hooks.append((write.z, partial(attribute, layer=layer, write=write)))
            if write.post is not None:
                hooks.append((write.post.scale, partial(divide, layer=layer)))
        return hooks, total

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


class Observer:
    """A model whose heads are measured, those of the layers [L] with attention.

    `ConfigError` for a model without patterns, and for one whose queries see later keys.
    `normalized` says whether codes are shares of attention as they are (a softmax over keys).
    """

    def __init__(self, model: Any) -> None:
        self.model, self.layout = model, layout(model)
        check(self.layout.causal, "queries of the model see later keys; expected a causal language "
              "model, whose metrics of heads are known")
        self.normalized = (
            model.config.normalization == "softmax" if isinstance(model, HookedTransformer)
            else self.layout.normalized)
        self.direct = DirectLogits(model)

    def notes(self) -> list[str]:
        """Return what a reader of the numbers must know."""
        others, gated = self.layout.others, sorted(gates(self.model))
        notes = self.direct.notes()
        if others:
            kinds = ", ".join(dict.fromkeys(others.values()))
            notes.append(f"Layers {', '.join(map(str, others))} have no attention ({kinds}), and "
                         "no heads here.")
        if gated:
            notes.append(f"Attention of layers {', '.join(map(str, gated))} has a gate; patterns "
                         "are those before it.")
        if not self.normalized:
            notes.append("Codes of a query do not sum to 1: metrics are of "
                         "|a_qk| / sum_k |a_qk|.")
        return notes

    def observe(
        self, batch: TextBatch, also: Iterable[tuple[str, Callable[..., None]]] = ()
    ) -> tuple[Float[Tensor, "B L H M"], Float[Tensor, "B M"]]:
        """Return sums over queries and over read positions, and the number of these; `also` are
        further hooks of the pass. `ConfigError` for codes that are not finite or look ahead."""
        metrics = PatternMetrics(batch)
        direct_hooks, direct = self.direct.attribute(batch)
        sums: dict[int, Tensor] = {}
        ahead: dict[int, Tensor] = {}

        def measure(pattern: Tensor, hook: object, layer: int) -> None:
            ahead[layer] = looks_ahead(pattern)
            sums[layer] = metrics.sums(pattern if self.normalized else as_shares(pattern))

        look(self.model, batch.tokens, [
            *((name, partial(measure, layer=layer))
              for layer, name in self.layout.pattern_hooks.items()),
            *direct_hooks, *also], batch.padding)
        layers = self.layout.layers
        of_patterns = torch.stack([sums[layer] for layer in layers], dim=1)
        later = torch.stack([ahead[layer] for layer in layers]) != 0.0
        broken, seeing = (", ".join(np.array(layers, str)[faulty.cpu().numpy()]) for faulty in (
            ~of_patterns.isfinite().all(-1).all(-1).all(0), later))
        check(not broken, f"layer {broken} gives codes that are NaN or infinite; "
              "expected finite weights, and a type in which codes do not overflow")
        check(not seeing, f"layer {seeing} lets tokens attend to later ones"
              f"{' in a padded batch' if batch.padding else ''}; expected a model in which "
              "latentcode zoo check finds no such fault"
              f"{', or tokens_at_once=1' if batch.padding else ''}")
        read = batch.read.sum(1).to(metrics.n.dtype)
        return (torch.cat([of_patterns, direct[..., None]], dim=-1),
                torch.cat([metrics.n, read[:, None]], dim=-1))


def looks_ahead(pattern: Float[Tensor, "B H Q K"]) -> Float[Tensor, ""]:
    """Return how much the first tokens, which may see none but themselves, attend to others."""
    return pattern[:, :, 0, 1:].abs().sum()


class Scores(Resampled):
    """Ratios of sums over groups of texts, [...], with groups resampled.

    `n` counts the tokens, queries or pairs that the sums are over, `n_clusters` the groups; scores
    of the same seed and groups have the same draws.
    """

    @classmethod
    def of(
        cls, sums: np.ndarray, sizes: np.ndarray, n: int, n_bootstrap: int, seed: int
    ) -> Scores:
        """Return sum_g sums_g / sum_g sizes_g of sums [G, ...] and sizes, of the same axes."""
        return cls.weighted(sums, sizes, n, same_weights(len(sums), n_bootstrap, seed))

    @classmethod
    def weighted(
        cls, sums: np.ndarray, sizes: np.ndarray, n: int, weights: np.ndarray
    ) -> Scores:
        """Return the same, and as replicates those of groups weighted [R, G]."""
        ratios = resampled_ratios(sums, sizes, np.vstack([np.ones(len(sums)), weights]))
        return cls(ratios[0], ratios[1:], n, len(sums))

    def __sub__(self, other: Resampled) -> Scores:
        return replace(self, value=self.value - other.value,
                       replicates=self.replicates - other.replicates)

    def __getitem__(self, at: Any) -> Scores:
        replicates = self.replicates[:, *(at if isinstance(at, tuple) else (at,))]
        return replace(self, value=self.value[at], replicates=replicates)

    def columns(self, names: Sequence[str] = ("value", "low", "high")) -> dict[str, np.ndarray]:
        """Return the scores and the ends of their intervals by these names, flattened."""
        numbers = (self.value, *self.interval())
        return {name: np.ravel(x) for name, x in zip(names, numbers, strict=True)}


def groups(text: Int[Tensor, " B"]) -> Int[np.ndarray, " B"]:
    """Return the group of each text (`GROUPS`)."""
    return np.asarray(text.cpu().numpy() % GROUPS)


@dataclass
class Sums:
    """Sums of metrics over groups of texts, float64 [G, L, H, M], and over how many queries or read
    positions they are, float64 [G, M].
    """

    sums: np.ndarray
    n: np.ndarray
    n_texts: int = 0

    @classmethod
    def zeros(cls, n_layers: int, n_heads: int) -> Sums:
        """Return sums of no texts, of the layers with attention and their heads."""
        return cls(np.zeros((GROUPS, n_layers, n_heads, len(OBSERVED))),
                   np.zeros((GROUPS, len(OBSERVED))))

    @property
    def n_groups(self) -> int:
        """Groups of texts that there are to resample."""
        return int(self.n.any(axis=1).sum())

    def add(self, batch: TextBatch, sums: Tensor, n: Tensor) -> None:
        """Add what was observed of a batch."""
        group = groups(batch.text)
        np.add.at(self.sums, group, sums.double().cpu().numpy())
        np.add.at(self.n, group, n.double().cpu().numpy())
        self.n_texts += len(batch)

    def scores(self, metric: int, n_bootstrap: int, seed: int) -> Scores:
        """Return a metric of all heads, [L, H]; NaN where there is no query for it."""
        filled = self.n.any(axis=1)
        n = self.n[filled, metric]
        return Scores.of(self.sums[filled, ..., metric], n[:, None, None], int(n.sum()),
                         n_bootstrap, seed)


def observe_texts(
    observer: Observer, texts: Texts, sums: Sums, progress: Progress | None = None
) -> None:
    """Add all texts to sums; `ProbeError` for a batch that memory does not suffice for."""
    for batch in texts.batches(progress):
        texts.check_memory(batch)
        try:
            sums.add(batch, *observer.observe(batch))
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                raise texts.too_large(batch) from error
            raise


def heads_table(
    layers: Sequence[int], model: Sums, fresh: Sequence[Sums], *, n_bootstrap: int, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the metrics of all heads, and how far each is from the mean of the fresh heads.

    Intervals resample groups of texts, of a difference the same for both. `control` is the mean
    over all n heads of the fresh models, `control_low` and `control_high` are those of rank
    0.025 (n + 1) and 0.975 (n + 1) among them, between ranks by interpolation: between these lies
    another head that learned nothing with 95 %, where heads are independent. Of fewer than 39
    heads they are the least and the largest, and it lies between them with (n - 1) / (n + 1).
    """
    blocks: list[pd.DataFrame] = []
    differences: list[pd.DataFrame] = []
    places = pd.MultiIndex.from_product(
        [layers, range(model.sums.shape[2])], names=["layer", "head"]).to_frame(index=False)
    for metric, name in enumerate(OBSERVED):
        scores, *others = (sums.scores(metric, n_bootstrap, seed) for sums in (model, *fresh))
        control = low = high = np.nan
        pool = np.concatenate([np.empty((n_bootstrap + 1, 0)), *(
            np.vstack([other.value[None], other.replicates]).reshape(n_bootstrap + 1, -1)
            for other in others)], axis=1)  # fresh heads, first over all texts
        pool = pool[:, np.isfinite(pool[0])]
        if pool.size:
            control, *means = pool.mean(axis=1)
            low, high = np.quantile(pool[0], [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0],
                                    method="weibull")
            apart = replace(scores, value=scores.value - control,
                            replicates=scores.replicates - np.reshape(means, (-1, 1, 1)))
            differences.append(places.assign(
                features="head", quantity=name, against="untrained", **apart.columns(),
                n=apart.n, n_clusters=apart.n_clusters))
        blocks.append(places.assign(metric=name, **scores.columns(), control=control,
                                    control_low=low, control_high=high, n=scores.n))
    return pd.concat(blocks), pd.concat(differences or [pd.DataFrame(columns=list(CONTRASTS))])
