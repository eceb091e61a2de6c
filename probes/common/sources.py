"""What is compared: codes, with the residual stream and an untrained model beside them."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, UnknownNameError, check
from latentcode.probes.common.controls import check_controls, check_pair_of_codes

ROUNDING = 1e-5
"""Points whose differences are below this share of their size differ by the rounding of float32:
the code of a token to itself in the first layer, for instance, may not depend on the instance."""


@dataclass(frozen=True)
class Source:
    """What a probe is fitted on, one of `SOURCES`: a vector per instance, layer and pair."""

    name: str
    codes: LatentCodes

    def values(self, layer: int, pair: str) -> np.ndarray:
        """Return the vectors of a layer and pair, float32 [N, d]; not a copy."""
        read = LatentCodes.select_residual if self.name == "residual" else LatentCodes.select
        return read(self.codes, layer=layer, pair=pair)

    def points(self, layer: int, pair: str) -> np.ndarray:
        """Return the vectors of a layer and pair, float64 [N, d].

        `ProbeError` for values that are not finite.
        """
        x = np.asarray(self.values(layer, pair), dtype=np.float64)
        check(bool(np.isfinite(x).all()), f"{self.name} of layer {layer}, pair {pair!r}: the "
              "values are not all finite", ProbeError)
        return x

    def place(self, pair: str) -> Hashable:
        """Return what the vectors of a layer depend on: pairs of one query share its residual."""
        if self.name != "residual":
            return pair
        return self.codes.query_of_pair[[p.name for p in self.codes.pairs].index(pair)]


def sources_of(
    codes: LatentCodes, untrained: LatentCodes | None, controls: bool
) -> tuple[Source, ...]:
    """Return the codes and their controls: the residual stream and an untrained model's codes.

    untrained  codes of the same instances under the model's initial weights
    controls   False leaves out both; `ProbeError` says what else is missing
    """
    check_pair_of_codes(codes, codes, "codes")
    check_controls(codes, codes, None if untrained is None else (untrained, untrained), controls)
    if not controls or untrained is None:
        return (Source("code", codes),)
    check_same_instances(codes, untrained, "untrained codes")
    return Source("code", codes), Source("residual", codes), Source("untrained", untrained)


def check_same_instances(codes: LatentCodes, other: LatentCodes, what: str) -> None:
    """Raise `ProbeError` unless two sets of codes show the same instances in the same order.

    What is compared are the task, split and seed, where both say them, and all labels that both
    have but numbers with decimals, among which are the model's own scores.
    """
    for name in ("task", "split", "seed"):
        if name in codes.meta and name in other.meta:
            # As JSON, because codes that were saved have lists where others have tuples.
            mine, theirs = (json.dumps(c.meta[name], sort_keys=True, default=str)
                            for c in (codes, other))
            check(mine == theirs, f"the {what} are of other instances: their {name} is {theirs}; "
                  f"expected {mine}", ProbeError)
    check(len(codes) == len(other), f"the {what} hold {len(other)} instances; expected "
          f"{len(codes)}, the same ones", ProbeError)
    for name in codes.labels.columns.intersection(other.labels.columns):
        ours, others = codes.labels[name], other.labels[name]
        if ours.dtype.kind != "f" and others.dtype.kind != "f":
            check(bool((ours.to_numpy() == others.to_numpy()).all()), f"the {what} are of other "
                  f"instances: label {name!r} differs; extract both with the same task, split and "
                  "seed", ProbeError)


def varies(x: np.ndarray) -> bool:
    """Return whether points [N, d] differ by more than the rounding of float32."""
    return bool(np.abs(x - x.mean(axis=0, dtype=np.float64)).max() > ROUNDING * np.abs(x).max())


def chosen(what: str, wanted: Sequence[Any] | None, available: Sequence[Any]) -> tuple[Any, ...]:
    """Return what is wanted of `available`, all by default.

    `UnknownNameError` for other names, `ProbeError` for none and for a name that is repeated.
    """
    if wanted is None:
        return tuple(available)
    check(len(wanted) > 0, f"{what}s is empty; expected some of {list(available)}", ProbeError)
    for name in wanted:
        if name not in available:
            raise UnknownNameError(what, name, available)
    check_distinct(f"{what}s", wanted)
    return tuple(wanted)


def check_distinct(what: str, names: Sequence[Any]) -> None:
    """Raise `ProbeError` for a name that is repeated."""
    repeated = sorted({str(name) for name in names if list(names).count(name) > 1})
    check(not repeated, f"{what} repeats {', '.join(repeated)}; expected different ones",
          ProbeError)


def origin(codes: LatentCodes) -> dict[str, Any]:
    """Return how many instances codes are of, and where they come from as far as they say."""
    known = ("run", "run_id", "kind", "config_hash", "split", "seed", "step", "task")
    return {"n": len(codes)} | {key: codes.meta[key] for key in known if key in codes.meta}
