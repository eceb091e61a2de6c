"""Which labels can be decoded from the codes, on combinations that were never trained on?

A logistic probe per layer, pair and label is fitted on codes of training combinations and
scored on held-out ones (paper, Fig. 2B and 5F), beside the same probe on its controls.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from latentcode.arguments import chosen
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check, check_count
from latentcode.probes.common.features import (
    FEATURES,
    Features,
    check_controls,
    check_pair_of_codes,
    check_same_instances,
    origin,
)
from latentcode.probes.common.labels import combination_clusters, label_names, make_target
from latentcode.probes.common.shared import shared_combinations
from latentcode.probes.decoding.fitting import METRICS, SINGLE, Asked, Reading, decoded
from latentcode.probes.decoding.result import DecodingResult
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed


@watched("fitting probes")
def decode_codes(
    train: LatentCodes,
    heldout: LatentCodes,
    labels: Sequence[str],
    *,
    layers: Sequence[int] | int | None = None,
    pairs: Sequence[str] | None = None,
    metrics: Sequence[str] = METRICS,
    untrained: tuple[LatentCodes, LatentCodes] | None = None,
    controls: bool = True,
    allow_overlap: str = "nothing",
    n_shuffles: int = 3,
    n_bootstrap: int = 1000,
    seed: int = 0,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> DecodingResult:
    """What does argmax_c (W z + b)_c, z the standardised code, say about each label?

    Whether it says more than a control is in `DecodingResult.contrasts`: s(code) - s(control) on
    the held-out instances, with an interval over the same resampled combinations.

    train, heldout  codes of training and of held-out combinations, same layers and pairs
    labels    columns such as `term_1`, names that a pair resolves such as `rule`, or groups
              such as `terms` (which terms occur: one-vs-rest, macro F1); see `probes.common.labels`
    layers, pairs  which to probe; all by default
    untrained  (training, held-out) codes of the model with its initial weights
    controls  False leaves out the untrained model and the residual stream and marks the result;
              shuffled labels are always there
    allow_overlap  what training and held-out codes may have in common: `nothing`, `combinations`
              (as the splits train and test have), or `instances`, which scores a probe on what it
              was fitted on. The result says so
    n_shuffles  shuffles of the training labels; their mean score is reported, and their
              interval spans the shuffles as well as the held-out combinations

    Other arguments are those of `decode`. Every probe chooses its own regularisation inside its
    training codes (`fit_probe`). Classes that occur in the held-out codes alone count as errors and
    are reported in `n_unseen`. `chance` is the best score that any constant answer reaches on the
    held-out codes. In a group, such as `terms`, the yes and no of each class weigh the same in the
    fit; the best constant answer there is to give every class.

    Raises `UnknownNameError` for a label, layer or pair that does not exist, `ProbeError` for
    missing controls, a label with one class in training, fewer than two combinations, or codes
    that share more than they may.
    """
    return decode_splits(
        train, (heldout,), labels, layers=layers, pairs=pairs, metrics=metrics, untrained=untrained,
        controls=controls, allow_overlap=allow_overlap, n_shuffles=n_shuffles,
        n_bootstrap=n_bootstrap, seed=seed, n_jobs=n_jobs, progress=progress)[0]


def decode_splits(
    train: LatentCodes, heldout: Sequence[LatentCodes], labels: Sequence[str], *,
    layers: Sequence[int] | int | None = None, pairs: Sequence[str] | None = None,
    metrics: Sequence[str] = METRICS, untrained: Sequence[LatentCodes] | None = None,
    controls: bool = True, allow_overlap: str = "nothing", n_shuffles: int = 3,
    n_bootstrap: int = 1000, seed: int = 0, n_jobs: int = 1, progress: Progress | None = None,
) -> list[DecodingResult]:
    """Return what `decode_codes` says of each of several held-out splits, by the same probes.

    untrained  codes of training, then of every split, of the model with its initial weights

    Classes are those of all splits together; else arguments and errors are those of `decode_codes`.
    """
    seed = checked_seed(seed)
    labels = label_names(labels)
    check(len(labels) > 0, "labels is empty; expected at least one label to decode", ProbeError)
    for name, value, least in (("n_bootstrap", n_bootstrap, 100), ("n_shuffles", n_shuffles, 1)):
        check_count(name, value, least, ProbeError)
    shared = []
    for i, scored in enumerate(heldout, 1):
        check_pair_of_codes(train, scored, "codes")
        shared.append(shared_combinations(train, scored, allow_overlap))
        initial = None if untrained is None else (untrained[0], untrained[i])
        check_controls(train, scored, initial, controls)
        for ours, theirs in zip((train, scored), initial or (), strict=False):
            check_same_instances(ours, theirs, "codes of the untrained model")
    layers = chosen("layer", layers, train.layers)
    pairs = chosen("pair", pairs, [p.name for p in train.pairs])
    metrics = chosen("metric", metrics, tuple(SINGLE))
    # Everything is looked up before anything is fitted: a bad label is told at once.
    asked = Asked(
        {(label, pair): make_target(train, heldout, label, pair)
         for label, pair in product(labels, pairs)},
        combination_clusters(train), [combination_clusters(scored) for scored in heldout], metrics,
        n_shuffles, n_bootstrap, seed)
    feature_sets = FEATURES if controls else ("code", "shuffled")
    readings = []
    for name in feature_sets[:-1]:
        of = [Features(name, part) for part in (
            untrained if name == "untrained" and untrained else (train, *heldout))]
        for layer, pair in product(layers, pairs):
            x, *others = (features.values(layer, pair) for features in of)
            readings.append(Reading(
                name, layer, pair, x, others[0] if len(others) == 1 else np.concatenate(others),
                (name, layer, of[0].place(pair)), "shuffled" if name == "code" else None,
                x.shape[1]))
    return [DecodingResult(**tables, settings={
        "features": ["code"], "widths": None, "beyond_answer": False,
        "controls": list(feature_sets[1:]),
        "allow_overlap": allow_overlap, "shared_combinations": n_shared,
        **asked.settings, "train": origin(train), "heldout": origin(scored)})
        for scored, n_shared, tables in zip(heldout, shared, decoded(
            readings, asked, feature_sets, n_jobs=n_jobs, progress=progress), strict=True)]
