"""Codes with a structure that is planted, so that what a probe must find is known; small runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import latentcode as lc
from latentcode.codes import LatentCodes
from latentcode.tasks.pairs import Pair

N_TERMS = 6
HEADS = 12
D_MODEL = 16
HELD_OUT = [(0, 3), (1, 4), (2, 5), (0, 5), (1, 2), (3, 4)]
TRAINED = [c for c in combinations(range(N_TERMS), 2) if c not in HELD_OUT]


def make_codes(
    split: str = "train",
    *,
    seed: int = 0,
    strength: float = 1.0,
    instances: int = 20,
    residuals: bool = True,
) -> LatentCodes:
    """Return codes of functions of two terms, 9 of them trained, 6 held out.

    Layer 1 of `query->query` holds a vector of term 1 plus a vector of term 2; layer 0 and the
    other pair only noise. The residual stream holds the terms in both layers.
    """
    rng = np.random.default_rng([seed, split == "train"])
    meaning = np.random.default_rng(42)
    basis = np.linalg.qr(meaning.normal(size=(HEADS, HEADS)))[0].reshape(2, N_TERMS, HEADS)
    wide = np.linalg.qr(meaning.normal(size=(D_MODEL, D_MODEL)))[0][:2 * N_TERMS]
    wide = wide.reshape(2, N_TERMS, D_MODEL)
    terms = np.repeat(np.array(TRAINED if split == "train" else HELD_OUT), instances, axis=0)
    n = len(terms)
    scores = 0.1 * rng.normal(size=(n, 2, 2, HEADS))
    scores[:, 1, 0] += strength * (basis[0, terms[:, 0]] + basis[1, terms[:, 1]])
    stream = 0.1 * rng.normal(size=(n, 2, 1, D_MODEL))
    stream += strength * (wide[0, terms[:, 0]] + wide[1, terms[:, 1]])[:, None, None]
    names = np.array([f"t{t}" for t in range(N_TERMS)], dtype=object)
    labels = pd.DataFrame({
        "term_1": names[terms[:, 0]], "term_2": names[terms[:, 1]],
        "combination": [f"{a}+{b}" for a, b in terms],
        "target": rng.uniform(size=n), "split": split})
    return LatentCodes(
        scores.astype(np.float32), labels,
        (Pair("query->query", "the query attending to itself", 1),
         Pair("query->example", "the query attending to the first example", 2)),
        (0, 1), {"run": "planted", "split": split, "seed": seed},
        stream.astype(np.float32) if residuals else None, (0, 0) if residuals else ())


@pytest.fixture(scope="session")
def planted() -> Callable[..., LatentCodes]:
    """`make_codes`, which test modules cannot import."""
    return make_codes


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[lc.Run]:
    """Return two kinds of one seed, and one of another."""
    folder = tmp_path_factory.mktemp("runs")
    found = []
    for kind, seed in (("softmax", 0), ("hyla", 0), ("softmax", 1)):
        config = lc.preset("smoke", "sraven", kind)
        training = replace(config.training, seed=seed, steps=4, warmup_steps=1, eval_every=2)
        found.append(lc.train(replace(config, training=training), folder / f"{kind}{seed}",
                              progress=False))
    return found
