"""The tables of heads: their columns, and which heads are outside the control.

Here, where nothing imports torch, for a saved result is opened without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from latentcode.probes.common.contrasts import contrast_columns

GROUPS = 256
"""Groups of texts of which sums are kept, and which the bootstrap resamples: text i is in group
i mod 256, by itself where there are no more texts."""
COLUMNS = ("layer", "head", "metric", "value", "low", "high", "control", "control_low",
           "control_high", "n")
CONTRASTS = contrast_columns("layer", "head", "features")

EFFECTS = ("patch", "layer", "head", "quantity", "value", "low", "high", "control", "control_low",
           "control_high", "n", "n_clusters")
SETS = ("set", "how", "heads", "size", "effect", "low", "high", "sum", "interaction",
        "interaction_low", "interaction_high", "acts", "n", "n_clusters")
TOGETHER = ("pairs", "layer", "head", "other_layer", "other_head", "chosen_by", "value", "low",
            "high", "permuted", "difference", "difference_low", "difference_high", "n", "n_texts")
CONTEXT = ("text", "query_position", "key_position", "query_token", "key_token", "context")
"""Labels of a pair that are shown of it."""
QUALITY = ("layer", "n_clusters", "silhouette", "low", "high", "permuted", "difference",
           "difference_low", "difference_high", "stability", "stability_permuted", "n", "n_texts")
CLUSTERS = ("layer", "cluster", "n", "share", "low", "high", "silhouette", "first", "self",
            "attended", "distance")
CLUSTER_HEADS = ("layer", "cluster", "head_layer", "head", "mean", "elsewhere", "difference",
                 "low", "high")
EXAMPLES = ("layer", "cluster", "chosen", "number", "to_centre", *CONTEXT)
NETWORKS = ("clusters", "layer", "cluster", "part", "n", "norm", "participation_ratio", "apart",
            "apart_permuted")
SAYS = ("clusters", "layer", "cluster", "number", "text", "query_token", "key_token", "context",
        "rank", "token", "logit", "by_mean")
NEAREST = ("rank", "number", "distance", "permuted", *CONTEXT)
LABELS = ("text", "query_position", "key_position", "distance", "query_token", "key_token", "kind",
          "drawn", "context")
"""Of the table of codes, before a column per head, such as `2.11`."""
APART = ("difference", "difference_low", "difference_high")
"""What is above the control, with its interval."""
BEYOND: Mapping[str, tuple[str, ...]] = {
    "effects": (*EFFECTS[:-2], "against", *APART, *EFFECTS[-2:]),
    "sets": (*SETS[:-2], *APART, *SETS[-2:]),
    "together": TOGETHER, "quality": QUALITY, "clusters": CLUSTERS,
    "cluster_heads": CLUSTER_HEADS, "examples": EXAMPLES, "networks": NETWORKS, "says": SAYS,
    "nearest": ("layer", "cluster", *NEAREST)}
"""The tables beyond that of the metrics."""


def outside(heads: pd.DataFrame, contrasts: pd.DataFrame) -> pd.Series:
    """Return of each row of the table of heads 1 where the head is surely above the interval of
    fresh ones, -1 where it is below, else 0.

    The interval of its difference from their mean has to be beyond that of theirs: texts that raise
    a metric in all heads raise it in both.
    """
    keys = ["layer", "head", "metric"]
    apart = contrasts.rename(columns={"quantity": "metric", "low": "apart_low",
                                      "high": "apart_high"})
    apart = heads.merge(apart[[*keys, "apart_low", "apart_high"]], on=keys, how="left")
    over = apart["apart_low"] > apart["control_high"] - apart["control"]
    under = apart["apart_high"] < apart["control_low"] - apart["control"]
    return pd.Series(over.to_numpy().astype(int) - under.to_numpy().astype(int), heads.index)


def by_metric(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows of each metric that has values, in order of appearance."""
    for name, rows in table.groupby("metric", sort=False):
        if rows["value"].notna().any():
            yield str(name), rows
