"""Are two models' codes the same up to a permutation of heads or a rotation?

Heads have no order: reordering them, with their weights, changes nothing that a model computes.
Where codes may be negative (wherever no softmax is taken), neither does the sign of a head:
the opposite query weights and position bias turn a_h into -a_h, and the opposite output weights
undo it (the opposite value and output weights, for HYLA). So codes of different seeds are matched
by a permutation, with signs where codes have them.

Does a probe that was fitted on one model's codes read another's? What is done to them first:

    own              nothing; A's own codes, the ceiling
    raw              nothing; B's codes
    matched          heads reordered, and their signs flipped, to match A's (`match_heads`)
    random           heads reordered and flipped at random; the mean of five
    matched, scaled  matched, and each head given the mean and the spread that it has in A
    random, scaled   likewise
    rotated          the best rotation, shift and scale (`fit_rotation`)

All of it is fitted on codes of training combinations and scored on held-out ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, pairwise, product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
from scipy.optimize import linear_sum_assignment
from scipy.special import stdtrit

from latentcode.codes import LatentCodes
from latentcode.config import TaskConfig
from latentcode.devices import checked_seed
from latentcode.errors import ProbeError, check, check_count, check_distinct
from latentcode.figures.panels import heat_map
from latentcode.figures.style import FEATURE_STYLES, GREY, Figure, category_styles
from latentcode.probes.common.figures import features_in, layers_in, name_panels, panels
from latentcode.probes.common.harness import (
    Features,
    check_pair_of_codes,
    check_same_instances,
    features_of,
    origin,
    subjects_of,
)
from latentcode.probes.common.labels import (
    Labels,
    asked_labels,
    combination_clusters,
    make_target,
    names_of,
    own_labels,
    shared_caveat,
    shared_combinations,
)
from latentcode.probes.common.logistic import fit_probe
from latentcode.probes.common.results import TableResult, distinct, where
from latentcode.probes.common.rotation import fit_rotation
from latentcode.probes.common.statistics import (
    GROUP,
    LEVEL,
    N_SHUFFLES,
    NONE,
    ROUNDING,
    SINGLE,
    Contrasts,
    Resampled,
    chance,
    contrast_columns,
    count_by_cluster,
    resample,
    rows_of_others,
    table_of,
    varies,
)
from latentcode.progress import Progress, reported, watched
from latentcode.subjects import Subject
from latentcode.subjects.tasks import RunSubject
from latentcode.tasks import Task, make_task

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems

N_GROUPS = 10
"""Groups of combinations that are left out in turn for the intervals of CKA and Procrustes."""
N_RANDOM = 5
"""Random matchings whose mean is the control of the matched one."""
ALIGNMENTS = ("own", "raw", "matched", "random", "matched, scaled", "random, scaled", "rotated")
"""What is done to the codes that a probe of another model reads."""
HIGHEST = {"cka": 1.0, "procrustes": 2.0}
"""Top of the colour scale of each measure."""
Points = tuple[np.ndarray, np.ndarray]
"""(training, held-out) points of a model, [N, d]."""
Match = tuple[np.ndarray, np.ndarray]
"""Head `order[h]` of B for each head h of A, int [H], and its sign, -1 where it is flipped."""


@watched("aligning")
def align(
    models: Sequence[Model] | Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    n_train: int | None = None,
    n_heldout: int | None = None,
    heldout: float = 0.3,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    step: Sequence[int] | int | None = None,
    controls: bool = True,
    allow_overlap: str = "nothing",
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> AlignmentResult:
    """Compare the codes of models, up to a permutation of heads or a rotation.

    Runs of one training seed begin with the same weights, of different kinds too, and are left out
    of the result's summary and figures, which says so.

    CKA and Procrustes are measured on the held-out codes. Their intervals are jackknife intervals
    over groups of combinations: a bootstrap would compare an instance with its own copy, the very
    bias that the debiased CKA takes out. Probes and matchings are fitted on the training codes and
    scored on the held-out ones.

    Args:
        models: At least two, see `subject`; or one run with several steps.
        problems: What all models see; see `subject`; default: what the first run's task chooses for
            probing, so that "held out" means held out of the *first* run. The result says how many
            of those combinations the others were trained on.
        labels: What the transferred probes decode; default: those that the task names for probing,
            and of prompts the column label; or functions of a batch, as in `decode`.
        n_train: Problems that probes and matchings are fitted on; default: 2,048, of prompts all.
        n_heldout: Problems that probes and matchings are scored on; default: 2,048, of prompts all.
        heldout: Share of the combinations of prompts to hold out, where they have no column
            `split`.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        step: Checkpoints to compare; default: the newest.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        allow_overlap: What training and held-out codes may have in common, as in `decode`.
        n_bootstrap: Replicates of the intervals of transferred probes, which resample the held-out
            combinations.
        seed: Seed of the problems and the bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (comparisons done, in all).

    Raises:
        LatentCodeError: What `subject`, `own_labels`, `extract` and `decode` raise.
        ProbeError: There is a single model or no problem, models have the same name, codes of
            other instances or another number of heads, or no controls.
        ConfigError: Runs have tasks that differ in more than their split.
    """
    seed = checked_seed(seed)
    check_count("n_bootstrap", n_bootstrap, 100, ProbeError)
    subjects = subjects_of(models, problems, least=2, step=step, device=device)
    for run, other in pairwise(subject for subject in subjects if isinstance(subject, RunSubject)):
        ours, theirs = (_without_split(each.run.config.task) for each in (run, other))
        check(ours == theirs, f"the tasks of {run.name} and {other.name} differ: {ours} and "
              f"{theirs}; expected runs of one task, whose splits may differ")
    first = subjects[0].probing
    wanted = asked_labels(labels, first)
    names = names_of(wanted)
    check(len(names) > 0, "labels is empty; expected at least one", ProbeError)
    check_distinct("labels", names)
    if isinstance(first, RunSubject):
        subjects = [subject.on(first.task) if isinstance(subject, RunSubject) else subject
                    for subject in subjects]
    subjects = [subject.divided(heldout, seed, names[0]) for subject in subjects]
    parts = (("train", subjects[0].n_of("n_train", n_train, 2_048, "train")),
             ("ood", subjects[0].n_of("n_heldout", n_heldout, 2_048, "ood")))
    computed = own_labels(wanted if labels is not None else None, subjects[0], parts, seed=seed)
    compared = []
    for subject in subjects:
        codes, untrained = zip(*(
            subject.with_untrained(split, values, n=n, pairs=pairs, layers=layers, seed=seed,
                                   controls=controls)
            for (split, n), values in zip(parts, computed, strict=True)), strict=True)
        compared.append(_Model.of(codes, untrained, controls))
        _check_comparable(compared[0].codes, codes)
    train, scored = compared[0].codes
    shared = shared_combinations(train, scored, allow_overlap)
    feature_sets, pair_names = tuple(compared[0].features), [pair.name for pair in train.pairs]
    groups = combination_clusters(scored) % N_GROUPS
    couples = list(combinations_with_replacement(compared, 2))
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in AlignmentResult.COLUMNS}
    for pair, features, (a, b) in reported(
            product(pair_names, feature_sets, couples),
            len(pair_names) * len(feature_sets) * len(couples), progress):
        place = a.beside(b) | {"pair": pair, "features": features}
        tables["layers"] += [place | row for row in _compare_layers(
            a, b, features, pair, train.layers, groups, seed)]
        for layer in train.layers if a is not b else ():
            tables["heads"] += [place | {"layer": layer} | row for row in _matched_heads(
                a.points(features, layer, pair), b.points(features, layer, pair))]
    for pair, label in product(pair_names, names):
        scores, contrasts = _transfer(compared, label, pair, n_bootstrap, seed)
        tables["transfer"] += scores
        tables["contrasts"] += contrasts
    differences = table_of(tables.pop("contrasts"), AlignmentResult.COLUMNS["contrasts"])
    frames = {name: pd.DataFrame(rows)[list(AlignmentResult.COLUMNS[name])]
              for name, rows in tables.items()}
    runs = [subject for subject in subjects if isinstance(subject, RunSubject)]
    return AlignmentResult(**frames, contrasts=differences, settings={
        "labels": list(names), "layers": list(train.layers), "pairs": pair_names,
        "controls": list(feature_sets[1:]), "n_bootstrap": n_bootstrap, "level": LEVEL,
        "seed": seed,
        "allow_overlap": allow_overlap, "shared_combinations": shared,
        "n_groups": N_GROUPS, "n_random": N_RANDOM, "n_train": len(train),
        "n_heldout": len(scored), "initial_seeds": _initial_seeds(subjects),
        "heldout_trained_on": _trained_on(runs),
        "codes": [[origin(codes) for codes in model.codes] for model in compared]})


@dataclass(frozen=True)
class _Model:
    """The (training, held-out) codes of one model, and what is read of them by features."""

    codes: tuple[LatentCodes, LatentCodes]
    features: Mapping[str, tuple[Features, Features]]

    @classmethod
    def of(
        cls, codes: tuple[LatentCodes, LatentCodes],
        untrained: tuple[LatentCodes | None, LatentCodes | None], controls: bool,
    ) -> _Model:
        check_pair_of_codes(*codes, f"codes of {codes[0].meta.get('run')}")
        train, heldout = (features_of(each, initial, controls)
                          for each, initial in zip(codes, untrained, strict=True))
        return cls(codes, {a.name: (a, b) for a, b in zip(train, heldout, strict=True)})

    def points(self, features: str, layer: int, pair: str) -> Points:
        train, heldout = self.features[features]
        return train.points(layer, pair), heldout.points(layer, pair)

    def beside(self, other: _Model) -> dict[str, Any]:
        """Return the columns that name this model, A, and another one, B."""
        a, b = self.codes[0].meta, other.codes[0].meta
        return {"run_a": str(a.get("run", "?")), "run_b": str(b.get("run", "?")),
                "kind_a": str(a.get("kind", "?")), "kind_b": str(b.get("kind", "?"))}


def _check_comparable(
    first: tuple[LatentCodes, LatentCodes], other: tuple[LatentCodes, LatentCodes]
) -> None:
    """Raise `ProbeError` unless codes of two models can be compared instance by instance."""
    names = [str(codes[0].meta.get("run", "?")) for codes in (first, other)]
    axes: list[Mapping[str, object]] = [
        {"layers": codes.layers, "pairs": [pair.name for pair in codes.pairs],
         "numbers of heads": codes.n_heads} for codes, _ in (first, other)]
    for axis, ours in axes[0].items():
        check(ours == axes[1][axis], f"the {axis} of runs {names[0]} and {names[1]} differ: {ours} "
              f"and {axes[1][axis]}; expected the same", ProbeError)
    for codes, others in zip(first, other, strict=True):
        check_same_instances(codes, others, f"codes of {names[1]}")


def _initial_seeds(subjects: Sequence[Subject]) -> dict[str, int]:
    """Return the seed of the initial weights of each model of which it is known."""
    known = {subject.name: subject.run.config.training.seed if isinstance(subject, RunSubject)
             else getattr(getattr(subject, "of", None), "seed", None) for subject in subjects}
    return {name: seed for name, seed in known.items() if seed is not None}


def _trained_on(runs: Sequence[RunSubject]) -> dict[str, list[int]]:
    """Return how many of the held-out combinations each run was trained on, of how many."""
    def combinations(task: Task, split: str) -> set[tuple[int, ...]]:
        return {tuple(row) for row in task.combinations(split).tolist()}

    heldout = combinations(runs[0].task, "ood") if runs else set()
    return {run.name: [len(combinations(make_task(run.run.config.task), "train") & heldout),
                       len(heldout)] for run in runs}


def _without_split(task: TaskConfig) -> TaskConfig:
    changes: dict[str, Any] = {"split_seed": 0, "held_out": None, "ood_fraction": 0.5}
    return replace(task, **{k: v for k, v in changes.items() if hasattr(task, k)})


def _compare_layers(
    a: _Model, b: _Model, features: str, pair: str, layers: Sequence[int], groups: np.ndarray,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """Yield CKA and Procrustes of the held-out points of all layers of A and B."""
    rng = np.random.default_rng(seed)
    others = [rows_of_others(groups, rng) for _ in range(N_SHUFFLES)]
    n_groups = int(groups.max()) + 1
    quantile = stdtrit(n_groups - 1, (1.0 + LEVEL) / 2.0) if n_groups > 1 else np.nan
    for layer_a, layer_b in product(layers, layers):
        if a is b and layer_a >= layer_b:
            continue
        x, y = a.points(features, layer_a, pair)[1], b.points(features, layer_b, pair)[1]
        moments = moments_of(x, y, groups)
        whole = [each.whole() for each in moments]
        unrelated = [[each.whole() for each in moments_of(x, y[rows], groups)] for rows in others]
        for name, measure in MEASURES.items():
            value = float(measure(*whole))
            half = np.nan
            if n_groups > 1:
                left_out = measure(*(each.without_each() for each in moments))
                # The jackknife's standard error (Efron and Tibshirani 1993, Eq. 11.5).
                half = quantile * np.sqrt((n_groups - 1) * left_out.var())
            yield {"layer_a": layer_a, "layer_b": layer_b, "measure": name, "value": value,
                   "low": value - half, "high": value + half,
                   "null": float(np.mean([measure(*each) for each in unrelated]))}


def _matched_heads(x: Points, y: Points) -> Iterator[dict[str, Any]]:
    """Match heads on the training points of A (x) and B (y), and measure on the held-out ones."""
    fitted, heldout = (head_correlations(a, b) for a, b in zip(x, y, strict=True))
    for h, (other, sign) in enumerate(zip(*match_heads(x[0], y[0]), strict=True)):
        others = np.abs(np.delete(heldout[h], other))
        yield {"head_a": h, "head_b": int(other), "sign": int(sign),
               "fitted": fitted[h, other] * sign, "heldout": heldout[h, other] * sign,
               "by_chance": float(others.mean()) if len(others) else np.nan}


def _transfer(
    models: Sequence[_Model], label: str, pair: str, n_bootstrap: int, seed: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Fit a probe of each model, layer and features, and score it on the others' held-out points.

    Returns a row per alignment, and the contrasts of the matchings with random ones.
    """
    train, heldout = models[0].codes
    clusters = combination_clusters(train), combination_clusters(heldout)
    n_clusters = int(clusters[1].max()) + 1
    weights = resample(n_clusters, n_bootstrap, np.random.default_rng(seed))
    target = make_target(train, heldout, label, pair)
    name, metric = next(iter((GROUP if target.multilabel else SINGLE).items()))
    rows, contrasts = [], []
    for features, layer, a in product(models[0].features, train.layers, models):
        x = a.points(features, layer, pair)
        probe = fit_probe(x[0], target.train, clusters[0], multilabel=target.multilabel, seed=seed)
        for b in models:
            if a is b:
                continue
            place = a.beside(b) | {"pair": pair, "label": label, "features": features,
                                   "layer": layer}
            scores = {}
            for alignment, variants in aligned(x, b.points(features, layer, pair), seed).items():
                counts = [count_by_cluster(target.heldout, probe.predict(points), clusters[1])
                          for points in variants]
                scores[alignment] = Resampled(
                    float(np.mean([metric(count.total()) for count in counts])),
                    np.mean([metric(count.weighted(weights)) for count in counts], axis=0),
                    len(heldout), n_clusters)
                low, high = map(float, scores[alignment].interval())
                rows.append({
                    **place, "alignment": alignment, "metric": name,
                    "value": scores[alignment].value, "low": low, "high": high,
                    "chance": chance(target.heldout, name), "n_heldout": len(heldout),
                    "n_heldout_combinations": n_clusters})
            contrasts += [
                {**place, "alignment": matched, "quantity": name, "against": random,
                 **(scores[matched] - scores[random]).row()} for matched, random in (
                     ("matched", "random"), ("matched, scaled", "random, scaled"))]
    return rows, contrasts


