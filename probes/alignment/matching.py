"""What is done to the codes of one model before a probe of another reads them.

Are two models' codes the same up to a permutation of heads or a rotation?

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

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check
from latentcode.probes.alignment.result import ALIGNMENTS
from latentcode.probes.common.bootstrap import GROUP, SINGLE, chance, count_by_cluster, resample
from latentcode.probes.common.contrasts import Resampled
from latentcode.probes.common.features import ROUNDING, varies
from latentcode.probes.common.labels import Target, combination_clusters, make_target
from latentcode.probes.common.logistic import LogisticProbe, fit_probe
from latentcode.probes.common.rotation import fit_rotation

N_RANDOM = 5
"""Random matchings whose mean is the control of the matched one."""
Points = tuple[np.ndarray, np.ndarray]
"""(training, held-out) points of a model, [N, d]."""


@dataclass(frozen=True)
class HeadMatch:
    """Which head of B plays the part of each head of A.

    order        int [H]: head `order[h]` of B is matched with head h of A
    sign         float [H]: 1, or -1 where it is matched with its sign flipped
    correlation  float [H]: Pearson's correlation of the matched heads, signs applied
    """

    order: np.ndarray
    sign: np.ndarray
    correlation: np.ndarray

    def apply(self, y: np.ndarray) -> np.ndarray:
        """Return the codes y [N, H] of B with the heads and signs of A."""
        return np.asarray(y[:, self.order] * self.sign)


def head_correlations(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return corr(x_i, y_j) over instances, [H, H'] of x [N, H] and y [N, H'].

    0 where a head is constant.
    """
    _check_same_number(x, y)
    units = []
    for z in (x, y):
        centred = z - z.mean(axis=0)
        norm = np.linalg.norm(centred, axis=0)
        flat = norm <= ROUNDING * np.linalg.norm(z, axis=0)
        units.append(centred / np.where(flat, np.inf, norm))
    return np.asarray(units[0].T @ units[1])


def match_heads(x: np.ndarray, y: np.ndarray, *, signed: bool | None = None) -> HeadMatch:
    """argmax over permutations π of sum_h corr(x_h, y_π(h)): the Hungarian algorithm.

    x, y    codes [N, H] of the same N instances under two models
    signed  maximise |corr| and flip signs; default: where either code has negative entries

    `ProbeError` for different numbers of instances or heads.
    """
    check(x.shape[1] == y.shape[1], f"the codes have {x.shape[1]} and {y.shape[1]} heads; "
          "expected the same number, to be matched one to one", ProbeError)
    if signed is None:
        signed = bool(x.min() < 0 or y.min() < 0)
    correlation = head_correlations(x, y)
    score = np.abs(correlation) if signed else correlation
    rows, order = linear_sum_assignment(score, maximize=True)
    matched = correlation[rows, order]
    sign = np.where(signed & (matched < 0), -1.0, 1.0)
    return HeadMatch(order, sign, matched * sign)


def random_match(n_heads: int, signed: bool, rng: np.random.Generator) -> HeadMatch:
    """Return a match by chance, the control of `match_heads`; its correlations are NaN."""
    sign = rng.choice([-1.0, 1.0], n_heads) if signed else np.ones(n_heads)
    return HeadMatch(rng.permutation(n_heads), sign, np.full(n_heads, np.nan))


