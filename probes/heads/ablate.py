"""Effects of each head by itself, beside a control: ablation, and interchange.

    mean      z_h <- the mean of z_h over the tokens of some texts
    zero      z_h <- 0
    resample  z_h <- z_h of the same position of another text

(Wang et al., arXiv 2211.00593, section 2; Chan et al., causal scrubbing, 2022). What a head writes,
z_h W_O^h, changes by D_t = (z'_t - z_t) W_O^h at token t. The control changes the stream x_t that
attention leaves by as much, and makes it as long:

    (D_t . e_t) e_t + |D_t - (D_t . e_t) e_t| u_t / |u_t|,    e_t = x_t / |x_t|

where u_t is (z'_t - z_t) R without its part along x_t, and the entries of R [d, D] are independent
normal numbers: a head that sees the same, with a random output matrix. The part along x_t is the
same in both because norms take out the length of the stream: what removes a part of it turns it
further than what adds as much.

Of each layer and head there are K = 8 matrices R_k (`DIRECTIONS`), each for an eighth of the texts.
On the texts of R_k the control has the effect c_k, the head itself e_k, and d_k = e_k - c_k. With
the means c and d over all texts, another random matrix has, with 95 %, an effect and a difference
from the control in

    c +- t_(K-1) sd_k(c_k) sqrt(1 + 1/K)        0 +- t_(K-1) sd_k(d_k) sqrt(1 + 1/K)

(a prediction interval). `control_low`, `control_high` are the first; the interval of the difference
is d +- the second, beyond 0 where the head does more, or less, than one with a random output matrix
would. Both are a little wide: c_k and d_k differ by their texts, too.

Interchange asks whether a head brings the source's answer:

    z     z_h <- z_h of the source (activation patching; path patching of one head's output)
    code  a_h <- a_h of the source, over the base's own values: z_h = sum_k a'_hqk v_hk

at all tokens. `flip` is how often the source's answer comes then. `moved` is how far the difference
of logits D = answer - source's answer goes from where it is in the base (0) to where it is in the
source (1), of means over pairs, as in path patching (Wang et al., arXiv 2211.00593):

    moved = (<D base> - <D patched>) / (<D base> - <D source>)

The control is another source: one with the base's answer where there is one, else an unrelated one,
or that of another pair. Its answer is not the source's, which cannot come from it but by damage; a
pair for which there is no such source has no control.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit
from torch import Tensor

from latentcode.devices import checked_seed, make_generator
from latentcode.errors import ProbeError, TooFewCountError, check
from latentcode.models.hooks import attention_layers, evaluating, look, see
from latentcode.models.patched.heads import (
    NUMBERS,
    TOKENS,
    HeadPass,
    Write,
    clean_heads,
    unshared,
    z_hook,
)
from latentcode.models.pretrained import layout
from latentcode.probes.common.statistics import LEVEL, cluster_sums
from latentcode.probes.heads.metrics import CONTROLS, DIFFERENCE, GROUPS, Scores, groups
from latentcode.progress import Progress, reported
from latentcode.prompts import LanguageModel
from latentcode.prompts.answers import log_sum
from latentcode.prompts.pairs import PromptCounterfactuals
from latentcode.prompts.texts import TextBatch
from latentcode.tasks.base import Batch
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs, control_source

EFFECTS = ("patch", "layer", "head", "quantity", "value", "low", "high", *CONTROLS, "against",
           *DIFFERENCE, "n", "n_clusters")
KINDS = ("mean", "resample")
"""Ablations that are made where all is asked."""
ABLATIONS = (*KINDS, "zero")
QUANTITIES = ("loss", "kl", "changed", "right_lost")
"""Means over the tokens that are read: increase of the next token's loss and KL(clean || ablated),
in nats; share of tokens after which another one is the likeliest; share after which the right one
is, before minus after."""
DIRECTIONS = 8
"""Random output matrices of each head, among which the groups of texts are divided."""
KEPT = 2**26
"""Activations that are kept of the tokens of a part of a batch."""
SITES = ("z", "code")
INTERCHANGED = ("flip", "moved")
PATTERN = "blocks.{}.attn.hook_pattern"
N_PAIRS, BATCH_SIZE = 200, 16
"""Pairs that are drawn at most, and those of one pass."""
Key = TypeVar("Key")


class Ablation:
    """The effects of ablating heads (default: all), summed up part by part of the texts.

    Each head is a pass through the layers above it (`latentcode.models.patched`), where the model
    allows it; else through all of them, as `settings` has it. For `resample` the other text is
    drawn from the same part of a batch, among those that are as long or longer; where there is none
    it is the longest other one, and only tokens that it has as well are read. A text that is alone
    is left out. Of each text `n_read` tokens are read, drawn at random; None: all. `means` are
    those of z, by layer; default: over the texts.

    Attributes:
        heads: Layer and number of each head that is ablated.
        parts: The texts in parts that fit into memory.
        sums: float64 [kind, patch or control, quantity, head, group], of the parts so far.
        counts: float64 [kind, group], their tokens.
    """

    def __init__(
        self, model: LanguageModel, batches: Sequence[TextBatch], *, kinds: Sequence[str] = KINDS,
        control: bool = True, n_read: int | None = 64, seed: int = 0,
        heads: Collection[tuple[int, int]] | None = None,
        means: Mapping[int, Tensor] | None = None,
    ) -> None:
        self.model, self.kinds = model.model, tuple(dict.fromkeys(kinds))
        self.control, self.n_read, self.seed = control, n_read, checked_seed(seed)
        self.means = means or (mean_z(model, batches) if "mean" in kinds else {})
        self.parts = [part for batch in batches
                      for part in in_parts(batch, self.model, n_read, self.seed)]
        self.heads = [head for head in _heads_of(self.model) if heads is None or head in heads]
        self.layers = list(dict.fromkeys(layer for layer, _ in self.heads))
        self.whole_passes = unshared(self.model, self.layers)
        self.sums = np.zeros((len(self.kinds), 2, len(QUANTITIES), len(self.heads), GROUPS))
        self.counts = np.zeros((len(self.kinds), GROUPS))

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of results."""
        return {"kinds": list(self.kinds), "n_read": self.n_read, "seed": self.seed,
                "passes": f"whole: {self.whole_passes}" if self.whole_passes else
                "layers below shared"}

    def run(self, progress: Progress | None = None) -> Ablation:
        """Add all parts, and return the same; `ProbeError` where no token could be read."""
        per_part = len(self.kinds) * (1 + self.control) * len(self.heads)
        total = len(self.parts) * per_part
        for number, part in enumerate(self.parts):
            def report(done: int, begun: int = number * per_part) -> None:
                if progress is not None:
                    progress(begun + done, total)
            self.add(part, report)
        for kind in np.array(self.kinds)[~self.counts.any(axis=1)]:
            raise ProbeError(f"no token could be read of kind {kind!r}; expected texts of at least "
                             "two tokens, and for 'resample' two of them in a batch")
        return self

    def add(self, part: TextBatch, progress: Callable[[int], None] | None = None) -> None:
        """Add the effects on a part; `progress` is called with the passes that are done.

        A first part that is interrupted counts with the heads of the layers that are done.
        """
        clean = clean_heads(self.model, part.tokens, part.read, padding=part.padding,
                           shared=not self.whole_passes)
        before = Before(clean.logits, part.answers)
        donor = donors(part, self.seed)
        row, token = part.read.nonzero(as_tuple=True)
        group = groups(part.text[row])
        longest = torch.where(donor >= 0, part.lengths[donor], 0)
        every = np.ones(len(group), dtype=bool)
        counted = {"mean": every, "zero": every,
                   "resample": (token < longest[row]).cpu().numpy()}
        sums, n_passes, n_layers = np.zeros_like(self.sums), 0, 0
        try:
            for layer in self.layers:
                for (k, which, head), logits in passes(
                        clean, self._writes(clean, part, donor, layer)):
                    tokens = counted[self.kinds[k]]
                    i = self.heads.index((layer, head))
                    for q, values in enumerate(before.changes(logits)):
                        np.add.at(sums[k, which, q, i], group[tokens], values[tokens])
                    n_passes += 1
                    if progress is not None:
                        progress(n_passes)
                n_layers += 1
        except KeyboardInterrupt:
            if n_layers and not self.counts.any():
                self.layers = self.layers[:n_layers]
                self.heads = [head for head in self.heads if head[0] in self.layers]
                self._count(sums[:, :, :, :len(self.heads)], group, counted)
            raise
        self._count(sums, group, counted)

    def _count(
        self, sums: np.ndarray, group: np.ndarray, counted: Mapping[str, np.ndarray]
    ) -> None:
        """Add sums and counts at once: after an interruption they are of the same texts."""
        self.sums = self.sums[:, :, :, :sums.shape[3]] + sums
        for k, kind in enumerate(self.kinds):
            np.add.at(self.counts[k], group[counted[kind]], 1.0)

    def _writes(
        self, clean: HeadPass, part: TextBatch, donor: Tensor, layer: int
    ) -> Iterator[tuple[tuple[int, int, int], list[Write]]]:
        """Yield the writes of each pass of a layer, after its kind, patch (0) or control, head."""
        z = clean.z[layer]
        if self.control:
            matrices = torch.randn(
                (DIRECTIONS, *z.shape[2:], self.model.cfg.d_model),
                generator=make_generator(self.seed, f"directions of layer {layer}")).to(z)
            direction = torch.as_tensor(directions(self.seed)[groups(part.text)], device=z.device)
            along = F.normalize(clean.stream(layer), dim=-1)
        for k, kind in enumerate(self.kinds):
            for head in (head for at, head in self.heads if at == layer):
                new = (self.means[layer][head].to(z) if kind == "mean" else
                       torch.zeros_like(z[:, :, head:head + 1]) if kind == "zero" else
                       z[:, :, head:head + 1][donor])
                write = Write(layer, (head,), new)
                yield (k, 0, head), [write]
                if self.control:
                    change = clean.moved(write)
                    random = (new - z[:, :, [head]])[:, :, 0] @ matrices[direction, head]
                    kept, random_along = ((x * along).sum(-1, keepdim=True) * along
                                          for x in (change, random))
                    across = (change - kept).norm(dim=-1, keepdim=True)
                    yield (k, 1, head), [Write(layer, added=kept + across * F.normalize(
                        random - random_along, dim=-1))]

    def table(self, n_bootstrap: int = 1_000) -> pd.DataFrame:
        """Return the table of effects (`EFFECTS`): means of the `QUANTITIES` over tokens, whose
        intervals resample whole texts, and their controls and differences, as above."""
        tables = []
        for k, kind in enumerate(self.kinds):
            filled = np.flatnonzero(self.counts[k])
            sums = self.sums[k][..., filled].transpose(3, 0, 2, 1)  # [group, 2, head, quantity]
            sizes = self.counts[k, filled].reshape(-1, 1, 1)
            n = int(sizes.sum())
            scores = Scores.of(sums[:, 0], sizes, n, n_bootstrap, self.seed)
            draw = directions(self.seed)[filled]
            draws = Draws.weighted(sums, sizes[:, None], n, draw == np.unique(draw)[:, None])
            tables.append(effects_table(kind, self.heads, QUANTITIES, scores, (
                draws[0], draws[1]) if self.control else None, "random direction"))
        return pd.concat(tables, ignore_index=True)


