"""Does a probe that was fitted on one model's codes read another's? What is done to them first:

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

from latentcode.codes import LatentCodes
from latentcode.probes.alignment.matching import match_heads, random_match
from latentcode.probes.alignment.result import ALIGNMENTS
from latentcode.probes.common.bootstrap import count_by_cluster, resample
from latentcode.probes.common.contrasts import Resampled
from latentcode.probes.common.features import ROUNDING
from latentcode.probes.common.labels import Target, combination_clusters, make_target
from latentcode.probes.common.rotation import fit_rotation
from latentcode.probes.decoding.fitting import GROUP, SINGLE, chance
from latentcode.probes.decoding.logistic import LogisticProbe, fit_probe

N_RANDOM = 5
"""Random matchings whose mean is the control of the matched one."""

Points = tuple[np.ndarray, np.ndarray]
"""(training, held-out) points of a model, [N, d]."""


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
