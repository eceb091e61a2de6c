"""Where can be written: codes, values, outputs of heads and residual streams, and the constraint
of a code."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from latentcode.errors import check
from latentcode.models.attention import rms_head
from latentcode.models.kernels.fused import written_out
from latentcode.models.modes import evaluating
from latentcode.models.names import NORMALIZATIONS
from latentcode.models.pretrained import layout

Place = tuple[str, int]
"""A site and a layer."""
Edit = Callable[[Tensor], Tensor]
"""What is computed at a place -> what is put there instead."""


@dataclass(frozen=True)
class Site:
    """An activation of a layer that an intervention can write.

    hook    name of its hook point, with {} for the layer
    vector  the axis along which one token's, or one pair's, numbers lie
    heads   the axis of the heads, if it has one
    of      whose it is: of the `queries` or of the `keys` of a scope; None: of both, a pair's
    """

    hook: str
    vector: int
    heads: int | None
    of: str | None = None

    def mask(self, scope: Tensor, heads: tuple[int, ...] | None, n_heads: int) -> Tensor:
        """Return what of the activation a scope [B, Q, K] of some heads covers, broadcastable.

        Codes are those of the scope; values are those of its keys, z and residual streams those
        of its queries.
        """
        if self.of is None:
            mask = scope[:, None]  # [B, H, Q, K]
        else:
            mask = scope.any(1 if self.of == "keys" else 2)[..., None]  # [B, T, D]
            if self.heads is not None:
                mask = mask[..., None]  # [B, T, H, d]
        if heads is None:
            return mask
        assert self.heads is not None
        chosen = torch.zeros(n_heads, dtype=torch.bool, device=scope.device)
        chosen[list(heads)] = True
        shape = [1] * mask.ndim
        shape[self.heads] = n_heads
        return mask & chosen.view(shape)


SITES: Mapping[str, Site] = {
    "code": Site("blocks.{}.attn.hook_pattern", 1, 1),
    "value": Site("blocks.{}.attn.hook_v", -1, 2, "keys"),
    "z": Site("blocks.{}.attn.hook_z", -1, 2, "queries"),
    "residual": Site("blocks.{}.hook_resid_pre", -1, None, "queries"),
}
"""Code a[:, q, k]; value of a key, which all queries see; z, what a head puts out for a query,
before W_O; residual stream entering the layer."""


def capture(
    model: Any, inputs: Tensor, places: Collection[Place]
) -> tuple[Tensor, dict[Place, Tensor]]:
    """Return the logits and what is computed at some places, through the hooked path."""
    kept: dict[Place, Tensor] = {}

    def keep(place: Place, activation: Tensor, hook: object) -> None:
        kept[place] = activation.clone()

    logits = _run(model, inputs, {place: partial(keep, place) for place in places})
    return logits, kept


def run_patched(model: Any, inputs: Tensor, edits: Mapping[Place, Edit]) -> Tensor:
    """Return the logits with activations replaced by what the edits make of them."""
    def replace(edit: Edit, activation: Tensor, hook: object) -> Tensor:
        return edit(activation)

    return _run(model, inputs, {place: partial(replace, edit) for place, edit in edits.items()})


@dataclass(frozen=True)
class Put:
    """The edit that puts a tensor in place of all that is computed, which need not be, then."""

    value: Tensor

    def __call__(self, live: Tensor) -> Tensor:
        return self.value


@dataclass(frozen=True)
class InScope:
    """What `in_scope` returns; fields are its arguments."""

    values: Edit
    mask: Tensor
    scope: Tensor
    normalization: str | None = None

    def __call__(self, live: Tensor) -> Tensor:
        return self._put(self.values(live), live, self.mask, self.scope)

    def at(self, live: Tensor, instance: Tensor, query: Tensor) -> Tensor:
        """Return the codes [P, H, 1, K] of some instances' queries, as they are in what is put in
        place of all of them, [B, H, Q, K]."""
        new, old, mask = (x.expand_as(live)[instance, :, query][:, :, None]
                          for x in (self.values(live), live, self.mask))
        return self._put(new, old, mask, self.scope[instance, query][:, None])

    def of_last(self, read: int | None) -> InScope | None:
        """Return what does the same to the codes of the last queries; None where what is put there
        has to see those of all."""
        if not isinstance(self.values, Put) or read is None:
            return None
        return InScope(Put(self.values.value[:, :, -read:]), self.mask[:, :, -read:],
                       self.scope[:, -read:], self.normalization)

    def _put(self, new: Tensor, live: Tensor, mask: Tensor, scope: Tensor) -> Tensor:
        written = torch.where(mask, new.to(live.dtype), live)
        return written if self.normalization is None else constrained(
            written, scope, self.normalization)


def in_scope(
    values: Edit, mask: Tensor, scope: Tensor, normalization: str | None = None
) -> InScope:
    """Return the edit that puts `values` of what is computed where a mask is True.

    mask           what a scope covers (`Site.mask`)
    scope          bool [B, Q, K]
    normalization  bring written codes back to the constraint of this kind; None: leave them
    """
    return InScope(values, mask, scope, normalization)


def check_written(model: Any, inputs: Tensor, places: Collection[Place]) -> None:
    """Raise `ConfigError` where a model does not go on with what is written at some places.

    inputs  a few instances: zeros at all places of a site have to change their logits
    """
    # With as many tokens as heads their axes could not be told apart.
    inputs = inputs[:, :-1] if inputs.shape[1] == model.cfg.n_heads > 1 else inputs
    by_site = {site: [place for place in places if place[0] == site]
               for site in sorted({site for site, _ in places})}
    if "code" in by_site:
        layout(model).check_writable()
    for site, hooks in by_site.items():
        unknown = [name for name in map(_hook, hooks) if name not in model.hook_dict]
        check(not unknown, f"the model has no hook {', '.join(unknown)}; expected one for site "
              f"{site!r} in every layer")
    logits, shown = capture(
        model, inputs, [place for place in places if SITES[place[0]].heads == 2])
    for place, x in shown.items():
        check(x.ndim == 4 and x.shape[1] == inputs.shape[1], f"{_hook(place)} shows "
              f"{list(x.shape)} for {inputs.shape[1]} tokens; expected [B, T, H, d]")
    for site, hooks in by_site.items():
        with warnings.catch_warnings():
            # TransformerLens warns of some edits that it discards; the error says more.
            warnings.simplefilter("ignore")
            zeros = run_patched(model, inputs, dict.fromkeys(hooks, torch.zeros_like))
        check(not torch.equal(zeros, logits), f"zeros written at site {site!r} change no logit of "
              "this model; expected an architecture that goes on with what is written")


def _hook(place: Place) -> str:
    return SITES[place[0]].hook.format(place[1])


def _run(model: Any, inputs: Tensor, hooks: Mapping[Place, Any]) -> Tensor:
    # Kernels round otherwise than the hooked path, which a layer takes where it is hooked: every
    # pass takes it everywhere, so that passes differ by what is written alone.
    with evaluating(model), written_out():
        logits: Tensor = model.run_with_hooks(inputs, fwd_hooks=[
            (_hook(place), hook) for place, hook in hooks.items()])
    return logits


def normalization_of(model: Any) -> str:
    """Return how a model normalises its codes; models of other libraries use a softmax."""
    return str(getattr(model.cfg, "normalization", "softmax"))


def check_constraint(normalization: str) -> None:
    """Raise `ConfigError` unless it is known what a normalisation's codes obey.

    Not known for `none`, whose codes obey nothing, and for one that was registered without
    `renormalize`.
    """
    check(normalization != "none", "the codes of this model are not normalised and obey no "
          "constraint; expected renormalize=False")
    check(has_constraint(normalization), f"normalization is {normalization!r}, whose codes obey a "
          "constraint that is not known here; expected renormalize=False, or softmax, rms_head, "
          "softmax_rms_head or one that is registered with renormalize=")


def has_constraint(normalization: str) -> bool:
    """Whether `constrained` knows what the codes of a normalisation obey."""
    own = NORMALIZATIONS.get(normalization)
    return (normalization in ("softmax", "rms_head", "softmax_rms_head") if own is None
            else own.renormalize is not None)


def constrained(code: Tensor, scope: Tensor, normalization: str) -> Tensor:
    """Return written codes [B, H, Q, K] with the constraint that the model's own codes obey.

    softmax   a >= 0, sum_k a_hqk = 1: in every row that the scope [B, Q, K] touches, whole
    rms_head, softmax_rms_head   mean_h a_hqk^2 = 1: every code of the scope
    registered   what its `renormalize` says: in every row that the scope touches, whole

    `ConfigError` as from `check_constraint`.
    """
    check_constraint(normalization)
    rows = scope.any(2)[:, None, :, None]
    own = NORMALIZATIONS.get(normalization)
    if own is not None and own.renormalize is not None:
        return torch.where(rows, own.renormalize(code), code)
    if normalization == "softmax":
        positive = code.clamp_min(0.0)
        sums = positive.sum(-1, keepdim=True).clamp_min(torch.finfo(code.dtype).tiny)
        return torch.where(rows, positive / sums, code)
    return torch.where(scope[:, None], rms_head(code), code)