def _heads_of(model: Any) -> list[tuple[int, int]]:
    return [(layer, head) for layer in attention_layers(model)
            for head in range(model.cfg.n_heads)]


class Before:
    """What a clean pass says at the tokens that are read, for others to be compared with.

    targets  the tokens that are right (`TextBatch.answers`); the loss is that of any of them
    """

    def __init__(self, logits: Float[Tensor, "R V"], targets: Int[Tensor, "R M"]) -> None:
        log_p = F.log_softmax(logits.float(), -1)
        self.p = log_p.exp()
        self.minus_entropy = torch.linalg.vecdot(self.p, log_p)
        self.targets = targets
        self.loss = -log_sum(log_p, targets)
        self.likeliest = logits.argmax(-1)

    def changes(self, logits: Float[Tensor, "R V"]) -> Float[np.ndarray, "Q R"]:
        """Return the `QUANTITIES` of another pass at every token."""
        logits = logits.float()
        norm, likeliest = logits.logsumexp(-1), logits.argmax(-1)
        loss = norm - log_sum(logits, self.targets)
        kl = self.minus_entropy - torch.linalg.vecdot(self.p, logits) + norm
        right = [(tokens[:, None] == self.targets).any(1).float()
                 for tokens in (self.likeliest, likeliest)]
        changes = torch.stack([
            loss - self.loss, kl.clamp_min(0.0),  # below 0 by rounding alone
            (likeliest != self.likeliest).float(), right[0] - right[1]])
        return np.asarray(changes.double().cpu().numpy())


