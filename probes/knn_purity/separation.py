"""What do the codes of a model separate? The purity of neighbours, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentcode.arguments import check_distinct, chosen
from latentcode.codes import LatentCodes
from latentcode.codes.labels import is_measurement
from latentcode.errors import ProbeError, check, check_count
from latentcode.probes.common.bootstrap import LEVEL, LabelSums, resample
from latentcode.probes.common.contrasts import Resampled, table_of
from latentcode.probes.common.features import features_of, origin, varies
from latentcode.probes.common.labels import combination_clusters, label_names
from latentcode.probes.common.own_labels import Labels, names_of, own_labels
from latentcode.probes.knn_purity.labels import judged_labels
from latentcode.probes.knn_purity.purity import (
    SHUFFLES,
    K,
    Shares,
    balanced,
    beside,
    sampled,
    shares,
)
from latentcode.probes.knn_purity.result import KNNPurityResult
from latentcode.progress import Progress, reported, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import subject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split



@watched("comparing neighbours")
def knn_purity_codes(
    codes: LatentCodes,
    labels: Sequence[str] | None = None,
    *,
    layers: Sequence[int] | int | None = None,
    pairs: Sequence[str] | None = None,
    untrained: LatentCodes | None = None,
    controls: bool = True,
    k: int = K,
    n_bootstrap: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> KNNPurityResult:
    """P = 1/V sum_v 1/|I_v| sum_(i in I_v) |{j in N(i): y_j = v}| / k: what do codes separate?

    The share of a code's k nearest neighbours that have its value of a label, the mean over values;
    see `probes.knn_purity.purity.purity`, which also says how labels are shuffled.

    layers, pairs  default: all that the codes have
    untrained  codes of the same instances under the model's initial weights
    n_bootstrap  replicates of the 95 % intervals, which resample the combinations (without that
               label the instances) and leave everybody's neighbours as they are

    Other arguments are those of `knn_purity`. Where all codes are the same, as in a layer that
    cannot know the instance yet, there is nothing to tell, which the result says. Raises
    `UnknownNameError` for a label, layer or pair that there is not; `ProbeError` for missing
    controls, for a label that `purity` refuses, for what is repeated, and where no layer and pair
    has different codes.
    """
    seed = checked_seed(seed)
    check_count("k", k, 1, ProbeError)
    check_count("n_bootstrap", n_bootstrap, 100, ProbeError)
    layers = chosen("layer", layers, codes.layers)
    pairs = chosen("pair", pairs, [p.name for p in codes.pairs])
    feature_sets = features_of(codes, untrained, controls)
    values = {pair: _values(codes, labels, pair) for pair in pairs}
    combinations = combination_clusters(codes) if "combination" in codes.labels else None
    rows, asked = sampled(len(codes), seed)
    clusters = np.arange(len(asked)) if combinations is None else pd.factorize(
        combinations[rows][asked])[0]
    weights = resample(int(clusters.max()) + 1, n_bootstrap, np.random.default_rng([seed, 2]))
    table: list[dict[str, Any]] = []
    contrasts: list[dict[str, Any]] = []
    constant: list[str] = []
    for pair, layer in reported(product(pairs, layers), len(pairs) * len(layers), progress):
        place = {"layer": layer, "pair": pair}
        purities: dict[tuple[str, str, str], Resampled] = {}
        shuffled: dict[tuple[str, str], Resampled] = {}
        for features in feature_sets:
            x = features.points(layer, pair)
            if not varies(x):
                constant.append(f"{features.name} of layer {layer}, {pair}")
                continue
            for found in shares(x, values[pair], combinations=combinations, k=k, shuffles=SHUFFLES,
                                seed=seed):
                purity = _resampled(found.kind, found.own, clusters, weights)
                purities[features.name, found.label, found.among] = purity
                table.append({**place, "features": features.name, **_row(found, purity)})
                if features.name == "code" and found.dealt:
                    shuffled[found.label, found.among] = Resampled.of_shuffles(
                        [_resampled(*dealt, clusters, weights) for dealt in found.dealt],
                        np.random.default_rng([seed, 3]))
        contrasts += [place | row for row in _contrasts(purities, shuffled)]
    check(any(row["features"] == "code" for row in table), "all codes are the same at every layer "
          "and pair; there is nothing to separate", ProbeError)
    return KNNPurityResult(
        pd.DataFrame(table)[list(KNNPurityResult.COLUMNS["table"])],
        {"labels": sorted({name for named in values.values() for name in named}),
         "cut": sorted({name for named in values.values() for name, of in named.items()
                        if is_measurement(pd.Series(of))}),
         "layers": list(layers), "pairs": list(pairs), "constant": constant,
         "controls": [s.name for s in feature_sets[1:]], "no_null": _without_null(table), "k": k,
         "shuffles": SHUFFLES, "points": len(rows), "queries": len(asked),
         "n_bootstrap": n_bootstrap, "level": LEVEL, "seed": seed, "codes": origin(codes)},
        table_of(contrasts, KNNPurityResult.COLUMNS["contrasts"]))


def _without_null(table: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the labels that have a purity, and none when they are shuffled."""
    frame = pd.DataFrame(table)
    scored = frame[(frame["features"] == "code") & frame["value"].notna()]
    return sorted(scored.loc[scored["shuffled"].isna(), "label"].unique().tolist())


