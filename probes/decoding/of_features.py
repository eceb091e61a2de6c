"""Decoding from more than a code: rows, all codes, values and residual streams (`read_rows`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from latentcode.codes.instances import instances
from latentcode.codes.rows import WIDEST, Rows, read_rows
from latentcode.errors import ProbeError, check, check_count
from latentcode.probes.common.features import check_distinct, origin
from latentcode.probes.common.own_labels import Labels, names_of, own_labels
from latentcode.probes.common.labels import Target
from latentcode.probes.decoding.beyond import TABLE_INSTANCES, Known, known_beside
from latentcode.probes.decoding.fitting import Asked, Reading, decoded
from latentcode.probes.decoding.naming import MODELS, named
from latentcode.probes.decoding.reduction import fit_reduction
from latentcode.probes.decoding.result import DecodingResult
from latentcode.probes.decoding.row_labels import N_BINS, asked, default_labels, targets_of
from latentcode.progress import Progress
from latentcode.runs import Run
from latentcode.tasks import Task

N_SHUFFLES, N_BOOTSTRAP = 3, 1_000
"""As of codes in hand (`decode_codes`)."""


def decode_features(
    run: Run, task: Task, labels: Labels | None, parts: Sequence[tuple[str, int]], *,
    features: Sequence[str], widths: Sequence[int] | None, beyond_answer: bool,
    metrics: Sequence[str], pairs: Sequence[str], layers: Sequence[int] | int | None,
    step: int | None, controls: bool, seed: int, device: str, n_jobs: int,
    progress: Progress | None,
) -> DecodingResult:
    """Return what `decode` says of any features, reduced or not, and beyond the answer.

    parts   (split, number of instances) of training, then of held-out combinations
    labels  default: operation, operands and answer (`Task.row_labels`); of codes alone those of
            the task for probing

    Raises what `own_labels` and `read_rows` raise, `UnknownNameError` for a label, `ProbeError` for
    a label that does not vary, no widths, and features that are repeated.
    """
    check(len(features) > 0, "features is empty; expected at least one to decode from", ProbeError)
    check_distinct("features", features)
    if widths is not None:
        check_count("widths", min(widths, default=0), 1, ProbeError)
    own = (own_labels(labels, task, parts, seed=seed, device=device)
           if isinstance(labels, Mapping) else [{}, {}])
    task.check_pairs(pairs)
    control = ("residual",) if controls and "code" in features else ()
    extra = tuple(name for name in control if name not in features)
    models = {"trained": (*features, *extra), **({"untrained": features} if controls else {})}
    readings: list[Reading] = []
    targets: dict[tuple[str, str], Target] = {}
    known: dict[tuple[str, str], Sequence[Known]] = {}
    for pair in pairs:
        for model, wanted in models.items():
            train, heldout = (
                read_rows(run, split, n=n, pair=pair, layers=layers, features=wanted, step=step,
                          untrained=model == "untrained", task=task, seed=seed, device=device)
                for split, n in parts)
            readings += _readings(train, heldout, pair, model, widths, extra)
        # The training instances are drawn with this seed, so that the counted ones need another.
        counted = [task.labels(instances(task, "train", TABLE_INSTANCES, seed=seed + 1).to("cpu"))
                   ] if beyond_answer else []
        of_rows = asked(task, task.pairs[pair].token, train.labels, (heldout.labels, *counted))
        frames = [_with_others(frame, of.labels, values)
                  for frame, of, values in zip(of_rows, (train, heldout), own, strict=False)]
        names = names_of(labels) if labels is not None else task.probe_labels if (
            features == ("code",)) else default_labels(task, of_rows[0])
        groups, clusters = (_clusters(frame) for frame in frames)
        of_pair = targets_of(names, *frames, pair)
        targets |= {(name, pair): target for name, target in of_pair.items()}
        if beyond_answer:
            known |= {(name, pair): beside for name, beside in known_beside(
                of_pair, (*frames, of_rows[2]), groups, seed).items()}
    every = Asked({(name, pair): targets[name, pair] for name, pair in product(names, pairs)},
                  groups, clusters, metrics, N_SHUFFLES, N_BOOTSTRAP, seed, known)
    found = decoded(readings, every, [
        name for of in features for name in (
            of, *(extra if of == "code" else ()), *(named(of, model) for model in MODELS[1:]))],
        n_jobs=n_jobs, progress=progress)
    return DecodingResult(**found, settings={
        "features": list(features), "widths": None if widths is None else list(widths),
        "beyond_answer": beyond_answer, "controls": [*control, *list(models)[1:], MODELS[2]],
        "pairs": list(pairs), "widest": WIDEST, "n_bins": N_BINS,
        "table_instances": TABLE_INSTANCES, "allow_overlap": "nothing", "shared_combinations": 0,
        **every.settings, "train": origin(train), "heldout": origin(heldout)})


def _readings(
    train: Rows, heldout: Rows, pair: str, model: str, widths: Sequence[int] | None,
    extra: Sequence[str],
) -> Iterator[Reading]:
    """Yield all features of a model, reduced; what was read is given up on the way.

    extra  features that are controls alone, without shuffled labels
    """
    for features, of_layer in list(train.values):
        x, x_heldout = (rows.values.pop((features, of_layer)) for rows in (train, heldout))
        layer = int(of_layer) if of_layer.isdigit() else of_layer
        if widths is not None:
            try:
                reduction = fit_reduction(x, max(widths))
                x_heldout = reduction(x_heldout)
            except ProbeError as error:
                raise ProbeError(f"{named(features, model)} of layer {layer}: {error}") from None
            x = reduction(x)
        for width in widths or (None,):
            d = min(width or x.shape[1], x.shape[1])
            yield Reading(
                named(features, model), layer, pair, x[:, :d], x_heldout[:, :d],
                (features, model, layer, pair, d),
                named(features, "shuffled") if model == "trained" and features not in extra
                else None, train.sizes[features, of_layer], width)


def _with_others(
    of_row: pd.DataFrame, labels: pd.DataFrame, own: Mapping[str, np.ndarray]
) -> pd.DataFrame:
    """Return what a row is asked, beside further labels of the task and the caller's own."""
    others = labels[[name for name in labels if name not in of_row]]
    return pd.concat([of_row, others], axis=1).assign(**own)


def _clusters(labels: pd.DataFrame) -> np.ndarray:
    return np.asarray(pd.factorize(labels["combination"].astype(str))[0])
