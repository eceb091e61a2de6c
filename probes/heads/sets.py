"""Which sets of heads act together? Searches, with estimates of the effect of sets.

Which heads would matter if all were ablated together? An estimate for all of them at once.

    e_h = int_0^1 sum_t (m_h - z_ht) . dL/dz'_ht da,    z' = (1 - a) z + a m in every layer

L is the loss at the tokens that are read, m the mean of z. With a = 0 alone this is attribution
patching (Nanda 2023; Syed et al., arXiv 2310.10348) of mean ablation: one pass forward and one
backward. It misses heads that another one covers for, or whose output a nonlinearity saturates, as
there L has no slope. So the slope is taken at several a between none and all ablated (integrated
gradients, Sundararajan et al., arXiv 1703.01365; in circuits Hanna et al., arXiv 2403.17806). z of
a layer follows from what the lower ones were changed to, so that the estimates of all heads sum up
to what ablating all of them does, with steps enough for the integral. Heads are ranked by the mean
of |slope| over the steps, which few of them suffice for.

Which heads act together? Sets of heads that are ablated at once, beside each head alone.

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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from latentcode.errors import ProbeError, check, check_choice, check_count
from latentcode.models.modes import evaluating
from latentcode.models.replay import Write, clean_pass, logits_at, unshared, z_hook
from latentcode.probes.common.contrasts import contrast_columns
from latentcode.probes.heads.batches import TextBatch, in_parts
from latentcode.probes.heads.causal import QUANTITIES, Before, mean_z
from latentcode.probes.heads.scores import Scores
from latentcode.probes.heads.tables import GROUPS, SETS
from latentcode.progress import Progress, say_doing
from latentcode.prompts import LanguageModel
from latentcode.seeds import make_generator

Head = tuple[int, int]
"""Layer and number of a head."""
Heads = tuple[Head, ...]
HOW = ("greedy", "attributed", "pair", "random")
ACTS = ("redundant", "synergetic", "additive")
CONTRASTS = contrast_columns("set", "search", "heads", "size")


def attributed(
    asked: LanguageModel, batches: Iterable[TextBatch], means: Mapping[int, Tensor], *,
    steps: int = 5, n_read: int | None = 64, seed: int = 0,
) -> Float[np.ndarray, "A L H"]:
    """Return the slope at each a, sum_t (m_h - z_ht) . dL/dz'_ht, in nats a token that is read.

    means   what is put in (`mean_z`)
    steps   values of a: the midpoints of as many parts of [0, 1]; 1: a = 0, attribution patching
    n_read  tokens of each text that are read, drawn at random

    Their mean over a is e_h, by how much the loss is estimated to rise.

    `ProbeError` where no token is read.
    """
    check_count("steps", steps)
    config = asked.model.cfg
    total, n = np.zeros((steps, config.n_layers, config.n_heads)), 0
    shares = [0.0] if steps == 1 else [(step + 0.5) / steps for step in range(steps)]
    for batch in batches:
        for part in in_parts(batch, asked.model, n_read, seed, backward=True):
            n += int(part.read.sum())
            for step, share in enumerate(shares):
                for layer, slopes in _slopes(asked, part, means, share).items():
                    total[step, layer] += slopes
    check(n > 0, "no token is read; expected texts of at least two tokens", ProbeError)
    return total / n


def ranked(
    slopes: Float[np.ndarray, "A L H"], layers: Iterable[int]
) -> list[tuple[int, int]]:
    """Return all heads of some layers, layer and number, those with the largest mean |slope| first.
    """
    size = np.abs(slopes).mean(0)
    heads = [(layer, head) for layer in layers for head in range(size.shape[1])]
    return sorted(heads, key=lambda head: -size[head])


def _slopes(
    asked: LanguageModel, batch: TextBatch, means: Mapping[int, Tensor], share: float
) -> dict[int, np.ndarray]:
    """Return by layer sum_t (m_h - z_ht) . dL/dz'_ht of its heads, a share of the way gone."""
    model = asked.model
    z: dict[int, Tensor] = {}
    put: dict[int, Tensor] = {}

    def go(layer: int) -> Callable[..., Tensor]:
        def towards(live: Tensor, hook: object) -> Tensor:
            z[layer] = live.detach()
            mean = means[layer].to(live)
            moved = live + share * (mean - live)
            # Where no weight asks for a gradient, the lowest z begins the graph.
            put[layer] = moved if moved.requires_grad else moved.requires_grad_()
            return put[layer]
        return towards

    at = batch.read.flatten().nonzero().flatten()
    with evaluating(model), torch.enable_grad():
        logits = logits_at(model, batch.tokens, batch.padding, at, [
            (z_hook(layer), go(layer)) for layer in means])
        loss = F.cross_entropy(logits[0].float(), batch.targets[batch.read], reduction="sum")
        slopes = torch.autograd.grad(loss, list(put.values()))
    return {layer: ((means[layer].to(slope) - z[layer]) * slope).double().sum((0, 1, 3)).cpu(
        ).numpy() for layer, slope in zip(put, slopes, strict=True)}


