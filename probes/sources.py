"""What is compared: codes, with the residual stream and an untrained model beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, UnknownNameError, check
from latentcode.probes.controls import check_controls, check_pair_of_codes

ROUNDING = 1e-5
"""Points whose differences are below this share of their size differ by the rounding of float32:
the code of a token to itself in the first layer, for instance, may not depend on the instance."""


@dataclass(frozen=True)
class Source:
    """One kind of points of the same instances: `code`, `residual` or `untrained`."""

    name: str
    codes: LatentCodes

    def points(self, layer: int, pair: str) -> np.ndarray:
        """Return the points of a layer and pair, float64 [N, d].

        `ProbeError` for values that are not finite.
        """
        read = LatentCodes.select_residual if self.name == "residual" else LatentCodes.select
        x = np.asarray(read(self.codes, layer=layer, pair=pair), dtype=np.float64)
        check(bool(np.isfinite(x).all()), f"{self.name} of layer {layer}, pair {pair!r}: the "
              "values are not all finite", ProbeError)
        return x


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

    What is compared are all labels that both have but numbers with decimals, among which are the
    model's own scores.
    """
    check(len(codes) == len(other), f"the {what} hold {len(other)} instances; expected "
          f"{len(codes)}, the same ones", ProbeError)
    for name in codes.labels.columns.intersection(other.labels.columns):
        mine, theirs = codes.labels[name], other.labels[name]
        if mine.dtype.kind != "f" and theirs.dtype.kind != "f":
            check(bool((mine.to_numpy() == theirs.to_numpy()).all()), f"the {what} are of other "
                  f"instances: label {name!r} differs; extract both with the same task, split and "
                  "seed", ProbeError)


def varies(x: np.ndarray) -> bool:
    """Return whether points [N, d] differ by more than the rounding of float32."""
    return bool(np.abs(x - x.mean(axis=0)).max() > ROUNDING * np.abs(x).max())


def chosen(what: str, wanted: Sequence[Any] | None, available: Sequence[Any]) -> tuple[Any, ...]:
    """Return what is wanted of `available`, all by default; `UnknownNameError` for other names."""
    if wanted is None:
        return tuple(available)
    check(len(wanted) > 0, f"{what}s is empty; expected some of {list(available)}", ProbeError)
    for name in wanted:
        if name not in available:
            raise UnknownNameError(what, name, available)
    return tuple(wanted)


def origin(codes: LatentCodes) -> dict[str, Any]:
    """Return where codes come from, as far as they say."""
    known = ("run", "kind", "config_hash", "split", "seed", "step")
    return {key: codes.meta[key] for key in known if key in codes.meta}
