"""Interchange of each head by itself: whether it brings the source's answer.

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

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentcode.devices import checked_seed, make_generator
from latentcode.errors import TooFewCountError, check
from latentcode.models.hooks import attention_layers, evaluating, see
from latentcode.models.patched.heads import HeadPass, Write, clean_heads, unshared, z_hook
from latentcode.models.pretrained import layout
from latentcode.probes.common.statistics import cluster_sums
from latentcode.probes.heads.ablate import effects_table, passes
from latentcode.probes.heads.metrics import Scores
from latentcode.progress import Progress, reported
from latentcode.prompts import LanguageModel
from latentcode.tasks.base import Batch
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs

SITES = ("z", "code")
QUANTITIES = ("flip", "moved")
SAME, UNRELATED, ANOTHER = "same answer", "unrelated", "another's source"
"""Controls: a source with the base's answer; an unrelated one; that of another pair."""
N_PAIRS, BATCH_SIZE = 200, 16
"""Pairs that are drawn at most, and those of one pass."""


def interchange(
    model: LanguageModel, task: Counterfactuals, *, sites: Sequence[str] = SITES,
    split: str = "ood", n_bootstrap: int = 1_000, seed: int = 0, progress: Progress | None = None,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the table of effects (`EFFECTS`, quantities `QUANTITIES`), and settings.

    Intervals resample whole combinations.

    Args:
        model: The language model.
        task: Pairs of prompts (`subject(model, prompts).counterfactuals()`); those count of which
            the model answers base and source rightly.
        sites: Some of `SITES`; they stand in the column `patch`.
        split: The split that pairs are drawn from.
        n_bootstrap: Replicates of the intervals.
        seed: Seed of the pairs and of the bootstrap.
        progress: Called with batches done and batches in all.

    Raises:
        LatentCodeError: `ConfigError` where the model does not go on with codes that are written;
            `TooFewCountError` where fewer than two pairs count.
    """
    if "code" in sites:
        layout(model.model).check_writable()
    bridge, whole_passes = model.model, unshared(model.model)
    generator = make_generator(
        checked_seed(seed), f"interchange {split}", next(bridge.parameters()).device)
    count = getattr(task, "n_pairs", None)
    n = N_PAIRS if count is None else min(N_PAIRS, count(split))
    batches = list(task.batches(split, n, BATCH_SIZE, generator))
    values: list[np.ndarray] = []
    reach: list[np.ndarray] = []
    combinations: list[np.ndarray] = []
    controls: set[str] = set()
    for pairs in reported(batches, len(batches), progress):
        pairs = _answered(bridge, task, pairs)
        if len(pairs):
            of_pairs, reach_of_pairs, control = _effects(
                bridge, task, pairs, sites, shared=not whole_passes)
            controls.add(control)
            values.append(of_pairs)
            reach.append(reach_of_pairs)
            combinations.append(pairs.bases.combination.cpu().numpy())
    n_known = sum(map(len, combinations))
    check(n_known >= 2, f"of {n} pairs of split {split!r} the model answers {n_known} rightly, "
          f"base and source; expected at least two. Is it trained?{getattr(task, 'doubt', '')}",
          TooFewCountError)
    table = _table(np.concatenate(values, -1), np.concatenate(reach), np.concatenate(combinations),
                   sites, attention_layers(bridge), " or ".join(sorted(controls)), n_bootstrap,
                   seed)
    return table, {
        "sites": list(sites), "split": split, "n": n, "n_known": n_known, "seed": seed,
        "passes": f"whole: {whole_passes}" if whole_passes else "layers below shared"}


def _answered(bridge: Any, task: Counterfactuals, pairs: MinimalPairs) -> MinimalPairs:
    """Return the pairs that count: the model answers base and source rightly, and they differ."""
    right = [task.right(pairs, _pass(bridge, batch, shared=False).logits[:, None], name)
             for name, batch in (("bases", pairs.bases), ("sources", pairs.sources))]
    return pairs[(pairs.counts & right[0] & right[1]).nonzero()[:, 0]]


def _pass(bridge: Any, batch: Batch, *, shared: bool) -> HeadPass:
    """Return a pass of prompts of one length, read at the last token."""
    read = torch.zeros_like(batch.inputs, dtype=torch.bool)
    read[:, -1] = True
    return clean_heads(bridge, batch.inputs, read, shared=shared)


def _effects(
    bridge: Any, task: Counterfactuals, pairs: MinimalPairs, sites: Sequence[str], *, shared: bool
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return flips and how far D went [site, patch or control, quantity, L, H, B], how far it could
    go [B], and the name of the control; NaN where there is none."""
    clean, source = (_pass(bridge, batch, shared=shared)
                     for batch in (pairs.bases, pairs.sources))
    name, control, has_control = _control(task, pairs)
    values = np.full((len(sites), 2, 2, bridge.cfg.n_layers, bridge.cfg.n_heads, len(pairs)),
                     np.nan)

    def outcomes(logits: Tensor) -> tuple[Tensor, Tensor]:
        after = task.outcomes(
            pairs, clean.logits[:, None], source.logits[:, None], logits[:, None])
        return after["flip"], after["logit_difference_clean"] - after["logit_difference"]

    for which, batch in enumerate((pairs.sources, control)):
        for s, site in enumerate(sites):
            for layer, writes in _writes(bridge, pairs.bases, batch, site):
                for head, logits in passes(clean, enumerate([write] for write in writes)):
                    for q, outcome in enumerate(outcomes(logits)):
                        values[s, which, q, layer, head] = outcome.double().cpu().numpy()
    values[:, 1, ..., ~has_control.cpu().numpy()] = np.nan
    return values, outcomes(source.logits)[1].double().cpu().numpy(), name


def _control(task: Counterfactuals, pairs: MinimalPairs) -> tuple[str, Batch, Bool[Tensor, " B"]]:
    """Return the other source of each pair, and which pairs have one."""
    answers = pairs.sources.targets.flatten(1)
    if "control" not in task.lacking:
        return SAME, pairs.control, torch.ones(len(pairs), dtype=torch.bool, device=answers.device)
    if "unrelated" in pairs.others:
        other = pairs.others["unrelated"]
        return UNRELATED, other, (other.targets.flatten(1) != answers).any(1)
    # The pair before it, or the first before that, with another answer of its source.
    n = len(pairs)
    differs = (answers[:, None] != answers).any(-1)
    at = torch.arange(n, device=answers.device)
    near = torch.where(differs, (at[:, None] - at) % n, n)
    return ANOTHER, pairs.sources[near.argmin(1)], differs.any(1)


def _writes(
    bridge: Any, bases: Batch, source: Batch, site: str
) -> Iterator[tuple[int, list[Write]]]:
    """Yield by layer the write of each head."""
    if site == "z":
        for layer, z in _pass(bridge, source, shared=False).z.items():
            yield layer, [Write(layer, (head,), z[:, :, head:head + 1])
                          for head in range(z.shape[2])]
        return
    hooks = {layer: _pattern_hook(layer) for layer in attention_layers(bridge)}
    with evaluating(bridge):
        _, patterns = see(bridge, source.inputs, list(hooks.values()))
    for layer, hook in hooks.items():
        yield layer, writes_of_codes(bridge, bases.inputs, layer, patterns[hook])


def _pattern_hook(layer: int) -> str:
    return f"blocks.{layer}.attn.hook_pattern"


def writes_of_codes(
    bridge: Any, tokens: Int[Tensor, "B T"], layer: int, pattern: Float[Tensor, "B H T T"]
) -> list[Write]:
    """Return of each head the z that its codes of another pattern make of the values at hand.

    Where heads come together in a value network that is not linear, as in HYLA, the codes of one
    change z of all.
    """
    every = tuple(range(pattern.shape[1]))

    def z_of(heads: tuple[int, ...]) -> Float[Tensor, "B T H d"]:
        """Return z of the layer where the codes of some heads are those of the pattern."""
        seen: list[Tensor] = []

        def put(codes: Tensor, hook: object) -> Tensor:
            codes = codes.clone()
            codes[:, list(heads)] = pattern[:, list(heads)].to(codes.dtype)
            return codes

        def look(z: Tensor, hook: object) -> None:
            seen.append(z.clone())

        with evaluating(bridge):
            bridge.run_with_hooks(tokens, fwd_hooks=[
                (_pattern_hook(layer), put), (z_hook(layer), look)])
        return seen[0]

    if getattr(bridge.cfg, "value_network", "linear") != "linear":
        return [Write(layer, every, z_of((head,))) for head in every]
    z = z_of(every)
    return [Write(layer, (head,), z[:, :, head:head + 1]) for head in every]


def _table(
    values: np.ndarray, reach: np.ndarray, combination: np.ndarray, sites: Sequence[str],
    layers: Sequence[int], control: str, n_bootstrap: int, seed: int,
) -> pd.DataFrame:
    """Return the effects of all pairs: the mean of flips, and how far D went as a share of how far
    it could."""
    def scores(which: np.ndarray) -> Scores:
        sums, n = cluster_sums(np.moveaxis(values[..., which], -1, 0), combination[which])
        reaches, _ = cluster_sums(reach[which], combination[which])
        sizes = np.stack([n, reaches], axis=1)[:, None, None, :, None, None]
        return Scores.of(sums, sizes, int(which.sum()), n_bootstrap, seed)

    has_control = np.isfinite(values).all((0, 1, 2))[list(layers)].all((0, 1))
    every = scores(np.ones_like(has_control))
    paired = scores(has_control) if has_control.any() else None
    return pd.concat([effects_table(
        site, layers, QUANTITIES, every[s, 0][:, layers],
        None if paired is None else (paired[s, 0][:, layers], paired[s, 1][:, layers]), control)
        for s, site in enumerate(sites)], ignore_index=True)