@dataclass(frozen=True)
class SetSums:
    """What ablating each of some sets changes, summed up over the tokens of each group of texts.

    sums    float64 [set, group]
    counts  float64 [group], tokens
    """

    sets: tuple[Heads, ...]
    sums: Float[np.ndarray, "S G"]
    counts: Float[np.ndarray, " G"]

    def mean(self, heads: Heads) -> float:
        """Return the mean over tokens of one set."""
        return float(self.of(heads).sum() / self.counts.sum())

    def of(self, heads: Heads) -> np.ndarray:
        """Return the sums of one set, float64 [group]."""
        return np.asarray(self.sums[self.sets.index(heads)])


@dataclass(frozen=True)
class Half:
    """Some of the texts of batches."""

    batches: Iterable[TextBatch]
    texts: frozenset[int]

    def __iter__(self) -> Iterator[TextBatch]:
        for batch in self.batches:
            mine = batch.of_texts(self.texts)
            if len(mine):
                yield mine


def halves(batches: Iterable[TextBatch], seed: int) -> tuple[Half, Half]:
    """Return two halves of the texts, drawn at random: what sets are found on, and measured on.

    `ProbeError` where there are fewer than four texts.
    """
    texts = sorted({text for batch in batches for text in batch.text.tolist()})
    check(len(texts) >= 4, f"there are {len(texts)} texts; expected at least 4, as sets are found "
          "on one half of them and measured on the other", ProbeError)
    order = torch.randperm(len(texts), generator=make_generator(seed, "halves of texts")).tolist()
    first = frozenset(texts[i] for i in order[:len(texts) // 2])
    return Half(batches, first), Half(batches, frozenset(texts) - first)


def find_sets(
    asked: LanguageModel, batches: Iterable[TextBatch], *, size: int = 4, n_candidates: int = 12,
    n_paired: int = 6, n_random: int = 8, quantity: str = "loss", n_read: int | None = 64,
    n_reference: int = 64, steps: int = 5, n_bootstrap: int = 1000, seed: int = 0,
    progress: Progress | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """Which heads act together? Sets, contrasts with random sets, and settings.

    batches       can be gone through several times
    size          heads of the largest sets
    n_candidates  heads among which is searched: those that `attributed.ranked` puts first
    n_paired      heads of which all pairs are measured, likewise
    n_random      random sets of each size, drawn among all heads
    quantity      one of `QUANTITIES`: what a search raises, and what is measured
    n_reference   texts whose mean is put in place of z
    progress      called with (sets measured, sets in all)

    A set is `greedy` (the head first without which the most is lost, then the one with which the
    most is), `attributed` (the first ones of the estimate), a `pair`, or `random`. A greedy search
    finds heads that cover for each other, not those that need each other, of which one suffices;
    pairs find both. The table (`SETS`) has its heads as `layer.head`, its effect with interval,
    the sum of the effects of its heads alone on the same tokens, and the interaction; intervals
    resample whole texts. Contrasts (`CONTRASTS`) say by how much the effect is above the mean of
    the random sets of equal size.

    `ProbeError` for fewer than four texts.
    """
    for name, value, least in (("size", size, 2), ("n_candidates", n_candidates, 2),
                               ("n_paired", n_paired, 0), ("n_random", n_random, 1)):
        check_count(name, value, least)
    check_choice("quantity", quantity, QUANTITIES)
    found_on, told_by = halves(batches, seed)
    means = mean_z(asked, found_on, n_reference)
    order = ranked(attributed(asked, found_on, means, steps=steps, n_read=n_read, seed=seed),
                   means)
    candidates, size = order[:n_candidates], min(size, len(order))
    sizes = range(2, size + 1)
    shared = not unshared(asked.model)
    measure = _Measure(asked, means, quantity, n_read, seed, shared)

    random = _random_sets(order, sizes, n_random, seed)
    pairs = [_in_order(pair) for pair in combinations(order[:n_paired], 2)]
    first = [_in_order(order[:n]) for n in sizes]
    n_greedy = sum(len(candidates) - n for n in range(min(size, len(candidates))))
    total = n_greedy + len(random) + len(pairs) + len(first) + len(sizes)
    report = _Report(progress, total)
    say_doing(progress, "greedy search")
    greedy = _greedy(lambda sets: measure(found_on, sets, report), candidates, size)
    say_doing(progress, "other texts")
    by_how = dict(zip(HOW, (greedy, first, pairs, random), strict=True))
    sets = list(dict.fromkeys(one for some in by_how.values() for one in some))
    alone = list(dict.fromkeys((head,) for one in sets for head in one))
    told = measure(told_by, [*sets, *(one for one in alone if one not in sets)], report)
    report.end()
    rows, contrasts = _tables(by_how, sets, told, quantity, n_bootstrap, seed)
    return (pd.DataFrame(rows, columns=list(SETS)),
            pd.DataFrame(contrasts, columns=list(CONTRASTS)),
            {"quantity": quantity, "size": size, "n_candidates": n_candidates,
             "candidates": named(candidates), "n_paired": n_paired, "n_random": n_random,
             "n_read": n_read, "n_reference": n_reference, "steps": steps, "seed": seed,
             "n_texts": [len(found_on.texts), len(told_by.texts)]})


def named(heads: Iterable[Head]) -> str:
    """Return heads as tables name them: "3.1 5.2"."""
    return " ".join(f"{layer}.{head}" for layer, head in heads)


def ablated(
    asked: LanguageModel, batches: Iterable[TextBatch], sets: Sequence[Heads],
    means: Mapping[int, Tensor], *, quantity: str = "loss", n_read: int | None = 64,
    seed: int = 0, shared: bool = True, done: Callable[[int], None] | None = None,
) -> SetSums:
    """Return what mean ablation of each of some sets changes.

    done  called with how many sets were measured on a batch, times the share that it has of all
    """
    q = list(QUANTITIES).index(quantity)
    sums, counts = np.zeros((len(sets), GROUPS)), np.zeros(GROUPS)
    # Those that share layers pass at once.
    order = sorted(range(len(sets)), key=lambda i: min(sets[i]))
    for batch in batches:
        for part in in_parts(batch, asked.model, n_read, seed):
            clean = clean_pass(asked.model, part.tokens, part.read, padding=part.padding,
                               shared=shared)
            before = Before(clean.logits, part.targets[part.read])
            group = part.group[part.read.nonzero()[:, 0].cpu().numpy()]
            np.add.at(counts, group, 1.0)
            for some in _alike(order, sets, clean.room):
                logits = clean.after([writes(sets[i], means) for i in some])
                for i, values in zip(some, before.changes(logits)[q], strict=True):
                    np.add.at(sums[i], group, values)
        if done is not None:
            done(len(sets))
    return SetSums(tuple(sets), sums, counts)


def writes(heads: Heads, means: Mapping[int, Tensor]) -> list[Write]:
    """Return what puts the mean in place of z of some heads."""
    layers: dict[int, list[int]] = {}
    for layer, head in heads:
        layers.setdefault(layer, []).append(head)
    return [Write(layer, tuple(some), means[layer][some]) for layer, some in layers.items()]


def _alike(order: Sequence[int], sets: Sequence[Heads], room: int) -> Iterator[list[int]]:
    """Yield the numbers of sets with the same lowest layer, at most `room` at once."""
    some: list[int] = []
    for i in order:
        if some and (len(some) == room or min(sets[i])[0] != min(sets[some[0]])[0]):
            yield some
            some = []
        some.append(i)
    if some:
        yield some


@dataclass(frozen=True)
class _Measure:
    """Measures sets on texts."""

    asked: LanguageModel
    means: Mapping[int, Tensor]
    quantity: str
    n_read: int | None
    seed: int
    shared: bool

    def __call__(
        self, batches: Iterable[TextBatch], sets: Sequence[Heads], report: _Report
    ) -> SetSums:
        n_batches = sum(1 for _ in batches)
        return ablated(self.asked, batches, sets, self.means, quantity=self.quantity,
                       n_read=self.n_read, seed=self.seed, shared=self.shared,
                       done=lambda n: report.add(n / n_batches))


class _Report:
    """How many sets were measured, of how many."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0.0

    def add(self, n: float) -> None:
        self.done += n
        if self.progress is not None:
            self.progress(min(int(self.done), self.total - 1), self.total)

    def end(self) -> None:
        if self.progress is not None:
            self.progress(self.total, self.total)


def _greedy(
    measure: Callable[[Sequence[Heads]], SetSums], candidates: Sequence[Head], size: int
) -> list[Heads]:
    """Return the sets of two heads and more that grow by the head with which the most is lost."""
    chosen: list[Head] = []
    found = []
    for _ in range(min(size, len(candidates))):
        tried = [_in_order([*chosen, head]) for head in candidates if head not in chosen]
        sums = measure(tried)
        best = max(tried, key=sums.mean)
        chosen = list(best)
        if len(chosen) > 1:
            found.append(best)
    return found


def _random_sets(heads: Sequence[Head], sizes: Iterable[int], n: int, seed: int) -> list[Heads]:
    """Return n different random sets of each size, or all that there are."""
    generator = make_generator(seed, "random sets of heads")
    found: dict[Heads, None] = {}
    for size in sizes:
        mine: set[Heads] = set()
        for _ in range(20 * n):
            if len(mine) == n:
                break
            chosen = torch.randperm(len(heads), generator=generator)[:size].tolist()
            mine.add(_in_order(heads[i] for i in chosen))
        found |= dict.fromkeys(sorted(mine))
    return list(found)


def _in_order(heads: Iterable[Head]) -> Heads:
    return tuple(sorted(heads))


def _tables(
    by_how: dict[str, list[Heads]], sets: Sequence[Heads], told: SetSums, quantity: str,
    n_bootstrap: int, seed: int,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of sets, and of contrasts with random ones."""
    groups = np.flatnonzero(told.counts)
    sizes = told.counts[groups]

    def score(sums: np.ndarray) -> Scores:
        return Scores.of(sums[groups], sizes, int(sizes.sum()), n_bootstrap, seed)

    rows, contrasts = [], []
    random: dict[int, list[np.ndarray]] = {}
    for one in by_how["random"]:
        random.setdefault(len(one), []).append(told.of(one))
    for how, some in by_how.items():
        for one in some:
            whole = told.of(one)
            parts = np.sum([told.of((head,)) for head in one], axis=0)
            effect, interaction = score(whole), score(whole - parts)
            least, most = interaction.interval
            place = {"set": sets.index(one), "heads": named(one), "size": len(one)}
            rows.append({
                **place, "how": how, **effect.row(names=("effect", "low", "high")),
                "sum": float(score(parts).value),
                **interaction.row(names=("interaction", "interaction_low", "interaction_high")),
                "acts": ACTS[0] if least > 0 else ACTS[1] if most < 0 else ACTS[2],
                **effect.size})
            if how != "random" and len(one) in random:
                above = score(whole - np.mean(random[len(one)], axis=0))
                contrasts.append({**place, "search": how, "quantity": quantity,
                                  "against": "random", **above.row(), **above.size})
    return rows, contrasts
