"""Activations that can be written in a forward pass, and passes through hooks that write them.

A *place* is a site and a layer; an *edit* is a function of what a pass computes at a place, which
returns what is put there. Whole passes are here; `latentcode.models.patched.passes` has those that
share the layers below a patch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.errors import ConfigError, check
from latentcode.models.attention import messages, nonlinearity, rms_head
from latentcode.models.config import NORMALIZATIONS
from latentcode.models.hooks import evaluating
from latentcode.models.kernels.fused import written_out
from latentcode.models.pretrained import layout

Place = tuple[str, int]
"""A site and a layer."""
Edit = Callable[[Tensor], Tensor]
"""What is computed at a place -> what is put there instead. It leaves the tensor that it is given
as it is, and returns another."""
Function = Callable[[Tensor], Tensor | None]
"""An edit, or one that only looks: it returns None."""
Hook = tuple[str, Callable[..., Any]]
"""The name of a hook, and a function of the activation and the hook, as TransformerLens has them.
"""


@dataclass(frozen=True)
class Site:
    """An activation of a layer that can be written.

    hook    name of its hook point, with {} for the layer; of messages that of their sum, z
    vector  the axis along which one token's, or one pair's, numbers lie
    heads   the axis of the heads, if it has one
    of      whose it is: of the `queries` or of the `keys` of a scope; None: of both, a pair's
    attention  whether it is a part of attention, which layers of hybrids may lack
    """

    hook: str
    vector: int
    heads: int | None
    of: str | None = None
    attention: bool = True

    def mask(self, scope: Tensor, heads: tuple[int, ...] | None, n_heads: int) -> Tensor:
        """Return what of the activation a scope [B, Q, K] of some heads covers, broadcastable.

        Codes and messages are those of the scope; values are those of its keys; all others are
        those of its queries.
        """
        if self.of is not None:
            mask = scope.any(1 if self.of == "keys" else 2)[..., None]  # [B, T, D]
            if self.heads is not None:
                mask = mask[..., None]  # [B, T, H, d]
        elif self.heads == 1:
            mask = scope[:, None]  # [B, H, Q, K]
        else:
            mask = scope[..., None, None]  # [B, Q, K, H, d]
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
    "message": Site("blocks.{}.attn.hook_z", -1, 3),
    "residual": Site("blocks.{}.hook_resid_pre", -1, None, "queries", attention=False),
    "mlp_in": Site("blocks.{}.mlp.hook_in", -1, None, "queries", attention=False),
    "mlp_out": Site("blocks.{}.hook_mlp_out", -1, None, "queries", attention=False),
}
"""Code a[:, q, k]; value of a key, which all queries see; z, what a head puts out for a query,
before W_O; message, what a key contributes to z of a query, z_qh = sum_k m_qkh; residual stream
entering the layer; what the feed-forward layer is given (after its norm), and what it adds."""


@dataclass(frozen=True)
class Put:
    """The edit that puts a tensor in place of all that is computed, which need not be, then."""

    value: Tensor

    def __call__(self, live: Tensor) -> Tensor:
        return self.value


@dataclass(frozen=True)
class InScope:
    """The edit that puts `values` of what is computed where a mask is True.

    mask           what a scope covers (`Site.mask`)
    scope          bool [B, Q, K]
    normalization  bring written codes back to the constraint of this kind; None: leave them
    """

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


def messages_of(
    attention: Any, code: Float[Tensor, "B H Q K"], value: Float[Tensor, "B K G d"]
) -> Float[Tensor, "B Q K H d"]:
    """m_qkh with z_qh = sum_k m_qkh: what each key contributes to what a head puts out.

    attention  of one of our models, or of a bridge, where m_qkh = a_hqk v_kh and heads of one group
               share their values
    """
    config = getattr(attention, "cfg", None)
    kind = getattr(config, "value_network", "linear")
    phi = nonlinearity(getattr(config, "nonlinearity", "identity"))
    if value.shape[2] != code.shape[1]:
        value = value.repeat_interleave(code.shape[1] // value.shape[2], 2)
    return messages(code, value, kind, phi, attention.W_V2 if kind == "deep" else None)


def with_messages(own: Tensor, new: Tensor, z: Tensor) -> Tensor:
    """z_qh + sum_k (m'_qkh - m_qkh): z, where the messages that it is the sum of are others."""
    return z + (new - own).sum(2).to(z.dtype)


def hooks_of(model: Any, functions: Mapping[Place, Function]) -> list[Hook]:
    """Return the hooks that call functions of what is computed at some places.

    What a function returns is put there, unless it is None. Messages have no hook: they are made of
    codes and values, as these are written, and written in z, before z itself is.
    """
    first: list[Hook] = []
    of_messages: list[Hook] = []
    of_z: list[Hook] = []
    seen: dict[Place, Tensor] = {}

    def call(function: Function, live: Tensor, hook: object) -> Tensor | None:
        return function(live)

    def look(place: Place, live: Tensor, hook: object) -> None:
        seen[place] = live

    def put(layer: int, function: Function, z: Tensor, hook: object) -> Tensor | None:
        own = messages_of(model.blocks[layer].attn, seen.pop(("code", layer)),
                          seen.pop(("value", layer)))
        new = function(own)
        return None if new is None else with_messages(own, new, z)

    for (site, layer), function in functions.items():
        name = _hook((site, layer))
        if site == "message":
            of_messages += [(_hook(part), partial(look, part))
                            for part in (("code", layer), ("value", layer))]
            of_messages.append((name, partial(put, layer, function)))
        else:
            (of_z if site == "z" else first).append((name, partial(call, function)))
    return [*first, *of_messages, *of_z]


def hooked_pass(model: Any, inputs: Tensor, hooks: Collection[Hook], **options: Any) -> Tensor:
    """Return the logits of a whole pass through hooks, in the mode that the model is in.

    Kernels round otherwise than the hooked path, which a layer takes where it is hooked: every pass
    takes it everywhere, so that passes differ by what is written alone.
    """
    with written_out():
        logits: Tensor = model.run_with_hooks(inputs, fwd_hooks=list(hooks), **options)
    return logits


def capture(
    model: Any, inputs: Tensor, places: Collection[Place]
) -> tuple[Tensor, dict[Place, Tensor]]:
    """Return the logits and what is computed at some places, through the hooked path."""
    kept: dict[Place, Tensor] = {}

    def keep(place: Place, activation: Tensor) -> None:
        kept[place] = activation.clone()

    with evaluating(model):
        logits = hooked_pass(model, inputs, hooks_of(
            model, {place: partial(keep, place) for place in places}))
    return logits, kept


def run_patched(model: Any, inputs: Tensor, edits: Mapping[Place, Edit]) -> Tensor:
    """Return the logits with activations replaced by what the edits make of them."""
    with evaluating(model):
        return hooked_pass(model, inputs, hooks_of(model, edits))


def gradients(
    model: Any, inputs: Tensor, places: Collection[Place], measure: Callable[[Tensor], Tensor],
    at: Mapping[Place, Tensor] | None = None,
) -> tuple[dict[Place, Tensor], dict[Place, Tensor]]:
    """Return what is computed at some places, and d sum_b measure_b / d of it: one pass each way.

    measure  logits -> [B], each from its own instance alone
    at       what is written at other places before
    """
    live: dict[Place, Tensor] = {}
    added: dict[Place, Tensor] = {}

    def add(place: Place, activation: Tensor) -> Tensor:
        # Adding 0 changes nothing, and has a gradient whether or not weights have one.
        live[place] = activation.detach().clone()
        added[place] = torch.zeros_like(activation, requires_grad=True)
        return activation + added[place]

    with evaluating(model), torch.enable_grad():
        logits = hooked_pass(model, inputs, [
            *hooks_of(model, {place: Put(value) for place, value in (at or {}).items()}),
            *hooks_of(model, {place: partial(add, place) for place in places})])
        slopes = torch.autograd.grad(measure(logits).sum(), list(added.values()))
    return live, dict(zip(added, slopes, strict=True))


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
    for site, of_site in by_site.items():
        unknown = [name for name in map(_hook, of_site) if name not in model.hook_dict]
        check(not unknown, f"the model has no hook {', '.join(unknown)}; expected one for site "
              f"{site!r} in every layer")
    logits, shown = capture(
        model, inputs, [place for place in places if SITES[place[0]].heads == 2])
    for place, x in shown.items():
        check(x.ndim == 4 and x.shape[1] == inputs.shape[1], f"{_hook(place)} shows "
              f"{list(x.shape)} for {inputs.shape[1]} tokens; expected [B, T, H, d]")
    for _, layer in by_site.get("message", ()):
        _, seen = capture(model, inputs, [(site, layer) for site in ("message", "z")])
        z, total = seen["z", layer].float(), seen["message", layer].sum(2).float()
        check((z - total).norm() <= 0.02 * z.norm(), f"what heads put out in layer {layer} is not "
              "the sum of codes times values; expected an architecture in which it is, to write "
              "messages", ConfigError)
    for site, of_site in by_site.items():
        with warnings.catch_warnings():
            # TransformerLens warns of some edits that it discards; the error says more.
            warnings.simplefilter("ignore")
            zeros = run_patched(model, inputs, dict.fromkeys(of_site, torch.zeros_like))
        check(not torch.equal(zeros, logits), f"zeros written at site {site!r} change no logit of "
              "this model; expected an architecture that goes on with what is written")


def _hook(place: Place) -> str:
    return SITES[place[0]].hook.format(place[1])


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
