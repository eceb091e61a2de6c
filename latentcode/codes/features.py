"""Features of an instance beside the code of a pair: rows, values, streams, functions of these.

features        numbers  in each layer
code            H        the code of one (query, key) pair
row             T H      the codes of that query over all keys
row.NAME        n H      of that query over the keys of a set that the task names (`Task.key_sets`)
row.head3       T        of that query and a single head, here number 3
codes           T T H    the codes of all queries over all keys; of all layers together, too
values          T H d    the values of all keys
residual        D        the residual stream that enters the layer, at the query
tokens          T D      that of all tokens
codes.NAME      n T H    the codes of the queries at a place of the task (`Task.places`), all keys
values.NAME     n H d    the values of its tokens
tokens.NAME     n D      the residual streams of its tokens
NAME            d        what a registered function makes of all codes, values or residual streams

Functions of the library, of the codes a [H, T, T] of all queries over all keys; those of codes are
read of all layers together, too:

attn_sum        H        1/T sum_q sum_k a_qk; 1 for a softmax, of which it says nothing
entropy         H        1/T sum_q -sum_k p_qk ln p_qk, p = |a| / sum_k |a|, in nats
distance        H        1/T sum_q sum_k p_qk |q - k|, in tokens
first_token     H        1/(T - 1) sum_{q > 0} a_q0, what goes to the first token
previous_token  H        1/(T - 1) sum_{q > 0} a_q,q-1
attn_log_det    H        1/T sum_i ln |a_ii|, the logarithm of det(a) per token (LLM-Check,
                         Sriramanan et al. 2024, NeurIPS)
lap_eigvals     H k      the k largest eigenvalues of the Laplacian (LapEigvals, Binkowski et al.
                         2025, arXiv:2502.17598)
mean_residual   D        of the residual streams x [T, D] that enter the layer, 1/T sum_t x_t: what
                         a text leaves anywhere, where its last token's stream may have lost it

Of a bridge whose query heads share value heads, `values` has as many heads as there are of values.

Features x of more than WIDEST numbers are reduced while they are read, to x R / sqrt(WIDEST) with R
[d, WIDEST] standard normal: the same R for all instances and models, and another for any other
features and layer. Memory grows with instances times WIDEST, not with all codes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.codes.reader import Hook, Instances, Place, Reader, Rows, is_code
from latentcode.devices import make_generator
from latentcode.errors import ConfigError, as_tuple, called, check, check_choice
from latentcode.models.hooks import evaluating
from latentcode.progress import Progress
from latentcode.registry import Registry

TOP_K = 10
"""Eigenvalues of each head; the paper's scores hardly differ between 5 and 100."""
LEAST = 1e-12
"""What a smaller code on the diagonal counts as, whose logarithm would be infinite."""
LEAST_TOKENS: Mapping[str, int] = {"first_token": 2, "previous_token": 2, "lap_eigvals": TOP_K}
"""Tokens that a text needs, where one is too few."""

Pattern = Float[Tensor, "B H T T"]


def attn_sum(codes: Pattern) -> Float[Tensor, "B H"]:
    """1/T sum_q sum_k a_qk; a row that sums to 1 but for rounding counts as 1.

    How the rows of a softmax are rounded depends on their length, which a probe would read.
    """
    sums = codes.float().sum(-1)
    rounding = max(4.0 * torch.finfo(codes.dtype).eps, 1e-5)
    return torch.where((sums - 1.0).abs() <= rounding, 1.0, sums).mean(-1)


def entropy(codes: Pattern) -> Float[Tensor, "B H"]:
    """1/T sum_q -sum_k p_qk ln p_qk, p = |a| / sum_k |a|; 0 for a query without any code."""
    return torch.special.entr(_shares(codes)).sum(-1).mean(-1)


def distance(codes: Pattern) -> Float[Tensor, "B H"]:
    """1/T sum_q sum_k p_qk |q - k|."""
    at = torch.arange(codes.shape[-1], device=codes.device)
    return (_shares(codes) * (at[:, None] - at).abs()).sum(-1).mean(-1)


def first_token(codes: Pattern) -> Float[Tensor, "B H"]:
    """1/(T - 1) sum_{q > 0} a_q0."""
    check_tokens("first_token", codes.shape[-1])
    return codes[..., 1:, 0].float().mean(-1)


def previous_token(codes: Pattern) -> Float[Tensor, "B H"]:
    """1/(T - 1) sum_{q > 0} a_q,q-1."""
    check_tokens("previous_token", codes.shape[-1])
    return codes.diagonal(-1, -2, -1).float().mean(-1)


def attn_log_det(codes: Pattern) -> Float[Tensor, "B H"]:
    """1/T sum_i ln |a_ii|; a |a_ii| below `LEAST` counts as that."""
    return codes.diagonal(0, -2, -1).float().abs().clamp(min=LEAST).log().mean(-1)


