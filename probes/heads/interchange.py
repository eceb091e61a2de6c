"""Does a head bring the source's answer? What it puts out, or its code, taken from the source.

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

from latentcode.errors import TooFewCountError, check, check_choice
from latentcode.models.hooks import see
from latentcode.models.layers import attention_layers
from latentcode.models.modes import evaluating
from latentcode.models.pretrained import layout
from latentcode.models.replay import CleanPass, Write, clean_pass, unshared, z_hook
from latentcode.probes.common.bootstrap import cluster_sums
from latentcode.probes.heads.causal import CONTRASTS
from latentcode.probes.heads.scores import Scores, effect_rows
from latentcode.probes.heads.tables import EFFECTS
from latentcode.progress import Progress, reported
from latentcode.prompts import LanguageModel
from latentcode.seeds import checked_seed, make_generator
from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs

SITES = ("z", "code")
QUANTITIES = ("flip", "moved")
SAME, UNRELATED, ANOTHER = "same answer", "unrelated", "another's source"
"""Controls: a source with the base's answer; an unrelated one; that of another pair."""


def interchange(
    asked: LanguageModel, task: Counterfactuals, *, sites: Sequence[str] = SITES,
    split: str = "ood", n: int = 200, batch_size: int = 16, n_bootstrap: int = 1000, seed: int = 0,
    progress: Progress | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """Does a head bring the source's answer? A table, contrasts with the control, and settings.

    task   pairs of prompts (`subject(model, prompts).counterfactuals()`)
    sites  some of `SITES`; they stand in the column `patch`
    n      pairs drawn, at most; those count that the model answers rightly, base and source
    progress  called with (batches done, batches in all)

    Columns are those of `causal.EFFECTS` and `causal.CONTRASTS`, quantities `QUANTITIES`; intervals
    resample whole combinations. `ConfigError` for a site that there is not, and where the model
    does not go on with codes that are written; `TooFewCountError` where fewer than two pairs count.
    """
    for site in sites:
        check_choice("site", site, SITES)
    if "code" in sites:
        layout(asked.model).check_writable()
    model = asked.model
    why = unshared(model)
    device = next(model.parameters()).device
    generator = make_generator(checked_seed(seed), f"interchange {split}", device)
    count = getattr(task, "n_pairs", None)
    n = n if count is None else min(n, count(split))
    batches = list(task.batches(split, n, batch_size, generator))
    found: list[np.ndarray] = []
    wholes: list[np.ndarray] = []
    combinations: list[np.ndarray] = []
    controls: set[str] = set()
    for pairs in reported(batches, len(batches), progress):
        known = _known(model, task, pairs)
        if len(known):
            values, whole, control = _of_batch(model, task, known, sites, shared=not why)
            controls.add(control)
            found.append(values)
            wholes.append(whole)
            combinations.append(known.bases.combination.cpu().numpy())
    n_known = sum(map(len, combinations))
    check(n_known >= 2, f"of {n} pairs of split {split!r} the model answers {n_known} rightly, "
          f"base and source; expected at least two. Is it trained?{getattr(task, 'doubt', '')}",
          TooFewCountError)
    rows, contrasts = _tables(
        np.concatenate(found, -1), np.concatenate(wholes), np.concatenate(combinations), sites,
        attention_layers(model), " or ".join(sorted(controls)), n_bootstrap, seed)
    return (pd.DataFrame(rows, columns=list(EFFECTS)),
            pd.DataFrame(contrasts, columns=list(CONTRASTS)),
            {"sites": list(sites), "split": split, "n": n, "n_known": n_known, "seed": seed,
             "passes": f"whole: {why}" if why else "layers below shared"})


def last_read(tokens: Int[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
    """Return where a batch of prompts of one length is read, bool [B, T]: at the last token."""
    read = torch.zeros_like(tokens, dtype=torch.bool)
    read[:, -1] = True
    return read


def _known(model: Any, task: Counterfactuals, pairs: MinimalPairs) -> MinimalPairs:
    """Return the pairs that count: the model answers base and source rightly, and they differ."""
    right = [task.right(pairs, _pass(model, batch, shared=False).logits[:, None], of)
             for of, batch in (("bases", pairs.bases), ("sources", pairs.sources))]
    return pairs[(pairs.counts & right[0] & right[1]).nonzero()[:, 0]]


def _pass(model: Any, batch: Batch, *, shared: bool) -> CleanPass:
    return clean_pass(model, batch.inputs, last_read(batch.inputs), shared=shared)


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


def _of_batch(
    model: Any, task: Counterfactuals, pairs: MinimalPairs, sites: Sequence[str], *, shared: bool
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return flips and how far D went [site, patch or control, flip or went, L, H, B], how far it
    could go [B], and the name of the control; NaN where there is none."""
    clean, source = (_pass(model, batch, shared=shared)
                     for batch in (pairs.bases, pairs.sources))
    name, batch, there = _control(task, pairs)
    n_heads = model.cfg.n_heads
    values = np.full((len(sites), 2, 2, model.cfg.n_layers, n_heads, len(pairs)), np.nan)
    before = source.logits[:, None]

    def went(logits: Tensor) -> tuple[Tensor, Tensor]:
        said = task.outcomes(pairs, clean.logits[:, None], before, logits[:, None])
        return said["flip"], said["logit_difference_clean"] - said["logit_difference"]

    for of, given in enumerate((pairs.sources, batch)):
        for s, site in enumerate(sites):
            for layer, writes in _writes(model, pairs.bases, clean, given, site, shared=shared):
                for begin in range(0, n_heads, clean.room):
                    part = writes[begin:begin + clean.room]
                    for head, logits in enumerate(clean.after([[one] for one in part]), begin):
                        for q, found in enumerate(went(logits)):
                            values[s, of, q, layer, head] = found.double().cpu().numpy()
    values[:, 1, ..., ~there.cpu().numpy()] = np.nan
    return values, went(source.logits)[1].double().cpu().numpy(), name


def _writes(
    model: Any, bases: Batch, clean: CleanPass, source: Batch, site: str, *, shared: bool
) -> Iterator[tuple[int, list[Write]]]:
    """Yield by layer what is written in the pass of each head."""
    if site == "z":
        given = _pass(model, source, shared=False)
        for layer, z in given.z.items():
            yield layer, [Write(layer, (head,), z[:, :, head:head + 1])
                          for head in range(z.shape[2])]
        return
    hooks = {layer: _pattern_hook(layer) for layer in attention_layers(model)}
    with evaluating(model):
        _, patterns = see(model, source.inputs, list(hooks.values()))
    for layer, hook in hooks.items():
        yield layer, writes_of_codes(model, bases.inputs, layer, patterns[hook])


def _pattern_hook(layer: int) -> str:
    return f"blocks.{layer}.attn.hook_pattern"


def writes_of_codes(
    model: Any, tokens: Int[Tensor, "B T"], layer: int, pattern: Float[Tensor, "B H T T"]
) -> list[Write]:
    """Return of each head the z that its codes of another pattern make of the values at hand.

    pattern  codes [B, H, T, T], of which each head in turn is given its own

    Where heads come together in a value network that is not linear, as in HYLA, the codes of one
    change z of all.
    """
    n_heads = pattern.shape[1]
    apart = getattr(model.cfg, "value_network", "linear") == "linear"
    writes: list[Write] = []
    for some in ([tuple(range(n_heads))] if apart else [(head,) for head in range(n_heads)]):
        z = _z_of_codes(model, tokens, layer, pattern, some)
        writes += [Write(layer, (head,), z[:, :, head:head + 1]) if apart else
                   Write(layer, tuple(range(n_heads)), z) for head in some]
    return writes


def _z_of_codes(
    model: Any, tokens: Tensor, layer: int, pattern: Tensor, heads: tuple[int, ...]
) -> Float[Tensor, "B T H d"]:
    """Return z of a layer where the codes of some heads are those of a pattern."""
    seen: list[Tensor] = []

    def put(own: Tensor, hook: object) -> Tensor:
        own = own.clone()
        own[:, list(heads)] = pattern[:, list(heads)].to(own.dtype)
        return own

    def look(z: Tensor, hook: object) -> None:
        seen.append(z.clone())

    with evaluating(model):
        model.run_with_hooks(tokens, fwd_hooks=[
            (_pattern_hook(layer), put), (z_hook(layer), look)])
    return seen[0]


def _tables(
    values: np.ndarray, whole: np.ndarray, combination: np.ndarray, sites: Sequence[str],
    layers: Sequence[int], control: str, n_bootstrap: int, seed: int,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of the table and of contrasts from what each pair says."""
    there = np.isfinite(values).all((0, 1, 2))[list(layers)].all((0, 1))  # pairs with a control
    scores, beside = (_scores(values[..., which], whole[which], combination[which], n_bootstrap,
                              seed) if which.any() else None
                      for which in (np.ones_like(there), there))
    assert scores is not None
    rows: list[dict[str, Any]] = []
    contrasts: list[dict[str, Any]] = []
    for s, site in enumerate(sites):
        for layer in layers:
            more, above = effect_rows(
                site, layer, range(scores.value.shape[-1]), QUANTITIES, scores[s, 0, :, layer],
                against=control, beside=None if beside is None else (
                    beside[s, 0, :, layer], beside[s, 1, :, layer]))
            rows += more
            contrasts += above
    return rows, contrasts


def _scores(
    values: np.ndarray, whole: np.ndarray, combination: np.ndarray, n_bootstrap: int, seed: int
) -> Scores:
    """Return [site, patch or control, quantity, L, H]: the mean of flips, and how far D went as a
    share of how far it could."""
    sums, n = cluster_sums(np.moveaxis(values, -1, 0), combination)
    reach, _ = cluster_sums(whole, combination)
    sizes = np.stack([n, reach], axis=1)[:, None, None, :, None, None]
    return Scores.of(sums, sizes, len(whole), n_bootstrap, seed)
