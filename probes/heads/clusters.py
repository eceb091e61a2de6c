"""Codes across heads that are alike: heads that act together, clusters and what they promote.

    r_gh = corr_i(a_g,i, a_h,i)         over pairs i of a query and a key
    argmin_c |a_i - mu_c|               k-means over codes a_i, of one layer or of all

What is chosen is chosen on some texts and measured on others. The control has the codes of each
head permuted over the pairs of a text, so that every head does what it does as often, but not
together with the others.

The mean code of a cluster generates a network, which is read out at the keys of examples:

    W_c = sum_h mu_ch W_V^h W_O^h
    logits_c(k) = U(LN_f(x_k W_c + b_c))        (logit lens, nostalgebraist 2020)

with x_k the input of values at the key (`shown_input`), LN_f the final norm and U the unembedding.
What the norm that follows attention in some architectures (Gemma 2) does is left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, silhouette_samples
from sklearn.metrics import pairwise_distances_argmin as nearest
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from latentcode.codes import LatentCodes
from latentcode.devices import checked_seed
from latentcode.errors import ProbeError, check
from latentcode.models.hooks import evaluating
from latentcode.models.hypernetwork import gate_of, key_inputs, value_network
from latentcode.probes.common.results import where
from latentcode.probes.common.statistics import (
    LabelSums,
    mean_and_interval,
    percentile_interval,
    same_weights,
)
from latentcode.probes.heads.codes import HeadSample
from latentcode.probes.heads.metrics import DIFFERENCE
from latentcode.probes.model_checks import value_network_error
from latentcode.probes.value_networks import generated_parts, relative_distances, weight_products
from latentcode.prompts import LanguageModel

CONTEXT = ("text", "query_position", "key_position", "query_token", "key_token", "context")
"""Labels of a pair that are shown of it."""
TABLES: Mapping[str, tuple[str, ...]] = {
    "together": ("pairs", "layer", "head", "other_layer", "other_head", "chosen_by", "value", "low",
                 "high", "permuted", *DIFFERENCE, "n", "n_texts"),
    "quality": ("layer", "n_clusters", "silhouette", "low", "high", "permuted", *DIFFERENCE,
                "stability", "stability_permuted", "n", "n_texts"),
    "clusters": ("layer", "cluster", "n", "share", "low", "high", "silhouette", "first", "self",
                 "attended", "distance"),
    "cluster_heads": ("layer", "cluster", "head_layer", "head", "mean", "elsewhere", "difference",
                      "low", "high"),
    "examples": ("layer", "cluster", "chosen", "number", "to_centre", *CONTEXT),
    "networks": ("clusters", "layer", "cluster", "part", "n", "norm", "participation_ratio",
                 "apart", "apart_permuted"),
    "says": ("clusters", "layer", "cluster", "number", "text", "query_token", "key_token",
             "context", "rank", "token", "logit", "by_mean"),
    "nearest": ("layer", "cluster", "rank", "number", "distance", "permuted", *CONTEXT)}
"""Columns of tables of codes across heads, by the name of the table."""
LEAST = 8
"""Pairs that are permuted among each other at least; texts that follow each other and have fewer
are taken together."""
ALL = "all"
"""The place of clusters over the heads of all layers."""
N_HEADS, N_EXAMPLES, N_TOKENS = 5, 3, 5
"""Heads and examples that tables show of a cluster, and tokens of an example."""


def flat_codes(codes: LatentCodes, layer: int | None = None) -> np.ndarray:
    """Return the codes [instance, head] of one layer, or [instance, layer x head] of all."""
    if layer is not None:
        return codes.select(layer=layer, pair=codes.pairs[0].name).astype(np.float64)
    return codes.scores[:, :, 0].reshape(len(codes), -1).astype(np.float64)


def heads_of(codes: LatentCodes, layer: int | None = None) -> list[tuple[int, int]]:
    """Return (layer, head) of each column of `flat_codes`."""
    layers = codes.layers if layer is None else (layer,)
    return [(number, head) for number in layers for head in range(codes.n_heads)]


def texts_of(codes: LatentCodes) -> np.ndarray:
    """Return the numbers of the texts, counted from 0; `ProbeError` for fewer than four."""
    text = np.unique(codes.labels["text"].to_numpy(), return_inverse=True)[1]
    n = int(text.max(initial=-1)) + 1
    check(n >= 4, f"the codes are of {n} text(s); expected at least 4: what is chosen on some is "
          "measured on others", ProbeError)
    return np.asarray(text, dtype=np.int64)


def parted(text: np.ndarray, sizes: Sequence[int], seed: int) -> list[np.ndarray]:
    """Return which pairs belong to each part of the texts, bool [N]; sizes are proportions."""
    n = int(text.max()) + 1
    ends = np.round(np.cumsum(sizes) / np.sum(sizes) * n).astype(int)
    place = np.empty(n, np.int64)
    place[np.random.default_rng([seed, 3]).permutation(n)] = np.arange(n)
    part = np.searchsorted(ends, place, side="right")
    return [part[text] == i for i in range(len(sizes))]


def permuted(x: np.ndarray, text: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return codes [N, heads] with each head permuted over the pairs of a text, by itself.

    Texts that follow each other are taken together until there are `LEAST` pairs of them.
    """
    order = np.argsort(text, kind="stable")
    begins = [0]  # of each group, in this order
    for i in np.flatnonzero(np.diff(text[order])) + 1:
        if i - begins[-1] >= LEAST:
            begins.append(int(i))
    if len(begins) > 1 and len(text) - begins[-1] < LEAST:
        begins.pop()
    group = np.searchsorted(begins, np.arange(len(text)), side="right") - 1
    keys = np.argsort(group[:, None] + rng.random(x.shape), axis=0, kind="stable")
    out = np.empty_like(x)
    out[order] = np.take_along_axis(x[order], keys, axis=0)
    return out


