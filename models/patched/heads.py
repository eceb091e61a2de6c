"""Passes in which z of some heads is written, several at once.

    y = sum_h z_h W_O^h + b_O    ->    y' = y + sum_h (z'_h - z_h) W_O^h

They share the layers below, and in the lowest layer that is written attention is not computed again
(`latentcode.models.patched.passes`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentcode.devices import make_generator
from latentcode.errors import LatentCodeError, check, is_out_of_memory
from latentcode.models.hooks import attention_layers, locked
from latentcode.models.patched.passes import (
    CleanPass,
    clean_pass,
    computed_by_layers,
    few_tokens,
)
from latentcode.models.patched.passes import unshared as unshared_layers
from latentcode.models.patched.sites import SITES, Edit, Place

HEAD = re.compile(r"L?(\d+)(?:[.H](\d+))?")
"""A head by its name, L18H6 or 18.6, or a layer."""
TOKENS = 4096
"""Tokens that pass through the model at once, where they are those of one batch several times."""
NUMBERS = 2**25
"""Logits, and codes of a layer, that are computed at once."""
AGREES = 1e-3
"""How far a pass that shares layers may be from a whole one, as a share of what the change changes;
in types of few bits `ROUNDINGS` times their rounding."""
ROUNDINGS = 16


@dataclass(frozen=True)
class Write:
    """What is put into the attention of a layer, in one pass.

    layer  which
    heads  whose z is replaced, and `z` by what: broadcastable to [B, T, heads, d]
    added  [B, T, D], what is added to what attention puts out; None: nothing
    """

    layer: int
    heads: tuple[int, ...] = ()
    z: Tensor | None = None
    added: Tensor | None = None


@dataclass(frozen=True)
class HeadPass(CleanPass):
    """A clean pass that shows z, what enters and what attention puts out, of every layer with
    attention."""

    @property
    def z(self) -> dict[int, Float[Tensor, "B T H d"]]:
        """What each head puts out before W_O, by layer with attention."""
        return {index: layer.sites["z"] for index, layer in enumerate(self.layers)
                if "z" in layer.sites}

    @property
    def room(self) -> int:
        """How many passes fit into memory at once."""
        n_texts, n_tokens = self.inputs.shape[:2]
        codes = n_texts * next(iter(self.z.values())).shape[2] * n_tokens**2
        return max(1, min(TOKENS // (n_texts * n_tokens), NUMBERS // max(1, self.logits.numel()),
                          NUMBERS // codes))

    def stream(self, layer: int) -> Float[Tensor, "B T D"]:
        """Return the stream that attention leaves: what enters the block, and what it adds.

        Where a norm follows attention, as in Gemma 2, without that norm.
        """
        attended = self.layers[layer].attended
        assert attended is not None
        return self.at(("residual", layer)) + attended.first

    def moved(self, write: Write) -> Float[Tensor, "B T D"]:
        """sum_h (z'_h - z_h) W_O^h: what a write of z adds to what attention puts out."""
        assert write.z is not None
        weight = self.model.blocks[write.layer].attn.W_O[list(write.heads)]  # [h, d, D]
        difference = write.z - self.z[write.layer][:, :, list(write.heads)]
        return difference.flatten(2) @ weight.flatten(0, 1)

    def after(self, passes: Sequence[Sequence[Write]]) -> Float[Tensor, "N R V"]:
        """Return the logits of N passes, in each of which something is written.

        passes  what each of them writes, no layer twice; they share the layers below the lowest
                that any writes
        """
        n = len(passes)
        writes: dict[int, list[tuple[int, Write]]] = {}
        for number, some in enumerate(passes):
            for write in some:
                writes.setdefault(write.layer, []).append((number, write))
        edits: dict[Place, Edit] = {}
        for layer, of_layer in sorted(writes.items()):
            if any(write.heads for _, write in of_layer):
                edits["z", layer] = partial(_with_heads, of_layer, n)
            if any(write.added is not None for _, write in of_layer):
                edits["attended", layer] = partial(_with_added, of_layer, n)
        return self.patched(edits, n)


def _with_heads(writes: Sequence[tuple[int, Write]], n: int, z: Tensor) -> Tensor:
    """Replace z of some heads in some of n passes."""
    z = z.clone(memory_format=torch.contiguous_format)
    by_pass = z.view(n, -1, *z.shape[1:])  # [n, B, T, H, d]
    for number, write in writes:
        if write.heads:
            assert write.z is not None
            by_pass[number][:, :, list(write.heads)] = write.z.to(z.dtype)
    return z


def _with_added(writes: Sequence[tuple[int, Write]], n: int, attended: Tensor) -> Tensor:
    """Add something to what attention puts out in some of n passes."""
    attended = attended.clone(memory_format=torch.contiguous_format)
    by_pass = attended.view(n, -1, *attended.shape[1:])
    for number, write in writes:
        if write.added is not None:
            by_pass[number] += write.added
    return attended


def z_hook(layer: int) -> str:
    """Return the hook that shows what each head puts out, z [B, T, H, d], before W_O."""
    return SITES["z"].hook.format(layer)


def check_shown(model: Any) -> list[str]:
    """Return the hooks that show z, and what enters, of every layer with attention.

    `ConfigError` for a model that does not have them.
    """
    shown = [SITES[site].hook.format(layer) for layer in attention_layers(model)
             for site in ("z", "residual")]
    hidden = [name for name in shown if name not in model.hook_dict]
    check(not hidden, f"the model has no hook {', '.join(hidden[:3])}; expected those that show "
          "what each head puts out, and what enters each layer with attention")
    return shown


def clean_heads(
    model: Any, tokens: Int[Tensor, "B T"], read: Bool[Tensor, "B T"], *,
    padding: Mapping[str, Tensor] | None = None, shared: bool = True,
) -> HeadPass:
    """Return a pass of a language model for passes in which z of some heads is written (`Write`).

    `ConfigError` for a model that does not show z, and what enters, of every layer. Arguments are
    those of `clean_pass`.
    """
    check_shown(model)
    clean = HeadPass(**vars(clean_pass(model, tokens, [
        (site, layer) for layer in attention_layers(model)
        for site in ("z", "residual", "attended")], read, shown=True, shared=shared,
        padding=padding)))
    shapes = [tuple(x.shape) for x in clean.z.values()]
    check(all(len(shape) == 4 and shape[:2] == tokens.shape for shape in shapes), "the model shows "
          f"z {shapes[:3]} for tokens {tuple(tokens.shape)}; expected [B, T, H, d] in every layer")
    return clean


@torch.no_grad()
def unshared(model: Any, layers: Collection[int] | None = None) -> str:
    """Why do passes in which z of some layers (default: any) is written not share layers? "" where
    they do.

    As `passes.unshared`, and in every layer with attention a pass in which a head's z is put back
    gives the bits of the clean pass, and one with another z what a whole pass gives. `ConfigError`
    where another z changes nothing in any layer, also in whole passes; in a layer alone it may
    write where nothing reads.
    """
    tokens = few_tokens(model)
    read = torch.ones_like(tokens, dtype=torch.bool)
    generator = make_generator(0, "another z")
    changed = False
    with locked(model):
        whole = clean_heads(model, tokens, read, shared=False)
        try:
            shared = clean_heads(model, tokens, read)
            reason = unshared_layers(model, layers)
        except LatentCodeError as error:
            return str(error)
        if not shared.shares:
            reason = "hooks sit on the model, and see whole passes"
        for layer, z in whole.z.items():
            if layers is not None and layer not in layers:
                continue
            head = layer % z.shape[2]
            noise = torch.randn(z[:, :, :1].shape, generator=generator).to(z)
            # Of the size of what is there, so that layers of small z change something, too.
            other = z[:, :, head:head + 1] + noise * z.float().std().to(z)
            by_hook = whole.after([[Write(layer, (head,), other)]])
            changed = changed or not torch.equal(by_hook[0], whole.logits)
            if reason or computed_by_layers(model):  # ours differ by rounding alone
                continue
            try:
                back, given = (shared.after([[Write(layer, (head,), x)]])
                               for x in (z[:, :, head:head + 1], other))
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                reason = f"layer {layer}: {error}"
                continue
            if not torch.equal(back[0], shared.logits) or not agrees(given, by_hook, whole.logits):
                reason = f"what attention puts out in layer {layer} is not sum_h z_h W_O^h"
    if not changed and layers is not None:
        return unshared(model)
    check(changed, "another z of a head changes no logit of this model, in any layer; expected an "
          "architecture that goes on with what is written there")
    return reason


def agrees(one: Tensor, other: Tensor, clean: Tensor) -> bool:
    """Whether the logits of two passes are the same but for rounding, beside what they change."""
    within = max(AGREES, ROUNDINGS * torch.finfo(clean.dtype).eps)
    changed = (other.float() - clean.float()).norm()
    return bool((one.float() - other.float()).norm() <= within * changed)
