"""Numbers of all heads: metrics with intervals, and what ablating one does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.language.page import KNOWN_BY
from latentcode.app.language.reading import Read
from latentcode.app.language.work import Job
from latentcode.probes.heads.metrics import DIRECT, METRICS, OBSERVED, Scores
from latentcode.progress import Progress

ABOUT: Mapping[str, str] = {**METRICS, DIRECT: "what the head adds to the logit of the next token",
                            "largest": "mean over texts of the largest attention in it"}
"""What can be an axis, and what it is."""
N_BOOTSTRAP, SEED = 500, 0
N_ABLATED = 16
"""Texts that a head is ablated in."""
CHANGES: Mapping[str, str] = {
    "loss": "increase of the next token's loss, in nats", "kl": "KL divergence, in nats",
    "changed": "share of tokens whose likeliest next token changes"}

BEYOND: Mapping[int, str] = {1: "more", 0: "no", -1: "less"}
"""Whether a head does more than its control, surely."""


def words(metric: str) -> str:
    """Return a metric as people read it."""
    return metric.replace("_", " ")


@st.cache_resource(max_entries=4, show_spinner="Looking at the heads …", hash_funcs=KNOWN_BY)
def table(job: Job, read: Read) -> pd.DataFrame:
    """Return a row per layer and head: each metric, with its 95 % interval over texts in columns
    `metric_low` and `metric_high`."""
    layers, n_heads = read.layers, read.n_heads
    found = pd.DataFrame({"layer": np.repeat(layers, n_heads),
                          "head": np.tile(np.arange(n_heads), len(layers))})
    scores = {name: read.sums.scores(i, N_BOOTSTRAP, SEED) for i, name in enumerate(OBSERVED)}
    maxima = read.maxima.astype(np.float64)
    groups = np.arange(len(maxima)) % 256
    sums = np.zeros((int(groups.max()) + 1, *maxima.shape[1:]))
    np.add.at(sums, groups, maxima)
    sizes = np.bincount(groups).astype(float)[:, None, None]
    scores["largest"] = Scores.of(sums, sizes, len(maxima), N_BOOTSTRAP, SEED)
    for name, score in scores.items():
        low, high = score.interval
        found[name] = score.value.ravel()
        found[f"{name}_low"], found[f"{name}_high"] = low.ravel(), high.ravel()
    return found


def texts_of_head(read: Read, layer: int, head: int, top: int = 5) -> list[tuple[str, int]]:
    """Return texts of a head, each with what it is: those with the largest attention, then one of
    every tenth of the texts, from the highest."""
    of = read.maxima[:, read.layers.index(layer), head]
    order = np.argsort(-of, kind="stable")
    found = [(f"largest {i + 1}", int(text)) for i, text in enumerate(order[:top])]
    tenths = np.array_split(order[top:], 10)
    rng = np.random.default_rng([SEED, layer, head])
    found += [(f"tenth {i + 1}", int(rng.choice(tenth))) for i, tenth in enumerate(tenths)
              if len(tenth)]
    return found


def ablated(
    job: Job, read: Read, layer: int, head: int, progress: Progress
) -> pd.DataFrame:
    """Return a row per quantity of `CHANGES`: what mean ablation of a head does in the first texts,
    after all their tokens, with its interval over texts; and its control, random output matrices of
    the head, with the interval in which one of them lies (`latentcode.probes.heads.ablate`).

    `above`: 1 where the head does more than such a one would, -1 where less, else 0; `n` tokens.
    """
    from latentcode.app.language.given import given
    from latentcode.app.language.reading import texts_for
    from latentcode.probes.heads.ablate import Ablation
    from latentcode.prompts.texts import source_of

    asked = given()
    assert asked is not None
    model = job.wait_for_model()
    texts = texts_for(model, source_of(asked.texts), n=N_ABLATED, longest=asked.longest)
    batches = list(texts.batches())
    with job.turns.now():
        ablation = Ablation(model, batches, kinds=("mean",), n_read=None, seed=SEED,
                            heads=[(layer, head)])
    for done, part in enumerate(ablation.parts, 1):
        with job.turns.now():
            ablation.add(part)
        progress(done, len(ablation.parts))
    effects = ablation.table(N_BOOTSTRAP).set_index("quantity").loc[list(CHANGES)]
    effects["above"] = (effects["difference_low"] > 0).astype(int) - (
        effects["difference_high"] < 0).astype(int)
    return effects.reset_index()
