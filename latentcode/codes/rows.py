"""What else is there to read of one instance than one code? Rows, all codes, values, streams.

features   numbers  in each layer
code       H        the code of one (query, key) pair
row        T H      the codes of that query over all keys
row.NAME   n H      of that query over the keys of a set that the task names (`Task.key_sets`)
row.head3  T        of that query and a single head, here number 3
codes      T T H    the codes of all queries over all keys; of all layers together, too
values     T H d    the values of all keys
residual   D        the residual stream that enters the layer, at the query
tokens     T D      that of all tokens
codes.NAME n T H    the codes of the queries at a place of the task (`Task.places`) over all keys
values.NAME n H d   the values of its tokens
tokens.NAME n D     the residual streams of its tokens
entropy    H        and other numbers of the whole pattern, such as `lap_eigvals`, of all layers
                    together, too (`latentcode.codes.aggregates`)
NAME       d        what a function of the user's makes of all codes, values or residual streams of
                    the layer (`latentcode.codes.features`)

Of a bridge whose query heads share value heads, `values` has as many heads as there are of values.

Features x of more than WIDEST numbers are reduced while they are read, to x R / sqrt(WIDEST) with R
[d, WIDEST] standard normal: the same R for all instances and models, and another for any other
features and layer. Memory grows with instances times WIDEST, not with all codes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.codes import LatentCodes
from latentcode.codes.aggregates import AGGREGATES
from latentcode.codes.features import FEATURES
from latentcode.devices import make_generator
from latentcode.errors import as_tuple, check

WIDEST = 512
"""Numbers per instance, layer and features that are kept."""
LARGEST = 2**17
"""Numbers of features per layer whose projection, 4 * WIDEST bytes for each, fits in memory."""
ALL_LAYERS = "all"
"""The layer of the codes, or of aggregates, of all layers together."""
OF_ONE_PLACE = ("code", "residual")
"""Features of as many numbers whatever the number of tokens; aggregates are, too, and those of
users can be."""

Place = tuple[str, str]
"""Features and their layer, a number as text or `ALL_LAYERS`."""
Hook = Callable[[Tensor, object], None]


@dataclass(frozen=True)
class Instances:
    """B instances that pass through a model together, and where to read them.

    inputs      token ids [B, T], or vectors [B, T, d_input]
    query, key  positions of the P pairs, [B, P]
    rows        their numbers within the block, a slice or int64 [B]
    padding     arguments that tell the model where tokens are padding
    hooks       further hooks of this pass, such as one that leaves the tokens that have logits
    key_sets    name -> keys [B, n], the columns of `row.NAME`
    places      name -> tokens [B, n] of `codes.NAME`, `values.NAME` and `tokens.NAME`
    """

    inputs: Tensor
    query: Int[Tensor, "B P"]
    key: Int[Tensor, "B P"]
    rows: slice | Tensor
    padding: Mapping[str, Tensor] = field(default_factory=dict)
    hooks: Sequence[tuple[str, Callable[..., Any]]] = ()
    key_sets: Mapping[str, Tensor] = field(default_factory=dict)
    places: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.inputs)


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
        self.widest = WIDEST
        self.values: dict[Place, np.ndarray] = {}
        self.sizes: dict[Place, int] = {}
        self._projections: dict[Place, Tensor] = {}
        known = (*feature_names(example.key_sets, example.places), *of_heads(model.cfg.n_heads),
                 *FEATURES)
        check(len(self.features) > 0, f"features is empty; expected some of {list(known)}")
        for name in self.features:
            if name not in known:
                FEATURES.find(name, known, what="feature")  # raises, and says how one is registered
        self.custom = [FEATURES[name] for name in self.features if name in FEATURES]

    def hooks(self, batch: Instances, rows: np.ndarray) -> list[tuple[str, Hook]]:
        """Return the hooks that keep the features of a batch, whose instances have these numbers.
        """
        sites = {name.split(".")[0] for name in self.features} | {
            features.site for features in self.custom}
        readers = [("hook_resid_pre", self._of_stream, {"residual", "tokens"}),
                   ("attn.hook_v", self._of_values, {"values", "value"}),
                   ("attn.hook_pattern", self._of_codes, {"code", "codes", "row"})]
        return [(f"blocks.{layer}.{hook}", partial(read, layer, batch, rows))
                for layer in self.layers for hook, read, kinds in readers if kinds & sites]

    def in_order(self) -> dict[Place, np.ndarray]:
        """Return what was kept, feature by feature and layer by layer."""
        order = [(name, layer) for name in self.features
                 for layer in (*map(str, self.layers), ALL_LAYERS)]
        return {place: self.values[place] for place in order if place in self.values}

    def _of_codes(
        self, layer: int, batch: Instances, rows: np.ndarray, pattern: Float[Tensor, "B H Q K"],
        hook: object,
    ) -> None:
        query, key = batch.query[:, 0], batch.key[:, 0]
        at = torch.arange(len(query), device=query.device)
        row = pattern[at, :, query]  # [B, H, K]
        found = {"code": pattern[at, :, query, key], "row": row, "codes": pattern}
        for name, keys in batch.key_sets.items():
            found[f"row.{name}"] = row.gather(2, keys[:, None].expand(-1, row.shape[1], -1))
        found |= {name: row[:, head] for head, name in enumerate(of_heads(row.shape[1]))}
        self._keep(layer, batch, rows, found, "code", "codes", pattern, pattern.movedim(2, 1))

    def _of_values(
        self, layer: int, batch: Instances, rows: np.ndarray, values: Float[Tensor, "B T H d"],
        hook: object,
    ) -> None:
        self._keep(layer, batch, rows, {"values": values}, "value", "values", values, values)

    def _of_stream(
        self, layer: int, batch: Instances, rows: np.ndarray, stream: Float[Tensor, "B T D"],
        hook: object,
    ) -> None:
        at = torch.arange(len(stream), device=stream.device)
        found = {"residual": stream[at, batch.query[:, 0]], "tokens": stream}
        self._keep(layer, batch, rows, found, "residual", "tokens", stream, stream)

    def _keep(
        self, layer: int, batch: Instances, rows: np.ndarray, found: dict[str, Tensor], site: str,
        kind: str, activation: Tensor, by_token: Float[Tensor, "B T ..."],
    ) -> None:
        """Keep what is wanted of `found`, of the task's places and of registered features.

        site, activation  what a registered function of this site is given
        kind, by_token    what `codes.NAME`, `values.NAME` and `tokens.NAME` are read from
        """
        at = torch.arange(len(batch), device=by_token.device)[:, None]
        found |= {f"{kind}.{name}": by_token[at, tokens] for name, tokens in batch.places.items()
                  if f"{kind}.{name}" in self.features}
        found |= {features.name: features(activation, batch.query[:, 0], batch.key[:, 0])
                  for features in self.custom if features.site == site}
        for name, x in found.items():
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


@dataclass(frozen=True)
class Rows:
    """N instances, read at one pair's query.

    values  place -> float32 [N, d], or [N, WIDEST] where d is larger
    sizes   place -> d, the numbers that the features have
    labels  of the instances (`Task.labels`)
    meta    which model, task and instances
    query   key that pairs have in common whose query is the same; None where it is not known
    codes   what the features were taken from, where that is codes
    """

    values: dict[Place, np.ndarray]
    sizes: Mapping[Place, int]
    labels: pd.DataFrame
    meta: Mapping[str, Any]
    query: Hashable = None
    codes: LatentCodes | None = None

    @classmethod
    def of_codes(cls, codes: LatentCodes, pair: str, features: Sequence[str]) -> Rows:
        """Return code and residual stream of a pair, as far as they are among the features."""
        select = {"code": codes.select, "residual": codes.select_residual}
        values = {(name, str(layer)): select[name](layer=layer, pair=pair)
                  for name in features for layer in codes.layers}
        index = [each.name for each in codes.pairs].index(pair)
        return cls(values, {place: x.shape[1] for place, x in values.items()}, codes.labels,
                   codes.meta, (codes.query_of_pair[index], codes.pairs[index].token)
                   if codes.query_of_pair else None, codes)

    def __len__(self) -> int:
        return len(self.labels)


def sized_by_tokens(features: Iterable[str]) -> Iterator[str]:
    """Yield those of the library's features that have a number for every token."""
    return (name for name in features if name not in OF_ONE_PLACE and name not in FEATURES)


def of_heads(n_heads: int) -> tuple[str, ...]:
    """Return the names of what single heads attend to, `row.head0` and so on."""
    return tuple(f"row.head{head}" for head in range(n_heads))


def feature_names(
    key_sets: Mapping[str, object], places: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """Return all features that can be read, given the task's sets of keys and its places."""
    return ("code", "row", *(f"row.{name}" for name in key_sets), "codes", "values", "residual",
            "tokens", *(f"{name}.{place}" for name in ("codes", "values", "tokens")
                        for place in places or ()))
