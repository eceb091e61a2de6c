"""Codes across all heads over texts: a sample of pairs, and the networks that mean codes generate.

A code is a of one pair of a query and a key, over the heads of a layer or of all. Pairs of a sample
are drawn in two steps. The query is one of all tokens that have an earlier one, each as likely as
any other. The key is, of half the pairs,

    uniform    any token up to the query, the first and the query itself among them
    attended   token k with probability  sum_lh |a_lh,qk| / sum_k' sum_lh |a_lh,qk'|,  0 < k <= q,
               what all heads give it; the first token, at which heads leave what they have no use
               for, is left out

The mean code of a cluster generates a network, which is read out at the keys of examples:

    W_c = sum_h mu_ch W_V^h W_O^h
    logits_c(k) = U(LN_f(x_k W_c + b_c))        (logit lens, nostalgebraist 2020)

with x_k the input of values at the key (`shown_input`), LN_f the final norm and U the unembedding.
What the norm that follows attention in some architectures (Gemma 2) does is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.codes import LatentCodes
from latentcode.devices import checked_seed
from latentcode.errors import ProbeError, check
from latentcode.files.provenance import package_version
from latentcode.models.hooks import evaluating, look
from latentcode.models.hypernetwork import gate_of, generated_and_shown, key_inputs, value_network
from latentcode.models.pretrained import layout
from latentcode.probes.heads.clusters import ALL, Clusters, means_of, permuted
from latentcode.probes.heads.result import NETWORKS, SAMPLED, SAYS
from latentcode.probes.value_networks import generated_parts, relative_distances, weight_products
from latentcode.prompts import LanguageModel, as_language_model
from latentcode.prompts.texts import TextBatch

WINDOW = 8
"""Tokens on either side of query and key that are kept as text."""
PURPOSE = 0x70616972
"""Sets the random numbers of pairs apart from others that are drawn from the same seed."""
N_TOKENS = 5
"""Tokens that tables show of an example."""
TRUSTED, N_TRIED = 1e-3, 4
"""How far, relative to the largest number, sum_k W_qk x_k + b_O may be from attention's output, and
tokens on which that is tried."""


@dataclass(frozen=True)
class HeadSample:
    """The codes of some (text, query, key) over all heads, and their texts.

    Attributes:
        codes: `LatentCodes` with the pair `query->key`; labels: `text` (its number),
            `query_position`, `key_position`, `distance`, `query_token`, `key_token`, `kind` of the
            key (`first` token, the query it`self` or `other`), `drawn` (`uniform` or `attended`)
            and `context`, the tokens around both, the query as <<query>>, the key as [[key]].
        rows: int64 [N], the row of each pair (`TextBatch.rows`): a document can have several.
        tokens: By row its ids, int32, up to the last query that was drawn.
    """

    codes: LatentCodes
    rows: np.ndarray
    tokens: Mapping[int, np.ndarray]

    def __len__(self) -> int:
        return len(self.codes)


class PairSampler:
    """Takes batches, one after the other, and keeps the codes of at most n pairs.

    Which pairs are drawn depends on the seed and on the numbers of the rows, not on how they come
    in batches: of all queries those are kept whose random numbers are the lowest. Memory: the
    pattern of one layer and one batch, [B, T, T] numbers more, and 2n codes; it does not grow with
    the number of texts. `ConfigError` for codes that are not finite.

    Args:
        model: As in `as_language_model`.
        n: Pairs to keep.
        attended: Share of them whose key is drawn in proportion to the attention that it gets.
        seed: Seed of the pairs.
    """

    def __init__(
        self, model: Any, *, n: int = 5_000, attended: float = 0.5, seed: int = 0
    ) -> None:
        self.language = as_language_model(model)
        self.model = self.language.model
        self.layout = layout(self.model)
        self.layers = self.layout.layers
        self.n, self.attended, self.seed = n, attended, checked_seed(seed)
        self.n_texts = self.n_tokens = 0
        self._device = next(self.model.parameters()).device
        self._tokens: dict[int, np.ndarray] = {}
        self._pairs = pd.DataFrame()
        self._codes = np.empty((0, len(self.layers), self.layout.n_heads), np.float32)

    def add(self, batch: TextBatch) -> None:
        """Read a batch: at most two passes over those of its rows that have a pair to keep."""
        drawn = self._draw(batch)
        if drawn.empty:
            return
        rows, at = np.unique(drawn["row"], return_inverse=True)
        some = batch[torch.from_numpy(rows)].to(self._device)
        query, uniform, attended = (
            drawn[name].to_numpy() for name in ("query", "uniform", "attended"))
        key = np.minimum((uniform * (query + 1)).astype(np.int64), query)
        if attended.any():
            size = some.tokens.shape[1]
            given = torch.zeros(len(some), size, size, device=self._device)

            def add(pattern: Tensor, place: int) -> None:
                given.add_(pattern.abs().sum(dim=1, dtype=torch.float32))

            self._look(some, add)
            total = given.cpu().double().numpy()
            for i in np.flatnonzero(attended):
                key[i] = attended_key(total[at[i], query[i], 1:query[i] + 1], uniform[i])
        codes = np.empty((len(at), len(self.layers), self.layout.n_heads), np.float32)
        b, q, k = (torch.tensor(x, device=self._device) for x in (at, query, key))

        def read(pattern: Tensor, place: int) -> None:
            codes[:, place] = pattern[b, :, q, k].float().cpu().numpy()

        self._look(some, read)
        self._keep(some, drawn.assign(key=key), codes)

    def finish(self) -> HeadSample:
        """Return what was kept, in the order of the texts; `ProbeError` where there is nothing."""
        self._keep_lowest()
        check(len(self._codes) > 0, f"no pair could be drawn from {self.n_texts:,} texts of "
              f"{self.n_tokens:,} tokens; expected a text of at least two tokens", ProbeError)
        pairs = self._pairs.sort_values(["text", "number", "query"])
        number, query, key = (pairs[name].to_numpy() for name in ("number", "query", "key"))
        ids = [self._tokens[row] for row in number.tolist()]
        labels = pd.DataFrame({"text": pairs["text"].to_numpy(), "query_position": query,
                               "key_position": key, "distance": query - key})
        for role, position in (("query", query), ("key", key)):
            labels[f"{role}_token"] = self.language.texts(
                [int(row[t]) for row, t in zip(ids, position, strict=True)])
        labels["kind"] = np.where(key == 0, "first", np.where(key == query, "self", "other"))
        labels["drawn"] = np.where(pairs["attended"], "attended", "uniform")
        labels["context"] = [_context(self.language, row, int(q), int(k))
                             for row, q, k in zip(ids, query, key, strict=True)]
        codes = LatentCodes(
            self._codes[pairs.index][:, :, None], labels, (SAMPLED,), self.layers, {
                **self.language.settings, "split": "texts", "seed": self.seed, "n": self.n,
                "attended": self.attended, "texts": self.n_texts, "tokens": self.n_tokens,
                "latentcode_version": package_version("latentcode")})
        last = dict(zip(number.tolist(), query.tolist(), strict=True))  # queries are in order
        return HeadSample(codes, number, {row: self._tokens[row][:q + 1]
                                          for row, q in last.items()})

    def _draw(self, batch: TextBatch) -> pd.DataFrame:
        """Return the queries of a batch that may be kept; `uniform` draws their keys."""
        numbers, lengths = batch.rows.tolist(), batch.lengths.tolist()
        self.n_texts += len(lengths)
        self.n_tokens += sum(lengths)
        n_queries = [max(length - 1, 0) for length in lengths]
        row = np.repeat(np.arange(len(lengths)), n_queries)
        random = np.concatenate([
            np.random.default_rng([self.seed, PURPOSE, number]).random((3, n))
            for number, n in zip(numbers, n_queries, strict=True)], axis=1)
        drawn = pd.DataFrame({
            "priority": random[0], "row": row, "text": batch.text.cpu().numpy()[row],
            "number": np.array(numbers)[row],
            "query": np.concatenate([np.arange(1, n + 1) for n in n_queries]),
            "attended": random[1] < self.attended, "uniform": random[2]})
        if len(self._pairs) >= self.n:
            drawn = drawn[drawn["priority"] < self._pairs["priority"].nsmallest(self.n).max()]
        return drawn.nsmallest(self.n, "priority").sort_index()

    def _look(self, batch: TextBatch, function: Callable[[Tensor, int], None]) -> None:
        """Pass a batch, and call a function with each layer's pattern and number here."""
        finite: list[bool] = []

        def hook_of(place: int) -> Callable[..., None]:
            def hook(pattern: Tensor, hook: object) -> None:
                function(pattern, place)
                finite.append(bool(pattern.isfinite().all()))
            return hook

        look(self.model, batch.tokens, ((self.layout.pattern_hooks[layer], hook_of(i))
                                        for i, layer in enumerate(self.layers)), batch.padding)
        broken = [str(layer) for layer, fine in zip(self.layers, finite, strict=True) if not fine]
        check(not broken, f"layer {', '.join(broken)} of model "
              f"{self.language.settings.get('run')!r} computes codes that are not finite; expected "
              "numbers")

    def _keep(self, batch: TextBatch, pairs: pd.DataFrame, codes: np.ndarray) -> None:
        """Keep pairs of a batch, with their codes [N, L, H]."""
        for row, ids, length in zip(batch.rows.tolist(), batch.tokens.cpu().numpy(),
                                    batch.lengths.tolist(), strict=True):
            self._tokens[row] = ids[:length].astype(np.int32)
        self._pairs = pd.concat([self._pairs, pairs], ignore_index=True)
        self._codes = np.concatenate([self._codes, codes])
        if len(self._codes) > 2 * self.n:
            self._keep_lowest()

    def _keep_lowest(self) -> None:
        """Let go of all pairs but the n with the lowest numbers, and of rows that have none."""
        if len(self._codes):
            lowest = self._pairs["priority"].nsmallest(self.n).index
            self._pairs = self._pairs.loc[lowest].reset_index(drop=True)
            self._codes = self._codes[lowest]
            left = set(self._pairs["number"].tolist())
            self._tokens = {row: ids for row, ids in self._tokens.items() if row in left}