def together(
    codes: LatentCodes, *, n_top: int = 20, n_bootstrap: int = 1_000, seed: int = 0
) -> pd.DataFrame:
    """Return the largest correlations of two heads, positive or negative.

    Once over all pairs, once over `other` ones, whose key is neither the first token nor the query:
    that heads agree on these two is no news. The `n_top` pairs of heads are chosen by |r| on half
    of the texts, where it was `chosen_by`; of the other half are `value`, r with an interval that
    resamples texts, `permuted`, the control, and their `difference`.
    """
    seed = checked_seed(seed)
    x, text, heads = flat_codes(codes), texts_of(codes), heads_of(codes)
    choosing, measuring = parted(text, (1, 1), seed)
    layer, head = np.array(heads).T
    blocks = []
    for name, among in (("all", np.ones(len(x), bool)),
                        ("other", (codes.labels["kind"] == "other").to_numpy())):
        first, second = choosing & among, measuring & among
        n_texts = len(np.unique(text[second]))
        if n_texts < 2 or first.sum() < LEAST:
            continue
        r = pd.DataFrame(x[first]).corr().to_numpy()  # NaN of a head that is the same everywhere
        g, h = np.triu_indices(len(heads), 1)
        best = np.argsort(-np.abs(np.nan_to_num(r[g, h])), kind="stable")[:n_top]
        best = best[np.isfinite(r[g[best], h[best]])]
        if not len(best):
            continue
        g, h = g[best], h[best]
        control = permuted(x[second], text[second], np.random.default_rng([seed, 1]))
        weights = same_weights(n_texts, n_bootstrap, seed)
        here, there = (_pair_correlations(y[:, g], y[:, h], text[second], weights)
                       for y in (x[second], control))
        low, high = percentile_interval(here[1:], n_texts)
        apart = percentile_interval(here[1:] - there[1:], n_texts)
        blocks.append(pd.DataFrame(dict(zip(TABLES["together"], (
            name, layer[g], head[g], layer[h], head[h], r[g, h], here[0], low, high, there[0],
            here[0] - there[0], *apart, int(second.sum()), n_texts), strict=True))))
    return pd.concat(blocks or [pd.DataFrame(columns=list(TABLES["together"]))], ignore_index=True)