def aligned(x: Points, y: Points, seed: int) -> dict[str, list[np.ndarray]]:
    """Return what A's probe is given of B's held-out points, by `ALIGNMENTS`; some in variants.

    x, y  (training, held-out) points of A and B, of the same instances; B's held-out ones determine
          nothing
    """
    match = match_heads(x[0], y[0])
    rng = np.random.default_rng(seed)
    signed = bool(x[0].min() < 0 or y[0].min() < 0)
    by_chance = [random_match(x[0].shape[1], signed, rng) for _ in range(N_RANDOM)]

    def scaled(order: np.ndarray, sign: np.ndarray) -> np.ndarray:
        train, heldout = (points[:, order] * sign for points in y)
        spread = train.std(axis=0)
        moving = spread > ROUNDING * np.abs(train).max(axis=0)
        unit = (heldout - train.mean(axis=0)) / np.where(moving, spread, np.inf)
        return np.asarray(unit * x[0].std(axis=0) + x[0].mean(axis=0))

    return {
        "own": [x[1]], "raw": [y[1]], "matched": [y[1][:, match[0]] * match[1]],
        "random": [y[1][:, order] * sign for order, sign in by_chance],
        "matched, scaled": [scaled(*match)],
        "random, scaled": [scaled(order, sign) for order, sign in by_chance],
        "rotated": [fit_rotation(x[0], y[0]).apply(y[1])]}


