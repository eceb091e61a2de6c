"""Which networks do the mean codes of clusters generate, and what do they say?

    W_c = sum_h abar_ch W_V^h W_O^h,     abar_c = mean over the pairs of cluster c
    logits_c(k) = U(LN_f(x_k W_c + b_c))                  (logit lens, nostalgebraist 2020)

x_k is what values are computed from at the key of an example (`shown_input`), LN_f the final norm
of the model and U its unembedding. What the norm that follows attention in some architectures
(Gemma 2) does is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.errors import check_count
from latentcode.models.bridges import generated_and_shown
from latentcode.models.gates import gate_of
from latentcode.models.hypernetwork import value_network
from latentcode.models.key_inputs import key_inputs
from latentcode.models.modes import evaluating
from latentcode.probes.heads.clusters import ALL, Clusters
from latentcode.probes.heads.sampling import HeadSample
from latentcode.probes.heads.tables import NETWORKS, SAYS
from latentcode.probes.heads.together import permuted
from latentcode.probes.value_networks import (
    generated_parts,
    relative_distances,
    weight_products,
)
from latentcode.prompts import LanguageModel, as_language_model
from latentcode.seeds import checked_seed

TRUSTED = 1e-3
"""How far, relative to the largest number, sum_k W_qk x_k + b_O may be from attention's output."""
TRIED = 4
"""Tokens on which that is tried."""


@dataclass(frozen=True)
class ClusterNetworks:
    """The value networks of the mean codes of clusters.

    `clusters` says of which: `own`, those of the codes of this layer, or `all`, of which the mean
    code over all layers generates a network in each.

    networks  one row per network and part (`matrix` of an affine one): Frobenius `norm`,
              `participation_ratio` (sum s^2)^2 / sum s^4 of the singular values s, and `apart`, the
              distance from the mean over the clusters over the norm, and that of the same pairs
              when each head's codes are permuted over the pairs of a text
    says      of the examples nearest to a centre the tokens whose logit is the largest; `by_mean`
              is the logit that the mean code of all pairs gives the same token at the same key
    left_out  layer -> why it has no networks
    """

    networks: pd.DataFrame
    says: pd.DataFrame
    left_out: Mapping[int, str]


def cluster_networks(
    model: Any, sample: HeadSample, clusters: Clusters, *, n_examples: int = 3, n_tokens: int = 5,
    seed: int = 0,
) -> ClusterNetworks:
    """Which networks do the mean codes of clusters generate, and which tokens do they promote?

    model       what the sample is of
    clusters    of the codes of the sample
    n_examples  the examples nearest to each centre that are read again; at most those there are
    n_tokens    tokens that are shown of each

    Layers whose value networks are not known (multi-head latent attention), have a gate, or do not
    give what attention puts out, are left out, with the reason.
    """
    check_count("n_examples", n_examples)
    check_count("n_tokens", n_tokens)
    asked = as_language_model(model)
    codes = sample.codes
    networks: list[dict[str, Any]] = []
    says: list[dict[str, Any]] = []
    x = codes.scores[:, :, 0].astype(np.float64)
    text = codes.labels["text"].to_numpy()
    flat = permuted(x.reshape(len(x), -1), text, np.random.default_rng([checked_seed(seed), 6]))
    control = flat.reshape(x.shape)
    examples = clusters.examples[clusters.examples["chosen"] == "nearest"]
    examples = examples.groupby(["layer", "cluster"], sort=False).head(n_examples)
    with evaluating(asked.model):
        left_out = {layer: why for layer in codes.layers
                    if (why := _reason(asked, sample, layer)) is not None}
        kept = [layer for layer in codes.layers if layer not in left_out]
        inputs = _inputs(asked, sample, examples["number"].unique(), kept)
        for layer in kept:
            i = codes.layers.index(layer)
            for place, said in ((str(layer), "own"), (ALL, ALL)):
                if place not in clusters.assigned:
                    continue
                cluster = clusters.assigned[place]
                means, other = (_means(y[:, i], cluster) for y in (x, control))
                here = {"clusters": said, "layer": layer}
                networks += [here | row for row in _compared(
                    asked.model, layer, means, other, np.bincount(cluster).tolist())]
                says += [here | row for row in _said(
                    asked, sample, layer, means, x[:, i].mean(axis=0),
                    examples[examples["layer"] == place],
                    {number: of[kept.index(layer)] for number, of in inputs.items()}, n_tokens)]
    return ClusterNetworks(pd.DataFrame(networks, columns=list(NETWORKS)),
                           pd.DataFrame(says, columns=list(SAYS)), left_out)


def participation_ratio(matrix: Float[Tensor, "... n m"]) -> Float[Tensor, "..."]:
    """(sum_i s_i^2)^2 / sum_i s_i^4 of the singular values s_i; NaN for zero.

    Of r equal singular values it is r. No singular value is computed: the sums are |M|^2 and
    |M^T M|^2 in the Frobenius norm.
    """
    squared = matrix.square().sum(dim=(-2, -1))
    gram = matrix.mT @ matrix if matrix.shape[-1] <= matrix.shape[-2] else matrix @ matrix.mT
    return squared.square() / gram.square().sum(dim=(-2, -1))


