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
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.arguments import as_tuple
from latentcode.codes import LatentCodes
from latentcode.codes.aggregates import AGGREGATES
from latentcode.codes.features import FEATURES
from latentcode.codes.instances import at_once, drawn
from latentcode.codes.reader import gather_codes
from latentcode.errors import check, check_count
from latentcode.models.layers import attention_layers, check_layer
from latentcode.models.modes import evaluating
from latentcode.models.read_out import last_token, read_out_hook
from latentcode.seeds import checked_seed, make_generator
from latentcode.tasks import Task, try_task
from latentcode.tasks.base import DRAW

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
class RowBatch:
    """B instances of T tokens each, and where to read them.

    inputs      token ids [B, T], or vectors [B, T, d_input]
    query, key  positions of the pair that is read
    labels      one row each
    key_sets    name -> keys [B, n], the columns of `row.NAME`
    places      name -> tokens [B, n] of `codes.NAME`, `values.NAME` and `tokens.NAME`
    """

    inputs: Tensor
    query: Int[Tensor, " B"]
    key: Int[Tensor, " B"]
    labels: pd.DataFrame
    key_sets: Mapping[str, Tensor] = field(default_factory=dict)
    places: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def layout(self) -> dict[str, int]:
        """The number of tokens, and of those of every set and place: the shape of the features."""
        return {"tokens": self.inputs.shape[1],
                **{f"row.{name}": keys.shape[1] for name, keys in self.key_sets.items()},
                **{name: tokens.shape[1] for name, tokens in self.places.items()}}