def sample_codes(model: Any, batches: Iterable[TextBatch], **options: Any) -> HeadSample:
    """Read batches of texts once, and keep the codes of some pairs; options as in `PairSampler`."""
    sampler = PairSampler(model, **options)
    for batch in batches:
        sampler.add(batch)
    return sampler.finish()


def attended_key(weights: np.ndarray, uniform: float) -> int:
    """Return a key in proportion to the attention [q] that keys 1 to q get; `uniform` in [0, 1)."""
    if not weights.any():  # all of it goes to the first token: one is as good as another
        weights = np.ones_like(weights)
    edges = np.cumsum(weights)
    return 1 + min(int(np.searchsorted(edges, uniform * edges[-1], side="right")),
                   len(weights) - 1)


def _context(model: LanguageModel, ids: np.ndarray, query: int, key: int) -> str:
    """Return the tokens around a query and a key as text: `the [[ cat]] sat … and<< it>> ran`.

    What lies between the two windows is left out as `…`, as is what lies before and after them.
    """
    near = [t for t in range(len(ids)) if min(abs(t - query), abs(t - key)) <= WINDOW]
    texts = model.texts([int(ids[t]) for t in near])
    shown = "… " if near[0] > 0 else ""
    for i, (t, text) in enumerate(zip(near, texts, strict=True)):
        shown += " … " if i and t > near[i - 1] + 1 else ""
        text = f"[[{text}]]" if t == key else text
        shown += f"<<{text}>>" if t == query else text
    return shown + (" …" if near[-1] < len(ids) - 1 else "")


