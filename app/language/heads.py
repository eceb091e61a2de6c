"""Numbers of all heads: metrics with intervals, and what ablating one does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.language.reading import Read
from latentcode.app.language.work import Job
from latentcode.probes.heads.direct import DIRECT
from latentcode.probes.heads.metrics import METRICS
from latentcode.probes.heads.observing import OBSERVED
from latentcode.probes.heads.scores import Scores
from latentcode.progress import Progress

ABOUT: Mapping[str, str] = {**METRICS, DIRECT: "what the head adds to the logit of the next token",
                            "largest": "mean over texts of the largest attention in it"}
"""What can be an axis, and what it is."""
N_BOOTSTRAP, SEED = 500, 0
N_ABLATED = 16
"""Texts that a head is ablated in."""
CHANGES: Mapping[str, str] = {
    "loss": "the next token is told worse by, in nats", "kl": "KL divergence, in nats",
    "changed": "tokens after which another one is the likeliest"}


def words(metric: str) -> str:
    """Return a metric as people read it."""
    return metric.replace("_", " ")


@st.cache_resource(max_entries=4, show_spinner="Looking at the heads …", hash_funcs={
    Job: lambda job: (job.number, job.version), Read: lambda read: None})
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
) -> dict[str, tuple[float, float, int]]:
    """Return of each of `CHANGES` what mean ablation of a head does, and the same of its control,
    and over how many tokens: the first texts, all next tokens.

    The control adds as much to the stream in a random direction; see
    `latentcode.probes.heads.causal`.
    """
    import torch

    from latentcode.app.language.given import given
    from latentcode.app.language.reading import texts_for
    from latentcode.models.replay import Write, clean_pass, unshared
    from latentcode.probes.heads.causal import (
        QUANTITIES,
        Before,
        directions,
        in_random_direction,
        mean_z,
        random_matrices,
    )
    from latentcode.probes.heads.sources import source_of

    asked = given()
    assert asked is not None
    model = job.wait_for_model()
    texts = texts_for(model, source_of(asked.texts), n=N_ABLATED, longest=asked.longest)
    batches = list(texts.batches())
    total = len(batches) + 1
    with job.turns.now():
        means = mean_z(model, batches, N_ABLATED)
        shared = not unshared(model.model)
    progress(1, total)
    sums, n = np.zeros((2, len(QUANTITIES))), 0
    for done, batch in enumerate(batches, 2):
        with job.turns.now(), torch.no_grad():
            clean = clean_pass(model.model, batch.tokens, batch.read, padding=batch.padding,
                               shared=shared)
            before = Before(clean.logits, batch.targets[batch.read])
            z = clean.z[layer]
            write = Write(layer, (head,), means[layer][head].to(z))
            direction = torch.as_tensor(directions(SEED)[batch.group], device=z.device)
            matrix = random_matrices(z, model.model.cfg.d_model, layer, SEED)[direction, head]
            for i, one in enumerate((write, in_random_direction(clean, write, matrix))):
                sums[i] += before.changes(clean.after([[one]]))[:, 0].sum(-1)
        n += int(batch.read.sum())
        progress(done, total)
    names = list(QUANTITIES)
    return {name: (float(sums[0, names.index(name)] / n), float(sums[1, names.index(name)] / n), n)
            for name in CHANGES}


__all__ = ["ABOUT", "CHANGES", "N_ABLATED", "ablated", "table", "texts_of_head", "words"]
