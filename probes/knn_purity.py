"""Which labels do the nearest neighbours of a code share? The purity of neighbours, layer by layer.

    P = 1/V sum_v 1/|I_v| sum_(i in I_v) |{j in N(i): y_j = v}| / k

N(i) are the k nearest neighbours of point i (Euclidean, itself left out), I_v the points whose
label y has the value v, V the number of values: a frequent value counts no more than a rare one.
P is 1 where all neighbours agree, about 1 / V where they know nothing of the label. A value that
fewer than k + 1 points have cannot reach 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from latentcode import subjects
from latentcode.codes.latent_codes import is_measurement, label_groups
from latentcode.devices import checked_seed
from latentcode.errors import ProbeError, UnknownNameError, check, check_count
from latentcode.probes.common.figures import scores_figure
from latentcode.probes.common.labels import MAX_CLASSES, Labels, groups_of, names_of, resolve_label
from latentcode.probes.common.results import TableResult, blocks, where, with_interval
from latentcode.probes.common.statistics import (
    LEVEL,
    NONE,
    Contrasts,
    LabelSums,
    Resampled,
    check_bootstrap,
    contrast_columns,
    resample,
    shuffled_classes,
    varies,
)
from latentcode.progress import Progress, reported, watched
from latentcode.tasks.pairs import Pair

if TYPE_CHECKING:
    from latentcode.figures.style import Figure
    from latentcode.subjects import Model, Problems, Split

ALL, OTHER = "all", "of other combinations"
"""Whose labels are looked at: those of all neighbours, and of those of other combinations only."""
K = 10
"""Neighbours that are looked at."""
SHUFFLES = 5
"""Times that labels are shuffled."""
MOST_POINTS = 20_000
"""Most points among which neighbours are looked for."""
MOST_QUERIES = 5_000
"""Most points whose neighbours are looked for."""
LEAST, SPREADS = 0.05, 3.0
"""Least excess, by itself and in `spread`s of shuffled labels, that counts as separated."""
SUMMED_UP = 5
"""Labels that the summary shows of a layer and pair, and the figure of a pair: those of the largest
excess."""
MEMORY = 8.0
"""MiB of distances that are held at a time."""


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

    The purity is the share of a code's k nearest neighbours that have its value of a label, a mean
    over values; see `purity`, which also says how labels are shuffled. Where all codes are the
    same, as in a layer that cannot know the instance yet, there is nothing to tell, which the
    result says.

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
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations (without that
            label the instances) and leave everybody's neighbours as they are.
        seed: Seed of the problems, of shuffling and bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (layers and pairs done, in all).

    Raises:
        LatentCodeError: What `subject`, `custom_labels` and `extract` raise.
        ProbeError: Controls are missing, `purity` refuses a label, a label is repeated, or no layer
            and pair has different codes.
    """
    # It imports torch, and the explorer opens results before that is there.
    from latentcode.probes.common.harness import origin, read

    seed = checked_seed(seed)
    check_count("k", k, 1, ProbeError)
    check_bootstrap(n_bootstrap)
    names = None if labels is None else names_of(labels)
    check(names != (), "no label is given; expected at least one", ProbeError)
    subject = subjects.subject(model, problems, device=device).probing
    parts = [(split, subject.n_of("n", n, 4_096, split))]
    reads = read(subject, parts, ("code",), pairs=pairs, layers=layers, controls=controls,
                 seed=seed, labels=labels)
    values = {pair: judged_labels(frame, subject.pairs[pair], names)
              for pair, (frame,) in reads.labels.items()}
    known = reads.rows[0].labels
    check(all(values.values()), "the codes have no label that neighbours can agree on; they have: "
          f"{', '.join(map(str, known.columns))}", ProbeError)
    combinations = groups_of(known) if "combination" in known else None
    rows, queries = sampled(len(known), seed)
    clusters = np.arange(len(queries)) if combinations is None else pd.factorize(
        combinations[rows][queries])[0]
    weights = resample(int(clusters.max()) + 1, n_bootstrap, np.random.default_rng([seed, 2]))
    tables: dict[str, list[dict[str, Any]]] = {"table": [], "contrasts": []}
    constant: list[str] = []
    places = reads.places()
    for pair, layer, readings in reported(places, len(places), progress):
        purities: dict[tuple[str, str], dict[str, Resampled]] = defaultdict(dict)
        for features, reading in readings.items():
            x = reading.x()
            if not varies(x):
                constant.append(f"{features} of layer {layer}, {pair}")
                continue
            for row, (true, *shuffles) in shares(
                    x, values[pair], combinations=combinations, k=k, shuffles=SHUFFLES, seed=seed):
                scores = purities[row["label"], row["among"]]
                scores[features] = _resampled(*true, clusters, weights)
                interval = scores[features].row()
                tables["table"].append({
                    "layer": layer, "pair": pair, "features": features, **row, **interval,
                    "n_combinations": interval["n_clusters"]})
                if features == "code" and shuffles:
                    scores["shuffled"] = Resampled.of_shuffles(
                        [_resampled(*shuffle, clusters, weights) for shuffle in shuffles],
                        np.random.default_rng([seed, 3]))
        tables["contrasts"] += [
            {"layer": layer, "pair": pair, "label": label, "among": among, "features": "code",
             "quantity": "purity", "against": control, **(scores["code"] - scores[control]).row()}
            for (label, among), scores in purities.items()
            if "code" in scores and np.isfinite(scores["code"].value)
            for control in scores if control != "code"]
    scored = [row for row in tables["table"] if row["features"] == "code"]
    check(len(scored) > 0, "all codes are the same at every layer and pair; there is nothing to "
          "separate", ProbeError)
    columns = {name: column for judged in values.values() for name, column in judged.items()}
    return KNNPurityResult.from_rows(tables, {
        "labels": sorted(columns),
        "cut": sorted(name for name, column in columns.items()
                      if is_measurement(pd.Series(column))),
        "layers": reads.layers, "pairs": list(reads.labels), "constant": constant,
        "controls": list(readings)[1:],
        "no_null": sorted({row["label"] for row in scored
                           if np.isfinite(row["value"]) and np.isnan(row["shuffled"])}),
        "k": k, "shuffles": SHUFFLES, "points": len(rows), "queries": len(queries),
        "n_bootstrap": n_bootstrap, "level": LEVEL, "seed": seed, "codes": origin(reads.rows[0])})