def cluster_networks(
    model: LanguageModel, sample: HeadSample, clusters: Clusters, *, seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame, dict[int, str]]:
    """Return the networks that the mean codes of clusters generate, and the tokens they promote.

    Of each layer there are networks of the clusters of its `own` codes and of those of `all`
    layers.

    Returns:
        A row per network and part (`matrix` of an affine one): Frobenius `norm`,
        `participation_ratio` (sum s^2)^2 / sum s^4 of the singular values s, and `apart`, the
        distance from the mean over the clusters over the norm, and that of the same pairs when each
        head's codes are permuted over the pairs of a text. Of the examples nearest to a centre the
        tokens whose logit is the largest; `by_mean` is the logit that the mean code of all pairs
        gives the same token at the same key. By layer, why it has no networks: they are not known
        (multi-head latent attention), have a gate, or do not give what attention puts out.
    """
    bridge, codes = model.model, sample.codes
    x = codes.scores[:, :, 0].astype(np.float64)
    rng = np.random.default_rng([checked_seed(seed), 6])
    control = permuted(
        x.reshape(len(x), -1), codes.labels["text"].to_numpy(), rng).reshape(x.shape)
    examples = clusters.examples[clusters.examples["chosen"] == "nearest"]
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
                for example in examples[examples["layer"] == place].to_dict("records"):
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
    return (pd.DataFrame(networks, columns=list(NETWORKS)),
            pd.DataFrame(says, columns=list(SAYS)), left_out)


