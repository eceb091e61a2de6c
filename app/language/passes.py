"""Passes of one text through a model: its codes, what comes next, and that with a patch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import streamlit as st
import torch
from torch import Tensor

from latentcode.app.language.tokens import pieces_of
from latentcode.app.language.work import Job
from latentcode.devices import make_generator
from latentcode.errors import ConfigError, check
from latentcode.models.hooks import evaluating, last_token, read_out_hook
from latentcode.models.kernels.fused import written_out
from latentcode.models.patched.sites import SITES as WRITTEN

SITES: Mapping[str, str] = {
    "codes": WRITTEN["code"].hook, "values": WRITTEN["value"].hook, "z": WRITTEN["z"].hook,
    "residual stream": WRITTEN["residual"].hook}
"""What can be patched, and the hook that shows it, with {} for the layer."""
OF_KEYS = ("codes", "values")
"""Sites of a key; of the others a patch is of the query alone."""


@dataclass(frozen=True)
class Seen:
    """What a pass of one text shows.

    tokens   ids [T]
    pieces   their texts
    pattern  float32 [L, H, T, T], the codes
    p        float64 [V], what comes next
    """

    tokens: tuple[int, ...]
    pieces: tuple[str, ...]
    pattern: np.ndarray
    p: np.ndarray

    def codes(self, query: int) -> np.ndarray:
        """Return the codes of a query with every key up to it, [K, L, H]."""
        return self.pattern[:, :, query, :query + 1].transpose(2, 0, 1)


def encoded(job: Job, text: str, most: int) -> tuple[int, ...]:
    """Return the tokens of a prompt; `ConfigError` for none, and for more than there is room for.
    """
    model = job.wait_for_model()
    ids = tuple(int(i) for i in model.encode(text)[0])
    check(len(ids) > 0, "the prompt has no tokens; expected at least one")
    room = most if model.context is None else min(most, model.context)
    check(len(ids) <= room, f"the prompt has {len(ids)} tokens; expected at most {room}")
    return ids


def see(job: Job, tokens: Sequence[int]) -> Seen:
    """Return what a pass of some tokens shows; the last ones are kept."""
    return _see(job, tuple(int(token) for token in tokens))


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs={Job: id})
def _see(job: Job, tokens: tuple[int, ...]) -> Seen:
    model = job.wait_for_model()
    bridge = model.model
    with job.turns.now():
        shown = job.layout
        found: dict[int, Tensor] = {}

        def keep(layer: int) -> Callable[..., None]:
            def store(pattern: Tensor, hook: object) -> None:
                found[layer] = pattern[0].float().cpu()
            return store

        logits = _run(bridge, torch.tensor([tokens]), [
            (name, keep(layer)) for layer, name in shown.pattern_hooks.items()])
    pattern = np.stack([found[layer].numpy() for layer in shown.layers])
    check(bool(np.isfinite(pattern).all()), f"{job.title} computes codes that are not finite; "
          "expected numbers")
    return Seen(tokens, tuple(pieces_of(model, tokens)), pattern, _p(logits)[0])


def _run(bridge: Any, tokens: Tensor, hooks: Sequence[tuple[str, Any]]) -> Tensor:
    """Return the logits [B, V] of the last token."""
    device = next(bridge.parameters()).device
    with evaluating(bridge), written_out(), torch.no_grad():
        logits: Tensor = bridge.run_with_hooks(
            tokens.to(device), fwd_hooks=[*hooks, (read_out_hook(bridge), last_token)])
    return logits[:, -1]


def _p(logits: Tensor) -> np.ndarray:
    return np.asarray(logits.double().softmax(-1).cpu().numpy())


@dataclass(frozen=True)
class Patch:
    """What of a source is put where in a base, each by its own positions; `lc.Patch` has the same
    ones in both.

    site    of `SITES`
    layers  which
    heads   which; None: all
    query   of the base, and `source_query` of the source
    key     likewise; None: all keys up to the query, of which both have equally many
    """

    site: str
    layers: tuple[int, ...]
    heads: tuple[int, ...] | None
    query: int
    source_query: int
    key: int | None = None
    source_key: int | None = None

    def check(self) -> None:
        """Raise `ConfigError` for what cannot be put there."""
        check(len(self.layers) > 0, "no layer is chosen; expected at least one")
        if self.site not in OF_KEYS:
            return
        check((self.key is None) == (self.source_key is None),
              "one of the keys is all, and the other a token; expected all for both, or a token")
        if self.key is None:
            check(self.query == self.source_query, f"the query has {self.query + 1} keys, and that "
                  f"of the source {self.source_query + 1}: all keys cannot be put in place of each "
                  "other; expected a key of each, or the sites z or residual stream")
            return
        assert self.source_key is not None
        check(self.key <= self.query and self.source_key <= self.source_query,
              "a key comes after its query, which cannot see it; expected one up to the query")


@dataclass(frozen=True)
class Patched:
    """What comes next after a patch.

    p         [V], with what the source has there
    others    [R, V], with what R other texts have there
    exact     whether what the base has itself, written back, leaves every bit as it is
    """

    p: np.ndarray
    others: np.ndarray
    exact: bool


def patched(
    job: Job, base: Sequence[int], source: Sequence[int], patch: Patch,
    others: Sequence[Sequence[int]] = (),
) -> Patched:
    """Return what comes next in a base with what a source has at a place.

    others  further sources of the same length, the control
    """
    patch.check()
    bridge = job.wait_for_model().model
    names = {layer: SITES[patch.site].format(layer) for layer in patch.layers}
    missing = [name for name in names.values() if name not in bridge.hook_dict]
    check(not missing, f"{job.title} has no hook {', '.join(missing[:3])}; expected another site")
    with job.turns.now():
        if patch.site == "codes":
            job.layout.check_writable()
        kept: dict[int, Tensor] = {}
        _run(bridge, torch.tensor([list(source), *map(list, others)]), [
            (name, _keeping(kept, layer)) for layer, name in names.items()])
        own: dict[int, Tensor] = {}
        clean = _run(bridge, torch.tensor([list(base)]), [
            (name, _keeping(own, layer)) for layer, name in names.items()])
        n = 1 + len(others)
        itself = replace(patch, source_query=patch.query, source_key=patch.key)
        logits = _run(bridge, torch.tensor([list(base)] * n), [
            (name, _putting(kept[layer], patch)) for layer, name in names.items()])
        back = _run(bridge, torch.tensor([list(base)]), [
            (name, _putting(own[layer], itself)) for layer, name in names.items()])
    p = _p(logits)
    return Patched(p[0], p[1:], bool(torch.equal(clean, back)))


def _keeping(kept: dict[int, Tensor], layer: int) -> Callable[..., None]:
    def keep(activation: Tensor, hook: object) -> None:
        kept[layer] = activation.clone()
    return keep


def _putting(given: Tensor, patch: Patch) -> Callable[..., Tensor]:
    """Return the hook that puts what sources have at a place into passes of the base."""
    def put(live: Tensor, hook: object) -> Tensor:
        n_heads = live.shape[1 if patch.site == "codes" else 2]  # of a residual stream: unused
        heads = list(range(n_heads) if patch.heads is None else patch.heads)
        if patch.site != "residual stream" and max(heads) >= n_heads:
            raise ConfigError(f"heads share their values in groups: there are {n_heads} of them; "
                              "expected all heads, or another site")
        live = live.clone()
        live[_place(patch.site, heads, patch.query, patch.key)] = given[
            _place(patch.site, heads, patch.source_query, patch.source_key)]
        return live
    return put


def _place(site: str, heads: list[int], query: int, key: int | None) -> tuple[Any, ...]:
    """Return the index of a place in an activation; key: None for all up to the query."""
    every = slice(None)
    keys = slice(0, query + 1) if key is None else slice(key, key + 1)
    return {"codes": (every, heads, query, keys), "values": (every, keys, heads),
            "z": (every, query, heads), "residual stream": (every, query)}[site]


def other_sources(
    tokens: Sequence[np.ndarray], length: int, n: int, seed: int = 0
) -> list[list[int]]:
    """Return the beginnings of some of the texts that are long enough, drawn from a seed."""
    long = [ids for ids in tokens if len(ids) >= length]
    drawn = torch.randperm(len(long), generator=make_generator(seed, "other sources"))[:n]
    return [long[i][:length].tolist() for i in drawn.tolist()]
