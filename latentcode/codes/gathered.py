"""What is kept of every instance: features that hooks show, the wide ones reduced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.codes.reader import gather_codes
from latentcode.seeds import make_generator

WIDEST = 512
"""Numbers per instance, layer and features that are kept."""
ALL_LAYERS = "all"
"""The layer of the codes of all layers together."""

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

    def __init__(self, n: int, features: Sequence[str], layers: Sequence[int]) -> None:
        self.n, self.features, self.layers, self.start = n, features, layers, 0
        self.values: dict[Place, np.ndarray] = {}
        self.sizes: dict[Place, int] = {}
        self._projections: dict[Place, Tensor] = {}

    def hooks(self, batch: RowBatch, part: slice) -> list[tuple[str, Hook]]:
        """Return the hooks that read some instances of a batch."""
        query, key = batch.query[part], batch.key[part]
        sets, places = ({name: tokens[part] for name, tokens in positions.items()}
                        for positions in (batch.key_sets, batch.places))
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
        x = x.detach().flatten(1).float()
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


__all__ = ["ALL_LAYERS", "WIDEST", "Gathered", "Place", "RowBatch"]
