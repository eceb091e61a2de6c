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
    rotated          the best rotation, shift and scale (`rotated`)

All of it is fitted on codes of training combinations and scored on held-out ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import (
    combinations,
    combinations_with_replacement,
    pairwise,
    permutations,
    product,
)
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
from scipy.linalg import orthogonal_procrustes
from scipy.optimize import linear_sum_assignment
from scipy.special import stdtrit

from latentcode.devices import checked_seed
from latentcode.errors import ProbeError, check
from latentcode.figures.style import FEATURE_STYLES, Figure
from latentcode.probes.common.figures import features_in, heat_maps, scores_figure
from latentcode.probes.common.harness import Read, check_same_instances, origin, read, subjects_of
from latentcode.probes.common.labels import (
    Labels,
    asked_labels,
    groups_of,
    make_target,
    names_of,
    shared_caveat,
    shared_combinations,
)
from latentcode.probes.common.logistic import fit_probe
from latentcode.probes.common.results import TableResult, distinct, where
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
    check_bootstrap,
    contrast_columns,
    count_by_cluster,
    resample,
    rows_of_others,
    varies,
)
from latentcode.progress import Progress, reported, watched
from latentcode.subjects.tasks import RunSubject
from latentcode.tasks import make_task
from latentcode.tasks.pairs import Pair

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems

N_GROUPS = 10
"""Groups of combinations that are left out in turn for the intervals of CKA and Procrustes."""
N_RANDOM = 5
"""Random matchings whose mean is the control of the matched one."""
ALIGNMENTS = ("own", "raw", "matched", "random", "matched, scaled", "random, scaled", "rotated")
"""What is done to the codes that a probe of another model reads."""
ANY_SPLIT: Mapping[str, Any] = {"split_seed": 0, "held_out": None, "ood_fraction": 0.5}
"""What may differ between the tasks of runs."""
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
        LatentCodeError: What `subject`, `custom_labels`, `extract` and `decode` raise.
        ProbeError: There is a single model or no problem, models have the same name, codes of
            other instances or another number of heads, or no controls.
        ConfigError: Runs have tasks that differ in more than their split.
    """
    seed = checked_seed(seed)
    check_bootstrap(n_bootstrap)
    subjects = subjects_of(models, problems, least=2, step=step, device=device)
    runs = {subject.name: subject.run.config for subject in subjects
            if isinstance(subject, RunSubject)}
    tasks = {name: replace(config.task, **{name: value for name, value in ANY_SPLIT.items()
                                           if hasattr(config.task, name)})
             for name, config in runs.items()}
    for (name, ours), (other, theirs) in pairwise(tasks.items()):
        check(ours == theirs, f"the tasks of {name} and {other} differ: {ours} and {theirs}; "
              "expected runs of one task, whose splits may differ")
    first = subjects[0].probing
    wanted = asked_labels(labels, first)
    names = names_of(wanted)
    check(len(names) > 0, "labels is empty; expected at least one", ProbeError)
    if isinstance(first, RunSubject):
        subjects = [subject.on(first.task) if isinstance(subject, RunSubject) else subject
                    for subject in subjects]
    subjects = [subject.divided(heldout, seed, names[0]) for subject in subjects]
    parts = (("train", subjects[0].n_of("n_train", n_train, 2_048, "train")),
             ("ood", subjects[0].n_of("n_heldout", n_heldout, 2_048, "ood")))
    reads = [read(subject, parts, ("code",), pairs=pairs, layers=layers, controls=controls,
                  seed=seed, labels=None if i else labels) for i, subject in enumerate(subjects)]
    axes = [{"layers": model.layers, "pairs": list(model.labels),
             "heads": model.readings[0].points[0].shape[1]} for model in reads]
    for model, of_model in zip(reads[1:], axes[1:], strict=True):
        run = model.rows[0].meta.get("run", "?")
        check(of_model == axes[0], f"the codes of {run} have {of_model}, those of the first model "
              f"{axes[0]}; expected the same", ProbeError)
        for rows, others in zip(reads[0].rows, model.rows, strict=True):
            check_same_instances(rows, others, f"codes of {run}")
    train, scored = reads[0].rows
    shared = shared_combinations(train, scored, allow_overlap)
    pair_names, kept = list(reads[0].labels), reads[0].layers
    feature_sets = list(reads[0].places()[0][2])
    groups = groups_of(scored.labels) % N_GROUPS
    couples = list(combinations_with_replacement(reads, 2))
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in AlignmentResult.COLUMNS}
    for pair, features, (a, b) in reported(
            product(pair_names, feature_sets, couples),
            len(pair_names) * len(feature_sets) * len(couples), progress):
        place = _names(a, b) | {"pair": pair, "features": features}
        for layer_a, layer_b in product(kept, kept) if a is not b else combinations(kept, 2):
            x, y = (model.at(pair, layer, features).x(1)
                    for model, layer in ((a, layer_a), (b, layer_b)))
            tables["layers"] += [{**place, "layer_a": layer_a, "layer_b": layer_b, **row}
                                 for row in _measured(x, y, groups, seed)]
        for layer in kept if a is not b else ():
            tables["heads"] += [{**place, "layer": layer, **row} for row in _matched_heads(
                *(_points(model, pair, layer, features) for model in (a, b)))]
    for pair, label in product(pair_names, names):
        scores, contrasts = _transfer(reads, label, subjects[0].pairs[pair], n_bootstrap, seed)
        tables["transfer"] += scores
        tables["contrasts"] += contrasts
    seeds = {subject.name: runs[subject.name].training.seed if subject.name in runs
             else getattr(getattr(subject, "of", None), "seed", None) for subject in subjects}
    task = next((subject.task for subject in subjects if isinstance(subject, RunSubject)), None)
    unseen = set() if task is None else set(map(tuple, task.combinations("ood").tolist()))
    trained_on = {name: unseen.intersection(map(tuple, make_task(config.task).combinations(
        "train").tolist())) for name, config in runs.items()}
    return AlignmentResult.from_rows(tables, {
        "labels": list(names), "layers": kept, "pairs": pair_names,
        "controls": feature_sets[1:], "n_bootstrap": n_bootstrap, "level": LEVEL, "seed": seed,
        "allow_overlap": allow_overlap, "shared_combinations": shared,
        "n_groups": N_GROUPS, "n_random": N_RANDOM, "n_train": len(train),
        "n_heldout": len(scored),
        "initial_seeds": {name: seed for name, seed in seeds.items() if seed is not None},
        "heldout_trained_on": {name: [len(seen), len(unseen)]
                               for name, seen in trained_on.items()},
        "codes": [[origin(rows) for rows in model.rows] for model in reads]})


def _points(model: Read, pair: str, layer: Any, features: str) -> Points:
    """Return the (training, held-out) points of a model."""
    reading = model.at(pair, layer, features)
    return reading.x(0), reading.x(1)


def _names(a: Read, b: Read) -> dict[str, Any]:
    """Return the columns that name two models, A and B."""
    return {f"{name}_{letter}": str(model.rows[0].meta.get(name, "?"))
            for name in ("run", "kind") for letter, model in (("a", a), ("b", b))}


def _measured(
    x: np.ndarray, y: np.ndarray, groups: np.ndarray, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield CKA and Procrustes of points [N, d] and [N, d'] of instances in groups int [N]."""
    rng = np.random.default_rng(seed)
    others = [rows_of_others(groups, rng) for _ in range(N_SHUFFLES)]
    n_groups = int(groups.max()) + 1
    for name, measure in MEASURES.items():
        value, half = measure(x, y), np.nan
        if n_groups > 1:
            left_out = np.array([measure(x[groups != group], y[groups != group])
                                 for group in range(n_groups)])
            # The jackknife's standard error (Efron and Tibshirani 1993, Eq. 11.5).
            half = stdtrit(n_groups - 1, (1.0 + LEVEL) / 2.0) * np.sqrt(
                (n_groups - 1) * left_out.var())
        yield {"measure": name, "value": value, "low": value - half, "high": value + half,
               "null": float(np.mean([measure(x, y[rows]) for rows in others]))}