class Gathered:
    """What has been read so far; the next batch begins at instance `start`."""

    def __init__(
        self, n: int, features: Sequence[str], layers: Sequence[int], *, all_of_them: bool
    ) -> None:
        """all_of_them  refuse features of more than `LARGEST` numbers, rather than leave them out
        """
        self.n, self.features, self.layers, self.start = n, features, layers, 0
        self.all_of_them = all_of_them
        self.values: dict[Place, np.ndarray] = {}
        self.sizes: dict[Place, int] = {}
        self._projections: dict[Place, Tensor] = {}

    def hooks(self, batch: RowBatch, part: slice) -> list[tuple[str, Hook]]:
        """Return the hooks that read some instances of a batch."""
        query, key = batch.query[part], batch.key[part]
        sets, places = ({name: tokens[part] for name, tokens in positions.items()}
                        for positions in (batch.key_sets, batch.places))
        at = torch.arange(len(query), device=query.device)
        own = [FEATURES[name] for name in self.features if name in FEATURES]

        def of_codes(layer: int) -> Hook:
            def store(pattern: Float[Tensor, "B H Q K"], hook: object) -> None:
                row = pattern[at, :, query]  # [B, H, K]
                found = {"code": gather_codes(pattern, query[:, None], key[:, None]),
                         "row": row, "codes": pattern}
                for name, keys in sets.items():
                    index = keys[:, None].expand(-1, row.shape[1], -1)
                    found[f"row.{name}"] = row.gather(2, index)
                found |= {name: row[:, head] for head, name in enumerate(of_heads(row.shape[1]))}
                self._add_wanted(layer, found | at_places("codes", pattern.movedim(2, 1))
                                 | made("code", pattern))
            return store

        def at_places(kind: str, x: Float[Tensor, "B T ..."]) -> dict[str, Tensor]:
            return {f"{kind}.{name}": x[at[:, None], tokens] for name, tokens in places.items()
                    if f"{kind}.{name}" in self.features}

        def made(site: str, x: Tensor) -> dict[str, Tensor]:
            return {each.name: each(x, query, key) for each in own if each.site == site}

        def of_values(layer: int) -> Hook:
            def store(values: Float[Tensor, "B T H d"], hook: object) -> None:
                self._add_wanted(layer, {"values": values} | at_places("values", values)
                                 | made("value", values))
            return store

        def of_stream(layer: int) -> Hook:
            def store(stream: Float[Tensor, "B T D"], hook: object) -> None:
                self._add_wanted(layer, {"residual": stream[at, query], "tokens": stream}
                                 | at_places("tokens", stream) | made("residual", stream))
            return store

        kinds = {name.split(".")[0] for name in self.features} | {each.site for each in own}
        wanted: list[tuple[str, Callable[[int], Hook], bool]] = [
            ("hook_resid_pre", of_stream, bool({"residual", "tokens"} & kinds)),
            ("attn.hook_v", of_values, bool({"values", "value"} & kinds)),
            ("attn.hook_pattern", of_codes, bool({"code", "codes", "row"} & kinds))]
        return [(f"blocks.{layer}.{name}", hook(layer))
                for layer in self.layers for name, hook, is_wanted in wanted if is_wanted]

    def _add_wanted(self, layer: int, found: Mapping[str, Tensor]) -> None:
        for name, values in found.items():
            if name in self.features:
                self._add(name, layer, values)

    def _add(self, name: str, layer: int, x: Tensor) -> None:
        """Keep x [B, ...] of the present batch, reduced where it is wide."""
        place, d = (name, str(layer)), x[0].numel()
        if d > LARGEST:
            check(not self.all_of_them, f"feature {name!r} has {d} numbers in each layer; expected "
                  f"at most {LARGEST}, whose projection fits in memory")
            return
        x = x.detach().flatten(1).float()
        every = (name == "codes" or name in AGGREGATES) and len(self.layers) > 1
        side_by_side = name != "codes" and d * len(self.layers) <= WIDEST
        projected = x @ self._projection(place, x) if (
            d > WIDEST or (every and not side_by_side)) else x
        self._room(place, d, min(d, WIDEST))[:len(x)] = (
            projected if d > WIDEST else x).cpu().numpy()
        if every:
            together, whole = (name, ALL_LAYERS), d * len(self.layers)
            room = self._room(together, whole, whole if side_by_side else WIDEST)[:len(x)]
            if side_by_side:
                first = d * self.layers.index(layer)
                room[:, first:first + d] = x.cpu().numpy()
            else:  # the projection of layers together is the sum of theirs
                room += projected.cpu().numpy()

    def _room(self, place: Place, d: int, kept: int) -> np.ndarray:
        """Return where the present batch and all after it go, [..., kept]."""
        if place not in self.values:
            self.values[place] = np.zeros((self.n, kept), np.float32)
            self.sizes[place] = d
        check(self.sizes[place] == d, f"features {place[0]!r} have {d} numbers for some instances, "
              f"and {self.sizes[place]} for others; expected as many for each, however many tokens "
              "it has")
        return self.values[place][self.start:]

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


def read_rows(
    model: Any,
    task: Task,
    split: str = "ood",
    *,
    n: int = 4_096,
    pair: str | None = None,
    layers: Sequence[int] | int | None = None,
    features: Sequence[str] | None = None,
    seed: int = 0,
    batch_size: int = 256,
    meta: Mapping[str, Any] | None = None,
) -> Rows:
    """Run a model over the instances that `extract` reads of the same task, split and seed.

    pair     whose query and code are read; default: the paper's, the first of the task's
    features  default: all but those of places that have no more than `LARGEST` numbers in a layer
    others   as in `extract`
    meta     what else to record

    Raises what `extract` raises, `UnknownNameError` for unknown features, and `ConfigError` for
    those that are too large.
    """
    seed = checked_seed(seed)
    try_task(task, split)
    pair = next(iter(task.pairs)) if pair is None else pair
    task.check_pairs([pair])
    for name, number in (("n", n), ("batch_size", batch_size)):
        check_count(name, number)
    batches = _drawn_batches(task, split, pair, n, seed, next(model.parameters()).device)
    return gather_rows(
        model, batches, n=n, features=features, layers=layers,
        batch_size=at_once(task, batch_size),
        meta={**(meta or {}), "split": split, "seed": seed, "pair": pair})