def lap_eigvals(codes: Pattern, k: int = TOP_K) -> Float[Tensor, "B Hk"]:
    """The k largest eigenvalues of L = D - A, d_ii = sum_{u >= i} a_ui / (T - i), i from 0.

    d_ii is what later tokens and itself attend to token i in the mean (equation 2 of the paper). A
    is lower triangular, so the eigenvalues are those of the diagonal, d_ii - a_ii; the largest come
    first. (The authors' released code puts a_ii of the next layer in place of a_ii.)

    `ConfigError` for fewer than k tokens, and for codes of later tokens, which make L another one.
    """
    check_tokens("lap_eigvals", codes.shape[-1], k)
    check(not bool(codes.triu(1).any()), "lap_eigvals are eigenvalues of causal attention, and "
          "queries of this model attend to later tokens; expected a causal model, or features of "
          "your own (lc.register_features)")
    weights = codes.float()
    at = torch.arange(weights.shape[-1], device=weights.device)
    degrees = weights.sum(-2) / (len(at) - at)
    return (degrees - weights.diagonal(0, -2, -1)).topk(k, dim=-1).values.flatten(1)


def _shares(codes: Pattern) -> Pattern:
    weights = codes.float().abs()
    return weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


def check_tokens(name: str, n: int, least: int | None = None, text: str = "this one") -> None:
    """Raise `ConfigError` for a text of n tokens, fewer than a feature needs.

    least  default: that of `LEAST_TOKENS`
    """
    least = LEAST_TOKENS.get(name, 1) if least is None else least
    fewer = (", or fewer eigenvalues: lc.register_features(\"few_eigvals\")(functools.partial("
             "latentcode.codes.features.lap_eigvals, k=5))" if name == "lap_eigvals" else "")
    check(n >= least, f"{name} needs texts of {least} tokens, and {text} has {n}; expected longer "
          f"ones{fewer}")


def mean_residual(stream: Float[Tensor, "B T D"]) -> Float[Tensor, "B D"]:
    """1/T sum_t x_t."""
    return stream.float().mean(1)


MEAN_RESIDUAL = mean_residual.__name__
AGGREGATES: Mapping[str, Callable[[Tensor], Tensor]] = {
    function.__name__: function for function in (
        attn_sum, entropy, distance, first_token, previous_token, attn_log_det, lap_eigvals)}
"""By name, those of patterns."""

Function = TypeVar("Function", bound=Callable[..., Tensor])
Site = Literal["code", "value", "residual"]
"""What a function is given: the codes [B, H, Q, K] of all queries and keys, values [B, K, H, d], or
the residual streams [B, T, D] that enter the layer."""
BUILT_IN = ("code", "row", "codes", "values", "residual", "tokens", "untrained", "shuffled", "bag")
"""Words that tables have for features already."""
POSITIONS = ("query", "key")
"""Arguments that a function may take: the positions [B] of the pair that is read."""
TRIED: Mapping[Site, tuple[int, ...]] = {
    "code": (3, 2, 5, 5), "value": (3, 5, 2, 4), "residual": (3, 5, 6)}
"""Made-up activations of three instances."""