def _resampled(
    kind: np.ndarray, share: np.ndarray, clusters: np.ndarray, weights: np.ndarray
) -> Resampled:
    """Return the purity of points of some value, int [Q], whose neighbours agree by a share [Q]."""
    known = np.isfinite(share)
    sums = LabelSums.of(np.where(known, share, 0.0)[:, None],
                        np.eye(kind.max() + 1, dtype=bool)[kind] & known[:, None], clusters)
    of_value = sums.resampled(weights)[..., 0]
    return Resampled(balanced(share, kind), pd.DataFrame(of_value).mean(axis=1).to_numpy(),
                     int(known.sum()), int((sums.counts.sum(axis=1) > 0).sum()))


def purity(
    points: np.ndarray, labels: Mapping[str, np.ndarray] | pd.DataFrame, *,
    combinations: np.ndarray | None = None, k: int = K, shuffles: int = SHUFFLES, seed: int = 0,
) -> pd.DataFrame:
    """Return the purity of the neighbours of points: which labels do they separate?

    points        [N, d]
    labels        name -> values [N]. Measurements are cut at their median (see `label_classes`)
    combinations  [N], by which labels are shuffled as `probes.common.statistics` says, so that a
                  label which only names the combination has no excess; and each label has a second
                  row, for the k nearest neighbours of *other* combinations. Without combinations
                  single values are shuffled
    shuffles      how often labels are shuffled

    Returns a row per label and `among` (`ALL`, and `OTHER` where there are combinations): `values`,
    their number; `purity`, a mean over values; `shuffled`, its mean over the shuffled labels, and
    their standard deviation `spread`; `excess`, purity less shuffled; `points`, the queries. Of
    more than 20,000 points some are drawn, of which at most 5,000 are queries. NaN where no value
    occurs in two combinations, and where some value has no query. `ProbeError` for missing values,
    and for one value or more than 256.
    """
    rows = [row for row, _ in shares(
        points, labels, combinations=combinations, k=k, shuffles=shuffles, seed=seed)]
    return pd.DataFrame(rows, columns=["label", "among", "values", "purity", "shuffled", "spread",
                                       "excess", "points"])


