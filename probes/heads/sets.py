"""Sets of heads that act together: a search, and the effects of ablating them at once.

Which heads would matter if all were ablated together? An estimate for all of them at once:

    e_h = int_0^1 sum_t (m_h - z_ht) . dL/dz'_ht da,    z' = (1 - a) z + a m in every layer

L is the loss at the tokens that are read, m the mean of z. With a = 0 alone this is attribution
patching (Nanda 2023; Syed et al., arXiv 2310.10348) of mean ablation: one pass forward and one
backward. It misses heads that another one covers for, or whose output a nonlinearity saturates, as
there L has no slope. So the slope is taken at several a between none and all ablated (integrated
gradients, Sundararajan et al., arXiv 1703.01365; in circuits Hanna et al., arXiv 2403.17806). z of
a layer follows from what the lower ones were changed to, so that the estimates of all heads sum up
to what ablating all of them does, with steps enough for the integral. Heads are ranked by the mean
of |slope| over the steps, which few of them suffice for.

Which heads act together? Sets of heads that are ablated at once, beside each head alone:

    interaction(S) = E(S) - sum_{h in S} E({h}),    E(S) = what the loss rises by when S is ablated

Ablation says what is lost, which turns the usual signs: heads that *add* more together than alone
*lose* less together.

    redundant   interaction > 0: each covers for the other. Alone little is lost, together much
    synergetic  interaction < 0: each needs the other. Either alone already destroys what both
                do, and ablating the second one, too, cannot destroy it again
    additive    the interval of the interaction holds 0

Sets are found on one half of the texts and measured on the other, so that a search among many sets
does not flatter the one it ends with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.devices import make_generator
from latentcode.errors import ProbeError, check
from latentcode.models.hooks import evaluating
from latentcode.models.patched.heads import Write, clean_heads, unshared, z_hook
from latentcode.models.patched.passes import logits_at
from latentcode.probes.heads.ablate import QUANTITIES, Before, in_parts, mean_z, passes
from latentcode.probes.heads.metrics import DIFFERENCE, GROUPS, Scores, groups
from latentcode.progress import Progress, reported, say_doing
from latentcode.prompts import LanguageModel
from latentcode.prompts.answers import log_sum
from latentcode.prompts.texts import TextBatch

Head = tuple[int, int]
"""Layer and number of a head."""
Heads = tuple[Head, ...]
SetSums = dict[Heads, Float[np.ndarray, " G"]]
"""By set, what the loss rises by, summed over the tokens of each group of texts."""
SETS = ("set", "how", "heads", "size", "effect", "low", "high", "sum", "interaction",
        "interaction_low", "interaction_high", "acts", *DIFFERENCE, "n", "n_clusters")
QUANTITY = "loss"
STEPS = 5
"""Values of a, the midpoints of as many parts of [0, 1]."""


def find_sets(
    model: LanguageModel, batches: Sequence[TextBatch], *, size: int = 4, n_candidates: int = 12,
    n_paired: int = 6, n_random: int = 8, n_read: int | None = 64, n_bootstrap: int = 1_000,
    seed: int = 0, progress: Progress | None = None,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the table of sets (`SETS`), and settings; `ProbeError` for fewer than four texts.

    Sets of 2 to `size` heads are `greedy` (the head first without which the most is lost, then the
    one with which the most is, of the `n_candidates` that the estimate ranks first), `attributed`
    (the first ones of the estimate), a `pair` (all of its first `n_paired`), or `random`
    (`n_random` of each size, of all heads). A greedy search finds heads that cover for each other,
    not those that need each other, of which one suffices; pairs find both. The table has its heads
    as `layer.head`, its effect with interval, the sum of the effects of its heads alone on the same
    tokens, the interaction, and the difference of the effect from the mean of the random sets as
    large; intervals resample whole texts.
    """
    finding, measuring = halves(batches, seed)
    means = mean_z(model, finding)
    order = ranked(attributed(model, finding, means, n_read=n_read, seed=seed), means)
    candidates, size = order[:n_candidates], min(size, len(order))
    sizes = range(2, size + 1)
    by_search: dict[str, list[Heads]] = {
        "greedy": [], "attributed": [tuple(sorted(order[:n])) for n in sizes],
        "pair": [tuple(sorted(pair)) for pair in combinations(order[:n_paired], 2)],
        "random": _random_sets(order, sizes, n_random, seed)}
    shared, done = not unshared(model.model), 0.0
    total = len(sizes) + sum(map(len, by_search.values())) + sum(
        len(candidates) - n for n in range(min(size, len(candidates))))

    def measure(half: Sequence[TextBatch], sets: Sequence[Heads]) -> tuple[SetSums, np.ndarray]:
        def report(n: int) -> None:
            nonlocal done
            done += n / len(half)
            if progress is not None:
                progress(min(int(done), total - 1), total)
        return ablated(model, half, sets, means, n_read=n_read, seed=seed, shared=shared,
                       report=report)

    say_doing(progress, "greedy search")
    best: Heads = ()
    while len(best) < min(size, len(candidates)):
        tried = [tuple(sorted([*best, head])) for head in candidates if head not in best]
        losses, _ = measure(finding, tried)
        best = max(tried, key=lambda heads: losses[heads].sum())
        if len(best) > 1:
            by_search["greedy"].append(best)
    say_doing(progress, "other texts")
    sets = list(dict.fromkeys(heads for some in by_search.values() for heads in some))
    alone = dict.fromkeys((head,) for heads in sets for head in heads)
    sums, counts = measure(measuring, list(dict.fromkeys([*sets, *alone])))
    if progress is not None:
        progress(total, total)
    return _table(by_search, sets, sums, counts, n_bootstrap, seed), {
        "quantity": QUANTITY, "size": size, "n_candidates": n_candidates,
        "candidates": named(candidates), "n_paired": n_paired, "n_random": n_random,
        "n_read": n_read, "steps": STEPS, "seed": seed,
        "n_texts": [len(_texts(half)) for half in (finding, measuring)]}