def passes(
    clean: HeadPass, writes: Iterable[tuple[Key, Sequence[Write]]]
) -> Iterator[tuple[Key, Float[Tensor, "R V"]]]:
    """Yield the key and the logits of each pass in which something is written; as many pass at once
    as fit into memory, and share the layers below the lowest that any of them writes."""
    writes = iter(writes)
    while some := list(islice(writes, clean.room)):
        yield from zip((key for key, _ in some), clean.after([of_pass for _, of_pass in some]),
                       strict=True)


class Draws(Scores):
    """Scores of something that was drawn at random, several times: where another draw would lie.

        interval = value +- t_(K-1) sd_k(replicates) sqrt(1 + 1/K)

    The replicates [K, ...] are the score of each draw over its own part of the groups.
    """

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the 95 % prediction intervals of one draw, [...]; NaN of one draw."""
        k = len(self.replicates)
        spread = self.replicates.std(axis=0, ddof=1) if k > 1 else np.full_like(self.value, np.nan)
        half = stdtrit(k - 1, (1.0 + LEVEL) / 2.0) * spread * np.sqrt(1.0 + 1.0 / k)
        return self.value - half, self.value + half


def effects_table(
    patch: str, heads: Sequence[tuple[int, int]], quantities: Sequence[str], scores: Scores,
    paired: tuple[Scores, Scores] | None, control: str,
) -> pd.DataFrame:
    """Return the table of an effect (`EFFECTS`) from scores [head, quantity].

    `paired` are the same scores where there is a control, and those of the control there.
    """
    table = pd.DataFrame([(*head, quantity) for head in heads for quantity in quantities],
                         columns=["layer", "head", "quantity"])
    table = table.assign(patch=patch, **scores.columns(), n=scores.n, n_clusters=scores.n_clusters,
                         against=np.array(np.nan, dtype=object))
    if paired is not None:
        table = table.assign(against=control, **paired[1].columns(CONTROLS),
                             **(paired[0] - paired[1]).columns(DIFFERENCE))
    return table.reindex(columns=list(EFFECTS))


def mean_z(model: LanguageModel, batches: Iterable[TextBatch]) -> dict[int, Tensor]:
    """Return by layer the mean of z [H, d] over all tokens; `ProbeError` where there are none."""
    bridge, n = model.model, 0
    weight = next(bridge.parameters())
    sums: dict[int, Tensor] = {}
    for batch in batches:
        batch = batch.to(weight.device)
        places = torch.arange(batch.tokens.shape[1], device=weight.device)
        is_text = places < batch.lengths[:, None]
        n += int(is_text.sum())

        def add(z: Tensor, hook: object, *, layer: int, is_text: Tensor = is_text) -> None:
            sums[layer] = sums.get(layer, 0.0) + z[is_text].double().sum(0)

        look(bridge, batch.tokens, ((z_hook(layer), partial(add, layer=layer))
                                    for layer in attention_layers(bridge)), batch.padding)
    check(n > 0, "there are no texts to take a mean over", ProbeError)
    return {layer: (sums[layer] / n).to(weight.dtype) for layer in sorted(sums)}


def in_parts(
    batch: TextBatch, model: Any, n_read: int | None, seed: int, *, backward: bool = False
) -> list[TextBatch]:
    """Return a batch on the device of a model, in parts that fit into memory.

    Rows without a token that is read are left out. With `backward` all is kept that a backward pass
    needs; else a part has two rows at least, where the batch has, so that there is another text.
    """
    batch = batch.to(next(model.parameters()).device)
    batch = replace(batch, read=drawn(batch, n_read, seed))
    batch = batch[batch.read.any(1)]
    if not len(batch):
        return []
    config, n_tokens = model.cfg, batch.tokens.shape[1]
    logits = int(batch.read.sum(1).max()) * int(getattr(config, "d_vocab", 1))
    # Of each token: streams, and what blocks, attention and heads put out; or all activations of a
    # block (Korthikanti et al., arXiv 2205.05198, equation 2, in numbers of two bytes there).
    kept = n_tokens * config.n_layers * (
        17 * config.d_model + 3 * config.n_heads * n_tokens if backward else 4 * config.d_model)
    least = 1 if backward else 2
    n_rows = max(least, min(
        NUMBERS // logits, TOKENS // n_tokens, KEPT // kept))
    n_parts = max(1, min(-(-len(batch) // n_rows), len(batch) // least))
    return [batch[rows] for rows in torch.arange(len(batch)).tensor_split(n_parts)]


def drawn(batch: TextBatch, n_read: int | None, seed: int) -> Bool[Tensor, "B T"]:
    """Return where a batch is read: at most `n_read` tokens of each row."""
    if n_read is None:
        return batch.read
    read = torch.zeros_like(batch.read)
    for row, text in enumerate(batch.text.tolist()):
        places = batch.read[row].nonzero().flatten()
        generator = make_generator(seed, f"tokens of text {text}")
        order = torch.randperm(len(places), generator=generator)[:n_read]
        read[row, places[order.to(places.device)]] = True
    return read


def donors(batch: TextBatch, seed: int) -> Int[Tensor, " B"]:
    """Return of each row the row of another text that is written; -1 where there is none."""
    lengths, texts = batch.lengths.tolist(), batch.text.tolist()
    rows = []
    for text, length in zip(texts, lengths, strict=True):
        others = [row for row, other in enumerate(texts) if other != text]
        long = [row for row in others if lengths[row] >= length] or (
            sorted(others, key=lambda row: -lengths[row])[:1])
        generator = make_generator(seed, f"another text than {text}")
        rows.append(long[int(torch.randint(len(long), (), generator=generator))] if long else -1)
    return torch.tensor(rows, device=batch.tokens.device)


def directions(seed: int) -> Int[np.ndarray, " G"]:
    """Return which random matrix each group of texts is given; eight in a row get each once."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(DIRECTIONS) for _ in range(GROUPS // DIRECTIONS)])