def separates(table: pd.DataFrame) -> pd.Series:
    """Return which rows of `purity` are separated: excess >= max(0.05, 3 spread), bool [row]."""
    return table["excess"] >= np.fmax(LEAST, SPREADS * table["spread"])


def shares(
    points: np.ndarray, labels: Mapping[str, np.ndarray] | pd.DataFrame, *,
    combinations: np.ndarray | None, k: int, shuffles: int, seed: int,
) -> Iterator[tuple[dict[str, Any], list[tuple[np.ndarray, np.ndarray]]]]:
    """Yield the rows of `purity`, each with the values and shares of single points, for the true
    labels and then for each shuffle, of which a label without a null has none.

    Points have a value, int [Q], and the share of their neighbours that have it, float64 [Q]: NaN
    where none can, because no point of another combination has it.
    """
    x = np.asarray(points)
    check(bool(np.isfinite(x).all()), "the points hold values that are not finite", ProbeError)
    rows, queries = sampled(len(x), seed)
    near = {ALL: nearest(x[rows], min(k, (len(rows) - 1) // 2), queries=queries)}
    groups = np.arange(len(rows))
    if combinations is not None:
        groups = pd.factorize(np.asarray(combinations)[rows].astype(str))[0]
        others = len(rows) - int(np.bincount(groups).max())
        if others:
            near[OTHER] = nearest(x[rows], min(k, others), queries=queries, apart=groups)
    rng = np.random.default_rng([seed, 1])
    for name, values in labels.items():
        classes = label_classes(str(name), np.asarray(values))
        true = classes[rows]
        n_values = len(np.unique(true[queries]))
        # Without queries of a rare value the purity of the others would pass for the label's.
        complete = n_values > classes.max()
        kinds = [true, *(shuffled_classes(true, groups, rng, shuffles) if complete else ())]
        for among, neighbours in near.items():
            of_points = []
            for kind in kinds:
                share = (kind[neighbours] == kind[queries, None]).mean(axis=1)
                if among == OTHER:
                    elsewhere = pd.Series(groups).groupby(kind).nunique()[kind[queries]] > 1
                    share[~elsewhere.to_numpy()] = np.nan
                of_points.append((kind[queries], share if complete else np.full_like(
                    share, np.nan)))
            value, *shuffled = (balanced(share, kind) for kind, share in of_points)
            mean = np.mean(shuffled) if shuffled else np.nan
            yield {"label": str(name), "among": among, "values": n_values, "purity": value,
                   "shuffled": mean,
                   "spread": np.std(shuffled, ddof=1) if len(shuffled) > 1 else np.nan,
                   "excess": value - mean, "points": len(queries)}, of_points


def sampled(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which of n points are looked at, and which of these are queries, in rising order."""
    rng = np.random.default_rng(seed)
    rows = np.arange(n) if n <= MOST_POINTS else np.sort(
        rng.choice(n, MOST_POINTS, replace=False))
    queries = np.arange(len(rows)) if len(rows) <= MOST_QUERIES else np.sort(
        rng.choice(len(rows), MOST_QUERIES, replace=False))
    return rows, queries


def balanced(share: np.ndarray, kind: np.ndarray) -> float:
    """Return the mean over values int [Q] of the mean share [Q] of their points; NaN is left out.
    """
    return float(pd.Series(share).groupby(kind).mean().mean())


def nearest(
    points: np.ndarray, k: int, *, queries: np.ndarray | None = None,
    apart: np.ndarray | None = None, metric: str = "euclidean",
) -> np.ndarray:
    """argmin_j |x_i - x_j|, the k nearest points of each query, itself left out: int [Q, k].

    points   [N, d]
    queries  int [Q], rows of the points; default: all
    apart    int [N]: only points of another number than the query's count as neighbours
    metric   `euclidean` or `cosine`

    The k neighbours of a query are in no order. `ProbeError` where a query has fewer than k points
    to choose from.
    """
    from sklearn.metrics import pairwise_distances_chunked

    x = np.asarray(points, dtype=np.float64)
    queries = np.arange(len(x)) if queries is None else queries
    largest = 1 if apart is None else np.unique(apart, return_counts=True)[1].max()
    check(1 <= k <= len(x) - largest, f"k is {k} for {len(x)} points; expected 1 to "
          f"{len(x) - largest}, as many neighbours as every query has", ProbeError)
    if metric == "euclidean":
        x = x - x.mean(axis=0)  # large means would leave no digits for the differences

    def smallest(distance: np.ndarray, begin: int) -> np.ndarray:
        block = queries[begin:begin + len(distance)]
        distance[np.arange(len(block)), block] = np.inf
        if apart is not None:
            distance[apart[block][:, None] == apart] = np.inf
        return np.argpartition(distance, k - 1, axis=1)[:, :k]

    return np.concatenate([*pairwise_distances_chunked(
        x[queries], x, reduce_func=smallest, metric=metric, working_memory=MEMORY)])


def judged_labels(
    labels: pd.DataFrame, pair: Pair, names: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """Return the values [N] of labels of a pair by name, by default of all that neighbours can
    agree on.

    A label of the pair's token goes by its short name and comes first: `rule` and not `rule_2`.
    Left out are labels of a single value or more than 256, those with a value of its own for every
    instance, such as the texts of prompts, and those with missing values. `UnknownNameError` for
    the name of a group.
    """
    if names is not None:
        resolved = {name: resolve_label(name, labels, pair) for name in names}
        for name, (_, several) in resolved.items():
            if several:
                raise UnknownNameError("label", name, labels.columns)
        return {name: labels[columns[0]].to_numpy() for name, (columns, _) in resolved.items()}
    short = response_labels(labels, pair)
    ordered = sorted(map(str, labels.columns), key=lambda name: name not in short)
    return {short.get(name, name): values.to_numpy() for name in ordered
            if not (values := labels[name]).isna().any() and (
                is_measurement(values)
                or 2 <= values.nunique() <= min(MAX_CLASSES, len(values) - 1))}


def response_labels(labels: pd.DataFrame, pair: Pair) -> dict[str, str]:
    """Return column -> name of what a pair's response has of its own: {"rule_2": "rule"}."""
    names = [group.removesuffix("s") for group in label_groups(labels.columns)]
    return {f"{name}_{pair.token}": name for name in names if f"{name}_{pair.token}" in labels}


def label_classes(name: str, values: np.ndarray) -> np.ndarray:
    """Return the value of each point as int [N], numbered as they appear.

    Decimals of more than two values are a measurement: 1 above the median, else 0; where no value
    is above it, 1 for those that are equal to it. `ProbeError` for missing values, and for one
    value or more than 256.
    """
    series = pd.Series(values)
    check(not series.isna().any(), f"label {name!r} has {int(series.isna().sum())} missing values; "
          "expected none", ProbeError)
    if is_measurement(series):
        above = series > series.median()
        series = above if above.any() else series >= series.median()
    kind, kinds = pd.factorize(series)
    check(2 <= len(kinds) <= MAX_CLASSES, f"label {name!r} has {len(kinds)} different values; "
          f"expected 2 to {MAX_CLASSES}", ProbeError)
    return np.asarray(kind, dtype=np.int64)


@dataclass(frozen=True, repr=False)
class KNNPurityResult(TableResult):
    """Which labels the nearest neighbours of a code share, beside controls.

    table     one row per layer, pair, label, features and `among` ("all" neighbours, or those "of
              other combinations"): the purity `value` with its 95 % interval `low`, `high`
              clustered by combination, what labels give that were `shuffled` among the cells of
              equal combination and value (mean, `spread` as standard deviation), the `excess` over
              that, how many `values` the label has, and on how many instances and combinations.
              NaN where no value occurs in two combinations
    contrasts one row per layer, pair, label and `among`: the purity of the code less that of
              shuffled labels (their mean, so that it is the `excess`), of the residual stream and
              of the untrained model
    settings  everything else that determines the numbers

    Features: `code`, `residual`, `untrained`.
    """

    FORMAT = "latentcode.separation"
    CAPTION = ("kNN purity, the share of nearest neighbours with the same value, "
               f"the {SUMMED_UP} best labels")
    COLUMNS: ClassVar = {
        "table": ("layer", "pair", "label", "features", "among", "values", "value", "low", "high",
                  "shuffled", "spread", "excess", "n", "n_combinations"),
        "contrasts": contrast_columns("layer", "pair", "label", "among", "features")}
    HEADLINE_ROWS: ClassVar = {"among": (ALL,)}

    table: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = self.controls_caveat()
        if self.settings["cut"]:
            notes.append("Measurements are cut at their median, above it or not: "
                         f"{', '.join(self.settings['cut'])}.")
        notes += [f"The {place} is the same in all instances, and separates nothing."
                  for place in self.settings["constant"]]
        n = self.settings["codes"]["n"]
        if self.settings["queries"] < n:
            notes.append(f"Of {n:,} instances the neighbours of {self.settings['queries']:,} are "
                         f"looked for among {self.settings['points']:,} (at most {MOST_QUERIES:,} "
                         f"and {MOST_POINTS:,}).")
        if self.settings["k"] > (most := (self.settings["points"] - 1) // 2):
            notes.append(f"k is {most}, not {self.settings['k']}, of {self.settings['points']} "
                         "points.")
        return tuple(notes)

    def summary(self) -> pd.DataFrame:
        """Return the best labels of each pair and layer, and `value [low, high]` by features."""
        rows = []
        for place, block in blocks(self.table, ("pair", "layer")):
            code = where(block, features="code", among=ALL)
            best = code.sort_values("excess", ascending=False, kind="stable")[:SUMMED_UP]
            for label, shuffled in zip(best["label"], best["shuffled"], strict=True):
                row = {**place, "label": label}
                row |= {str(purity.features): with_interval(purity)
                        for purity in where(block, label=label, among=ALL).itertuples()}
                row["shuffled"] = f"{shuffled:.2f}"
                for purity in where(
                        block, label=label, features="code", among=OTHER).itertuples():
                    row[OTHER] = with_interval(purity)
                rows.append(row)
        return pd.DataFrame(rows).fillna("")

    def figure(self, *, pair: str | None = None) -> Figure:
        """Return the purity per layer: the best labels across, and down which neighbours count."""
        table = self.table.dropna(subset="value")
        pair = table["pair"].iloc[0] if pair is None else pair
        table = where(table, pair=pair)
        code = table["features"] == "code"
        best = table[code].groupby("label")["excess"].max().nlargest(SUMMED_UP).index
        shown = table.assign(pair="neighbours:\n" + table["among"],
                             shuffled=table["shuffled"].where(code))
        figure = scores_figure(
            shown[shown["label"].isin(best)], ("label",), ("shuffled", "shuffled labels"),
            sharey=True, title=f"share of the {self.settings['k']} nearest neighbours with the "
            f"same value, {pair}")
        figure.axes[0].set_ylim(-0.03, 1.03)
        return figure
