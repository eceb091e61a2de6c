"""Representational similarity analysis (RSA): are close tasks given close codes?

    rho = Spearman(d(z_i, z_j), D(i, j)) over pairs i < j

Spearman correlation of two dissimilarity structures, distances d of codes and D of tasks
(Kriegeskorte et al. 2008). Of languages it is called topographic similarity (Brighton and Kirby
2006; with rank correlation Lazaridou et al. 2018). There are several distances of tasks, because
the choice matters (`Task.distances`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import factorial, prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from scipy import stats
from scipy.spatial.distance import pdist
from scipy.stats import rankdata

from latentcode.devices import checked_seed
from latentcode.errors import ProbeError, check, check_count
from latentcode.figures.style import FEATURE_STYLES, Figure, category_styles
from latentcode.probes.common.figures import features_in, name_panels, panels, scores_figure
from latentcode.probes.common.harness import Read, origin, read, subjects_of
from latentcode.probes.common.labels import Labels, groups_of, make_target, names_of
from latentcode.probes.common.results import TableResult, blocks, distinct, where, with_interval
from latentcode.probes.common.statistics import (
    LEVEL,
    NONE,
    Contrasts,
    LabelSums,
    Resampled,
    check_bootstrap,
    contrast_columns,
    resample,
    varies,
)
from latentcode.probes.similarity import cosine_matrix
from latentcode.progress import Progress, reported, watched
from latentcode.subjects import Subject
from latentcode.subjects.tasks import RunSubject, TaskSubject
from latentcode.tasks import task_distances

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

METRICS = ("cosine", "euclidean")
"""Distances of points."""
COMBINATION = "combination"
LEAST_RUNS = 4
"""Runs below which no correlation across runs is reported: it has no interval."""
SCOPES = ("all runs", "within kind")
"""What a correlation is taken over: all runs, or the deviations of runs from their kind."""
EXACT = 5_040
"""Permutations, those of 7 runs, up to which all are gone through."""
N_PERMUTATIONS = 10_000
"""Random ones that stand for more of them."""
Distances = Mapping[str, Mapping[str, pd.DataFrame]]
"""Label -> name of a distance -> D, [N, N] with the label's values as rows and columns."""


