"""What is a probe fitted on? The code, and three controls that stand beside each of its scores:

untrained  the code of the same architecture with its initial weights
shuffled   the trained code, with labels that belong to other instances
residual   the residual stream that enters the layer at the query, which the code is read from
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check

if TYPE_CHECKING:
    from latentcode.codes.rows import Rows
    from latentcode.subjects.codes import CodesSubject

FEATURES: tuple[str, ...] = ("code", "residual", "untrained", "shuffled")
"""What is decoded from: the code and its three controls."""
ROUNDING = 1e-5
"""Points whose differences are below this share of their size differ by the rounding of float32:
the code of a token to itself in the first layer, for instance, may not depend on the instance."""


@dataclass(frozen=True)
class Features:
    """What a probe is fitted on, one of `FEATURES`: a vector per instance, layer and pair."""

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


def features_of(
    codes: LatentCodes, untrained: LatentCodes | None, controls: bool
) -> tuple[Features, ...]:
    """Return the codes and their controls: the residual stream and an untrained model's codes.

    untrained  codes of the same instances under the model's initial weights
    controls   False leaves out both; `ProbeError` says what else is missing
    """
    check_pair_of_codes(codes, codes, "codes")
    check_controls(codes, codes, None if untrained is None else (untrained, untrained), controls,
                   extracted="the instances", given="lc.subject(codes, untrained=codes)")
    if not controls or untrained is None:
        return (Features("code", codes),)
    check_same_instances(codes, untrained, "untrained codes")
    return Features("code", codes), Features("residual", codes), Features("untrained", untrained)


def check_pair_of_codes(train: LatentCodes, heldout: LatentCodes, what: str) -> None:
    """Raise `ProbeError` unless both hold the same layers, pairs and number of heads."""
    def described(codes: LatentCodes) -> tuple[object, ...]:
        return codes.layers, tuple(p.name for p in codes.pairs), codes.n_heads

    for name, ours, theirs in zip(("layers", "pairs", "number of heads"), described(train),
                                  described(heldout), strict=True):
        check(ours == theirs, f"the {name} of the {what} differ: {ours} in training, {theirs} in "
              "the held-out codes", ProbeError)
    for split, codes in (("training", train), ("held-out", heldout)):
        check(len(codes) > 0, f"the {split} part of the {what} holds no instances", ProbeError)


def check_controls(
    train: LatentCodes, heldout: LatentCodes,
    untrained: tuple[LatentCodes, LatentCodes] | None, controls: bool,
    extracted: str = "both splits",
    given: str = "lc.subject(training, held-out, untrained=(training, held-out))",
) -> None:
    """Raise `ProbeError` unless the controls that are asked for can be computed.

    The message says how to obtain what is missing: what has to be `extracted`, and how it is
    `given` to the caller. With controls=False nothing may be given.
    """
    if not controls:
        check(untrained is None, "codes of an untrained model are given, but controls=False; "
              "leave one of the two out", ProbeError)
        return
    missing = []
    if untrained is None:
        missing.append(f"the codes of an untrained model (extract {extracted} once more from the "
                       f"model with its initial weights, and pass them as {given})")
    if train.residuals is None or heldout.residuals is None:
        missing.append(f"the residual streams (extract {extracted} with residuals=True)")
    check(not missing, "a probe is not reported without its controls; missing are "
          f"{' and '.join(missing)}; controls=False leaves them out and marks the result so",
          ProbeError)
    if untrained is None:
        return
    check_pair_of_codes(*untrained, "codes of the untrained model")
    for name, trained, initial in (("training", train, untrained[0]),
                                   ("held-out", heldout, untrained[1])):
        wanted, got = {p.name for p in trained.pairs}, {p.name for p in initial.pairs}
        check(wanted <= got and set(trained.layers) <= set(initial.layers),
              f"the untrained {name} codes hold layers {initial.layers} and pairs "
              f"{sorted(got)}; expected at least layers {trained.layers} and pairs "
              f"{sorted(wanted)}", ProbeError)
        check(not np.array_equal(trained.scores, initial.scores),
              f"the untrained {name} codes equal the trained ones; they are no control",
              ProbeError)


def check_codes_in_hand(subject: CodesSubject, splits: Sequence[str], controls: bool) -> None:
    """Raise `ProbeError` unless codes of some splits, the first of training, fit each other and
    have the controls that are asked for."""
    train, *others = (subject.codes(split, n=subject.n_of("n", None, 1, split)) for split in splits)
    initial = [subject.codes(split, n=len(codes), untrained=True)
               for split, codes in zip(splits, (train, *others), strict=True)
               ] if subject.initial else None
    for i, heldout in enumerate(others or [train]):
        check_pair_of_codes(train, heldout, "codes")
        both = None if initial is None else (initial[0], initial[-1 if not others else i + 1])
        check_controls(train, heldout, both, controls)
    for trained, untrained in zip((train, *others), initial or (), strict=False):
        check_same_instances(trained, untrained, "codes of the untrained model")


def check_same_instances(codes: LatentCodes, other: LatentCodes, what: str) -> None:
    """Raise `ProbeError` unless two sets of codes show the same instances in the same order.

    What is compared are the task, split and seed, where both say them, the prompts, and of others
    all labels that both have but what the model itself says: `next_token`, and numbers with
    decimals, its scores.
    """
    for name in ("task", "split", "seed"):
        if name in codes.meta and name in other.meta:
            # As JSON, because codes that were saved have lists where others have tuples.
            mine, theirs = (json.dumps(c.meta[name], sort_keys=True, default=str)
                            for c in (codes, other))
            check(mine == theirs, f"the {what} are of other instances: their {name} is {theirs}; "
                  f"expected {mine}", ProbeError)
    asked = [c.meta.get("prompts") for c in (codes, other)]
    check(asked[0] == asked[1], f"the {what} are of other instances: their prompts differ; "
          "expected the same ones", ProbeError)
    check(len(codes) == len(other), f"the {what} hold {len(other)} instances; expected "
          f"{len(codes)}, the same ones", ProbeError)
    if asked[0] is not None:  # whose tokens are numbered by each model's own tokenizer
        return
    for name in codes.labels.columns.intersection(other.labels.columns).drop(
            "next_token", errors="ignore"):
        ours, others = codes.labels[name], other.labels[name]
        if ours.dtype.kind != "f" and others.dtype.kind != "f":
            check(bool((ours.to_numpy() == others.to_numpy()).all()), f"the {what} are of other "
                  f"instances: label {name!r} differs; extract both with the same task, split and "
                  "seed", ProbeError)


def varies(x: np.ndarray) -> bool:
    """Return whether points [N, d] differ by more than the rounding of float32."""
    return bool(np.abs(x - x.mean(axis=0, dtype=np.float64)).max() > ROUNDING * np.abs(x).max())


def origin(codes: LatentCodes | Rows) -> dict[str, Any]:
    """Return how many instances codes are of, and where they come from as far as they say."""
    known = ("run", "run_id", "kind", "config_hash", "split", "seed", "step", "task", "prepend_bos",
             "revision", "commit")
    return {"n": len(codes)} | {key: codes.meta[key] for key in known if key in codes.meta}