def _reason(bridge: Any, sample: HeadSample, layer: int) -> str | None:
    """Return why the value networks of a layer are not to be read; None where they are."""
    if gate_of(bridge, layer) is not None:
        return ("attention has a gate, which the query sets: a mean code alone generates no "
                "network")
    longest = max(sample.tokens.values(), key=len)[:N_TRIED].astype(np.int64)
    tokens = torch.from_numpy(longest)[None].to(next(bridge.parameters()).device)
    try:
        generated, shown = generated_and_shown(bridge, tokens, layer)
    except (AttributeError, KeyError, ValueError, RuntimeError, TypeError) as error:
        # Weights that the model does not have, or not in the shape of value heads.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"no value network: {lines[0]}"
    off = float((generated - shown).abs().max() / shown.abs().max().clamp_min(1e-30))
    if not off < max(TRUSTED, 10 * torch.finfo(shown.dtype).eps):
        return (f"attention does more than its value networks: sum_k W_qk x_k + b_O is off by "
                f"{off:.2g} of its output")
    for name in ("ln_final", "unembed"):
        if getattr(bridge, name, None) is None:
            return f"the model has no {name}, by which a network's output would be read"
    return None


def participation_ratio(matrix: Float[Tensor, "... n m"]) -> Float[Tensor, "..."]:
    """(sum_i s_i^2)^2 / sum_i s_i^4 of the singular values s_i; NaN for zero.

    Of r equal singular values it is r. No singular value is computed: the sums are |M|^2 and
    |M^T M|^2 in the Frobenius norm.
    """
    squared = matrix.square().sum(dim=(-2, -1))
    gram = matrix.mT @ matrix if matrix.shape[-1] <= matrix.shape[-2] else matrix @ matrix.mT
    return squared.square() / gram.square().sum(dim=(-2, -1))


def _compared(
    bridge: Any, layer: int, means: np.ndarray, control: np.ndarray, sizes: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the rows of `networks` for mean codes [clusters, heads]."""
    weight = next(bridge.parameters())
    codes, permuted_codes = (torch.from_numpy(y).to(weight.device, weight.dtype)
                             for y in (means, control))
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
