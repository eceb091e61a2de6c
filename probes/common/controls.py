"""What would the same probe score without the code? Three controls that stand beside each score.

untrained  the code of the same architecture with its initial weights
shuffled   the trained code, with labels that belong to other instances
residual   the residual stream that enters the layer at the query, which the code is read from
"""

from __future__ import annotations

import numpy as np

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check

SOURCES: tuple[str, ...] = ("code", "residual", "untrained", "shuffled")
"""What is decoded from: the code and its three controls."""


def shuffle_labels(y: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return labels y [N, class] dealt anew to the cells of equal combination and equal label.

    All instances of a cell get the label of one other cell. So the shuffled labels depend on
    the combination as the true ones do, and a probe can fit them as easily in training; what it
    has learned is of no use on other combinations. (Shuffling single instances would give a
    problem without any structure, which no probe is tempted to fit.)
    """
    kinds, kind = np.unique(y, axis=0, return_inverse=True)
    cells, cell = np.unique(groups * len(kinds) + kind.ravel(), return_inverse=True)
    dealt = (cells % len(kinds))[rng.permutation(len(cells))]
    return np.asarray(kinds[dealt[cell.ravel()]])


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
) -> None:
    """Raise `ProbeError` unless the controls that are asked for can be computed.

    The message says how to obtain what is missing. With controls=False nothing may be given.
    """
    if not controls:
        check(untrained is None, "codes of an untrained model are given, but controls=False; "
              "leave one of the two out", ProbeError)
        return
    missing = []
    if untrained is None:
        missing.append("the codes of an untrained model (extract both splits once more from the "
                       "model with its initial weights, and pass them as untrained=(training, "
                       "held-out))")
    if train.residuals is None or heldout.residuals is None:
        missing.append("the residual streams (extract both splits with residuals=True)")
    check(not missing, "a probe is not reported without its controls, and there is no "
          f"{' and no '.join(m.removeprefix('the ') for m in missing)}; controls=False leaves "
          "them out and marks the result so", ProbeError)
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
