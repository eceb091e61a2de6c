"""Which labels can be decoded from the codes, on combinations that were never trained on?

A logistic probe per layer, pair and label is fitted on codes of training combinations and
scored on held-out ones (paper, Fig. 2B and 5F), beside the same probe on its controls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from latentcode.arguments import as_tuple, chosen
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check, check_count, check_jobs
from latentcode.probes.common.features import (
    FEATURES,
    Features,
    check_controls,
    check_pair_of_codes,
    check_same_instances,
    origin,
)
from latentcode.probes.common.labels import combination_clusters, label_names, make_target
from latentcode.probes.common.own_labels import Labels, asked_labels, names_of, own_labels
from latentcode.probes.common.shared import shared_combinations
from latentcode.probes.common.shuffling import N_SHUFFLES
from latentcode.probes.decoding.features import decode_features
from latentcode.probes.decoding.fitting import METRICS, SINGLE, Asked, Reading, decoded
from latentcode.probes.decoding.result import DecodingResult
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import subject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems



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
    n_shuffles: int = N_SHUFFLES,
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
    n_shuffles  shuffles of the training labels (`probes.common.shuffling`); their mean score is
              reported, and its interval spans shuffles and held-out combinations

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
    controls: bool = True, allow_overlap: str = "nothing", n_shuffles: int = N_SHUFFLES,
    n_bootstrap: int = 1000, seed: int = 0, n_jobs: int = 1, progress: Progress | None = None,
) -> list[DecodingResult]:
    """Return what `decode_codes` says of each of several held-out splits, by the same probes.

    untrained  codes of training, then of every split, of the model with its initial weights

    Classes are those of all splits together; else arguments and errors are those of `decode_codes`.
    """
    seed = checked_seed(seed)
    labels = label_names(labels)
    check(len(labels) > 0, "labels is empty; expected at least one label to decode", ProbeError)
    check_jobs(n_jobs, ProbeError)
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


@watched("fitting probes")
def decode(
    model: Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    features: Sequence[str] | str = ("code",),
    widths: Sequence[int] | int | None = None,
    beyond_answer: bool = False,
    metrics: Sequence[str] | str = METRICS,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    n_train: int | None = None,
    n_heldout: int | None = None,
    heldout: float = 0.3,
    step: int | None = None,
    controls: bool = True,
    allow_overlap: str = "nothing",
    n_shuffles: int = N_SHUFFLES,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> DecodingResult:
    """Decode labels from the codes of a model, on held-out combinations.

    Logistic probes are fitted on features of `train` combinations and scored on `ood` ones, beside
    those of an untrained model, shuffled labels and, of codes, the residual stream (paper, Fig. 2B
    and 5F). Labels that are columns of texts are asked of whole texts, on held-out documents
    (`latentcode.prompts.whole_texts`), beside the bag of their tokens, too.

    By how much features are above each control, over the same problems, is in
    `DecodingResult.contrasts`. See `decode_codes` for the equation.

    Args:
        model: See `subject`; or codes of training combinations, and those of held-out ones as the
            problems.
        problems: See `subject`; default: what the run's task chooses for probing, for fuzzy logic
            one shared context with varying query (paper 3.2).
        labels: What is decoded; default: what the task names, such as term_1, term_2 and terms, or
            rule, of prompts the column label, and of features beside the code operation, operands
            and answer (`Task.row_labels`), measurements in bins of equal share. Or functions of a
            batch, `{"even": lambda batch: batch.targets[:, 0] % 2 == 0}`.
        features: What is decoded from: `code`, `row` (the codes of the pair's query over all keys),
            `codes`, `values`, `residual`, `tokens`, numbers of whole patterns such as `entropy` and
            `lap_eigvals` (`latentcode.codes.aggregates`) and more (`latentcode.codes.rows`). Those
            of more than 512 numbers are read as x R / sqrt(512), R [d, 512] standard normal.
        widths: Dimensions that all features are brought to, so that wide ones are not favoured: the
            first principal axes of the training problems. Features that vary in fewer are read in
            these alone. Default: all dimensions.
        beyond_answer: Also ask for the held-out log loss that features gain over the answer, and
            over answer and operands, in nats, of the labels of the operation
            (`DecodingResult.given`).
        metrics: Scores of labels with a single class: `accuracy`, `macro_f1`, `balanced_accuracy`;
            groups have `f1`.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        n_train: Problems that probes are fitted on; default: 4,096, of prompts and codes all.
        n_heldout: Problems that probes are scored on; default: 4,096, of prompts and codes all.
        heldout: Share of the combinations of prompts to hold out, where they have no column
            `split`.
        step: The checkpoint of a run; default: the newest.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        allow_overlap: Of codes: what training and held-out ones may have in common, `nothing`,
            `combinations` or `instances`; the result says so.
        n_shuffles: Shuffles of the training labels.
        n_bootstrap: Replicates of the 95 % intervals, which resample the held-out combinations.
        seed: Seed of the problems, shuffling and bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        n_jobs: Processes that fit probes side by side, -1 for one a core.
        progress: Called with (probes done, probes in all).

    Raises:
        LatentCodeError: What `subject`, `own_labels`, `extract` and `decode_codes` raise,
            `ProbeError` for no problems or widths.
    """
    seed, features = checked_seed(seed), as_tuple(features)
    metrics = chosen("metric", metrics, tuple(SINGLE))
    of = subject(model, problems, step=step, device=device).probing
    asked = asked_labels(labels, of)
    if labels is not None:
        of = of.about(names_of(asked))
    of = of.divided(heldout, seed, next(iter(names_of(asked)), "label"))
    parts = (("train", of.n_of("n_train", n_train, 4_096, "train")),
             ("ood", of.n_of("n_heldout", n_heldout, 4_096, "ood")))
    if features != ("code",) or widths is not None or beyond_answer or of.whole_texts:
        check(allow_overlap == "nothing", f"allow_overlap is {allow_overlap!r}, but features are "
              f"{', '.join(features)}; expected it of codes alone", ProbeError)
        own = own_labels(labels if isinstance(labels, Mapping) else None, of, parts, seed=seed)
        return decode_features(
            of, labels, own, parts, features=features,
            widths=None if widths is None else as_tuple(widths), beyond_answer=beyond_answer,
            metrics=metrics, pairs=pairs, layers=layers, controls=controls, n_shuffles=n_shuffles,
            n_bootstrap=n_bootstrap, seed=seed, n_jobs=n_jobs, progress=progress)
    further = own_labels(asked if labels is not None else None, of, parts, seed=seed)
    train, scored = (
        of.with_untrained(split, values, n=n, pairs=pairs, layers=layers, seed=seed,
                          controls=controls)
        for (split, n), values in zip(parts, further, strict=True))
    return decode_codes(
        train[0], scored[0], names_of(asked), metrics=metrics,
        untrained=None if train[1] is None or scored[1] is None else (train[1], scored[1]),
        controls=controls, allow_overlap=allow_overlap, n_shuffles=n_shuffles,
        n_bootstrap=n_bootstrap, seed=seed, n_jobs=n_jobs, progress=progress)