def _values(codes: LatentCodes, labels: Sequence[str] | None, pair: str) -> dict[str, np.ndarray]:
    """Return the values of the labels that are asked about, by name."""
    if labels is None:
        found = judged_labels(codes, pair)
        check(bool(found), "the codes have no label that neighbours can agree on; they have: "
              f"{', '.join(map(str, codes.labels.columns))}", ProbeError)
        return found
    names = label_names(labels)
    check(len(names) > 0, "no label is given; expected at least one", ProbeError)
    check_distinct("labels", names)
    return {name: codes.label(name, pair).to_numpy() for name in names}


def _resampled(
    kind: np.ndarray, own: np.ndarray, clusters: np.ndarray, weights: np.ndarray
) -> Resampled:
    """Return the purity of shares `own` [Q] of points of some kind, also on other combinations."""
    known = np.isfinite(own)
    cells = clusters[known], kind[known]
    sums, counts = np.zeros((2, weights.shape[1], int(kind.max()) + 1))
    np.add.at(sums, cells, own[known])
    np.add.at(counts, cells, 1.0)
    of_value = LabelSums(sums[..., None], counts).resampled(weights)[..., 0]  # [replicate, value]
    present = np.isfinite(of_value)
    n_values = present.sum(axis=1)
    means = np.where(present, of_value, 0.0).sum(axis=1) / np.where(n_values, n_values, np.nan)
    return Resampled(balanced(own, kind), means, int(known.sum()),
                     int((counts.sum(axis=1) > 0).sum()))


def _row(found: Shares, purity: Resampled) -> dict[str, Any]:
    """Return the columns of the table that the neighbours of one place give."""
    row = purity.row()
    return {"label": found.label, "among": found.among, "values": len(np.unique(found.kind)),
            **row, **beside(found), "n": row["n"], "n_combinations": row["n_clusters"]}


def _contrasts(
    purities: Mapping[tuple[str, str, str], Resampled],
    shuffled: Mapping[tuple[str, str], Resampled],
) -> Iterator[dict[str, Any]]:
    """Yield the purity of the code less that of each control, by label and neighbours."""
    for (features, label, among), purity in purities.items():
        if features == "code":
            others = {"shuffled": shuffled[label, among]} if (label, among) in shuffled else {}
            others |= {
                name: of for (name, *about), of in purities.items()
                if name != "code" and about == [label, among]}
            yield from ({"label": label, "among": among, "features": "code", "quantity": "purity",
                         "against": name, **(purity - other).row()}
                        for name, other in others.items() if np.isfinite(purity.value))


@watched("comparing neighbours")
def knn_purity(
    model: Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    split: Split = "ood",
    n: int | None = None,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    k: int = K,
    controls: bool = True,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> KNNPurityResult:
    """Measure which label the nearest neighbours among codes share.

    See `latentcode.probes.knn_purity.knn_purity_codes` for the equation.

    Args:
        model: See `subject`; or codes.
        problems: See `subject`; default: what the run's task chooses for probing.
        labels: Names; default: all that neighbours can agree on, also the operands and the model's
            loss. Measurements are cut at their median. Or functions of a batch, `{name: function}`,
            as in `decode`.
        split: Which combinations the problems have: `train`, `test`, `ood` or `unknown`.
        n: Number of problems; default: 4,096, of prompts and codes all.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        k: Number of neighbours.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of the problems, of shuffling and bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (layers and pairs done, in all).

    Raises:
        LatentCodeError: What `subject`, `own_labels`, `extract` and `knn_purity_codes` raise.
    """
    seed = checked_seed(seed)
    of = subject(model, problems, device=device).probing
    n = of.n_of("n", n, 4_096, split)
    further, = own_labels(labels, of, [(split, n)], seed=seed)
    codes, untrained = of.with_untrained(split, further, n=n, pairs=pairs, layers=layers, seed=seed,
                                         controls=controls)
    return knn_purity_codes(
        codes, None if labels is None else names_of(labels), untrained=untrained,
        controls=controls, k=k, n_bootstrap=n_bootstrap, seed=seed, progress=progress)