def _pair_correlations(
    x: np.ndarray, y: np.ndarray, text: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Return r [1 + R, m] of columns x, y [N, m]: over all texts, then resampled [R, texts]."""
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    cluster = np.unique(text, return_inverse=True)[1]
    terms = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y])
    sums = np.zeros((weights.shape[1], *terms[:, 0].shape))
    np.add.at(sums, cluster, terms.transpose(1, 0, 2))
    n, sx, sy, sxx, syy, sxy = np.tensordot(
        np.vstack([np.ones(weights.shape[1]), weights]), sums, axes=1).transpose(1, 0, 2)
    scale = np.sqrt(np.clip(n * sxx - sx**2, 0.0, None) * np.clip(n * syy - sy**2, 0.0, None))
    return np.asarray(np.divide(n * sxy - sx * sy, scale, out=np.full_like(scale, np.nan),
                                where=scale > 0))


@dataclass(frozen=True)
class Clusters:
    """Codes in clusters, layer by layer and over all layers (`layer` is text: `0`, ..., `all`).

    The tables are
        quality        per layer, the number chosen, and on the texts that are left its
                       `silhouette`, that of `permuted` codes with the number that is best for them,
                       and the `difference`; `stability`, the adjusted Rand index of clusters that
                       two sets of texts give
        clusters       per cluster, pairs `n`, their `share` with interval, the mean silhouette of
                       those not fitted to, and which share has the `first` token or the query
                       it`self` as its key, or an `attended` key; the median `distance`
        cluster_heads  the heads that are furthest above their mean in all other pairs
        examples       pairs `nearest` to the centre, each of another text, and `random` ones;
                       `number` is their row in the sample
    `assigned` has by layer the cluster of each pair, int [N], `centres` their means, [k, heads].
    """

    tables: Mapping[str, pd.DataFrame]
    assigned: Mapping[str, np.ndarray]
    centres: Mapping[str, np.ndarray]


def cluster_codes(
    codes: LatentCodes, *, candidates: Sequence[int] = (2, 3, 4, 6, 8, 12),
    n_bootstrap: int = 1_000, seed: int = 0,
) -> Clusters:
    """Return k-means clusters of codes, layer by layer and over all layers.

    Of the `candidates` that no part of the texts has too few pairs for, the number of clusters is
    that with the largest mean silhouette (of euclidean distances, Rousseeuw 1987) on a quarter of
    the texts, where it was fitted to half; it is measured on the quarter that is left. `ProbeError`
    for fewer than four texts, and for fewer pairs in a part of them than clusters.
    """
    seed = checked_seed(seed)
    text = texts_of(codes)
    parts = parted(text, (2, 1, 1), seed)
    fewest = min(int(part.sum()) for part in parts)
    tried = tuple(number for number in candidates if number < fewest)
    check(len(tried) > 0, f"there are {fewest} pairs in a part of the texts; expected more than "
          f"the {min(candidates)} clusters: draw more pairs", ProbeError)
    blocks: dict[str, list[pd.DataFrame]] = {
        name: [] for name in ("quality", "clusters", "cluster_heads", "examples")}
    assigned, centres = {}, {}
    for layer in (*codes.layers, *((None,) if len(codes.layers) > 1 else ())):
        place = ALL if layer is None else str(layer)
        x = flat_codes(codes, layer)
        control = np.empty_like(x)
        for i, part in enumerate(parts):
            control[part] = permuted(x[part], text[part], np.random.default_rng([seed, 2, i]))
        (cluster, stability), (cluster_control, stability_control) = (
            _fit(y, parts, tried, seed) for y in (x, control))
        assigned[place], centres[place] = cluster, means_of(x, cluster)
        here, there = (_silhouettes(y[parts[2]], number[parts[2]])
                       for y, number in ((x, cluster), (control, cluster_control)))
        value, low, high, n_texts = mean_and_interval(
            np.stack([here, there, here - there], axis=1), text[parts[2]], n_bootstrap, seed)
        quality = pd.DataFrame([{
            "n_clusters": len(centres[place]), "silhouette": value[0], "low": low[0],
            "high": high[0], "permuted": value[1], "difference": value[2],
            "difference_low": low[2], "difference_high": high[2], "stability": stability,
            "stability_permuted": stability_control, "n": int(parts[2].sum()),
            "n_texts": n_texts}])
        described = _described(codes, x, cluster, text, ~parts[0], heads_of(codes, layer),
                               n_bootstrap, seed)
        for name, table in zip(blocks, (quality, *described), strict=True):
            blocks[name].append(table.assign(layer=place))
    return Clusters({
        name: pd.concat([table for table in some if len(table)] or some, ignore_index=True)
        .reindex(columns=list(TABLES[name])) for name, some in blocks.items()}, assigned, centres)


def _fit(
    x: np.ndarray, parts: Sequence[np.ndarray], tried: Sequence[int], seed: int
) -> tuple[np.ndarray, float]:
    """Return the cluster of each code, the largest first, and how stable clusters are.

    k-means is fitted to the first part of the texts, and the number of clusters chosen on the
    second; stability is the adjusted Rand index of the third with clusters that the second gives.
    """
    fitted = {number: _k_means(x[parts[0]], number, seed) for number in tried}
    silhouettes = {number: _silhouettes(x[parts[1]], nearest(x[parts[1]], centres)).mean()
                   for number, centres in fitted.items()}
    number = max(tried, key=lambda number: np.nan_to_num(silhouettes[number], nan=-2.0))
    counts = np.bincount(nearest(x, fitted[number]), minlength=len(fitted[number]))
    order = np.argsort(-counts, kind="stable")
    cluster = nearest(x, fitted[number][order[counts[order] > 0]])
    again = nearest(x[parts[2]], _k_means(x[parts[1]], number, seed))
    return cluster, float(adjusted_rand_score(cluster[parts[2]], again))


def _k_means(x: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Return the centres of clusters, [at most number, heads]."""
    with warnings.catch_warnings():
        # Fewer distinct codes than clusters: the centres that coincide are dropped below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = KMeans(number, n_init=4, random_state=seed % 2**32).fit(x)
    return np.unique(fitted.cluster_centers_, axis=0)


def _silhouettes(x: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    """Return the silhouette of each code [N]; NaN of a single cluster, or of one for each code."""
    if not 2 <= len(np.unique(cluster)) < len(x):
        return np.full(len(x), np.nan)
    return np.asarray(silhouette_samples(x, cluster), dtype=np.float64)


def means_of(x: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    """Return the mean code of each cluster, [k, heads]."""
    return np.stack([x[cluster == c].mean(axis=0) for c in range(int(cluster.max()) + 1)])


def _described(
    codes: LatentCodes, x: np.ndarray, cluster: np.ndarray, text: np.ndarray, unfitted: np.ndarray,
    heads: Sequence[tuple[int, int]], n_bootstrap: int, seed: int,
) -> tuple[pd.DataFrame, ...]:
    """Return the tables `clusters`, `cluster_heads` and `examples` of one layer."""
    labels = codes.labels
    weights = same_weights(int(text.max()) + 1, n_bootstrap, seed)
    silhouette = np.full(len(x), np.nan)
    silhouette[unfitted] = _silhouettes(x[unfitted], cluster[unfitted])
    centres = means_of(x, cluster)
    truth = cluster[:, None] == np.arange(len(centres))
    share, low, high, _ = mean_and_interval(truth.astype(np.float64), text, n_bootstrap, seed)
    grouped = pd.DataFrame({
        "silhouette": silhouette, "first": labels["kind"] == "first",
        "self": labels["kind"] == "self", "attended": labels["drawn"] == "attended",
        "distance": labels["distance"]}).groupby(cluster)
    shares = grouped[["silhouette", "first", "self", "attended"]].mean().assign(
        n=grouped.size(), distance=grouped["distance"].median(), share=share, low=low, high=high)
    rng = np.random.default_rng([seed, 4])
    used: list[dict[str, object]] = []
    examples: list[pd.DataFrame] = []
    for c, mine in enumerate(truth.T):
        if not mine.all():
            elsewhere = x[~mine].mean(axis=0)
            difference = centres[c] - elsewhere
            best = np.argsort(-difference, kind="stable")[:N_HEADS]
            means = LabelSums.of(x[:, best], np.stack([mine, ~mine], axis=1), text).resampled(
                weights)
            ends = percentile_interval(means[:, 0] - means[:, 1], weights.shape[1])
            used += [{
                "cluster": c, "head_layer": heads[h][0], "head": heads[h][1],
                "mean": centres[c, h], "elsewhere": elsewhere[h], "difference": difference[h],
                "low": ends[0][i], "high": ends[1][i]} for i, h in enumerate(best)]
        members = labels.loc[mine, list(CONTEXT)].assign(
            cluster=c, number=np.flatnonzero(mine),
            to_centre=np.linalg.norm(x[mine] - centres[c], axis=1))
        by_distance = members.sort_values("to_centre", kind="stable").drop_duplicates("text")
        random = members.iloc[rng.permutation(len(members))[:N_EXAMPLES]]
        examples += [by_distance.head(N_EXAMPLES).assign(chosen="nearest"),
                     random.assign(chosen="random")]
    return (shares.rename_axis("cluster").reset_index(), pd.DataFrame(used), pd.concat(examples))


def nearest_codes(
    codes: LatentCodes, to: int | np.ndarray, *, layer: int | None = None, n: int = 10,
    metric: str = "cosine", other_texts: bool = True, seed: int = 0,
) -> pd.DataFrame:
    """Return the n codes of a sample that are nearest to a code, a row each, the nearest first.

    `number` is its row in the sample, `distance` how far it is, and `permuted` how far the nearest
    code of this rank is when each head is permuted over the pairs of a text: heads that act by
    themselves come as near as that. `ProbeError` where there are fewer codes to choose from.

    Args:
        codes: Of `sample_codes`.
        to: The row of one of them; or a code [heads], of all layers [layers x heads].
        layer: The layer that is compared; default: the codes of all layers as one.
        n: Codes.
        metric: `cosine`, 1 - cos(a, b), or `euclidean`, |a - b|.
        other_texts: Of a row: leave out the codes of its own text, and not itself alone.
        seed: Seed of the permutation.
    """
    x, text = flat_codes(codes, layer), codes.labels["text"].to_numpy()
    left = np.ones(len(codes), bool)
    if np.ndim(to) == 0:
        number = int(to)
        code = x[number]
        left = text != text[number] if other_texts else np.arange(len(codes)) != number
    else:
        code = np.asarray(to)
    check(n <= int(left.sum()), f"n is {n}; expected at most {int(left.sum())}, the codes that "
          "there are to choose from", ProbeError)
    control = permuted(x, text, np.random.default_rng([checked_seed(seed), 5]))
    (distance, chosen), (permuted_distance, _) = (
        NearestNeighbors(n_neighbors=n, metric=metric).fit(y[left]).kneighbors(
            code[None].astype(np.float64)) for y in (x, control))
    numbers = np.flatnonzero(left)[chosen[0]]
    return pd.concat([pd.DataFrame({
        "rank": np.arange(1, n + 1), "number": numbers, "distance": distance[0],
        "permuted": permuted_distance[0]}),
        codes.labels.loc[numbers, list(CONTEXT)].reset_index(drop=True)], axis=1)


def nearest_to_centres(
    codes: LatentCodes, clusters: Clusters, *, n: int = 5, seed: int = 0
) -> pd.DataFrame:
    """Return the codes nearest to the mean code of each cluster, after `layer` and `cluster`."""
    return pd.concat([
        nearest_codes(codes, centre, layer=None if place == ALL else int(place), n=n,
                      metric="euclidean", seed=seed).assign(layer=place, cluster=cluster)
        for place, centres in clusters.centres.items() for cluster, centre in enumerate(centres)
    ], ignore_index=True)[list(TABLES["nearest"])]


def cluster_networks(
    model: LanguageModel, sample: HeadSample, clusters: Clusters, *, seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame, dict[int, str]]:
    """Return the networks that mean codes of clusters, of a layer's `own` codes and of `all`
    layers, generate, the tokens they promote, and by layer why it has no networks.

    A row per network and part (`matrix` of an affine one) has the Frobenius `norm`, the
    `participation_ratio` (sum s^2)^2 / sum s^4 of the singular values s, and `apart`, the distance
    from the mean over the clusters over the norm, beside that of permuted codes. A row per token
    and example nearest to a centre has its `logit`, and that which the mean code of all pairs gives
    at the same key, `by_mean`.
    """
    bridge, codes = model.model, sample.codes
    x = codes.scores[:, :, 0].astype(np.float64)
    rng = np.random.default_rng([checked_seed(seed), 6])
    control = permuted(
        x.reshape(len(x), -1), codes.labels["text"].to_numpy(), rng).reshape(x.shape)
    examples = where(clusters.tables["examples"], chosen="nearest")
    networks: list[dict[str, Any]] = []
    says: list[dict[Any, Any]] = []
    device = next(bridge.parameters()).device
    with evaluating(bridge):
        reasons = {layer: _reason(bridge, sample, layer) for layer in codes.layers}
        left_out = {layer: reason for layer, reason in reasons.items() if reason is not None}
        kept = [layer for layer in codes.layers if layer not in left_out]
        inputs: dict[int, Tensor] = {}  # x at the key of each example, [L, D]
        keys = codes.labels["key_position"].loc[examples["number"].unique()]
        rows = sample.rows[keys.index]
        for row in np.unique(rows).tolist() if kept else ():
            some = keys[rows == row]
            position = torch.tensor(some.tolist(), device=device)[None]
            ids = torch.from_numpy(sample.tokens[row].astype(np.int64)).to(device)[None]
            values = key_inputs(bridge, [(ids[:, :some.max() + 1], position)], kept)
            inputs.update(zip(some.index.tolist(), values[:, :, 0].unbind(1), strict=True))
        for layer in kept:
            i = codes.layers.index(layer)
            for place, name in ((str(layer), "own"), (ALL, ALL)):
                if place not in clusters.assigned:
                    continue
                cluster = clusters.assigned[place]
                means, control_means = (means_of(y[:, i], cluster) for y in (x, control))
                here = {"clusters": name, "layer": layer}
                networks += [here | row for row in _compared(
                    bridge, layer, means, control_means, np.bincount(cluster).tolist())]
                for example in where(examples, layer=place).to_dict("records"):
                    value = inputs[example["number"]][kept.index(layer)][None]
                    both = np.stack([means[example["cluster"]], x[:, i].mean(axis=0)])
                    written = value_network(bridge, layer, torch.from_numpy(both).to(value))(value)
                    logits, by_mean = bridge.unembed(
                        bridge.ln_final(written[None]))[0].float().cpu()
                    best = logits.topk(min(N_TOKENS, len(logits))).indices.tolist()
                    says += [example | here | {
                        "rank": rank, "token": token, "logit": float(logits[number]),
                        "by_mean": float(by_mean[number])}
                        for rank, (number, token) in enumerate(
                            zip(best, model.texts(best), strict=True), start=1)]
    return (pd.DataFrame(networks, columns=list(TABLES["networks"])),
            pd.DataFrame(says, columns=list(TABLES["says"])), left_out)


def _reason(bridge: Any, sample: HeadSample, layer: int) -> str | None:
    """Return why the value networks of a layer are not to be read; None where they are."""
    if gate_of(bridge, layer) is not None:
        return ("attention has a gate, which the query sets: a mean code alone generates no "
                "network")
    few = max(sample.tokens.values(), key=len)[:4].astype(np.int64)
    tokens = torch.from_numpy(few)[None].to(next(bridge.parameters()).device)
    off, why = value_network_error(bridge, tokens, layer)
    if why:
        return why
    if not off < max(1e-3, 10 * torch.finfo(next(bridge.parameters()).dtype).eps):
        return (f"attention does more than its value networks: sum_k W_qk x_k + b_O is off by "
                f"{off:.2g} of its output")
    for name in ("ln_final", "unembed"):
        if getattr(bridge, name, None) is None:
            return f"the model has no {name}, by which a network's output would be read"
    return None


def participation_ratio(matrix: Float[Tensor, "... n m"]) -> Float[Tensor, "..."]:
    """(sum_i s_i^2)^2 / sum_i s_i^4 of the singular values s_i: r of r equal ones; NaN for zero.

    No singular value is computed: the sums are |M|^2 and |M^T M|^2 in the Frobenius norm.
    """
    squared = matrix.square().sum(dim=(-2, -1))
    gram = matrix.mT @ matrix if matrix.shape[-1] <= matrix.shape[-2] else matrix @ matrix.mT
    return squared.square() / gram.square().sum(dim=(-2, -1))


def _compared(
    bridge: Any, layer: int, means: np.ndarray, control: np.ndarray, sizes: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the rows of `networks` for mean codes [clusters, heads]."""
    weight = next(bridge.parameters())
    codes, permuted_codes = (torch.from_numpy(y).to(weight) for y in (means, control))
    permuted_products = weight_products(bridge, layer, permuted_codes)
    rows = []
    for part, products in weight_products(bridge, layer, codes).items():
        apart = relative_distances(products)
        apart_permuted = relative_distances(permuted_products[part])
        for c, size in enumerate(sizes):
            matrix = generated_parts(bridge, layer, codes[c:c + 1])[part][0].double()
            rows.append({
                "cluster": c, "part": part, "n": size,
                "norm": float(products[c, c].clamp(min=0.0).sqrt()),
                "participation_ratio": float(participation_ratio(matrix)),
                "apart": float(apart[c]), "apart_permuted": float(apart_permuted[c])})
    return rows
