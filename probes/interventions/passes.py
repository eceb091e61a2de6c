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
from latentcode.probes.interventions.sites import Edit, InScope, Place, Put, capture, run_patched

FEW = 0.25
"""Share of the tokens up to which those that change are computed one by one, not all of them."""


def computed_by_layers(model: Any) -> bool:
    """Whether passes of a model can start in any layer: it is ours, and nobody else looks at it."""
    return (isinstance(model, HookedTransformer) and model.n_members is None
            and not model.config.cross_attention and not any(map(is_hooked, model.modules())))


@dataclass(frozen=True)
class Layer:
    """What a layer computes at each site where nothing is written.

    Codes [B, H, T, T] and values [B, T, H, d] are None where only streams are asked for, z
    [B, T, H, d] where it is not asked for.
    """

    residual: Float[Tensor, "B T D"]
    code: Tensor | None
    value: Tensor | None
    z: Tensor | None


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

    def __getitem__(self, rows: slice) -> Unpatched:
        """Return the pass of some of the instances."""
        return Unpatched(self.model, self.inputs[rows], self.read, self.logits[rows], [
            Layer(layer.residual[rows], *(None if x is None else x[rows]
                                          for x in (layer.code, layer.value, layer.z)))
            for layer in self.layers])

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
            stream = written["residual"](own.residual)
            if not torch.equal(stream, own.residual):
                rest = {site: edit for site, edit in written.items() if site != "residual"}
                return _through(block, stream, rest, read)
        code, value = (block.codes(own.residual) if own.code is None or own.value is None
                       else (own.code, own.value))
        few = None if is_last else _few_queries(written)
        if few is None:
            new_code, new_value = _written(code, value, written)
            same = torch.equal(new_value, value) and torch.equal(new_code, code)
            if "z" in written:
                z = written["z"](own.z if same and own.z is not None
                                 else block.attn.z(new_code, new_value))
                if own.z is not None and torch.equal(z, own.z):
                    return None
                return block.after_z(last_tokens(own.residual, read), _z_of_last(z, read))
            if same:
                return None
            return block.after_codes(
                last_tokens(own.residual, read), _of_last(new_code, read), new_value)
        edit, instance, query = few
        rows = edit.at(code, instance, query)
        if torch.equal(rows, code[instance, :, query][:, :, None]):
            return None
        stream = self.layers[index + 1].residual.clone()
        stream[instance, query] = block.after_codes(
            own.residual[instance, query][:, None], rows, value[instance])[:, 0]
        return stream


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
            code, value = block.codes(stream)
            z = block.attn.z(code, value) if ("z", index) in places else None
            layers.append(Layer(stream, *((code, value, z) if index in kept else [None] * 3)))
            queries = last_tokens(stream, n)
            stream = (block.after_codes(queries, _of_last(code, n), value) if z is None
                      else block.after_z(queries, _z_of_last(z, n)))
        return Unpatched(model, inputs, read, model.read_out(stream), layers)


def computed(
    model: Any, inputs: Tensor, places: Collection[Place], read: int | None = None
) -> tuple[Tensor, dict[Place, Tensor]]:
    """Return the logits of the last R = `read` tokens and what is computed at some places."""
    if not computed_by_layers(model):
        logits, found = capture(model, inputs, places)
        return last_tokens(logits, read), found
    whole = unpatched_pass(model, inputs, places, read)
    return whole.logits, {(site, layer): getattr(whole.layers[layer], site)
                          for site, layer in places}


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
    put = {site for site, edit in written.items() if isinstance(edit, Put)}
    queries = last_tokens(stream, read)
    if "z" in put and written.keys() <= {"residual", "z"}:  # what is given is not computed
        return block.after_z(queries, _z_of_last(written["z"](stream), read))
    if "z" in written:  # an edit of it is given that of all queries
        read, last = None, read
    if "code" not in put:
        edit = written.get("code")
        of_last = edit.of_last(read) if isinstance(edit, InScope) else None
        if of_last is not None:
            written = {**written, "code": of_last}
        all_queries = edit is not None and of_last is None and not cut
        code, value = block.codes(stream, None if all_queries else read)
    else:  # what is given is not computed
        code = written["code"](stream)
        value = written["value"](stream) if "value" in put else block.values(stream)
    code, value = _written(code, value, written)
    if "z" in written:
        return block.after_z(queries, _z_of_last(written["z"](block.attn.z(code, value)), last))
    return block.after_codes(queries, _of_last(code, read), value)


def _written(code: Tensor, value: Tensor, written: Mapping[str, Edit]) -> tuple[Tensor, Tensor]:
    """Return codes and values as they are written, in the order of a pass: it counts for noise."""
    if "value" in written:
        value = written["value"](value)
    return (written["code"](code) if "code" in written else code), value


def _few_queries(written: Mapping[str, Edit]) -> tuple[InScope, Tensor, Tensor] | None:
    """Return the edit of codes, and the instances and queries that it changes; None where they
    are many or unknown, or something else is written beside them."""
    edit = written.get("code")
    if len(written) > 1 or not isinstance(edit, InScope):
        return None
    queries = edit.scope.any(2)  # [B, Q]
    if float(queries.float().mean()) > FEW:
        return None
    instance, query = queries.nonzero(as_tuple=True)
    return edit, instance, query


def _z_of_last(z: Tensor, read: int | None) -> Tensor:
    """Return what the heads put out for the last queries, or for all."""
    return z if read is None else z[:, -read:]


def _of_last(code: Tensor, read: int | None) -> Tensor:
    """Return the codes of the last queries, or of all."""
    return code if read is None else code[:, :, -read:]
