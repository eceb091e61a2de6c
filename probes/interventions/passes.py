"""Forward passes in which something is written, each only as far as it differs from the rest.

Of our own models a pass starts in the lowest layer that is written, from the residual stream of
the unpatched pass. Where codes alone are written there, only the queries whose codes become others
are computed, and in the last layer only the tokens at which answers are read. Other libraries'
models, and ours while hooks sit on them, pass through as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.models.blocks import Block, last_tokens
from latentcode.models.hooks import is_hooked
from latentcode.models.modes import evaluating
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.interventions.sites import Edit, Place, capture, run_patched

FEW = 0.25
"""Share of the tokens up to which those that change are computed one by one, not all of them."""


def computed_by_layers(model: Any) -> bool:
    """Whether passes of a model can start in any layer: it is ours, and nobody else looks at it."""
    return (isinstance(model, HookedTransformer) and model.n_members is None
            and not model.config.cross_attention and not any(map(is_hooked, model.modules())))


@dataclass(frozen=True)
class Layer:
    """What a layer computes where nothing is written: the stream that enters it, codes, values.

    Codes [B, H, T, T] and values are None where none of the two is ever written.
    """

    stream: Float[Tensor, "B T D"]
    code: Tensor | None
    values: Tensor | None


@dataclass(frozen=True)
class Unpatched:
    """A pass of a batch in which nothing is written.

    logits  [B, R, V], of the last R = `read` tokens
    layers  what patched passes share with it, empty for a model that they pass through as a whole
    """

    model: Any
    inputs: Tensor
    read: int | None
    logits: Tensor
    layers: Sequence[Layer]

    def patched(self, edits: Mapping[Place, Edit]) -> Tensor:
        """Return the logits, [B, R, V], with activations replaced by what the edits make of them.

        As long as nothing that is written differs from what was there, what follows is that of this
        pass, bit for bit. An edit returns another tensor, and leaves the one that it is given.
        """
        with evaluating(self.model):
            if not self.layers:
                return last_tokens(run_patched(self.model, self.inputs, edits), self.read)
            for index, layer in enumerate(self.layers):
                written = {site: edit for (site, at), edit in edits.items() if at == index}
                if written:
                    stream = self._leaving(index, layer, written)
                    if stream is not None:
                        return run_from(self.model, index + 1, stream, edits, self.read)
        return self.logits

    def _leaving(
        self, index: int, own: Layer, written: Mapping[str, Edit]
    ) -> Float[Tensor, "B R D"] | None:
        """Return the stream that leaves the lowest layer that is written; None: the unpatched."""
        block, is_last = self.model.layer(index), index == len(self.layers) - 1
        read = self.read if is_last else None
        if "residual" in written:
            stream = written["residual"](own.stream)
            if not torch.equal(stream, own.stream):
                rest = {site: edit for site, edit in written.items() if site != "residual"}
                return _through(block, stream, rest, read)
        before = (block.codes(own.stream) if own.code is None or own.values is None
                  else (own.code, own.values))
        code, values = _written(before, written)
        changes = (code != before[0]).any(3).any(1)  # [B, Q]
        if torch.equal(values, before[1]):
            if not bool(changes.any()):
                return None
            if not is_last and float(changes.float().mean()) <= FEW:
                instance, query = changes.nonzero(as_tuple=True)
                rows = block.after_codes(own.stream[instance, query][:, None],
                                         code[instance, :, query][:, :, None], values[instance])
                stream = self.layers[index + 1].stream.clone()
                stream[instance, query] = rows[:, 0]
                return stream
        return block.after_codes(last_tokens(own.stream, read), _of_last(code, read), values)


def unpatched_pass(
    model: Any, inputs: Tensor, places: Collection[Place], read: int | None = None
) -> Unpatched:
    """Return a pass in which nothing is written, for passes in which some places are.

    read  the logits of the last tokens only; None: of all
    """
    if not computed_by_layers(model):
        logits, _ = capture(model, inputs, ())
        return Unpatched(model, inputs, read, last_tokens(logits, read), ())
    kept = {layer for site, layer in places if site != "residual"}
    layers = []
    with evaluating(model):
        stream = model.hook_embed(model.embed(inputs))
        for index in range(model.config.n_layers):
            block, n = model.layer(index), read if index == model.config.n_layers - 1 else None
            code, values = block.codes(stream)
            layers.append(Layer(stream, *((code, values) if index in kept else (None, None))))
            stream = block.after_codes(last_tokens(stream, n), _of_last(code, n), values)
        return Unpatched(model, inputs, read, model.read_out(stream), layers)


def run_from(
    model: HookedTransformer, first: int, stream: Float[Tensor, "B T D"],
    edits: Mapping[Place, Edit], read: int | None = None, *, cut: bool = False,
) -> Float[Tensor, "B R V"]:
    """Return the logits of the last R = `read` tokens that follow from what enters layer `first`.

    edits  those of lower layers are left out
    cut    an edit of the last layer's codes is given those of the last R queries, in place of all
    """
    last = model.config.n_layers - 1
    for index in range(first, last + 1):
        written = {site: edit for (site, at), edit in edits.items() if at == index}
        stream = _through(model.layer(index), stream, written, read if index == last else None,
                          cut=cut)
    return model.read_out(stream)


def _through(
    block: Block, stream: Tensor, written: Mapping[str, Edit], read: int | None, *,
    cut: bool = False,
) -> Tensor:
    """Return the stream that leaves a block whose sites are written."""
    if "residual" in written:
        stream = written["residual"](stream)
    all_queries = "code" in written and not cut
    code, values = _written(block.codes(stream, None if all_queries else read), written)
    return block.after_codes(last_tokens(stream, read), _of_last(code, read), values)


def _written(computed: tuple[Tensor, Tensor], written: Mapping[str, Edit]) -> tuple[Tensor, Tensor]:
    """Return codes and values as they are written, in the order of a pass: it counts for noise."""
    code, values = computed
    if "value" in written:
        values = written["value"](values)
    return (written["code"](code) if "code" in written else code), values


def _of_last(code: Tensor, read: int | None) -> Tensor:
    return code if read is None else code[:, :, -read:]
