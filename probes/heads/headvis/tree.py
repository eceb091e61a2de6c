"""What lies in a HeadVis folder, and what of it follows from the rest.

    config.json               which heads and metrics there are, and how they were made
    scatter_data.json         a row per head: layer, head and its metrics
    heads/L{layer}H{head}.json   texts with the head's attention, and tables of them
    server_config.json        {}: nothing is computed while it is shown
    attributions/manifest.json   {}

Sources: the docstrings of anthropics/headvis, `data_pipeline.py` (Luger, Kamath et al. 2026), and
of hijohnnylin/neuronpedia, `utils/neuronpedia-utils/neuronpedia_utils/headvis/`, the README and
what its loaders read. Where the two differ, this is what both take: the names of metrics are
Neuronpedia's (HeadVis shows any), and the maximum of a text leaves out the first query and the
first key, but not the diagonal, as the page itself does.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

CONFIG, SCATTER, SERVER = "config.json", "scatter_data.json", "server_config.json"
MANIFEST = "attributions/manifest.json"
HEAD_FILE = "L{layer}H{head}.json"
DECIMALS = 4
"""Of every number that was measured."""
MAXIMA_BINS = 50
"""Of the histogram of maxima, from 0 to 1."""
TOP_TOKENS = 50
INDUCTION_LEAST = 0.01
"""Attention below it counts as none in `induction_score`."""
METRICS: Mapping[str, str] = {
    "self_attention_score": "Attention that a token gives itself, mean over tokens.",
    "prev_token_score": "Attention to the token before, mean over tokens that have one.",
    "pattern_entropy": "Entropy of the attention of a token in nats, mean over tokens.",
    "qk_distance": "Distance to what is attended to, in tokens, weighted by attention.",
    "qk_distance_variance": "Variance of the same distance.",
    "induction_score": "Attention to tokens that follow an earlier occurrence of the same token, "
                       "mean over tokens that occurred before."}
"""What every tree holds of a head; Neuronpedia keeps these six."""
NEEDED: Mapping[str, type] = {
    "model_name": str, "dataset_name": str, "n_sequences": int, "seq_len": int, "dtype": str,
    "attn_implementation": str}
"""What Neuronpedia's loaders need to know of a run, in `pipeline_config`."""


def rounded(value: float) -> float | None:
    """Return a number as it is written; None where it is not finite, which JSON cannot say."""
    return round(float(value), DECIMALS) if math.isfinite(value) else None


def distance_edges(longest: int) -> list[int]:
    """Return 0, 1, 2, 4, ... up to the first that is no distance of a text of so many tokens."""
    edges = [0, 1]
    while edges[-1] < longest:
        edges.append(2 * edges[-1])
    return edges


def distance_histogram(
    sequences: Iterable[Mapping[str, Any]], edges: list[int]
) -> dict[str, list[Any]]:
    """Return how much attention goes how far: sum of a_qk with edge_i <= q - k < edge_i+1."""
    values = np.zeros(len(edges) - 1)
    for sequence in sequences:
        q, k, attention = entries(sequence)
        values += np.histogram(np.abs(q - k), bins=edges, weights=attention)[0]
    return {"bin_edges": list(edges), "bin_values": [rounded(value) for value in values]}


def top_tokens(sequences: Iterable[Mapping[str, Any]], side: str) -> list[dict[str, Any]]:
    """Return the tokens with the most attention as a query or a key, the largest `weight` first."""
    weights = token_weights(sequences, side)
    ranked = sorted(weights.items(), key=lambda one: (-one[1], one[0]))[:TOP_TOKENS]
    return [{"token": token, "weight": rounded(weight)} for token, weight in ranked]


def token_weights(sequences: Iterable[Mapping[str, Any]], side: str) -> dict[str, float]:
    """Return sum a_qk over the entries whose query or key is the token, by its text."""
    weights: dict[str, float] = defaultdict(float)
    for sequence in sequences:
        q, k, attention = entries(sequence)
        at = q if side == "query" else k
        n = len(sequence["tokens"])
        total, number = np.bincount(at, attention, n), np.bincount(at, minlength=n)
        for position in np.flatnonzero(number).tolist():
            weights[sequence["tokens"][position]] += float(total[position])
    return dict(weights)


def entries(sequence: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return query, key and attention of the entries of a text; index = query * seq_len + key."""
    query, key = np.divmod(np.asarray(sequence["attention_indices"], dtype=np.int64),
                           sequence["seq_len"])
    return query, key, np.asarray(sequence["attention_values"], dtype=np.float64)


__all__ = ["CONFIG", "DECIMALS", "HEAD_FILE", "INDUCTION_LEAST", "MANIFEST", "MAXIMA_BINS",
           "METRICS", "NEEDED", "SCATTER", "SERVER", "TOP_TOKENS", "distance_edges",
           "distance_histogram", "entries", "rounded", "token_weights", "top_tokens"]