@watched("comparing distances")
def topography(
    models: Sequence[Model] | Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    distances: Distances | None = None,
    split: Split = "ood",
    n: int | None = None,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    controls: bool = True,
    n_instances: int = 512,
    n_permutations: int = 1_000,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> TopographyResult:
    """Correlate distances of codes with distances of tasks, and with generalisation.

    Representational similarity analysis (RSA): rho is the Spearman correlation of distances of
    codes and of tasks, for the label `combination` over pairs of instances of different
    combinations, for any other label over pairs of its values, each the mean of its instances.
    p = (1 + #(null >= rho)) / (1 + permutations) is one-sided: close tasks are expected to have
    close codes. In the bootstrap instances keep the ranks that they have in the whole sample.

    rho is NaN where the points of a layer, or the distances of tasks, do not vary. Points that are
    zero have no cosine: they are left out, and the result says how many.

    The performance of a run is its newest headline metric on held-out combinations. With four
    runs or more its rank correlation with rho is reported, over all runs and, where there are
    several kinds, within them.

    Args:
        models: One model or several, see `subject`; or codes.
        problems: See `subject`; default: what each run's task chooses for probing.
        labels: Default: those that have `distances`, or the last that the task names for probing,
            `rule` or `terms`, and `combination`.
        distances: Label -> name of a distance -> D, a DataFrame [N, N] with the label's values as
            rows and columns; default: those of the task. Prompts, codes and labels of one's own
            have none but these.
        split: Which combinations; every run is asked about those of its own split.
        n: Number of problems; default: 4,096, of prompts and codes all.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        n_instances: Problems, drawn at random, whose pairs are compared.
        n_permutations: Permutations of the tasks, for p.
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of the problems, permutations and bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (layers and pairs done, in all), counted over all models.

    Raises:
        LatentCodeError: What `subject` and `extract` raise.
        ProbeError: Models have one name, controls are missing, a label has no distances or fewer
            than 3 values, or a distance lacks a value of its label, is not finite, not symmetric,
            or not 0 between a value and itself.
    """
    seed = checked_seed(seed)
    check_count("n_instances", n_instances, 3, ProbeError)
    check_count("n_permutations", n_permutations, 100, ProbeError)
    check_bootstrap(n_bootstrap)
    subjects = [subject.probing for subject in subjects_of(models, problems, device=device)]
    settings: dict[str, Any] = {
        "n_instances": n_instances, "n_permutations": n_permutations, "n_bootstrap": n_bootstrap,
        "level": LEVEL, "seed": seed, "codes": []}
    tables: dict[str, list[Any]] = {
        name: [] for name in (*TopographyResult.COLUMNS, "zero")}
    for index, subject in enumerate(subjects):
        tasks = _distances(subject, labels, distances, split)
        parts = [(split, subject.n_of("n", n, 4_096, split))]
        reads = read(subject, parts, ("code",), pairs=pairs, layers=layers, controls=controls,
                     seed=seed, labels=labels)
        for name, rows in _correlate_points(
                subject, reads, tasks, settings, part_of(progress, index, len(subjects))):
            tables[name] += rows
        settings["codes"].append(origin(reads.rows[0]))
        if index == 0:
            settings |= {"labels": list(tasks), "layers": reads.layers, "pairs": list(reads.labels),
                         "controls": list(reads.places()[0][2])[1:]}
    tables["runs"] = [*map(_described, subjects)]
    runs = pd.DataFrame(tables["runs"])
    if runs["performance"].notna().sum() >= LEAST_RUNS:
        tables["correlation"] = [correlate_runs(
            pd.DataFrame(tables["table"]), runs,
            ["layer", "pair", "label", "features", "distance", "metric"])]
    return TopographyResult.from_rows(tables, settings | {"zero": tables["zero"]})


def part_of(progress: Progress | None, index: int, parts: int) -> Progress | None:
    """Return a callback for one of several equal parts of the work."""
    if progress is None:
        return None
    return lambda done, total: progress(index * total + done, parts * total)


def _correlate_points(
    subject: Subject, reads: Read, tasks: Distances, settings: Mapping[str, Any],
    progress: Progress | None,
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield rows of a model with the name of their table: correlations, contrasts, and points of
    zero."""
    drawing, resampling, permuting = map(
        np.random.default_rng, np.random.SeedSequence(settings["seed"]).spawn(3))
    labels, meta = reads.rows[0].labels, reads.rows[0].meta
    clusters = groups_of(labels)
    drawn = np.sort(drawing.permutation(len(labels))[:settings["n_instances"]])
    weights = resample(int(clusters.max()) + 1, settings["n_bootstrap"], resampling)
    run = {"run": str(meta.get("run", "?")), "kind": str(meta.get("kind", "?"))}
    places = reads.places()
    for pair, layer, readings in reported(places, len(places), progress):
        points = {features: reading.x() for features, reading in readings.items()}
        yield "zero", [{"run": run["run"], "features": features, "layer": layer, "pair": pair,
                        "n": int((~x.any(axis=1)).sum()), "of": len(x)}
                       for features, x in points.items() if not x.any(axis=1).all()]
        for label, frames in tasks.items():
            if label == COMBINATION:  # of which there are more than a probe has classes
                classes, members = np.unique(labels[label].to_numpy(dtype=object),
                                             return_inverse=True)
            else:
                known, = reads.labels[pair]
                target = make_target(known, known, label, subject.pairs[pair])
                classes, members = np.array(target.classes, dtype=object), target.train
            matrices = {name: _checked_distance(frame, classes.tolist(), label, name)
                        for name, frame in frames.items()}
            order = permuting.random((settings["n_permutations"], len(classes))).argsort(axis=1)
            code: dict[tuple[str, str], Resampled] = {}
            kept = drawn if label == COMBINATION else slice(None)
            unit = "instances" if label == COMBINATION else "means"
            for (features, x), metric in product(points.items(), METRICS):
                for name, rho, row in _correlate(x[kept], members[kept], clusters[kept], metric,
                                                 matrices, order, weights):
                    place = run | {"layer": layer, "pair": pair, "label": label, "distance": name,
                                   "metric": metric}
                    yield "table", [{**place, "unit": unit, "features": features, **row}]
                    difference = code.setdefault((name, metric), rho) - rho  # it comes first
                    if features != "code" and np.isfinite(difference.value):
                        yield "contrasts", [{
                            **place, "features": "code", "quantity": "rho", "against": features,
                            **difference.row()}]


def _distances(
    subject: Subject, labels: Labels | None, given: Distances | None, split: str
) -> Distances:
    """Return the distances between the values of each label that is asked about."""
    names: Sequence[str]
    if labels is not None:
        names = names_of(labels)
    elif given is not None:
        names = tuple(given)
    else:
        names = (*subject.probe_labels[-1:],
                 *((COMBINATION,) if isinstance(subject, TaskSubject) else ()))
    check(len(names) > 0, "distances are missing; expected distances={label: {name: DataFrame}}",
          ProbeError)
    known = dict(given or {})
    for name in names:
        if name in known:
            continue
        if not isinstance(subject, TaskSubject) or isinstance(labels, Mapping):
            raise ProbeError(
                f"label {name!r} has no distances between its values, which a comparison of "
                "distances needs; expected distances={...}, a DataFrame of them. Without any, "
                "knn_purity and similarity say what codes have in common")
        known[name] = task_distances(subject.task, name, split)
    return {name: known[name] for name in names}


def _described(subject: Subject) -> dict[str, Any]:
    """Return the row that describes a model, and how well it generalises if it is a run."""
    row: dict[str, Any] = {
        "run": subject.name, "kind": subject.settings.get("kind"), "performance": np.nan}
    if isinstance(subject, RunSubject):
        config, task = subject.run.config, subject.task
        latest = subject.run.latest().reindex(index=[task.headline], columns=["ood"])
        row |= {
            "seed": config.training.seed, "split_seed": getattr(config.task, "split_seed", None),
            "metric": f"{'-' * task.lower_is_better}{task.headline}",
            "performance": float(latest.to_numpy()[0, 0]) * (-1.0 if task.lower_is_better else 1.0)}
    return row


def _checked_distance(
    frame: pd.DataFrame, classes: Sequence[object], label: str, name: str
) -> np.ndarray:
    """Return a distance of tasks as a matrix in the order of the classes, [N, N]."""
    lacking = [c for c in classes if c not in frame.index or c not in frame.columns]
    check(not lacking, f"distance {name!r} lacks the values {lacking[:5]} of label {label!r}; "
          f"it has: {', '.join(map(str, frame.index[:8]))}", ProbeError)
    check(len(classes) >= 3, f"label {label!r} has {len(classes)} values; expected at least 3, "
          "whose distances can be ordered", ProbeError)
    values = frame.loc[list(classes), list(classes)].to_numpy(dtype=np.float64)
    wrong = np.argwhere(~np.isfinite(values) | (values != values.T)
                        | np.diag(values.diagonal() != 0.0))
    if len(wrong):
        i, j = wrong[0].tolist()
        raise ProbeError(f"distance {name!r} of label {label!r} is {values[i, j]} from "
                         f"{classes[i]!r} to {classes[j]!r} and {values[j, i]} back; expected the "
                         "same finite number both ways, and 0 from a value to itself")
    return values


def _correlate(
    x: np.ndarray, members: np.ndarray, clusters: np.ndarray, metric: str,
    tasks: Mapping[str, np.ndarray], order: np.ndarray, weights: np.ndarray,
) -> Iterator[tuple[str, Resampled, dict[str, Any]]]:
    """Yield the correlation of distances of points with each distance of tasks, and its row.

    x         points [N, d]
    members   values of instances: bool [N, C], of which the mean points are compared, or the number
              of each instance's combination, int [N], and instances of different ones are compared
    tasks     distances [C, C]
    order     permutations of the values, int [permutation, C]
    weights   how often each combination is drawn in each bootstrap replicate, [R, cluster]
    """
    of_means = members.ndim == 2
    if of_means:
        sums = LabelSums.of(x, members, clusters)
        x = sums.means()
    nonzero = x.any(axis=1)
    kept = np.flatnonzero(nonzero | (metric == "euclidean") | (nonzero.sum() < 3))
    used, first, unit = np.unique(kept if of_means else members[kept], return_index=True,
                                  return_inverse=True)
    i, j = np.triu_indices(len(kept), k=1)
    different = unit[i] != unit[j]
    a, b = unit[i[different]], unit[j[different]]
    x = x[kept]
    ranks = rankdata(pdist(x, metric)[different]) if varies(x) else np.full(len(a), np.nan)
    if of_means:  # ranked anew in each replicate
        n_clusters = weights.shape[1]
        resampled = LabelSums(sums.sums[:, kept], sums.counts[:, kept]).resampled(weights)
        if metric == "cosine":
            distances = 1.0 - cosine_matrix(resampled)
        else:
            square = np.square(resampled).sum(axis=-1)
            inner = resampled @ np.swapaxes(resampled, -1, -2)
            distances = np.sqrt(
                np.clip(square[..., None] + square[..., None, :] - 2 * inner, 0.0, None))
        ranks_of_points = rankdata(distances[:, a, b], axis=-1, nan_policy="omit")
    else:
        n_clusters = len(used)
        weights = weights[:, clusters[kept][first]]

    def per_pair(values: np.ndarray) -> np.ndarray:
        """Return sums of values of pairs of points by their two classes, [C, C]."""
        flat = np.bincount(a * len(used) + b, values, minlength=len(used) ** 2)
        square = flat.reshape(len(used), len(used))
        return np.asarray(square + square.T)

    n, sum_x, sum_xx = per_pair(np.ones(len(a))), per_pair(ranks), per_pair(ranks**2)

    def correlation(y: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Return the correlation with ranks y [..., C, C] of tasks, a ratio of sums over pairs of
        classes, so that nothing is ranked again; weights [R, C] resample the classes."""
        def total(m: np.ndarray) -> np.ndarray:
            return np.asarray(m.sum(axis=(-2, -1)) if weights is None else np.einsum(
                "rc,cd,rd->r", weights, m, weights, optimize=True))

        size = total(n)
        size = np.where(size > 0, size, np.nan)
        mean_x, mean_y = total(sum_x) / size, total(n * y) / size
        covariance = total(sum_x * y) / size - mean_x * mean_y
        variance = ((total(sum_xx) / size - mean_x**2)
                    * (total(n * y * y) / size - mean_y**2))
        # Of ranks up to some hundred thousands: anything below this is rounding.
        return np.asarray(covariance / np.sqrt(np.where(variance > 1e-6, variance, np.nan)))

    for name, matrix in tasks.items():
        task = matrix[np.ix_(used, used)]
        values, place = np.unique(task, return_inverse=True)
        count = np.bincount(place.ravel(), (n / 2).ravel(), minlength=len(values))
        y = (np.cumsum(count) - (count - 1) / 2)[place.reshape(task.shape)]  # ranks of all pairs
        rho, p, null_high = float(correlation(y)), np.nan, np.nan
        if not np.isnan(rho):
            n_blocks = 1 + len(order) * y.size // 2**22  # so that memory suffices
            null = np.concatenate([
                correlation(y[block[:, :, None], block[:, None, :]])
                for block in np.array_split(np.argsort(order[:, used], axis=1), n_blocks)])
            p = (1 + int((null >= rho - 1e-12).sum())) / (1 + len(null))
            null_high = float(np.quantile(null, 0.95))
        if of_means:  # of the values that occur in the replicate
            ranks_of_tasks = rankdata(np.where(np.isnan(ranks_of_points), np.nan, task[a, b]),
                                      axis=-1, nan_policy="omit")
            replicates = pd.DataFrame(ranks_of_points).corrwith(
                pd.DataFrame(ranks_of_tasks), axis=1).to_numpy()
        else:
            replicates = correlation(y, weights)
        score = Resampled(rho, replicates + 0.0 * rho, len(kept if of_means else used), n_clusters)
        low, high = map(float, score.interval())
        yield name, score, {"rho": rho, "low": low, "high": high, "p": p, "null_high": null_high,
                            "n_units": score.n, "n_pairs": len(a)}


def rank_correlation(
    table: pd.DataFrame, measure: str, performance: str, *, within: str | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Spearman's rho of two columns of a table with one row per run, and what n runs can say.

    within  a column, such as `kind`: ranks are taken inside each of its groups and their means
            taken away, so that a difference between groups does not count, and permutations stay
            inside the groups

    n_runs      runs with both numbers
    rho         Spearman's correlation; NaN below 3 runs, or where a column is constant
    low, high   95 %: tanh(atanh(rho) -+ 1.96 sqrt((1 + rho^2 / 2) / (n - 3))) (Bonett and Wright
                2000), n less the groups but one; NaN below 4
    p           two-sided, by permutation of the runs (inside their groups): all permutations where
                there are at most 5,040, else 10,000 random ones, and then at least smallest_p
    smallest_p  what p would be if the order agreed perfectly
    detectable  tanh((1.96 + 0.84) sqrt(1.06 / (n - 3))): a true correlation that n runs find at
                the 5 % level four times out of five (variance by Fieller et al. 1957)
    """
    rows = table.dropna(subset=[measure, performance])
    n = len(rows)
    groups = pd.factorize(rows[within])[0] if within else np.zeros(n, dtype=np.int64)
    ranks = rows[[measure, performance]].astype(np.float64).groupby(groups).rank()
    x, y = (ranks - ranks.groupby(groups).transform("mean")).to_numpy().T
    freedom = n - (len(np.unique(groups)) - 1 if n else 0)
    norm = float(np.sqrt((x @ x) * (y @ y)))
    rho = float(x @ y) / norm if norm > 0 and freedom >= 3 else np.nan
    low = high = p = smallest = detectable = np.nan
    if not np.isnan(rho):
        orders, n_permutations = _null(y, groups, seed)
        null = orders @ x / norm
        smallest = max(min(1.0, 2.0 / n_permutations), 1.0 / len(null))
        p = max(float((np.abs(null) >= abs(rho) - 1e-12).mean()), smallest)
    if freedom >= 4:
        z, power = stats.norm.ppf([0.975, 0.8])
        half = z * np.sqrt((1.0 + rho**2 / 2.0) / (freedom - 3))
        middle = np.arctanh(np.clip(rho, -1 + 1e-12, 1 - 1e-12))
        low, high = np.tanh([middle - half, middle + half]).tolist()
        detectable = float(np.tanh((z + power) * np.sqrt(1.06 / (freedom - 3))))
    return {"n_runs": n, "rho": rho, "low": low, "high": high, "p": p, "smallest_p": smallest,
            "detectable": detectable}


def correlate_runs(table: pd.DataFrame, runs: pd.DataFrame, place: list[str]) -> pd.DataFrame:
    """Return the correlation of `rho` with `performance` for every `place` of a table.

    table  one row per run and place, with columns `run` and `rho`
    runs   one row per run: `run`, `kind`, `performance`
    """
    joined = table.drop(columns="kind", errors="ignore").merge(
        runs[["run", "kind", "performance"]], on="run")
    scopes = SCOPES[:1 if runs["kind"].nunique(dropna=False) == 1 else 2]
    return pd.DataFrame([
        {**key, "scope": scope, **rank_correlation(
            block, "rho", "performance", within="kind" if scope == SCOPES[1] else None)}
        for key, block in blocks(joined, place) for scope in scopes])


def _null(y: np.ndarray, groups: np.ndarray, seed: int) -> tuple[np.ndarray, int]:
    """Return permutations [permutation, n] of y inside its groups, the given order first, and how
    many there are: all of them, or random ones."""
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    n_permutations = prod(factorial(len(rows)) for rows in members)
    given = np.concatenate(members)
    if n_permutations <= EXACT:
        orders = [np.concatenate(order) for order in product(*map(permutations, members))]
    else:
        rng = np.random.default_rng(seed)
        orders = [given, *(np.concatenate([*map(rng.permutation, members)])
                           for _ in range(N_PERMUTATIONS - 1))]
    rows = np.empty((len(orders), len(y)))
    rows[:, given] = y[np.array(orders)]
    return rows, n_permutations


@dataclass(frozen=True, repr=False)
class TopographyResult(TableResult):
    """How far the distances of points follow those of tasks: representational similarity analysis.

    table        one row per run, layer, pair, label, features, distance of tasks and metric of
                 points: Spearman's `rho` with its 95 % interval, clustered by combination, `p` and
                 `null_high`, the 95 % quantile when the tasks are permuted
    runs         one row per run: its kind, seeds and `performance` on held-out combinations
    correlation  with four runs or more, Spearman's correlation of rho with performance across
                 them; see `rank_correlation`
    contrasts    one row per run, layer, pair, label, distance and metric: rho of the code less that
                 of the residual stream and of the untrained model; `n` counts units
    settings     everything else that determines the numbers
    """

    FORMAT = "latentcode.topography"
    CAPTION = ("representational similarity analysis (RSA), Spearman correlation of code and task "
               "distances, 95 % interval")
    COLUMNS: ClassVar = {
        "table": ("run", "kind", "layer", "pair", "label", "unit", "features", "distance", "metric",
                  "rho", "low", "high", "p", "null_high", "n_units", "n_pairs"),
        "runs": ("run", "kind", "seed", "split_seed", "metric", "performance"),
        "correlation": ("layer", "pair", "label", "features", "distance", "metric", "scope",
                        "n_runs", "rho", "low", "high", "p", "smallest_p", "detectable"),
        "contrasts": contrast_columns("run", "kind", "layer", "pair", "label", "distance",
                                      "metric", "features")}
    BEST_PER: ClassVar = ("layer", "distance", "metric")

    table: pd.DataFrame
    runs: pd.DataFrame
    correlation: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = self.controls_caveat()
        notes += [f"Nothing to correlate: the {features} of layer {layer}, {pair}, or the task "
                  "distance, does not vary." for features, layer, pair
                  in distinct(self.table[self.table["rho"].isna()], "features", "layer", "pair")]
        lacking = self.runs.loc[self.runs["performance"].isna(), "run"]
        if len(self.runs) > 1 and len(lacking):
            notes.append(f"Without a metric on held-out combinations: {', '.join(lacking)}.")
        for zero in self.settings.get("zero", ()):
            notes.append(f"The {zero['features']} of {zero['run']}, layer {zero['layer']}, "
                         f"{zero['pair']} is zero in {zero['n']} of {zero['of']} instances, which "
                         "have no cosine and are left out of cosine distances.")
        if len(self.runs) > 1 and self.correlation.empty:
            notes.append(f"{len(self.runs)} runs say nothing about a correlation with performance; "
                         "expected at least 4.")
        # What correlations across runs can show, and how many are small by chance.
        for scope, rows in self.correlation.groupby("scope", sort=False):
            runs, detectable = f"{rows['n_runs'].max()} runs", rows["detectable"].min()
            if np.isfinite(detectable):
                notes.append(f"Scope {scope}: {runs} find a rank correlation of less than "
                             f"{detectable:.2f} less often than four times out of five.")
            able = rows[rows["smallest_p"] < 0.05]
            if able.empty:
                notes.append(f"Scope {scope}: no p < 0.05 is possible with {runs}.")
            for is_control, p in able.groupby(able["features"] != "code")["p"]:
                notes.append(f"Scope {scope}: of the {len(p)} correlations of "
                             f"{'its controls' if is_control else 'the code'}, at most "
                             f"{0.05 * len(p):.1f} would have p < 0.05 by chance, and "
                             f"{int((p < 0.05).sum())} have.")
        return tuple(notes)

    def summary(self) -> pd.DataFrame:
        """Return one row per kind, label, distance, metric and layer: by features, `rho [low, high]
        p` of a single run, else the mean and the range over the runs of a kind."""
        rows = []
        for row, block in blocks(
                self.table, ("kind", "label", "distance", "metric", "pair", "layer")):
            for features, mine in block.groupby("features", sort=False):
                rho, first = mine["rho"], mine.iloc[0]
                row[str(features)] = (
                    f"{with_interval(first, 'rho')} p={first['p']:.3f}" if len(mine) == 1 else
                    f"{rho.mean():.2f} ({rho.min():.2f} to {rho.max():.2f}, n={len(mine)})")
            rows.append(row)
        return pd.DataFrame(rows)

    def figure(self, *, pair: str | None = None, metric: str = "cosine") -> Figure:
        """Return rho per layer: a row per kind, a column per label and distance of tasks.

        Several runs of a kind stand in one panel. The grey line is the 95 % quantile under permuted
        tasks, of the code and averaged over runs.
        """
        table = where(self.table, pair=self.first_pair(pair), metric=metric)
        null = table["null_high"].where(table["features"] == "code")
        return scores_figure(
            _with_units(table).assign(pair=table["kind"], null=null), ("distance", "units"),
            ("null", "95 % of permuted tasks"), value="rho", sharey=True,
            title=f"Spearman's ρ, {self.first_pair(pair)}, {metric} distance of points")

    def generalization_figure(
        self, *, pair: str | None = None, metric: str = "cosine", layer: int | None = None
    ) -> Figure:
        """Return performance on held-out combinations against rho, a point per run, of one layer
        (the last)."""
        pair = self.first_pair(pair)
        layer = max(self.settings["layers"]) if layer is None else layer
        table, correlation = (_with_units(where(table, pair=pair, metric=metric, layer=layer))
                              for table in (self.table, self.correlation))
        check(len(table) > 0, "there are no runs to draw", ProbeError)
        table = table.merge(self.runs[["run", "performance"]], on="run")
        columns, feature_sets = distinct(table, "distance", "units"), features_in(table)
        kinds = category_styles(list(table["kind"].unique()))
        with panels(len(feature_sets), len(columns), 1.85 * len(columns) + 0.8,
                    1.85 * len(feature_sets) + 0.9, f"layer {layer}, {pair}, {metric} distance of "
                    "points", sharex="col", sharey=True) as (figure, grid):
            for axes, (features, (distance, units)) in zip(
                    grid.flat, product(feature_sets, columns), strict=True):
                place = {"features": features, "distance": distance, "units": units}
                for kind, runs in where(table, **place).groupby("kind", sort=False):
                    color, marker = kinds[kind]
                    axes.plot(runs["rho"], runs["performance"], color=color, marker=marker,
                              markersize=4.5, linestyle="", label=kind)
                stated = "".join(f"ρ = {with_interval(row, 'rho')}" for row in where(
                    correlation, scope=SCOPES[0], **place).itertuples())
                axes.text(0.5, 1.02, stated, transform=axes.transAxes, ha="center", fontsize=8)
            name_panels(grid, [f"{distance}\n{units}\n" for distance, units in columns],
                        [f"{FEATURE_STYLES[name][2]}\nOOD {self.runs['metric'].iloc[0]}"
                         for name in feature_sets], "RSA: Spearman's ρ")
            figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center",
                          ncols=len(kinds))
        return figure

    def figures(self) -> dict[str, Figure]:
        """Return all pictures of the first pair, by file name."""
        more = {"generalization.png": self.generalization_figure()} if len(self.correlation) else {}
        return super().figures() | more


def _with_units(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the column `units`: `instances`, or the means of a label."""
    return table.assign(units=np.where(
        table["label"] == COMBINATION, "instances", "means of " + table["label"]))
