"""How alike are the mean codes of rules, and how many heads do codes use? (Fig. 5E and A8)

`similarity` has the cosines, the mean codes, some single ones, and the contrasts that claims are
judged by.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from latentcode.probes.common.bootstrap import LabelSums, percentile_interval, resample
from latentcode.probes.common.labels import combination_clusters, make_target
from latentcode.probes.common.results import where
from latentcode.probes.similarity import SimilarityResult
from latentcode.runs import Run
from latentcode.subjects import extract

PAIR_OF_RULES = ("sum", "difference")
"""The rules that the paper says have very similar codes."""
LARGEST_OTHER = "the largest cosine of sum or difference with any other rule"
SHUFFLED = "the same of sum and difference with rules shuffled among combinations"
"""Controls, in the words of the claim."""
MEAN_CODE = "heads in use by the mean code"
SHARE = "share of codes with two heads in use or more"
SINGLE_CODE = "heads in use by single codes"
ALL = "(all)"
N_BOOTSTRAP = 1_000


def sum_and_difference(alike: SimilarityResult) -> pd.DataFrame:
    """Is cos(m_sum, m_difference) larger than with any other rule, and than by chance?

    m_r is the mean code of rule r at the paper's pair, on held-out combinations. A row per layer,
    `features` (`code`, or the `residual` stream at the query), `centring` and `against`: the cosine
    (None), or its difference from `LARGEST_OTHER` and, of the code, from `SHUFFLED`, the mean over
    20 shuffles; `value`, with the 95 % interval over combinations. Nothing for a layer whose codes
    do not vary, and for a task without these rules.
    """
    names = {"largest other": LARGEST_OTHER, "shuffled": SHUFFLED}
    differences = alike.contrasts.table
    differences = differences[differences["against"].isin(list(names))]
    every = pd.concat([alike.cosines.assign(against=None),
                       differences.assign(against=differences["against"].map(names))])
    # Classes are in alphabetical order, and a cosine is the same both ways.
    own = where(every, row=min(PAIR_OF_RULES), column=max(PAIR_OF_RULES))
    own = own[own["features"].isin(["code", "residual"])].dropna(subset="value")
    return own.sort_values(["layer", "features", "centring"], kind="stable", ignore_index=True)[
        ["layer", "features", "centring", "against", "value", "low", "high"]]


def heads_in_use(
    run: Run, *, n: int = 4_096, seed: int = 0, device: str = "cpu"
) -> pd.DataFrame:
    """(sum_h |a_h|)^2 / sum_h a_h^2: of the mean code of each rule, and of single codes.

    A row per layer, `measure` (`MEAN_CODE`, `SINGLE_CODE` the mean over codes, `SHARE`) and `class`
    (a rule, or `ALL`): `value` with the 95 % interval over combinations, of the paper's pair on
    held-out combinations.
    """
    codes = extract(run, split="ood", n=n, seed=seed, device=device)
    pair, = (pair.name for pair in codes.pairs)
    target = make_target(codes, codes, "rule", pair)
    names = [ALL, *map(str, target.classes)]
    truth = np.column_stack([np.ones(len(codes), dtype=bool), target.train])
    clusters = combination_clusters(codes)
    weights = _weights(clusters, seed)

    def rows() -> Iterator[dict[str, Any]]:
        for layer in codes.layers:
            x = codes.select(layer=layer, pair=pair).astype(np.float64)
            used = in_use(x)
            of_codes = LabelSums.of(np.column_stack([used, used >= 2.0]), truth, clusters)
            averages = _with_whole(of_codes, weights)
            means = in_use(_with_whole(LabelSums.of(x, truth, clusters), weights))
            for measure, values in ((MEAN_CODE, means), (SINGLE_CODE, averages[..., 0]),
                                    (SHARE, averages[..., 1])):
                yield from ({"layer": layer, "measure": measure, "class": name}
                            | _with_interval(values[:, c], weights)
                            for c, name in enumerate(names))

    return pd.DataFrame(list(rows()))


def in_use(x: np.ndarray) -> np.ndarray:
    """Return (sum_h |a_h|)^2 / sum_h a_h^2 of codes x [..., H], [...]; NaN of a zero."""
    size = np.abs(x)
    largest = size.max(axis=-1, keepdims=True)
    # Scaled by the largest head, because the squares of tiny codes would vanish.
    size = size / np.where(largest > 0, largest, np.nan)
    return np.asarray(size.sum(axis=-1) ** 2 / np.square(size).sum(axis=-1))


def _weights(clusters: np.ndarray, seed: int) -> np.ndarray:
    return resample(int(clusters.max()) + 1, N_BOOTSTRAP, np.random.default_rng(seed))


def _with_whole(sums: LabelSums, weights: np.ndarray) -> np.ndarray:
    """Return means [1 + replicate, class, d], first of all instances as they are."""
    return np.concatenate([sums.means()[None], sums.resampled(weights)])


def _with_interval(values: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """Return the first of values [1 + replicate], and the interval of the others."""
    low, high = percentile_interval(values[1:], weights.shape[1])
    return {"value": float(values[0]), "low": float(low), "high": float(high)}