def _matched_heads(x: Points, y: Points) -> Iterator[dict[str, Any]]:
    """Match heads on the training points of A (x) and B (y), and measure on the held-out ones."""
    fitted, heldout = (head_correlations(a, b) for a, b in zip(x, y, strict=True))
    for h, (other, sign) in enumerate(zip(*match_heads(x[0], y[0]), strict=True)):
        others = np.abs(np.delete(heldout[h], other))
        yield {"head_a": h, "head_b": int(other), "sign": int(sign),
               "fitted": fitted[h, other] * sign, "heldout": heldout[h, other] * sign,
               "by_chance": float(others.mean()) if len(others) else np.nan}


def _transfer(
    models: Sequence[Read], label: str, pair: Pair, n_bootstrap: int, seed: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Fit a probe of each model, layer and features, and score it on the others' held-out points.

    Returns a row per alignment, and the contrasts of the matchings with random ones.
    """
    frames = models[0].labels[pair.name]
    train, heldout = map(groups_of, frames)
    n_clusters = int(heldout.max()) + 1
    weights = resample(n_clusters, n_bootstrap, np.random.default_rng(seed))
    target = make_target(frames[0], frames[1], label, pair)
    name, metric = next(iter((GROUP if target.multilabel else SINGLE).items()))
    rows, contrasts = [], []
    for features, layer in product(models[0].places()[0][2], models[0].layers):
        points = [_points(model, pair.name, layer, features) for model in models]
        probes = [fit_probe(x, target.train, train, multilabel=target.multilabel, seed=seed)
                  for x, _ in points]
        for a, b in permutations(range(len(models)), 2):
            place = _names(models[a], models[b]) | {
                "pair": pair.name, "label": label, "features": features, "layer": layer}
            scores = {}
            for alignment, variants in aligned(points[a], points[b], seed).items():
                counts = [count_by_cluster(target.heldout, probes[a].predict(x), heldout)
                          for x in variants]
                scores[alignment] = Resampled(
                    float(np.mean([metric(count.sum(1)) for count in counts])),
                    np.mean([metric(weights @ count) for count in counts], axis=0),
                    len(heldout), n_clusters)
                rows.append({
                    **place, "alignment": alignment, "metric": name, **scores[alignment].row(),
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
    order, sign = match_heads(x[0], y[0])
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
        "own": [x[1]], "raw": [y[1]], "matched": [y[1][:, order] * sign],
        "random": [y[1][:, order] * sign for order, sign in by_chance],
        "matched, scaled": [scaled(order, sign)],
        "random, scaled": [scaled(order, sign) for order, sign in by_chance],
        "rotated": [rotated(x[0], y[0], y[1])]}


def rotated(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return (points - mean y) R s + mean x, s R = argmin |X - s Y R|, R orthogonal, X, Y centred.

    Orthogonal Procrustes (Schönemann 1966) of x, y [N, d], points of the same instances; `points`
    [M, d] are those of y's model that are brought into the coordinates of x's.
    """
    centred = y - y.mean(axis=0)
    rotation, size = orthogonal_procrustes(centred, x - x.mean(axis=0))
    power = np.square(centred).sum()
    scale = size / power if power > 0 else 0.0
    return np.asarray((points - y.mean(axis=0)) @ rotation * scale + x.mean(axis=0))


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


def match_heads(x: np.ndarray, y: np.ndarray) -> Match:
    """argmax over permutations π of sum_h corr(x_h, y_π(h)): the Hungarian algorithm.

    x, y  codes [N, H] of the same N instances under two models; where either has negative entries,
          |corr| is maximised, and heads with a negative one are flipped
    """
    correlation = head_correlations(x, y)
    signed = bool(x.min() < 0 or y.min() < 0)
    rows, order = linear_sum_assignment(np.abs(correlation) if signed else correlation,
                                        maximize=True)
    return order, np.where(signed & (correlation[rows, order] < 0), -1.0, 1.0)


def random_match(n_heads: int, signed: bool, rng: np.random.Generator) -> Match:
    """Return a match by chance, the control of `match_heads`."""
    sign = rng.choice([-1.0, 1.0], n_heads) if signed else np.ones(n_heads)
    return rng.permutation(n_heads), sign


def cka(x: np.ndarray, y: np.ndarray) -> float:
    """HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)), K = X X^T, L = Y Y^T: linear CKA, debiased.

    CKA of Kornblith et al. (2019) with the unbiased HSIC of Song et al. (2012), without which
    few instances of many dimensions look alike whatever they are (Murphy et al. 2024). About 0
    for unrelated points, where it may be a little negative; 1 for points that are equal up to a
    rotation, a shift and a scale. NaN where points do not vary.

    x, y  [N, d] and [N, d'] of the same N instances, at least 4
    """
    x, y = _centred(x), _centred(y)
    product_of_both = _hsic(x, x) * _hsic(y, y)
    return _hsic(x, y) / float(np.sqrt(product_of_both)) if product_of_both > 0 else np.nan


def _hsic(x: np.ndarray, y: np.ndarray) -> float:
    """tr(K L) + 1'K1 1'L1 / ((n-1)(n-2)) - 2 1'KL1 / (n-2), K and L without their diagonals.

    Up to the factor 1 / (n (n-3)), which cancels in CKA (Song et al. 2012, Eq. 5).
    """
    n = len(x)
    x_sq, y_sq = np.square(x).sum(axis=1), np.square(y).sum(axis=1)
    k_one, l_one = x @ x.sum(axis=0) - x_sq, y @ y.sum(axis=0) - y_sq  # K 1 and L 1
    trace = np.square(x.T @ y).sum() - x_sq @ y_sq
    return float(trace + k_one.sum() * l_one.sum() / ((n - 1) * (n - 2))
                 - 2 * k_one @ l_one / (n - 2))


def procrustes(x: np.ndarray, y: np.ndarray) -> float:
    """min over rotations R of |X - Y R|^2 = 2 - 2 |X^T Y|_*, X and Y centred, of norm 1.

    The squared orthogonal Procrustes distance (Schönemann 1966; Ding et al. 2021): 0 for points
    that are equal up to a rotation or reflection, a shift and a scale, 2 at most. NaN where
    points do not vary. Arguments as those of `cka`.
    """
    x, y = _centred(x), _centred(y)
    size = np.linalg.norm(x) * np.linalg.norm(y)
    return max(2.0 - 2.0 * float(np.linalg.norm(x.T @ y, "nuc") / size), 0.0) if size else np.nan


def _centred(x: np.ndarray) -> np.ndarray:
    """Return points about their mean, in which sums lose no digits; 0 where they do not vary."""
    return np.asarray((x - x.mean(axis=0)) * varies(x))


MEASURES: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
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
    CAPTION = ("CKA, correlation of matched heads, and A's probe on B's held-out codes, means over "
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
    HEADLINE_ROWS: ClassVar = {"features": ("code",), "alignment": ("matched",)}

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
        alike = self._alike()
        if alike == {*distinct(self.heads, "run_a", "run_b")}:
            notes.append("All runs began with the same seed, and so with equal weights wherever "
                         "their kinds have the same: how far they agree may be no more than that, "
                         "and the untrained models are no control.")
        elif alike:
            notes.append("Left out of the summary and the figures, because they began with the "
                         "same seed, and so with equal weights wherever their kinds have the same: "
                         f"{', '.join(f'{a} and {b}' for a, b in sorted(alike))}.")
        return tuple(notes)

    def _alike(self) -> set[tuple[str, str]]:
        """Return the pairs of runs whose initial weights were drawn with one seed."""
        seeds = self.settings.get("initial_seeds", {})
        return {(a, b) for a, b in distinct(self.heads, "run_a", "run_b")
                if a in seeds and b in seeds and seeds[a] == seeds[b]}

    def _independent(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of two runs of different seeds; of all two runs where none differ."""
        alike = self._alike()
        if alike == {*distinct(self.heads, "run_a", "run_b")}:
            alike = set()
        return table[[a != b and not {(a, b), (b, a)} & alike
                      for a, b in zip(table["run_a"], table["run_b"], strict=True)]]

    def summary(self) -> pd.DataFrame:
        """Return one row per two kinds, pair, layer and features, means over pairs of runs whose
        initial weights were drawn with different seeds."""
        place = ["kind_a", "kind_b", "pair", "layer", "features"]
        swap = {"kind_a": "kind_b", "kind_b": "kind_a"}
        same = self.layers.rename(columns={"layer_a": "layer"}).query("layer == layer_b")
        same, heads = (pd.concat([table, table.rename(columns=swap)])  # both are symmetric
                       for table in map(self._independent, (same, self.heads)))
        measured = same.pivot_table(
            index=place, columns="measure", values="value", dropna=False, observed=True)
        matched = heads.groupby(place)[["heldout", "by_chance"]].mean().set_axis(
            ["matched heads", "other heads"], axis=1)
        label = self.settings["labels"][0]
        transferred = self._independent(where(self.transfer, label=label)).pivot_table(
            index=place, columns="alignment", values="value", dropna=False)
        names = [name for name in ALIGNMENTS if name in transferred]
        transferred = transferred[names].set_axis([f"{label}: {name}" for name in names], axis=1)
        joined = measured.join(matched, how="inner").join(transferred, how="inner")
        return joined.round(2).reset_index()

    def figure(self, *, pair: str | None = None, measure: str = "cka") -> Figure:
        """Return a measure of all layers against all: features down, two kinds across.

        The mean over pairs of runs is drawn and written.
        """
        pair = self.first_pair(pair)
        table = self._independent(where(self.layers, pair=pair, measure=measure))
        check(len(table) > 0, "there are no rows to draw", ProbeError)
        kinds = distinct(table, "kind_a", "kind_b")
        matrices = {}
        for features, (a, b) in product(features_in(table), kinds):
            rows = where(table, features=features, kind_a=a, kind_b=b)
            n = len(distinct(rows, "run_a", "run_b"))
            matrices[f"{FEATURE_STYLES[features][2]}\nlayer",
                     f"{a} (down), {b}\n{n} {'pair' if n == 1 else 'pairs'} of runs"] = (
                rows.pivot_table(index="layer_a", columns="layer_b", values="value", dropna=False))
        highest = {"cka": 1.0, "procrustes": 2.0}[measure]
        return heat_maps(matrices, Normalize(0.0, highest), label=measure, numbers=True,
                         cell=0.36, title=f"{measure}, {pair}, mean over pairs of runs",
                         xlabels=[f"layer of {b}" for _, b in kinds])

    def transfer_figure(self, *, pair: str | None = None, label: str | None = None) -> Figure:
        """Return the score of transferred probes per layer, by features and by two kinds.

        The mean over pairs of runs, its bar their range.
        """
        pair = self.first_pair(pair)
        label = self.settings["labels"][0] if label is None else label
        rows = self._independent(where(self.transfer, pair=pair, label=label))
        table = rows.groupby(
            ["features", "kind_a", "kind_b", "alignment", "layer", "metric"], sort=False).agg(
            value=("value", "mean"), low=("value", "min"), high=("value", "max"),
            chance=("chance", "mean")).reset_index()
        words = {features: words for features, (_, _, words) in FEATURE_STYLES.items()}
        figure = scores_figure(
            table.assign(codes="probe of " + table["kind_a"] + ",\ncodes of " + table["kind_b"],
                         pair=table["features"].map(words), features=table["alignment"]),
            ("codes", "metric"), ("chance", "best constant answer"), sharey=True,
            title=f"probe for {label} on the codes of another run, {pair}")
        figure.axes[0].set_ylim(-0.02, 1.02)
        return figure

    def figures(self) -> dict[str, Figure]:
        """Return all pictures of the first pair, by file name."""
        return super().figures() | {"procrustes.png": self.figure(measure="procrustes"),
                                    "transfer.png": self.transfer_figure()}
