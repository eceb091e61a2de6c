"""Which heads act together? Correlations of heads over pairs of a query and a key.

    r_gh = corr_i(a_g,i, a_h,i)         over pairs i

What is chosen is chosen on some texts and measured on others. The control has the codes of each
head permuted over the pairs of a text, so that every head does what it does as often, but not
together with the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check, check_count
from latentcode.probes.common.bootstrap import percentile_interval, resample
from latentcode.probes.heads.sampling import flat_codes, heads_of
from latentcode.probes.heads.tables import TOGETHER
from latentcode.seeds import checked_seed

LEAST = 8
"""Pairs that are permuted among each other at least; texts that follow each other and have fewer
are taken together."""
FEWEST_TEXTS = 4


def together(
    codes: LatentCodes, *, n_top: int = 20, n_bootstrap: int = 1_000, seed: int = 0,
) -> pd.DataFrame:
    """Which two heads look at the same pairs? The largest correlations, positive or negative.

    codes  of `sample_codes`
    n_top  pairs of heads; they are chosen by |r| on half of the texts, where it was `chosen_by`,
           and everything else is of the other half

    Once over all pairs, once over `other` ones, whose key is neither the first token nor the query:
    that heads agree on these two is no news. `value` is r with an interval that resamples texts,
    `permuted` the control, `difference` the two apart. `ProbeError` for fewer than four texts.
    """
    check_count("n_top", n_top)
    seed = checked_seed(seed)
    x, text, of = flat_codes(codes), texts_of(codes), heads_of(codes)
    choosing, measuring = parted(text, (1, 1), seed)
    rows: list[dict[str, object]] = []
    for name, among in (("all", np.ones(len(x), bool)),
                        ("other", (codes.labels["kind"] == "other").to_numpy())):
        first, second = choosing & among, measuring & among
        if len(np.unique(text[second])) < 2 or first.sum() < LEAST:
            continue
        r = correlations(x[first])
        g, h = np.triu_indices(len(of), 1)
        best = np.argsort(-np.abs(np.nan_to_num(r[g, h])), kind="stable")[:n_top]
        best = best[np.isfinite(r[g[best], h[best]])]
        if not len(best):
            continue
        g, h = g[best], h[best]
        control = permuted(x[second], text[second], np.random.default_rng([seed, 1]))
        weights = resample(len(np.unique(text[second])), n_bootstrap, np.random.default_rng(seed))
        here, there = (_pair_correlations(y[:, g], y[:, h], text[second], weights)
                       for y in (x[second], control))
        n_texts = weights.shape[1]
        low, high = percentile_interval(here[1:], n_texts)
        apart = percentile_interval(here[1:] - there[1:], n_texts)
        rows += [{
            "pairs": name, "layer": of[g[i]][0], "head": of[g[i]][1],
            "other_layer": of[h[i]][0], "other_head": of[h[i]][1], "chosen_by": r[g[i], h[i]],
            "value": here[0, i], "low": low[i], "high": high[i], "permuted": there[0, i],
            "difference": here[0, i] - there[0, i], "difference_low": apart[0][i],
            "difference_high": apart[1][i], "n": int(second.sum()), "n_texts": n_texts}
            for i in range(len(g))]
    return pd.DataFrame(rows, columns=list(TOGETHER))


def correlations(x: np.ndarray) -> np.ndarray:
    """Return r [heads, heads] of codes [N, heads]; NaN for a head that is the same everywhere."""
    centred = x - x.mean(axis=0)
    norm = np.linalg.norm(centred, axis=0)
    norm = np.where(norm > 1e-9 * np.abs(x).max(initial=0.0) * len(x)**0.5, norm, np.nan)
    return np.asarray(np.clip(centred.T @ centred / (norm[:, None] * norm), -1.0, 1.0))


def permuted(x: np.ndarray, text: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return codes [N, heads] with each head permuted over the pairs of a text, by itself.

    Texts that follow each other are taken together until there are `LEAST` pairs of them.
    """
    order = np.argsort(text, kind="stable")
    group = _groups(text[order])
    keys = np.argsort(group[:, None] + rng.random(x.shape), axis=0, kind="stable")
    out = np.empty_like(x)
    out[order] = np.take_along_axis(x[order], keys, axis=0)
    return out


def _groups(text: np.ndarray) -> np.ndarray:
    """Return the number of the group of each pair, of sorted numbers of texts."""
    group, begun, number = np.empty(len(text), np.int64), 0, 0
    for i in range(len(text)):
        if i - begun >= LEAST and text[i] != text[i - 1]:
            begun, number = i, number + 1
        group[i] = number
    if number and len(text) - begun < LEAST:
        group[begun:] = number - 1
    return group


def texts_of(codes: LatentCodes) -> np.ndarray:
    """Return the numbers of the texts, counted from 0."""
    found = np.unique(codes.labels["text"].to_numpy(), return_inverse=True)[1]
    n = int(found.max(initial=-1)) + 1
    check(n >= FEWEST_TEXTS, f"the codes are of {n} text(s); expected at least {FEWEST_TEXTS}: "
          "what is chosen on some is measured on others", ProbeError)
    return np.asarray(found, dtype=np.int64)


def parted(text: np.ndarray, sizes: Sequence[int], seed: int) -> list[np.ndarray]:
    """Return which pairs belong to each part of the texts, bool [N]; sizes are proportions."""
    n = int(text.max()) + 1
    ends = np.round(np.cumsum(sizes) / np.sum(sizes) * n).astype(int)
    place = np.empty(n, np.int64)
    place[np.random.default_rng([seed, 3]).permutation(n)] = np.arange(n)
    part = np.searchsorted(ends, place, side="right")
    return [part[text] == i for i in range(len(sizes))]


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


__all__ = ["TOGETHER", "correlations", "parted", "permuted", "texts_of", "together"]
