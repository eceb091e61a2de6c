"""What else is there to read of one instance than one code? Rows, all codes, values, streams.

features   numbers  in each layer
code       H        the code of one (query, key) pair
row        T H      the codes of that query over all keys
row.NAME   n H      of that query over the keys of a set that the task names (`Task.key_sets`)
codes      T T H    the codes of all queries over all keys; of all layers together, too
values     T H d    the values of all keys
residual   D        the residual stream that enters the layer, at the query
tokens     T D      that of all tokens
codes.NAME n T H    the codes of the queries at a place of the task (`Task.places`) over all keys
values.NAME n H d   the values of its tokens
tokens.NAME n D     the residual streams of its tokens

Features x of more than WIDEST numbers are reduced while they are read, to x R / sqrt(WIDEST) with R
[d, WIDEST] standard normal: the same R for all instances and models, and another for any other
features and layer. Memory grows with instances times WIDEST, not with all codes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.arguments import as_tuple
from latentcode.codes.instances import at_once, drawn
from latentcode.codes.of_tasks import opened
from latentcode.codes.reader import gather_codes
from latentcode.config import TaskConfig
from latentcode.errors import UnknownNameError, check, check_count
from latentcode.models.modes import evaluating
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.seeds import checked_seed, make_generator
from latentcode.tasks import Task, try_task
from latentcode.tasks.base import DRAW

WIDEST = 512
"""Numbers per instance, layer and features that are kept."""
LARGEST = 2**17
"""Numbers of features per layer whose projection, 4 * WIDEST bytes for each, fits in memory."""
ALL_LAYERS = "all"
"""The layer of the codes of all layers together."""

Place = tuple[str, str]
"""Features and their layer, a number as text or `ALL_LAYERS`."""
Hook = Callable[[Tensor, object], None]


@dataclass(frozen=True)
class Rows:
    """N instances, read at one pair's query.

    values  place -> float32 [N, d], or [N, WIDEST] where d is larger
    sizes   place -> d, the numbers that the features have
    labels  of the instances (`Task.labels`)
    meta    which model, task and instances
    """

    values: dict[Place, np.ndarray]
    sizes: Mapping[Place, int]
    labels: pd.DataFrame
    meta: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.labels)


def read_rows(
    run: Run | str | Path,
    split: str = "ood",
    *,
    n: int = 4_096,
    pair: str | None = None,
    layers: Sequence[int] | int | None = None,
    features: Sequence[str] | None = None,
    untrained: bool = False,
    task: Task | TaskConfig | None = None,
    step: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    batch_size: int = 256,
) -> Rows:
    """Run a model over the instances of `extract(run, split, n=n, seed=seed)` and keep features.

    pair     whose query and code are read; default: the paper's, the first of the task's
    features  default: all but those of places that have no more than `LARGEST` numbers in a layer
    others   as in `extract`

    Raises what `extract` raises, `UnknownNameError` for unknown features, and `ConfigError` for
    those that are too large.
    """
    seed = checked_seed(seed)
    model, drawn_from, meta = opened(load_run(run), untrained=untrained, task=task, step=step,
                                     device=device)
    try_task(drawn_from, split)
    pair = next(iter(drawn_from.pairs)) if pair is None else pair
    drawn_from.check_pairs([pair])
    for name, number in (("n", n), ("batch_size", batch_size)):
        check_count(name, number)
    on = next(model.parameters()).device
    batch = drawn(drawn_from, split, 0, seed, on)
    places = drawn_from.places(batch)
    known = feature_names(drawn_from.key_sets(batch), places)
    sizes = _sizes(known, drawn_from, model, {name: at.shape[1] for name, at in places.items()})
    wanted = (tuple(name for name in feature_names(drawn_from.key_sets(batch))
                    if sizes.get(name, 0) <= LARGEST)
              if features is None else as_tuple(features))
    kept = tuple(range(model.cfg.n_layers)) if layers is None else as_tuple(layers)
    choices: tuple[tuple[str, Sequence[Any], Sequence[Any]], ...] = (
        ("feature", wanted, known), ("layer", kept, range(model.cfg.n_layers)))
    for what, names, available in choices:
        check(len(names) > 0, f"{what}s is empty; expected some of {list(available)}")
        for unknown in set(names).difference(available):
            raise UnknownNameError(what, unknown, available)
    for name in wanted:
        check(sizes.get(name, 0) <= LARGEST, f"feature {name!r} has {sizes.get(name)} numbers "
              f"in each layer; expected at most {LARGEST}, whose projection fits in memory")
    batch_size = at_once(drawn_from, batch_size)
    gathered = _Gathered(n, wanted, kept)
    tables = []
    with evaluating(model):
        for index in range(-(-n // DRAW)):
            if index:
                batch = drawn(drawn_from, split, index, seed, on)
            batch = batch[:n - index * DRAW]
            query, key = (found[:, 0] for found in drawn_from.positions([pair], batch))
            sets, places = drawn_from.key_sets(batch), drawn_from.places(batch)
            tables.append(drawn_from.labels(batch.to("cpu")))
            for first in range(0, len(batch), batch_size):
                part = slice(first, min(first + batch_size, len(batch)))
                gathered.start = index * DRAW + first
                model.run_with_hooks(batch.inputs[part], fwd_hooks=gathered.hooks(
                    query[part], key[part], {name: keys[part] for name, keys in sets.items()},
                    {name: tokens[part] for name, tokens in places.items()}))
    order = [(name, layer) for name in wanted for layer in (*map(str, kept), ALL_LAYERS)]
    values = {place: gathered.values[place] for place in order if place in gathered.values}
    return Rows(values, gathered.sizes, pd.concat(tables, ignore_index=True), meta | {
        "split": split, "seed": seed, "pair": pair, "widest": WIDEST})


def _sizes(
    names: Sequence[str], task: Task, model: Any, places: Mapping[str, int]
) -> dict[str, int]:
    """Return how many numbers in a layer those features have that hold something of many tokens.

    places  how many tokens each has
    """
    t, cfg = task.config.n_tokens, model.cfg
    each = {"codes": t * cfg.n_heads, "values": cfg.n_heads * cfg.d_head_v, "tokens": cfg.d_model}
    every = {"row": t * cfg.n_heads, **{name: t * size for name, size in each.items()},
             **{f"{name}.{place}": n * size for name, size in each.items()
                for place, n in places.items()}}
    return {name: every[name] for name in names if name in every}


def feature_names(
    key_sets: Mapping[str, object], places: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """Return all features that can be read, given the task's sets of keys and its places."""
    return ("code", "row", *(f"row.{name}" for name in key_sets), "codes", "values", "residual",
            "tokens", *(f"{name}.{place}" for name in ("codes", "values", "tokens")
                        for place in places or ()))