@dataclass(frozen=True)
class Moments:
    """Sums over instances that CKA and Procrustes are functions of; they add up over groups.

    n         number of instances [...]
    x, y      sum of x [..., d] and y [..., d']
    xy        sum of x y^T [..., d, d'];  xx, yy: likewise
    x_sq, y_sq  sum of |x|^2 and |y|^2 [...]; x_y_sq: sum of x |y|^2, y_x_sq: sum of y |x|^2
    sq        sum of |x|^2 |y|^2; x_quartic, y_quartic: sum of |x|^4 and |y|^4
    x_x_sq, y_y_sq  sum of x |x|^2 and y |y|^2
    """

    n: np.ndarray
    x: np.ndarray
    y: np.ndarray
    xy: np.ndarray
    xx: np.ndarray
    yy: np.ndarray
    x_sq: np.ndarray
    y_sq: np.ndarray
    x_y_sq: np.ndarray
    y_x_sq: np.ndarray
    x_x_sq: np.ndarray
    y_y_sq: np.ndarray
    sq: np.ndarray
    x_quartic: np.ndarray
    y_quartic: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> Moments:
        """Sum points x [N, d] and y [N, d'] of the same instances in groups int [N]."""
        _check_same_number(x, y)
        # Measures do not depend on the origin, and sums about the mean lose no digits.
        x, y = ((z - z.mean(axis=0)) * varies(z) for z in (x, y))
        x_sq, y_sq = np.square(x).sum(axis=1), np.square(y).sum(axis=1)
        parts = []
        for group in range(int(groups.max()) + 1):
            a, b, p, q = (z[groups == group] for z in (x, y, x_sq, y_sq))
            parts.append((
                len(a), a.sum(axis=0), b.sum(axis=0), a.T @ b, a.T @ a, b.T @ b, p.sum(), q.sum(),
                q @ a, p @ b, p @ a, q @ b, p @ q, p @ p, q @ q))
        return cls(*(np.array(part, dtype=np.float64) for part in zip(*parts, strict=True)))

    def whole(self) -> Moments:
        """Return the sums over all groups."""
        return Moments(*(value.sum(axis=0) for value in vars(self).values()))

    def without_each(self) -> Moments:
        """Return the sums over all groups but one, for each one."""
        return Moments(*(value.sum(axis=0) - value for value in vars(self).values()))


def cka(m: Moments) -> np.ndarray:
    """HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)), K = X X^T, L = Y Y^T: linear CKA, debiased.

    CKA of Kornblith et al. (2019) with the unbiased HSIC of Song et al. (2012), without which
    few instances of many dimensions look alike whatever they are (Murphy et al. 2024). About 0
    for unrelated points, where it may be a little negative; 1 for points that are equal up to a
    rotation, a shift and a scale. NaN where points do not vary.
    """
    between = _hsic(m.n, m.xy, m.x, m.y, m.x_sq, m.y_sq, m.x_y_sq, m.y_x_sq, m.sq)
    of_x = _hsic(m.n, m.xx, m.x, m.x, m.x_sq, m.x_sq, m.x_x_sq, m.x_x_sq, m.x_quartic)
    of_y = _hsic(m.n, m.yy, m.y, m.y, m.y_sq, m.y_sq, m.y_y_sq, m.y_y_sq, m.y_quartic)
    product = np.where((of_x > 0) & (of_y > 0), of_x * of_y, np.nan)
    return np.asarray(between / np.sqrt(product))


def procrustes(m: Moments) -> np.ndarray:
    """min over rotations R of |X - Y R|^2 = 2 - 2 |X^T Y|_*, X and Y centred, of norm 1.

    The squared orthogonal Procrustes distance (Schönemann 1966; Ding et al. 2021): 0 for points
    that are equal up to a rotation or reflection, a shift and a scale, 2 at most. NaN where
    points do not vary.
    """
    n = m.n[..., None]
    cross = m.xy - m.x[..., :, None] * (m.y / n)[..., None, :]
    x_power = m.x_sq - np.square(m.x).sum(axis=-1) / m.n
    y_power = m.y_sq - np.square(m.y).sum(axis=-1) / m.n
    product = np.where((x_power > 0) & (y_power > 0), x_power * y_power, np.nan)
    nuclear = np.linalg.svd(cross, compute_uv=False).sum(axis=-1)
    return np.asarray(2.0 - 2.0 * nuclear / np.sqrt(product))


def _hsic(n: np.ndarray, xy: np.ndarray, x: np.ndarray, y: np.ndarray, x_sq: np.ndarray,
          y_sq: np.ndarray, x_y_sq: np.ndarray, y_x_sq: np.ndarray, sq: np.ndarray) -> np.ndarray:
    """tr(K L) + 1'K1 1'L1 / ((n-1)(n-2)) - 2 1'KL1 / (n-2), K and L without their diagonals.

    Up to the factor 1 / (n (n-3)), which cancels in CKA (Song et al. 2012, Eq. 5).
    """
    trace = np.square(xy).sum(axis=(-2, -1)) - sq
    of_x, of_y = (np.square(v).sum(axis=-1) - s for v, s in ((x, x_sq), (y, y_sq)))
    # (K 1)_i = x_i . sum x - |x_i|^2, so 1'KL1 is a sum of products of two such differences.
    both = (np.einsum("...d,...de,...e->...", x, xy, y) - (x * x_y_sq).sum(axis=-1)
            - (y * y_x_sq).sum(axis=-1) + sq)
    return np.asarray(trace + of_x * of_y / ((n - 1) * (n - 2)) - 2 * both / (n - 2))