def interchange(
    model: LanguageModel, task: PromptCounterfactuals, *, sites: Sequence[str] = SITES,
    split: str = "ood", n_bootstrap: int = 1_000, seed: int = 0, progress: Progress | None = None,
    heads: Collection[tuple[int, int]] | None = None,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the table of effects (`EFFECTS`, quantities `INTERCHANGED`), and settings.

    Pairs of prompts (`subject(model, prompts).counterfactuals()`) are drawn from a split; those
    count of which the model answers base and source rightly. `heads` are those that are patched
    (default: all). The sites stand in the column `patch`;
    intervals resample whole combinations.

    Raises:
        LatentCodeError: `ConfigError` where the model does not go on with codes that are written;
            `TooFewCountError` where fewer than two pairs count.
    """
    if "code" in sites:
        layout(model.model).check_writable()
    bridge, whole_passes = model.model, unshared(model.model)
    some = [head for head in _heads_of(bridge) if heads is None or head in heads]
    generator = make_generator(
        checked_seed(seed), f"interchange {split}", next(bridge.parameters()).device)
    n = min(N_PAIRS, task.n_pairs(split))
    batches = list(task.batches(split, n, BATCH_SIZE, generator))
    effects: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    controls: set[str] = set()
    for pairs in reported(batches, len(batches), progress):
        right = [task.right(pairs, _pass(bridge, batch, shared=False).logits[:, None], name)
                 for name, batch in (("bases", pairs.bases), ("sources", pairs.sources))]
        pairs = pairs[(pairs.counts & right[0] & right[1]).nonzero()[:, 0]]
        if len(pairs):
            values, reach, control = _effects(
                bridge, task, pairs, sites, some, shared=not whole_passes)
            controls.add(control)
            effects.append((values, reach, pairs.bases.combination.cpu().numpy()))
    n_known = sum(len(combination) for _, _, combination in effects)
    check(n_known >= 2, f"of {n} pairs of split {split!r} the model answers {n_known} rightly, "
          f"base and source; expected at least two. Is it trained?{task.doubt}",
          TooFewCountError)
    values, reach, combination = (np.concatenate(x, -1) for x in zip(*effects, strict=True))

    def scores(some: np.ndarray) -> Scores:  # flips; D as a share of how far it could go
        sums, sizes = cluster_sums(np.moveaxis(values[..., some], -1, 0), combination[some])
        reaches, _ = cluster_sums(reach[some], combination[some])
        sizes = np.stack([sizes, reaches], axis=1)[:, None, None, None]
        return Scores.of(sums, sizes, int(some.sum()), n_bootstrap, seed)

    has_control = np.isfinite(values).all((0, 1, 2, 3))
    every = scores(np.ones_like(has_control))
    paired = scores(has_control) if has_control.any() else None
    table = pd.concat([effects_table(
        site, some, INTERCHANGED, every[s, 0],
        None if paired is None else (paired[s, 0], paired[s, 1]),
        " or ".join(sorted(controls))) for s, site in enumerate(sites)], ignore_index=True)
    return table, {
        "sites": list(sites), "split": split, "n": n, "n_known": n_known, "seed": seed,
        "passes": f"whole: {whole_passes}" if whole_passes else "layers below shared"}


def _pass(bridge: Any, batch: Batch, *, shared: bool) -> HeadPass:
    """Return a pass of prompts of one length, read at the last token."""
    read = torch.zeros_like(batch.inputs, dtype=torch.bool)
    read[:, -1] = True
    return clean_heads(bridge, batch.inputs, read, shared=shared)


def _effects(
    bridge: Any, task: Counterfactuals, pairs: MinimalPairs, sites: Sequence[str],
    heads: Sequence[tuple[int, int]], *, shared: bool,
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return flips and how far D went [site, patch or control, head, quantity, B], how far it could
    go [B], and the name of the control; NaN where there is none."""
    clean, source = (_pass(bridge, batch, shared=shared)
                     for batch in (pairs.bases, pairs.sources))
    name, control, has_control = control_source(task, pairs)
    values = np.full((len(sites), 2, len(heads), 2, len(pairs)), np.nan)

    def outcomes(logits: Tensor) -> tuple[Tensor, Tensor]:
        after = task.outcomes(
            pairs, clean.logits[:, None], source.logits[:, None], logits[:, None])
        return after["flip"], after["logit_difference_clean"] - after["logit_difference"]

    for which, batch in enumerate((pairs.sources, control)):
        for s, site in enumerate(sites):
            for layer, writes in _interchanged(bridge, pairs.bases, batch, site):
                for head, logits in passes(clean, (
                        (head, [write]) for head, write in enumerate(writes)
                        if (layer, head) in heads)):
                    for q, outcome in enumerate(outcomes(logits)):
                        values[s, which, heads.index((layer, head)), q] = (
                            outcome.double().cpu().numpy())
    values[:, 1, ..., ~has_control.cpu().numpy()] = np.nan
    return values, outcomes(source.logits)[1].double().cpu().numpy(), name


def _interchanged(
    bridge: Any, bases: Batch, source: Batch, site: str
) -> Iterator[tuple[int, list[Write]]]:
    """Yield by layer the write of each head."""
    if site == "z":
        for layer, z in _pass(bridge, source, shared=False).z.items():
            yield layer, [Write(layer, (head,), z[:, :, head:head + 1])
                          for head in range(z.shape[2])]
        return
    hooks = {layer: PATTERN.format(layer) for layer in attention_layers(bridge)}
    with evaluating(bridge):
        _, patterns = see(bridge, source.inputs, list(hooks.values()))
    for layer, hook in hooks.items():
        yield layer, writes_of_codes(bridge, bases.inputs, layer, patterns[hook])


def writes_of_codes(
    bridge: Any, tokens: Int[Tensor, "B T"], layer: int, pattern: Float[Tensor, "B H T T"]
) -> list[Write]:
    """Return of each head the z that its codes of another pattern make of the values at hand; in a
    value network that is not linear (HYLA) the codes of one change z of all."""
    every = tuple(range(pattern.shape[1]))

    def z_of(heads: tuple[int, ...]) -> Float[Tensor, "B T H d"]:
        """Return z of the layer where the codes of some heads are those of the pattern."""
        def put(codes: Tensor, hook: object) -> Tensor:
            codes = codes.clone()
            codes[:, list(heads)] = pattern[:, list(heads)].to(codes.dtype)
            return codes

        seen: list[Tensor] = []
        with evaluating(bridge):
            bridge.run_with_hooks(tokens, fwd_hooks=[
                (PATTERN.format(layer), put),
                (z_hook(layer), lambda z, hook: seen.append(z.clone()))])
        return seen[0]

    if getattr(bridge.cfg, "value_network", "linear") != "linear":
        return [Write(layer, every, z_of((head,))) for head in every]
    z = z_of(every)
    return [Write(layer, (head,), z[:, :, head:head + 1]) for head in every]