class _Gathered:
    """What has been read so far; the next batch begins at instance `start`."""

    def __init__(self, n: int, features: Sequence[str], layers: Sequence[int]) -> None:
        self.n, self.features, self.layers, self.start = n, features, layers, 0
        self.values: dict[Place, np.ndarray] = {}
        self.sizes: dict[Place, int] = {}
        self._projections: dict[Place, Tensor] = {}

    def hooks(
        self, query: Tensor, key: Tensor, sets: Mapping[str, Tensor],
        places: Mapping[str, Tensor],
    ) -> list[tuple[str, Hook]]:
        """Return the hooks that read one batch; query and key are positions [B].

        sets, places  name -> positions [B, n]
        """
        at = torch.arange(len(query), device=query.device)

        def of_codes(layer: int) -> Hook:
            def store(pattern: Float[Tensor, "B H Q K"], hook: object) -> None:
                row = pattern[at, :, query]  # [B, H, K]
                found = {"code": gather_codes(pattern, query[:, None], key[:, None]),
                         "row": row, "codes": pattern}
                for name, keys in sets.items():
                    index = keys[:, None].expand(-1, row.shape[1], -1)
                    found[f"row.{name}"] = row.gather(2, index)
                self._add_wanted(layer, found | at_places("codes", pattern.movedim(2, 1)))
            return store

        def at_places(kind: str, x: Float[Tensor, "B T ..."]) -> dict[str, Tensor]:
            return {f"{kind}.{name}": x[at[:, None], tokens] for name, tokens in places.items()
                    if f"{kind}.{name}" in self.features}

        def of_values(layer: int) -> Hook:
            def store(values: Float[Tensor, "B T H d"], hook: object) -> None:
                self._add_wanted(layer, {"values": values} | at_places("values", values))
            return store

        def of_stream(layer: int) -> Hook:
            def store(stream: Float[Tensor, "B T D"], hook: object) -> None:
                self._add_wanted(layer, {"residual": stream[at, query], "tokens": stream}
                                 | at_places("tokens", stream))
            return store

        kinds = {name.split(".")[0] for name in self.features}
        wanted: list[tuple[str, Callable[[int], Hook], bool]] = [
            ("hook_resid_pre", of_stream, bool({"residual", "tokens"} & kinds)),
            ("attn.hook_v", of_values, "values" in kinds),
            ("attn.hook_pattern", of_codes, bool({"code", "codes", "row"} & kinds))]
        return [(f"blocks.{layer}.{name}", hook(layer))
                for layer in self.layers for name, hook, is_wanted in wanted if is_wanted]

    def _add_wanted(self, layer: int, found: Mapping[str, Tensor]) -> None:
        for name, values in found.items():
            if name in self.features:
                self._add(name, layer, values)

    def _add(self, name: str, layer: int, x: Tensor) -> None:
        """Keep x [B, ...] of the present batch, reduced where it is wide."""
        x = x.detach().flatten(1)
        place, d = (name, str(layer)), x.shape[1]
        every = name == "codes" and len(self.layers) > 1
        projected = x @ self._projection(place, x) if d > WIDEST or every else x
        self._room(place, d, min(d, WIDEST))[:len(x)] = (
            projected if d > WIDEST else x).cpu().numpy()
        if every:  # the projection of layers together is the sum of theirs
            together = (name, ALL_LAYERS)
            self._room(together, d * len(self.layers), WIDEST)[:len(x)] += projected.cpu().numpy()

    def _room(self, place: Place, d: int, kept: int) -> np.ndarray:
        """Return where the present batch and all after it go, [..., kept]."""
        if place not in self.values:
            self.values[place] = np.zeros((self.n, kept), np.float32)
            self.sizes[place] = d
        return self.values[place][self.start:]

    def _projection(self, place: Place, x: Tensor) -> Tensor:
        """Return R / sqrt(WIDEST), [d, WIDEST]; drawn on the CPU, so the same on every device."""
        if place not in self._projections:
            generator = make_generator(0, f"project {' '.join(place)}")
            drawn_once = torch.randn(x.shape[1], WIDEST, generator=generator) / WIDEST**0.5
            self._projections[place] = drawn_once.to(x.device, x.dtype)
        return self._projections[place]


__all__ = ["ALL_LAYERS", "WIDEST", "Place", "Rows", "feature_names", "read_rows"]