def _drawn_batches(
    task: Task, split: str, pair: str, n: int, seed: int, device: torch.device
) -> Iterator[RowBatch]:
    """Yield the first n instances that `extract` draws, DRAW at a time."""
    for index in range(-(-n // DRAW)):
        batch = drawn(task, split, index, seed, device)[:n - index * DRAW]
        query, key = (found[:, 0] for found in task.positions([pair], batch))
        yield RowBatch(batch.inputs, query, key, task.labels(batch.to("cpu")),
                       task.key_sets(batch), task.places(batch))


def gather_rows(
    model: Any,
    batches: Iterable[RowBatch],
    *,
    n: int,
    features: Sequence[str] | None = None,
    layers: Sequence[int] | int | None = None,
    batch_size: int = 256,
    meta: Mapping[str, Any] | None = None,
) -> Rows:
    """As `read_rows`, of any model with hooks, a bridge included, and any instances.

    batches     n instances in all, of one layout: features are the same numbers in each of them.
                Where none of the features has a number for every token, batches can have different
                numbers of tokens
    batch_size  instances of one forward pass; what a batch has more is passed later
    meta        what to record

    `UnknownNameError` for unknown features and layers, `ConfigError` for features that are too
    large, for batches of several layouts, and where they are not n in all.
    """
    for name, number in (("n", n), ("batch_size", batch_size)):
        check_count(name, number)
    kept = attention_layers(model) if layers is None else as_tuple(layers)
    read_out = read_out_hook(model)
    gathered: Gathered | None = None
    layout: dict[str, int] = {}
    of_tokens: tuple[str, ...] = ()
    tables: list[pd.DataFrame] = []
    done = 0
    with evaluating(model):
        for batch in batches:
            if gathered is None:
                layout = batch.layout
                gathered = Gathered(n, _wanted(model, batch, features, kept), kept,
                                    all_of_them=features is not None)
                of_tokens = tuple(sized_by_tokens(gathered.features))
            check(done + len(batch) <= n, f"n is {n}, but there are {done + len(batch)} instances "
                  "at least; expected as many")
            check(not of_tokens or batch.layout == layout, f"instances have "
                  f"{_named(batch.layout)}, others {_named(layout)}; expected a single layout, of "
                  "which all features have the same numbers")
            tables.append(batch.labels)
            for first in range(0, len(batch), batch_size):
                part = slice(first, min(first + batch_size, len(batch)))
                gathered.start = done + first
                hooks = gathered.hooks(batch, part)
                model.run_with_hooks(
                    batch.inputs[part], fwd_hooks=[*hooks, (read_out, last_token)])
            done += len(batch)
    check(done == n, f"n is {n}, but there are {done} instances; expected as many")
    assert gathered is not None
    order = [(name, layer) for name in gathered.features
             for layer in (*map(str, kept), ALL_LAYERS)]
    values = {place: gathered.values[place] for place in order if place in gathered.values}
    return Rows(values, gathered.sizes, pd.concat(tables, ignore_index=True),
                {**(meta or {}), "widest": WIDEST})


def _named(layout: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {name if name == 'tokens' else f'tokens in {name}'}"
                     for name, n in layout.items())


def _wanted(
    model: Any, batch: RowBatch, features: Sequence[str] | None, layers: Sequence[int]
) -> tuple[str, ...]:
    """Return which features are kept; raises what `gather_rows` says of features and layers."""
    known = (*feature_names(batch.key_sets, batch.places), *of_heads(model.cfg.n_heads), *FEATURES)
    wanted = feature_names(batch.key_sets) if features is None else as_tuple(features)
    for what, names, available in (
            ("feature", wanted, known), ("layer", layers, attention_layers(model))):
        check(len(names) > 0, f"{what}s is empty; expected some of {list(available)}")
    for name in wanted:
        if name not in known:
            FEATURES.find(name, known, what="feature")  # raises, and says how one is registered
    for layer in layers:
        check_layer(model, layer)
    return wanted


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
