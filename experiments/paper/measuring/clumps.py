"""How far do the points of a plane tell their class? A measure, and others it was chosen among.

    reach = (a - a0) / (1 - a0)

a is the balanced accuracy of a vote among a point's 15 nearest neighbours, a0 that of shuffled
labels: 0 where places tell nothing of the class, 1 where they tell it wholly. `chosen_on` says on
which planes it was chosen (`python -m latentcode.experiments.paper.measuring.clumps`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from latentcode.files.storage import write_text
from latentcode.probes.common.features import shuffle_classes
from latentcode.probes.knn_purity.neighbours import MOST_NEIGHBORS, SHUFFLES, nearest

CLASSES, CLUMPS = (4, 8, 46), (1, 4)
"""Of synthetic planes: 8 is the number of rules, 46 that of held-out functions."""
APART = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0)
"""Distances of neighbouring centres, in standard deviations of a clump."""
N, SEEDS, PAIRS = 2_000, 3, 100_000
LEVELS = (0.25, 0.5, 0.75)


def votes(
    points: np.ndarray, kind: np.ndarray, groups: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return per point what it adds to the balanced accuracy of its neighbours' vote.

    points  [N, 2]
    kind    int [N], the class of each point
    groups  int [N]: labels are shuffled among the cells of equal group and class

    A class that shares the first place with others counts in part. Both are float64 [N], whose
    means are the balanced accuracy and that of labels that are shuffled (`SHUFFLES` times).
    """
    neighbours = nearest(points, min(MOST_NEIGHBORS, (len(points) - 1) // 2))
    dealt = shuffle_classes(kind, groups, rng, SHUFFLES)
    return (_voted(neighbours, kind),
            np.mean([_voted(neighbours, of_class) for of_class in dealt], axis=0))


def _voted(neighbours: np.ndarray, kind: np.ndarray) -> np.ndarray:
    sizes = np.bincount(kind)
    counts = np.zeros((len(kind), len(sizes)), dtype=np.int64)
    np.add.at(counts, (np.arange(len(kind))[:, None], kind[neighbours]), 1)
    first = counts == counts.max(axis=1, keepdims=True)
    right = first[np.arange(len(kind)), kind] / first.sum(axis=1)
    # Every class weighs the same, however common it is.
    return np.asarray(right * len(kind) / (np.count_nonzero(sizes) * sizes[kind]))


def reach(own: np.ndarray, shuffled: np.ndarray) -> np.ndarray:
    """Return (a - a0) / (1 - a0) as a mean over points, float64 [N], of what `votes` returns."""
    return np.asarray((own - shuffled) / (1.0 - shuffled.mean()))


def synthetic(
    n_classes: int, n_clumps: int, apart: float, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return points [n, 2] in round clumps on a square lattice, their classes, and what is known.

    n_clumps  of each class, at places drawn at random
    apart     distance of neighbouring centres, in standard deviations of a clump

    The last is the reach of the best possible reader of places: the balanced accuracy of the class
    that is likeliest at a point, in place of the neighbours' vote.
    """
    total = n_classes * n_clumps
    side = int(np.ceil(np.sqrt(total)))
    places = np.array(list(product(range(side), repeat=2)))[:total] * apart
    of_place = rng.permutation(np.repeat(np.arange(n_classes), n_clumps))
    clump = rng.permutation(np.arange(n) % total)
    points = places[clump] + rng.normal(size=(n, 2))
    density = np.exp(-0.5 * np.square(points[:, None] - places).sum(axis=2))
    likely = (density @ np.eye(n_classes)[of_place]).argmax(axis=1)
    kind = of_place[clump]
    accuracy = np.mean([(likely[kind == c] == c).mean() for c in range(n_classes)])
    return points, kind, float((accuracy - 1 / n_classes) / (1 - 1 / n_classes))


def measures(
    points: np.ndarray, kind: np.ndarray, groups: np.ndarray, rng: np.random.Generator
) -> dict[str, float]:
    """Return every measure that was looked at, of one plane.

    share   of the 15 neighbours of one's class, less that of shuffled labels (the first measure)
    share relative  the same over what is left up to 1
    reach   as above
    nearer  chance that a point of one's class is nearer than one of another, 0 to 1 above a half
    """
    from latentcode.probes.knn_purity.neighbours import agreeing_neighbors

    agree, shuffled = agreeing_neighbors(points, kind, groups, "euclidean", rng)
    share, chance = float(agree.mean()), float(shuffled.mean())
    i, j = rng.integers(len(kind), size=(2, PAIRS))
    different = i != j
    i, j = i[different], j[different]
    distance, same = np.linalg.norm(points[i] - points[j], axis=1), kind[i] == kind[j]
    ranks, n_same = rankdata(distance), int(same.sum())
    farther = (ranks[same].sum() - n_same * (n_same + 1) / 2) / (n_same * (~same).sum())
    return {"share": share - chance, "share relative": (share - chance) / (1 - chance),
            "reach": float(reach(*votes(points, kind, groups, rng)).mean()),
            "nearer": float(1.0 - 2.0 * farther)}


def of_synthetic(n: int = N) -> pd.DataFrame:
    """Return the measures of synthetic planes, a row per number of classes, clumps and distance."""
    rows = []
    for n_classes, n_clumps, apart in product(CLASSES, CLUMPS, APART):
        found = []
        for seed in range(SEEDS):
            rng = np.random.default_rng([seed, n_classes, n_clumps])
            points, kind, known = synthetic(n_classes, n_clumps, apart, n, rng)
            found.append({"known": known, **measures(points, kind, np.arange(n), rng)})
        rows.append({"classes": n_classes, "clumps of each": n_clumps, "apart": apart,
                     **pd.DataFrame(found).mean().to_dict()})
    return pd.DataFrame(rows)


def at_levels(table: pd.DataFrame) -> pd.DataFrame:
    """Return what each measure says where the best reader reaches a level: the least and the most
    over numbers of classes and clumps. A good measure says the level, whatever these are."""
    rows = []
    for measure, level in product(("share", "share relative", "reach", "nearer"), LEVELS):
        said = [float(np.interp(level, block["known"], block[measure]))
                for _, block in table.groupby(["classes", "clumps of each"])]
        rows.append({"measure": measure, "best reader": level, "least": min(said),
                     "most": max(said)})
    return pd.DataFrame(rows)


def write(out: Path) -> Mapping[str, pd.DataFrame]:
    """Write the tables on which the measure was chosen."""
    table = of_synthetic()
    tables = {"synthetic": table, "at_levels": at_levels(table)}
    for name, one in tables.items():
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / f"{name}.csv", one.to_csv(index=False, float_format="%.4g"))
    return tables


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("experiments/results/clumps"))
    for one in write(parser.parse_args().out).values():
        print(one.round(3).to_string())