@dataclass(frozen=True)
class CustomFeatures:
    """One function of the activations at a site.

    positions  those of `POSITIONS` that it takes
    """

    name: str
    function: Callable[..., Tensor]
    site: Site
    positions: Sequence[str] = ()

    def __call__(self, activation: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return the features [B, d] of activations [B, ...]; `ConfigError` for anything else."""
        at = {"query": query, "key": key}
        library = self.function in (*AGGREGATES.values(), mean_residual)
        # What a function of a user's writes into must not reach the model.
        x = called(f"features {self.name!r}: the function", ConfigError, self.function,
                   activation if library else activation.clone(),
                   **{name: at[name] for name in self.positions})
        returned = f"features {self.name!r}: for {self.site} {list(activation.shape)} it returned"
        n, shape = len(activation), getattr(x, "shape", type(x).__name__)
        check(isinstance(x, Tensor) and x.ndim == 2 and len(x) == n and x.shape[1] > 0,
              f"{returned} {shape}; expected a tensor [{n}, d]")
        check(not x.is_complex() and bool(x.isfinite().all()),
              f"{returned} complex, NaN or infinite numbers; expected finite ones")
        return x


FEATURES: Registry[CustomFeatures] = Registry("features", "lc.register_features", {
    **{name: CustomFeatures(name, function, "code") for name, function in AGGREGATES.items()},
    MEAN_RESIDUAL: CustomFeatures(MEAN_RESIDUAL, mean_residual, "residual")})
"""By name: those of the library, then those of users."""


def register_features(
    name: str, *, site: Site = "code", replace: bool = False
) -> Callable[[Function], Function]:
    """Make a function of activations features, known by a name: a decorator.

        @lc.register_features("row_entropy")
        def row_entropy(codes, query):  # how widely each head attends at the pair's query
            rows = codes[torch.arange(len(codes)), :, query]
            return -(rows * rows.clamp(min=1e-9).log()).sum(-1)

        lc.decode("sraven-hyla", features=["row_entropy"])

    site     `code`, `value` or `residual`: what it is given of a layer, [B, H, Q, K], [B, K, H, d]
             or [B, T, D]
    replace  take the place of earlier features of that name, as when a cell of a notebook runs
             again

    It returns [B, d], of each instance by itself. If it takes `query` or `key`, it is given the
    positions [B] of the pair that is read. From then on `decode` and registered probes take the
    name among their features. `ConfigError` for a name that is taken, and for a function that fails
    on a small example, or returns another shape or numbers that are not finite.
    """
    FEATURES.check_name(name)
    check_choice("site", site, get_args(Site))
    check(name not in BUILT_IN, f"features {name!r} come with latentcode; expected another name")

    def register(function: Function) -> Function:
        try:
            parameters = list(inspect.signature(function).parameters.values())[1:]
        except (TypeError, ValueError):  # built-in functions do not say
            parameters = []
        needed = {parameter.name for parameter in parameters
                  if parameter.default is parameter.empty
                  and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)}
        check(needed <= {*POSITIONS}, f"features {name!r}: the function takes "
              f"{inspect.signature(function)}; expected what is at the site and perhaps query "
              "and key")
        features = CustomFeatures(name, function, site, [
            parameter.name for parameter in parameters if parameter.name in POSITIONS])
        made_up = torch.rand(TRIED[site], generator=torch.Generator().manual_seed(0))
        if site == "code":  # of causal attention, as that of most models is
            made_up = made_up.tril() / made_up.tril().sum(-1, keepdim=True)
        features(made_up, torch.tensor([4, 4, 2]), torch.tensor([0, 4, 1]))
        FEATURES.add(name, features, replace=replace)
        return function

    return register


WIDEST = 512
"""Numbers per instance, layer and features that are kept."""
LARGEST = 2**17
"""Numbers of features per layer whose projection, 4 * WIDEST bytes for each, fits in memory."""
ALL_LAYERS = "all"
"""The layer of the codes, or of aggregates, of all layers together."""


class FeatureHooks:
    """Hooks that keep features of n instances, and what they have kept so far.

    `UnknownNameError` for unknown features.
    """

    def __init__(
        self, model: Any, n: int, features: Sequence[str], layers: Sequence[int],
        example: Instances,
    ) -> None:
        """example  a batch, which tells the sets of keys and the places that there are"""
        self.n, self.features, self.layers = n, as_tuple(features), layers
        self.values: dict[Place, np.ndarray] = {}
        self.sizes: dict[Place, int] = {}
        self._projections: dict[Place, Tensor] = {}
        known = ("code", "row", *(f"row.{name}" for name in example.key_sets), "codes", "values",
                 "residual", "tokens", *(
                     f"{name}.{place}" for name in ("codes", "values", "tokens")
                     for place in example.places), *of_heads(model.cfg.n_heads), *FEATURES)
        for name in self.features:
            if name not in known:
                FEATURES.find(name, known, what="feature")  # raises, and says how one is registered
        self.custom = [FEATURES[name] for name in self.features if name in FEATURES]

    def hooks(self, batch: Instances, rows: np.ndarray) -> list[tuple[str, Hook]]:
        """Return the hooks that keep the features of a batch, whose instances have these numbers.
        """
        sites = {name.split(".")[0] for name in self.features} | {
            features.site for features in self.custom}
        readers: list[tuple[str, Site, set[str]]] = [
            ("hook_resid_pre", "residual", {"residual", "tokens"}),
            ("attn.hook_v", "value", {"values", "value"}),
            ("attn.hook_pattern", "code", {"code", "codes", "row"})]
        return [(f"blocks.{layer}.{hook}", partial(self._keep, site, layer, batch, rows))
                for layer in self.layers for hook, site, kinds in readers if kinds & sites]

    def in_order(self) -> dict[Place, np.ndarray]:
        """Return what was kept, feature by feature and layer by layer."""
        order = [(name, layer) for name in self.features
                 for layer in (*map(str, self.layers), ALL_LAYERS)]
        return {place: self.values[place] for place in order if place in self.values}

    def _keep(
        self, site: Site, layer: int, batch: Instances, rows: np.ndarray, activation: Tensor,
        hook: object,
    ) -> None:
        """Keep what is wanted of the codes [B, H, Q, K], values [B, T, H, d] or streams [B, T, D]
        of a layer: at the pair, at the task's places, and what registered functions make of them.
        """
        query, key = batch.query[:, 0], batch.key[:, 0]
        each = torch.arange(len(query), device=query.device)
        if site == "code":
            row = activation[each, :, query]  # [B, H, K]
            read = {"code": activation[each, :, query, key], "row": row, "codes": activation}
            for name, keys in batch.key_sets.items():
                read[f"row.{name}"] = row.gather(2, keys[:, None].expand(-1, row.shape[1], -1))
            read |= {name: row[:, head] for head, name in enumerate(of_heads(row.shape[1]))}
            kind, by_token = "codes", activation.movedim(2, 1)
        elif site == "value":
            read, kind, by_token = {"values": activation}, "values", activation
        else:
            read = {"residual": activation[each, query], "tokens": activation}
            kind, by_token = "tokens", activation
        read |= {f"{kind}.{name}": by_token[each[:, None], tokens]
                 for name, tokens in batch.places.items() if f"{kind}.{name}" in self.features}
        read |= {features.name: features(activation, query, key)
                 for features in self.custom if features.site == site}
        for name, x in read.items():
            if name in self.features:
                self._add(name, layer, rows, x)

    def _add(self, name: str, layer: int, rows: np.ndarray, x: Tensor) -> None:
        """Keep x [B, ...] of some instances, reduced where it is wide."""
        place, d = (name, str(layer)), x[0].numel()
        check(d <= LARGEST, f"feature {name!r} has {d} numbers in each layer; expected at most "
              f"{LARGEST}, whose projection fits in memory")
        x = x.detach().flatten(1).float()
        every = (name == "codes" or name in AGGREGATES) and len(self.layers) > 1
        side_by_side = name != "codes" and d * len(self.layers) <= WIDEST
        projected = x @ self._projection(place, x) if (
            d > WIDEST or (every and not side_by_side)) else x
        self._room(place, d, min(d, WIDEST))[rows] = (
            projected if d > WIDEST else x).cpu().numpy()
        if every:
            together, whole = (name, ALL_LAYERS), d * len(self.layers)
            room = self._room(together, whole, whole if side_by_side else WIDEST)
            if side_by_side:
                first = d * self.layers.index(layer)
                room[rows, first:first + d] = x.cpu().numpy()
            else:  # the projection of layers together is the sum of theirs
                room[rows] += projected.cpu().numpy()

    def _room(self, place: Place, d: int, kept: int) -> np.ndarray:
        """Return room for the values of all instances, float32 [n, kept]."""
        if place not in self.values:
            self.values[place] = np.zeros((self.n, kept), np.float32)
            self.sizes[place] = d
        check(self.sizes[place] == d, f"features {place[0]!r} have {d} numbers for some instances, "
              f"and {self.sizes[place]} for others; expected as many for each, however many tokens "
              "it has")
        return self.values[place]

    def _projection(self, place: Place, x: Tensor) -> Tensor:
        """Return R / sqrt(WIDEST), [d, WIDEST]; drawn on the CPU, so the same on every device."""
        if place not in self._projections:
            generator = make_generator(0, f"project {' '.join(place)}")
            drawn_once = torch.randn(x.shape[1], WIDEST, generator=generator) / WIDEST**0.5
            self._projections[place] = drawn_once.to(x.device, x.dtype)
        return self._projections[place]


def read_features(
    reader: Reader, features: Sequence[str], progress: Progress | None = None
) -> Rows:
    """Return features of a reader's first pair.

    `UnknownNameError` for unknown features, `ConfigError` for those that are too large, and
    whose numbers depend on the number of tokens, where that differs.
    """
    kept: FeatureHooks | None = None
    tables = []
    done = 0
    with evaluating(reader.model):
        for block in reader.blocks(0):
            for batch in block.batches:
                if kept is None:
                    kept = FeatureHooks(reader.model, reader.n, features, reader.layers, batch)
                rows = np.arange(block.n)[batch.rows if isinstance(batch.rows, slice)
                                          else batch.rows.numpy()]
                logits = reader.model.run_with_hooks(
                    batch.inputs, **batch.padding,
                    fwd_hooks=[*kept.hooks(batch, done + rows), *batch.hooks])
                block.note(logits, batch)
            tables.append(block.labels(block.measured))
            done += block.n
            if progress is not None:
                progress(done, reader.n)
    assert kept is not None
    return Rows(kept.in_order(), kept.sizes, pd.concat(tables, ignore_index=True),
                {**reader.meta, "pair": reader.pairs[0].name, "widest": WIDEST})


def sized_by_tokens(features: Iterable[str]) -> Iterator[str]:
    """Yield those of the library's features that have a number for every token."""
    return (name for name in features if not is_code([name]) and name not in FEATURES)


def of_heads(n_heads: int) -> tuple[str, ...]:
    """Return the names of what single heads attend to, `row.head0` and so on."""
    return tuple(f"row.head{head}" for head in range(n_heads))