def final_logits(model: Any, vectors: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
    """U(LN_f(v)), what vectors of the residual stream would say by themselves (logit lens)."""
    return model.unembed(model.ln_final(vectors[None]))[0].float()


def _reason(asked: LanguageModel, sample: HeadSample, layer: int) -> str | None:
    """Return why the value networks of a layer are not to be read; None where they are."""
    if gate_of(asked.model, layer) is not None:
        return ("attention has a gate, which the query sets: a mean code alone generates no "
                "network")
    longest = max(sample.tokens.values(), key=len)[:TRIED].astype(np.int64)
    device = next(asked.model.parameters()).device
    try:
        generated, shown = generated_and_shown(
            asked.model, torch.from_numpy(longest)[None].to(device), layer)
    except (AttributeError, KeyError, ValueError, RuntimeError, TypeError) as error:
        # Weights that the model does not have, or not in the shape of value heads.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"no value network: {lines[0]}"
    error_of = float((generated - shown).abs().max() / shown.abs().max().clamp_min(1e-30))
    if not error_of < max(TRUSTED, 10 * torch.finfo(shown.dtype).eps):
        return (f"attention does more than its value networks: sum_k W_qk x_k + b_O is off by "
                f"{error_of:.2g} of its output")
    for name in ("ln_final", "unembed"):
        if getattr(asked.model, name, None) is None:
            return f"the model has no {name}, by which a network's output would be read"
    return None


def _means(codes: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    return np.stack([codes[cluster == c].mean(axis=0) for c in range(int(cluster.max()) + 1)])


def _compared(
    model: Any, layer: int, means: np.ndarray, control: np.ndarray, sizes: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the rows of `networks` for mean codes [clusters, heads]."""
    weight = next(model.parameters())
    given, other = (torch.from_numpy(y).to(weight.device, weight.dtype)
                    for y in (means, control))
    networks = []
    there = {part: relative_distances(products)
             for part, products in weight_products(model, layer, other).items()}
    products_of = weight_products(model, layer, given)
    for part, products in products_of.items():
        apart = relative_distances(products)
        for c, size in enumerate(sizes):
            matrix = generated_parts(model, layer, given[c:c + 1])[part][0].double()
            networks.append({
                "cluster": c, "part": part, "n": size,
                "norm": float(products[c, c].clamp(min=0.0).sqrt()),
                "participation_ratio": float(participation_ratio(matrix)),
                "apart": float(apart[c]), "apart_permuted": float(there[part][c])})
    return networks


def _inputs(
    asked: LanguageModel, sample: HeadSample, numbers: np.ndarray, layers: Sequence[int]
) -> dict[int, Float[Tensor, "L D"]]:
    """Return x at the key of some pairs of the sample; a text is read once, for all layers."""
    if not layers:
        return {}
    labels = sample.codes.labels.loc[numbers]
    device = next(asked.model.parameters()).device
    found: dict[int, Tensor] = {}
    rows = sample.rows[numbers]
    for row in np.unique(rows).tolist():
        mine = labels[rows == row]
        keys = torch.tensor(mine["key_position"].tolist(), device=device)[None]
        ids = torch.from_numpy(sample.tokens[row].astype(np.int64)).to(device)[None]
        x = key_inputs(asked.model, [(ids[:, :int(keys.max()) + 1], keys)], layers)
        found.update(zip(mine.index.tolist(), x[:, :, 0].unbind(1), strict=True))
    return found


def _said(
    asked: LanguageModel, sample: HeadSample, layer: int, means: np.ndarray, mean: np.ndarray,
    examples: pd.DataFrame, inputs: Mapping[int, Float[Tensor, " D"]], n_tokens: int,
) -> list[dict[str, Any]]:
    """Return the rows of `says` for some examples of the clusters of a layer."""
    says = []
    for row in examples.to_dict("records"):
        label, x = sample.codes.labels.loc[row["number"]], inputs[row["number"]][None]
        two = torch.from_numpy(np.stack([means[row["cluster"]], mean])).to(x)
        logits, by_mean = final_logits(asked.model, value_network(asked.model, layer, two)(x)).cpu()
        best = logits.topk(min(n_tokens, len(logits))).indices.tolist()
        here = {"cluster": row["cluster"], "number": row["number"], "text": label["text"],
                "key_token": label["key_token"]}
        says += [here | {
            "query_token": label["query_token"], "context": label["context"], "rank": rank,
            "token": token, "logit": float(logits[number]), "by_mean": float(by_mean[number])}
            for rank, (number, token) in enumerate(
                zip(best, asked.texts(best), strict=True), start=1)]
    return says