def halves(batches: Sequence[TextBatch], seed: int) -> tuple[list[TextBatch], list[TextBatch]]:
    """Return two halves of the texts, drawn at random: what sets are found on, and measured on."""
    texts = sorted(_texts(batches))
    check(len(texts) >= 4, f"there are {len(texts)} texts; expected at least 4, as sets are found "
          "on one half of them and measured on the other", ProbeError)
    order = torch.randperm(len(texts), generator=make_generator(seed, "halves of texts")).tolist()
    first = {texts[i] for i in order[:len(texts) // 2]}
    finding, measuring = ([some for batch in batches if len(some := batch.of_texts(half))]
                          for half in (first, {*texts} - first))
    return finding, measuring


def _texts(batches: Iterable[TextBatch]) -> set[int]:
    return {text for batch in batches for text in batch.text.tolist()}


def attributed(
    model: LanguageModel, batches: Iterable[TextBatch], means: Mapping[int, Tensor], *,
    steps: int = STEPS, n_read: int | None = 64, seed: int = 0,
) -> Float[np.ndarray, "A L H"]:
    """Return the slope at each a, sum_t (m_h - z_ht) . dL/dz'_ht, in nats a token that is read.

    Their mean over a is e_h, the estimated rise of the loss. A single step is at a = 0, attribution
    patching. `ProbeError` where no token is read.
    """
    sums, counts = attributed_sums(model, batches, means, steps=steps, n_read=n_read, seed=seed)
    return np.asarray(sums.sum(1) / counts.sum())


def attributed_sums(
    model: LanguageModel, batches: Iterable[TextBatch], means: Mapping[int, Tensor], *,
    steps: int = STEPS, n_read: int | None = 64, seed: int = 0, progress: Progress | None = None,
) -> tuple[Float[np.ndarray, "A G L H"], Float[np.ndarray, " G"]]:
    """Return the sums of `attributed` over the tokens of each group of texts, and how many these
    are; `progress` is called with the parts of the texts that are done."""
    bridge = model.model
    total = np.zeros((steps, GROUPS, bridge.cfg.n_layers, bridge.cfg.n_heads))
    counts = np.zeros(GROUPS)
    z: dict[int, Tensor] = {}
    moved: dict[int, Tensor] = {}

    def move(live: Tensor, hook: object, layer: int, share: float) -> Tensor:
        z[layer] = live.detach()
        towards = live + share * (means[layer].to(live) - live)
        # Where no weight asks for a gradient, the lowest z begins the graph.
        moved[layer] = towards if towards.requires_grad else towards.requires_grad_()
        return moved[layer]

    parts = [part for batch in batches
             for part in in_parts(batch, bridge, n_read, seed, backward=True)]
    check(len(parts) > 0, "no token is read; expected texts of at least two tokens", ProbeError)
    for part in reported(parts, len(parts), progress):
        group = groups(part.text)
        np.add.at(counts, group, part.read.sum(1).double().cpu().numpy())
        at = part.read.flatten().nonzero().flatten()
        for step in range(steps):
            share = 0.0 if steps == 1 else (step + 0.5) / steps
            with evaluating(bridge), torch.enable_grad():
                logits = logits_at(bridge, part.tokens, part.padding, at, [
                    (z_hook(layer), partial(move, layer=layer, share=share)) for layer in means])
                loss = -log_sum(logits[0].float().log_softmax(-1), part.answers).sum()
                slopes = torch.autograd.grad(loss, list(moved.values()))
            for layer, slope in zip(moved, slopes, strict=True):
                by_head = (means[layer].to(slope) - z[layer]) * slope
                np.add.at(total[step, :, layer], group,
                          by_head.double().sum((1, 3)).cpu().numpy())
    return total, counts


def ranked(slopes: Float[np.ndarray, "A L H"], layers: Iterable[int]) -> list[Head]:
    """Return all heads of some layers, those with the largest mean |slope| first."""
    size = np.abs(slopes).mean(0)
    heads = [(layer, head) for layer in layers for head in range(size.shape[1])]
    return sorted(heads, key=lambda head: -size[head])


def ablated(
    model: LanguageModel, batches: Iterable[TextBatch], sets: Sequence[Heads],
    means: Mapping[int, Tensor], *, n_read: int | None = 64, seed: int = 0, shared: bool = True,
    report: Callable[[int], None] | None = None,
) -> tuple[SetSums, Float[np.ndarray, " G"]]:
    """Return what mean ablation of each of some sets changes, and the tokens of each group.

    `report` is called after each batch with the number of sets.
    """
    quantity = QUANTITIES.index(QUANTITY)
    sums: SetSums = {heads: np.zeros(GROUPS) for heads in sets}
    counts = np.zeros(GROUPS)
    by_lowest: dict[int, list[Heads]] = {}
    for heads in sorted(sets, key=min):  # those that share layers pass at once
        by_lowest.setdefault(min(heads)[0], []).append(heads)
    for batch in batches:
        for part in in_parts(batch, model.model, n_read, seed):
            clean = clean_heads(model.model, part.tokens, part.read, padding=part.padding,
                               shared=shared)
            before = Before(clean.logits, part.answers)
            group = groups(part.text[part.read.nonzero()[:, 0]])
            np.add.at(counts, group, 1.0)
            for alike in by_lowest.values():
                for heads, logits in passes(clean, ((heads, writes(heads, means))
                                                    for heads in alike)):
                    np.add.at(sums[heads], group, before.changes(logits)[quantity])
        if report is not None:
            report(len(sets))
    return sums, counts


def writes(heads: Heads, means: Mapping[int, Tensor]) -> list[Write]:
    """Return what puts the mean in place of z of some heads."""
    layers: dict[int, list[int]] = {}
    for layer, head in heads:
        layers.setdefault(layer, []).append(head)
    return [Write(layer, tuple(some), means[layer][some]) for layer, some in layers.items()]


def named(heads: Iterable[Head]) -> str:
    """Return heads as tables name them: "3.1 5.2"."""
    return " ".join(f"{layer}.{head}" for layer, head in heads)


def _random_sets(heads: Sequence[Head], sizes: Iterable[int], n: int, seed: int) -> list[Heads]:
    """Return n different random sets of each size, or all that there are."""
    generator = make_generator(seed, "random sets of heads")
    sets: list[Heads] = []
    for size in sizes:
        drawn: set[Heads] = set()
        for _ in range(20 * n):
            if len(drawn) == n:
                break
            chosen = torch.randperm(len(heads), generator=generator)[:size].tolist()
            drawn.add(tuple(sorted(heads[i] for i in chosen)))
        sets += sorted(drawn)
    return sets


def _table(
    by_search: Mapping[str, Sequence[Heads]], sets: Sequence[Heads], sums: SetSums,
    counts: np.ndarray, n_bootstrap: int, seed: int,
) -> pd.DataFrame:
    """Return the rows of all sets, those of equal heads with the same number."""
    filled = np.flatnonzero(counts)
    hows, rows = zip(*((how, heads) for how, some in by_search.items() for heads in some),
                     strict=True)
    searched = {heads for how, heads in zip(hows, rows, strict=True) if how != "random"}
    whole = np.stack([sums[heads] for heads in rows], axis=1)  # [G, S]
    alone = np.stack([sum(sums[head,] for head in heads) for heads in rows], axis=1)
    random = np.full_like(whole, np.nan)  # the mean of the random sets as large
    for i, heads in enumerate(rows):
        others = [sums[other] for other in by_search["random"] if len(other) == len(heads)]
        if heads in searched and others:
            random[:, i] = np.mean(others, axis=0)

    def scores(x: np.ndarray) -> Scores:
        return Scores.of(x[filled], counts[filled, None], int(counts.sum()), n_bootstrap, seed)

    effect, interaction = scores(whole), scores(whole - alone)
    low, high = interaction.interval()
    return pd.DataFrame({
        "set": [sets.index(heads) for heads in rows], "how": hows,
        "heads": list(map(named, rows)), "size": list(map(len, rows)),
        **effect.columns(("effect", "low", "high")), "sum": scores(alone).value,
        **interaction.columns(("interaction", "interaction_low", "interaction_high")),
        "acts": np.select([low > 0, high < 0], ["redundant", "synergetic"], "additive"),
        **scores(whole - random).columns(DIFFERENCE), "n": effect.n,
        "n_clusters": effect.n_clusters})[list(SETS)]