def head_correlations(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return corr(x_i, y_j) over instances, [H, H'] of x [N, H] and y [N, H'].

    0 where a head is constant.
    """
    units = []
    for z in (x, y):
        centred = z - z.mean(axis=0)
        norm = np.linalg.norm(centred, axis=0)
        flat = norm <= ROUNDING * np.linalg.norm(z, axis=0)
        units.append(centred / np.where(flat, np.inf, norm))
    return np.asarray(units[0].T @ units[1])


def match_heads(x: np.ndarray, y: np.ndarray, *, signed: bool | None = None) -> Match:
    """argmax over permutations π of sum_h corr(x_h, y_π(h)): the Hungarian algorithm.

    x, y    codes [N, H] of the same N instances under two models
    signed  maximise |corr| and flip signs; default: where either code has negative entries
    """
    if signed is None:
        signed = bool(x.min() < 0 or y.min() < 0)
    correlation = head_correlations(x, y)
    score = np.abs(correlation) if signed else correlation
    rows, order = linear_sum_assignment(score, maximize=True)
    matched = correlation[rows, order]
    return order, np.where(signed & (matched < 0), -1.0, 1.0)


def random_match(n_heads: int, signed: bool, rng: np.random.Generator) -> Match:
    """Return a match by chance, the control of `match_heads`."""
    sign = rng.choice([-1.0, 1.0], n_heads) if signed else np.ones(n_heads)
    return rng.permutation(n_heads), sign


@dataclass(frozen=True)
class Moments:
    """Sums over instances that CKA and Procrustes are functions of; they add up over groups.

    n             number of instances [...]
    x, y          sum of x [..., d] and y [..., d']
    xy            sum of x y^T [..., d, d']
    x_sq, y_sq    sum of |x|^2 and |y|^2 [...]
    x_y_sq, y_x_sq  sum of x |y|^2 [..., d] and y |x|^2 [..., d']
    sq            sum of |x|^2 |y|^2 [...]
    """

    n: np.ndarray
    x: np.ndarray
    y: np.ndarray
    xy: np.ndarray
    x_sq: np.ndarray
    y_sq: np.ndarray
    x_y_sq: np.ndarray
    y_x_sq: np.ndarray
    sq: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> Moments:
        """Sum points x [N, d] and y [N, d'] of the same instances in groups int [N]."""
        x_sq, y_sq = np.square(x).sum(axis=1), np.square(y).sum(axis=1)
        parts = []
        for group in range(int(groups.max()) + 1):
            a, b, p, q = (z[groups == group] for z in (x, y, x_sq, y_sq))
            parts.append((len(a), a.sum(axis=0), b.sum(axis=0), a.T @ b, p.sum(), q.sum(), q @ a,
                          p @ b, p @ q))
        return cls(*(np.array(part, dtype=np.float64) for part in zip(*parts, strict=True)))

    def whole(self) -> Moments:
        """Return the sums over all groups."""
        return Moments(*(value.sum(axis=0) for value in vars(self).values()))

    def without_each(self) -> Moments:
        """Return the sums over all groups but one, for each one."""
        return Moments(*(value.sum(axis=0) - value for value in vars(self).values()))


def moments_of(
    x: np.ndarray, y: np.ndarray, groups: np.ndarray
) -> tuple[Moments, Moments, Moments]:
    """Return the sums of points x [N, d] with y [N, d'], of x with itself, and of y with itself.

    groups  of instances, int [N]
    """
    check(len(x) == len(y) >= 4, f"points have shapes {x.shape} and {y.shape}; expected the same 4 "
          "instances or more", ProbeError)
    # Measures do not depend on the origin, and sums about the mean lose no digits.
    x, y = ((z - z.mean(axis=0)) * varies(z) for z in (x, y))
    return Moments.of(x, y, groups), Moments.of(x, x, groups), Moments.of(y, y, groups)


def cka(xy: Moments, xx: Moments, yy: Moments) -> np.ndarray:
    """HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)), K = X X^T, L = Y Y^T: linear CKA, debiased.

    CKA of Kornblith et al. (2019) with the unbiased HSIC of Song et al. (2012), without which
    few instances of many dimensions look alike whatever they are (Murphy et al. 2024). About 0
    for unrelated points, where it may be a little negative; 1 for points that are equal up to a
    rotation, a shift and a scale. NaN where points do not vary.
    """
    of_x, of_y = _hsic(xx), _hsic(yy)
    product = np.where((of_x > 0) & (of_y > 0), of_x * of_y, np.nan)
    return np.asarray(_hsic(xy) / np.sqrt(product))


def _hsic(m: Moments) -> np.ndarray:
    """tr(K L) + 1'K1 1'L1 / ((n-1)(n-2)) - 2 1'KL1 / (n-2), K and L without their diagonals.

    Up to the factor 1 / (n (n-3)), which cancels in CKA (Song et al. 2012, Eq. 5).
    """
    trace = np.square(m.xy).sum(axis=(-2, -1)) - m.sq
    of_x, of_y = (np.square(v).sum(axis=-1) - s for v, s in ((m.x, m.x_sq), (m.y, m.y_sq)))
    # (K 1)_i = x_i . sum x - |x_i|^2, so 1'KL1 is a sum of products of two such differences.
    both = (np.einsum("...d,...de,...e->...", m.x, m.xy, m.y) - (m.x * m.x_y_sq).sum(axis=-1)
            - (m.y * m.y_x_sq).sum(axis=-1) + m.sq)
    n = m.n
    return np.asarray(trace + of_x * of_y / ((n - 1) * (n - 2)) - 2 * both / (n - 2))


def procrustes(xy: Moments, xx: Moments, yy: Moments) -> np.ndarray:
    """min over rotations R of |X - Y R|^2 = 2 - 2 |X^T Y|_*, X and Y centred, of norm 1.

    The squared orthogonal Procrustes distance (Schönemann 1966; Ding et al. 2021): 0 for points
    that are equal up to a rotation or reflection, a shift and a scale, 2 at most. NaN where
    points do not vary.
    """
    cross = xy.xy - xy.x[..., :, None] * (xy.y / xy.n[..., None])[..., None, :]
    x_power = xy.x_sq - np.square(xy.x).sum(axis=-1) / xy.n
    y_power = xy.y_sq - np.square(xy.y).sum(axis=-1) / xy.n
    product = np.where((x_power > 0) & (y_power > 0), x_power * y_power, np.nan)
    nuclear = np.linalg.svd(cross, compute_uv=False).sum(axis=-1)
    return np.asarray(2.0 - 2.0 * nuclear / np.sqrt(product))


MEASURES: Mapping[str, Callable[[Moments, Moments, Moments], np.ndarray]] = {
    "cka": cka, "procrustes": procrustes}


@dataclass(frozen=True, repr=False)
class AlignmentResult(TableResult):
    """How far the codes of several models agree.

    layers    one row per two runs (or one with itself), pair, features, layer of each and measure
              (`cka`, `procrustes`): `value` with its 95 % interval, and `null`, what instances
              of other combinations give on average
    heads     one row per two runs, pair, features, layer and head of A: the matched head of B, the
              sign, and their correlation on the instances that the matching was fitted on
              (`fitted`) and on held-out combinations (`heldout`); `by_chance` is the held-out
              correlation, in size, with the other heads on average, NaN of a single head
    transfer  one row per two runs, pair, layer, label, features and alignment: the `metric` of
              A's probe on B's held-out codes
    contrasts  one row per two runs, pair, layer, label and features: the transferred score with
              `matched` heads less that with `random` ones, and likewise where they are scaled
    settings  everything else that determines the numbers

    Features: `code`, `residual`, and `untrained`, the initial weights of both models.
    """

    FORMAT = "latentcode.alignment"
    SHOWS = ("CKA, correlation of matched heads, and A's probe on B's held-out codes, means over "
             "pairs of runs")
    COLUMNS: ClassVar = {
        "layers": ("run_a", "run_b", "kind_a", "kind_b", "pair", "features", "layer_a", "layer_b",
                   "measure", "value", "low", "high", "null"),
        "heads": ("run_a", "run_b", "kind_a", "kind_b", "pair", "features", "layer", "head_a",
                  "head_b", "sign", "fitted", "heldout", "by_chance"),
        "transfer": ("run_a", "run_b", "kind_a", "kind_b", "pair", "label", "features", "layer",
                     "alignment", "metric", "value", "low", "high", "chance", "n_heldout",
                     "n_heldout_combinations"),
        "contrasts": contrast_columns("run_a", "run_b", "kind_a", "kind_b", "pair", "label",
                                      "layer", "features", "alignment")}
    TOLD: ClassVar = {"features": ("code",), "alignment": ("matched",)}

    layers: pd.DataFrame
    heads: pd.DataFrame
    transfer: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = self.controls_caveat() + shared_caveat(self.settings)
        for run, (trained, total) in self.settings["heldout_trained_on"].items():
            if trained:
                notes.append(f"Run {run} was trained on {trained} of the {total} combinations that "
                             "are held out here; its split has another seed.")
        alike, every = self._alike(), {*self._couples()}
        if alike == every:
            notes.append("All runs began with the same seed, and so with equal weights wherever "
                         "their kinds have the same: how far they agree may be no more than that, "
                         "and the untrained models are no control.")
        elif alike:
            notes.append("Left out of the summary and the figures, because they began with the "
                         "same seed, and so with equal weights wherever their kinds have the same: "
                         f"{', '.join(f'{a} and {b}' for a, b in sorted(alike))}.")
        return tuple(notes)

    def _couples(self) -> list[tuple[str, str]]:
        return distinct(self.heads, "run_a", "run_b")

    def _alike(self) -> set[tuple[str, str]]:
        """Return the pairs of runs whose initial weights were drawn with one seed."""
        seeds = self.settings.get("initial_seeds", {})
        return {(a, b) for a, b in self._couples()
                if a in seeds and b in seeds and seeds[a] == seeds[b]}

    def _independent(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of two runs of different seeds; of all two runs where none differ."""
        alike = self._alike()
        if alike == {*self._couples()}:
            alike = set()
        couples = zip(table["run_a"], table["run_b"], strict=True)
        return table[[a != b and (a, b) not in alike and (b, a) not in alike for a, b in couples]]

    def summary(self) -> pd.DataFrame:
        """Return one row per two kinds, pair, layer and features, means over pairs of runs whose
        initial weights were drawn with different seeds."""
        place = ["kind_a", "kind_b", "pair", "layer", "features"]
        same = self.layers[self.layers["layer_a"] == self.layers["layer_b"]]
        same, heads = (_both_ways(self._independent(table)) for table in (same, self.heads))
        measured = same.rename(columns={"layer_a": "layer"}).pivot_table(
            index=place, columns="measure", values="value", dropna=False, observed=True)
        matched = heads.groupby(place, sort=False)[["heldout", "by_chance"]].mean()
        matched.columns = pd.Index(["matched heads", "other heads"])
        label = self.settings["labels"][0]
        read = self._independent(self.transfer[self.transfer["label"] == label]).pivot_table(
            index=place, columns="alignment", values="value", dropna=False)
        read = read[[a for a in ALIGNMENTS if a in read.columns]]
        read.columns = pd.Index([f"{label}: {a}" for a in read.columns])
        joined = measured.join(matched, how="inner").join(read, how="inner")
        return joined.round(2).reset_index()

    def figure(self, *, pair: str | None = None, measure: str = "cka") -> Figure:
        """Return a measure of all layers against all: features down, two kinds across.

        The mean over pairs of runs is drawn and written.
        """
        pair = self.first_pair(pair)
        table = self._independent(where(self.layers, pair=pair, measure=measure))
        check(len(table) > 0, "there are no rows to draw", ProbeError)
        kinds = distinct(table, "kind_a", "kind_b")
        feature_sets = features_in(table)
        n_layers = table["layer_a"].nunique()
        side = max(1.7, 0.36 * n_layers)
        with panels(len(feature_sets), len(kinds), max(side * len(kinds) + 1.6, 4.8),
                    side * len(feature_sets) + 0.9,
                    f"{measure}, {pair}, mean over pairs of runs") as (figure, grid):
            norm = Normalize(0.0, HIGHEST[measure])
            titles = []
            for axes, (features, (a, b)) in zip(
                    grid.flat, product(feature_sets, kinds), strict=True):
                block = where(table, features=features, kind_a=a, kind_b=b)
                matrix = block.pivot_table(index="layer_a", columns="layer_b", values="value",
                                           dropna=False)
                drawn = heat_map(axes, matrix, norm, numbers=True)
                axes.set_box_aspect(1.0)
                n = len(block[["run_a", "run_b"]].drop_duplicates())
                titles.append(f"{a} (down), {b}\n{n} {'pair' if n == 1 else 'pairs'} of runs")
            name_panels(grid, titles[:len(kinds)],
                        [f"{FEATURE_STYLES[features][2]}\nlayer" for features in feature_sets],
                        [f"layer of {b}" for _, b in kinds])
            figure.colorbar(drawn, ax=grid, label=measure, shrink=0.6)
        return figure

    def transfer_figure(self, *, pair: str | None = None, label: str | None = None) -> Figure:
        """Return the score of transferred probes per layer: features down, two kinds across.

        A line per alignment is the mean over pairs of runs, its band their range.
        """
        pair = self.first_pair(pair)
        label = self.settings["labels"][0] if label is None else label
        table = self._independent(where(self.transfer, pair=pair, label=label))
        check(len(table) > 0, "there are no rows to draw", ProbeError)
        kinds = distinct(table, "kind_a", "kind_b")
        feature_sets, layers = features_in(table), layers_in(table)
        looks = category_styles(list(ALIGNMENTS))
        with panels(len(feature_sets), len(kinds), max(2.2 * len(kinds) + 2.0, 6.4),
                    1.9 * len(feature_sets) + 0.5,
                    f"probe for {label} of one run on the codes of another, {pair}", sharex=True,
                    sharey=True) as (figure, grid):
            for axes, (features, (a, b)) in zip(
                    grid.flat, product(feature_sets, kinds), strict=True):
                block = where(table, features=features, kind_a=a, kind_b=b)
                for name, (color, marker) in looks.items():
                    values = block[block["alignment"] == name].groupby("layer")["value"]
                    axes.fill_between(range(len(layers)), values.min(), values.max(), color=color,
                                      alpha=0.12, linewidth=0)
                    axes.plot(range(len(layers)), values.mean(), color=color, marker=marker,
                              markersize=4, linestyle=":" if "random" in str(name) else "-",
                              label=str(name))
                axes.axhline(block["chance"].mean(), color=GREY, linestyle="--", linewidth=1.0,
                             label="best constant answer")
                axes.set_xticks(range(len(layers)), [str(layer) for layer in layers])
                axes.set_ylim(-0.02, 1.02)
            metric = table["metric"].iloc[0]
            name_panels(grid, [f"probe of {a},\ncodes of {b}" for a, b in kinds],
                        [f"{FEATURE_STYLES[features][2]}\n{metric}" for features in feature_sets],
                        "layer")
            handles, names = grid[0, 0].get_legend_handles_labels()
            figure.legend(handles, names, loc="outside right upper")
        return figure

    def figures(self) -> dict[str, Figure]:
        """Return all pictures of the first pair, by file name."""
        return super().figures() | {"procrustes.png": self.figure(measure="procrustes"),
                                    "transfer.png": self.transfer_figure()}


def _both_ways(table: pd.DataFrame) -> pd.DataFrame:
    """Return a symmetric table of A and B with B and A beside it."""
    swap = {"kind_a": "kind_b", "kind_b": "kind_a", "run_a": "run_b", "run_b": "run_a"}
    return pd.concat([table, table.rename(columns=swap)], ignore_index=True)