def _check_same_number(x: np.ndarray, y: np.ndarray) -> None:
    check(x.ndim == y.ndim == 2 and len(x) == len(y) >= 4, f"points have shapes {x.shape} and "
          f"{y.shape}; expected [instances, dimensions] of the same 4 instances or more",
          ProbeError)


@dataclass(frozen=True)
class Transfer:
    """Probes of one label and pair, and how they are scored on other models' points.

    target   the label, of training and held-out instances
    clusters  (training, held-out) combination of each instance
    weights  how often each held-out combination is drawn in each bootstrap replicate
    """

    target: Target
    clusters: tuple[np.ndarray, np.ndarray]
    weights: np.ndarray
    seed: int

    @classmethod
    def of(
        cls, codes: tuple[LatentCodes, LatentCodes], label: str, pair: str, n_bootstrap: int,
        seed: int,
    ) -> Transfer:
        """Take the label and combinations from the (training, held-out) codes of any model."""
        clusters = combination_clusters(codes[0]), combination_clusters(codes[1])
        weights = resample(int(clusters[1].max()) + 1, n_bootstrap, np.random.default_rng(seed))
        return cls(make_target(*codes, label, pair), clusters, weights, seed)

    def fit(self, x: np.ndarray) -> LogisticProbe:
        """Return the probe of training points x [N, d]."""
        return fit_probe(x, self.target.train, self.clusters[0],
                         multilabel=self.target.multilabel, seed=self.seed)

    def scores(
        self, probe: LogisticProbe, x: Points, y: Points
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return a row per alignment: the score of A's probe on what is made of B's points; and
        the contrasts of the matchings with random ones.

        x, y  (training, held-out) points of A and B, of the same instances
        """
        name, metric = next(iter((GROUP if self.target.multilabel else SINGLE).items()))
        n_clusters = self.weights.shape[1]
        rows, found = [], {}
        for alignment, variants in self._variants(x, y).items():
            counts = [count_by_cluster(self.target.heldout, probe.predict(points),
                                       self.clusters[1]) for points in variants]
            replicates = np.mean([metric(c.weighted(self.weights)) for c in counts], axis=0)
            score = found[alignment] = Resampled(
                float(np.mean([metric(c.total()) for c in counts])), replicates, len(x[1]),
                n_clusters)
            row = score.row()
            rows.append({
                "alignment": alignment, "metric": name, "value": row["value"], "low": row["low"],
                "high": row["high"], "chance": chance(self.target.heldout, name),
                "n_heldout": len(x[1]), "n_heldout_combinations": n_clusters})
        return rows, [
            {"alignment": matched, "quantity": name, "against": random,
             **(found[matched] - found[random]).row()}
            for matched, random in (("matched", "random"), ("matched, scaled", "random, scaled"))]

    def _variants(self, x: Points, y: Points) -> dict[str, list[np.ndarray]]:
        match = match_heads(x[0], y[0])
        rng = np.random.default_rng(self.seed)
        signed = bool(x[0].min() < 0 or y[0].min() < 0)
        by_chance = [random_match(x[0].shape[1], signed, rng) for _ in range(N_RANDOM)]

        def scaled(train: np.ndarray, heldout: np.ndarray) -> np.ndarray:
            spread = train.std(axis=0)
            moving = spread > ROUNDING * np.abs(train).max(axis=0)
            unit = (heldout - train.mean(axis=0)) / np.where(moving, spread, np.inf)
            return np.asarray(unit * x[0].std(axis=0) + x[0].mean(axis=0))

        variants = {
            "own": [x[1]], "raw": [y[1]], "matched": [match.apply(y[1])],
            "random": [m.apply(y[1]) for m in by_chance],
            "matched, scaled": [scaled(match.apply(y[0]), match.apply(y[1]))],
            "random, scaled": [scaled(m.apply(y[0]), m.apply(y[1])) for m in by_chance],
            "rotated": [fit_rotation(x[0], y[0]).apply(y[1])]}
        return {name: variants[name] for name in ALIGNMENTS}
