"""Forward passes in which activations are written, each only as far as it differs from the rest.

A clean pass keeps what enters every layer. A pass in which something is written begins in the
lowest layer that is written: our own models are computed block by block from there; the blocks of a
bridge below it return what was kept, as the modules around them need not be known.

- Of ours, where codes alone are written in that layer, only the queries whose codes become others
  are computed, and in the last layer only the tokens at which answers are read.
- Where z of some heads is written there, attention is not computed again either:
  y = sum_h z_h W_O^h + b_O becomes y' = y + sum_h (z'_h - z_h) W_O^h.
- Of a language model logits can be read at some tokens only: the unembedding of a vocabulary of
  50,000 is a third of a pass through a GPT-2.

Models on which somebody else's hooks sit pass through as a whole, so that these see everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentcode.errors import check, is_out_of_memory
from latentcode.models.blocks import Block, last_tokens
from latentcode.models.hooks import evaluating, is_hooked, locked, read_out_hook
from latentcode.models.patched.sites import (
    SITES,
    Edit,
    Hook,
    InScope,
    Place,
    Put,
    hooked_pass,
    hooks_of,
    messages_of,
    with_messages,
)
from latentcode.models.transformer import HookedTransformer

FEW_QUERIES = 0.25
"""Share of the tokens up to which those that change are computed one by one, not all of them."""
BEHIND = {"attended", "mlp_in", "mlp_out"}
"""What a block computes behind z; `attended` is what attention adds to the stream, before a norm
that follows it in some bridges. No `Patch` writes it."""


@dataclass(frozen=True)
class Output:
    """What a module returned: a tensor, or a tuple or list that begins with one.

    kind   of what was returned, `first` its tensor and `rest` what follows; other tensors of it,
           such as patterns, are not kept: None stands in their place
    """

    kind: type
    first: Tensor
    rest: tuple[Any, ...] = ()

    @classmethod
    def of(cls, output: Any) -> Output:
        """Keep what a module returned; `ConfigError` for what is neither."""
        several = isinstance(output, tuple | list) and len(output) > 0
        first = output[0] if several else output
        check(isinstance(first, Tensor), f"a layer returns {type(output).__name__}; expected a "
              "tensor, or a tuple or list that begins with one")
        # What follows may be computed in place.
        return cls(type(output), _copy(first), tuple(
            None if isinstance(x, Tensor) else x for x in output[1:]) if several else ())

    def __getitem__(self, rows: slice | Tensor) -> Output:
        """Return that of some of the instances."""
        return Output(self.kind, self.first[rows], self.rest)

    def holding(self, first: Tensor) -> Any:
        """Return the same with another first tensor."""
        return self.kind((first, *self.rest)) if issubclass(self.kind, tuple | list) else first


@dataclass(frozen=True)
class Layer:
    """What a clean pass keeps of a layer.

    entering  what enters it, as the module below returned it; None where passes share nothing
    sites     what is computed at some sites
    attended  what attention returned, where it is asked for
    """

    entering: Output | None = None
    sites: Mapping[str, Tensor] = field(default_factory=dict)
    attended: Output | None = None

    def __getitem__(self, rows: slice | Tensor) -> Layer:
        """Return that of some of the instances."""
        return Layer(None if self.entering is None else self.entering[rows],
                     {site: x[rows] for site, x in self.sites.items()},
                     None if self.attended is None else self.attended[rows])


@dataclass(frozen=True)
class CleanPass:
    """A pass in which nothing is written, which others share.

    read     the logits that are computed: those of the last tokens, or of the tokens of a mask
             [B, T]; None: of all
    logits   [B, R, V], or [R, V] of the R tokens of a mask
    layers   what is kept of each layer; empty where passes share nothing and nothing is shown
    shares   whether passes share the layers below the lowest that they write
    padding  what the model is told of padding, by the names of its arguments [B, T]
    """

    model: Any
    inputs: Tensor
    read: int | Tensor | None
    logits: Tensor
    layers: Sequence[Layer] = ()
    shares: bool = False
    padding: Mapping[str, Tensor] = field(default_factory=dict)

    def __getitem__(self, rows: slice) -> CleanPass:
        """Return the pass of some of the instances; not of one that is read by a mask."""
        assert not isinstance(self.read, Tensor)
        return CleanPass(self.model, self.inputs[rows], self.read, self.logits[rows],
                         [layer[rows] for layer in self.layers], self.shares, self.padding)

    def at(self, place: Place) -> Tensor:
        """Return what is computed at a place that is shown."""
        site, layer = place
        return self.layers[layer].sites[site]

    def patched(self, edits: Mapping[Place, Edit], n: int = 1) -> Tensor:
        """Return the logits with activations replaced by what the edits make of them.

        n  so many passes at once: edits are given n times as many instances, those of the second
           pass after those of the first; logits are [n B, R, V], or [n, R, V] read by a mask

        Where nothing that is written differs from what was there, what follows is that of this
        pass, bit for bit. Edits return other tensors, and leave those that they are given.
        """
        with evaluating(self.model):
            if not edits or (self.shares and computed_by_layers(self.model)):
                return self._by_layers(edits, n)
            return self._through_hooks(edits, n)

    def _by_layers(self, edits: Mapping[Place, Edit], n: int) -> Tensor:
        read = None if isinstance(self.read, Tensor) else self.read
        for index in range(len(self.layers)):
            written = {site: edit for (site, at), edit in edits.items() if at == index}
            stream = self._leaving(index, written, read, n) if written else None
            if stream is not None:
                stream = _blocks(self.model, index + 1, stream, edits, read)
                if isinstance(self.read, Tensor):
                    stream = _tokens(stream, self.read, n)
                logits: Tensor = self.model.read_out(stream)
                return logits
        return (self.logits.expand(n, -1, -1) if isinstance(self.read, Tensor)
                else _repeated(self.logits, n))

    def _leaving(
        self, index: int, written: Mapping[str, Edit], read: int | None, n: int
    ) -> Float[Tensor, "B R D"] | None:
        """Return the stream that leaves the lowest layer that is written; None: the unpatched."""
        block, own = self.model.layer(index), self.layers[index]
        is_last = index == len(self.layers) - 1
        read = read if is_last else None
        assert own.entering is not None
        entering = _repeated(own.entering.first, n)
        code, value, z = (None if x is None else _repeated(x, n)
                          for x in map(own.sites.get, ("code", "value", "z")))
        if "residual" in written:
            stream = written["residual"](entering)
            written = {site: edit for site, edit in written.items() if site != "residual"}
            if not torch.equal(stream, entering):
                return _through(block, stream, written, read)
            if not written:
                return None
        same = written.keys() <= {"z", *BEHIND}
        if z is None or not same:
            if code is None or value is None:
                code, value = block.codes(entering)
            few = None if is_last else _few_queries(written)
            if few is not None:
                edit, instance, query = few
                rows = edit.at(code, instance, query)
                if torch.equal(rows, code[instance, :, query][:, :, None]):
                    return None
                above = self.layers[index + 1].entering
                assert above is not None
                stream = _repeated(above.first, n).clone()
                stream[instance, query] = block.after_codes(
                    entering[instance, query][:, None], rows, value[instance])[:, 0]
                return stream
            new_code, new_value = _written(code, value, written)
            same = torch.equal(new_value, value) and torch.equal(new_code, code)
            if written.keys() <= {"code", "value"}:
                return None if same else block.after_codes(
                    last_tokens(entering, read), last_tokens(new_code, read), new_value)
            code, value = new_code, new_value
        new_z = z if same and z is not None else block.attn.z(code, value)
        if "message" in written:
            assert code is not None
            assert value is not None
            new_z = _with_messages(block, code, value, written["message"], new_z)
        new_z = written["z"](new_z) if "z" in written else new_z
        if not written.keys() & BEHIND:
            if z is not None and torch.equal(new_z, z):
                return None
            return block.after_z(last_tokens(entering, read), _last_z(new_z, read))
        stream = last_tokens(block.after_z(entering, new_z, partial(_behind, written)), read)
        # Where nothing differs, what follows could still be rounded otherwise than before.
        above = None if is_last else self.layers[index + 1].entering
        unchanged = above is not None and torch.equal(stream, _repeated(above.first, n))
        return None if unchanged else stream

    def _through_hooks(self, edits: Mapping[Place, Edit], n: int) -> Tensor:
        lowest = min((layer for _, layer in edits), default=0)
        own = self.layers[lowest] if self.layers else Layer()
        edits = dict(edits)
        with ExitStack() as stack:
            if self.shares:
                stack.enter_context(_replayed(self.model, lowest, own.entering, n))
            for layer in sorted({layer for site, layer in edits if site in ("z", "attended")}):
                attention = _attention(self.model, layer)
                of_layer = {site: edit for (site, at), edit in edits.items() if at == layer}
                add = edits.pop(("attended", layer), None)
                given = (self.shares and layer == lowest and own.attended is not None
                         and of_layer.keys() <= {"z", "attended"})
                if given:
                    stack.enter_context(_replaced(attention, self._given(
                        layer, edits.pop(("z", layer), None), add, n)))
                elif add is not None:
                    stack.enter_context(_replaced(attention, _changed(attention.forward, add)))
            return self._logits(hooks_of(self.model, edits), n)

    def _given(
        self, layer: int, write: Edit | None, add: Edit | None, n: int
    ) -> Callable[..., Any]:
        """Return the forward of the lowest attention that is written, which computes nothing."""
        own = self.layers[layer]
        assert own.attended is not None
        attended = own.attended

        def forward(*args: Any, **kwargs: Any) -> Any:
            rows = _repeated(attended.first, n)
            if write is not None:
                z = _repeated(own.sites["z"], n)
                weight = _attention(self.model, layer).W_O  # [H, d, D]
                rows = rows + (write(z) - z).flatten(2) @ weight.flatten(0, 1)
            return attended.holding(rows if add is None else add(rows))
        return forward

    def _logits(self, hooks: Sequence[Hook], n: int) -> Tensor:
        if isinstance(self.read, Tensor):
            return logits_at(self.model, self.inputs, self.padding,
                             self.read.flatten().nonzero().flatten(), hooks, n)
        return last_tokens(hooked_pass(self.model, _repeated(self.inputs, n), hooks, **{
            name: _repeated(x, n) for name, x in self.padding.items()}), self.read)


def computed_by_layers(model: Any) -> bool:
    """Whether passes of a model can start in any layer: it is ours, and nobody else looks at it."""
    return (isinstance(model, HookedTransformer) and model.n_members is None
            and not model.config.cross_attention and not any(map(is_hooked, model.modules())))


def clean_pass(
    model: Any, inputs: Tensor, places: Collection[Place] = (), read: int | Tensor | None = None,
    *, shown: bool = False, shared: bool = True, padding: Mapping[str, Tensor] | None = None,
) -> CleanPass:
    """Return a pass in which nothing is written, for passes in which some places are.

    places   those that will be written
    read     the logits of the last tokens, or of the tokens of a mask [B, T]; None: of all
    shown    keep what is computed at the places, which else is kept where it saves work
    shared   False: later passes go through the model as a whole, as those of a bridge have to where
             `unshared` says why
    padding  what a bridge is told of padding, by the names of its arguments [B, T]
    """
    with evaluating(model):  # whose lock keeps hooks of other threads away
        if shared and computed_by_layers(model):
            return _clean_by_layers(model, inputs, places, read, shown=shown)
        return _clean_through_hooks(
            model, inputs, places if shown else (), read,
            shared=shared and hasattr(model, "original_model"), padding=dict(padding or {}))


def _clean_through_hooks(
    model: Any, inputs: Tensor, places: Collection[Place], read: int | Tensor | None, *,
    shared: bool, padding: Mapping[str, Tensor],
) -> CleanPass:
    """Return the clean pass of any other model, of which the places are shown."""
    kept: dict[Place, Tensor] = {}
    returned: dict[nn.Module, Output] = {}

    def keep(place: Place, activation: Tensor) -> None:
        kept[place] = _copy(activation)

    def keep_output(module: nn.Module, inputs: object, output: object) -> None:
        returned[module] = Output.of(output)

    blocks = list(model.blocks)
    attentions = {layer: _attention(model, layer) for site, layer in places if site == "attended"}
    hooks = hooks_of(model, {
        place: partial(keep, place) for place in places if place[0] in SITES})
    with ExitStack() as stack:
        for module in (*(blocks if shared else ()), *attentions.values()):
            stack.callback(module.register_forward_hook(keep_output).remove)
        begun = CleanPass(model, inputs, read, torch.empty(0), padding=padding)
        logits = begun._logits(hooks, 1)
    layers = [Layer(returned[blocks[index - 1]] if shared and index else None,
                    {site: x for (site, layer), x in kept.items() if layer == index},
                    returned[attentions[index]] if index in attentions else None)
              for index in range(len(blocks))] if shared or places else ()
    return CleanPass(model, inputs, read, logits[0] if isinstance(read, Tensor) else logits,
                     layers, shared, padding)


def _clean_by_layers(
    model: Any, inputs: Tensor, places: Collection[Place], read: int | Tensor | None, *,
    shown: bool,
) -> CleanPass:
    """Return the clean pass of one of our models, block by block."""
    last = None if isinstance(read, Tensor) else read
    layers = []
    stream = model.hook_embed(model.embed(inputs))
    for index in range(model.config.n_layers):
        block, n = model.layer(index), last if index == model.config.n_layers - 1 else None
        wanted = {site for site, layer in places if layer == index}
        code, value = block.codes(stream)
        sites = {"residual": stream}
        if wanted & {"code", "value", "z", "message"}:
            sites |= {"code": code, "value": value}
        entering, attended = Output(Tensor, stream), None
        if not wanted & {"z", "message", *BEHIND}:
            stream = block.after_codes(last_tokens(stream, n), last_tokens(code, n), value)
            layers.append(Layer(entering, sites))
            continue
        sites["z"] = z = block.attn.z(code, value)
        if shown and "message" in wanted:
            sites["message"] = messages_of(block.attn, code, value)
        if wanted & BEHIND:
            behind: dict[str, Tensor] = {}
            stream = last_tokens(block.after_z(
                stream, z, lambda site, x, kept=behind: kept.setdefault(site, x)), n)
            attended = Output(Tensor, behind.pop("attended"))
            sites |= {site: x for site, x in behind.items() if site in wanted}
        else:
            stream = block.after_z(last_tokens(stream, n), _last_z(z, n))
        layers.append(Layer(entering, sites, attended))
    logits = model.read_out(
        _tokens(stream, read, 1) if isinstance(read, Tensor) else stream)
    return CleanPass(model, inputs, read, logits[0] if isinstance(read, Tensor) else logits,
                     layers, shares=True)


def computed(
    model: Any, inputs: Tensor, places: Collection[Place], read: int | None = None
) -> tuple[Tensor, dict[Place, Tensor]]:
    """Return the logits of the last R = `read` tokens and what is computed at some places."""
    clean = clean_pass(model, inputs, places, read, shown=True,
                       shared=computed_by_layers(model))
    return clean.logits, {place: clean.at(place) for place in places}


def run_from(
    model: Any, first: int, entering: Output | None, edits: Mapping[Place, Edit],
    read: int | None = None, *, inputs: Tensor | None = None, cut: bool = False,
) -> Float[Tensor, "B R V"]:
    """Return the logits of the last R = `read` tokens that follow from what enters layer `first`.

    entering  see `Layer`; gradients flow from the edits
    edits   those of lower layers are left out
    inputs  of a bridge
    cut     an edit of the last layer's codes is given those of the last R queries, in place of all,
            of our models
    """
    if computed_by_layers(model):
        assert entering is not None
        logits: Tensor = model.read_out(
            _blocks(model, first, entering.first, edits, read, cut=cut))
        return logits
    assert inputs is not None
    with _replayed(model, first, entering, 1):
        return last_tokens(hooked_pass(model, inputs, hooks_of(model, {
            (site, layer): edit for (site, layer), edit in edits.items() if layer >= first})), read)


def _blocks(
    model: Any, first: int, stream: Tensor, edits: Mapping[Place, Edit], read: int | None, *,
    cut: bool = False,
) -> Float[Tensor, "B R D"]:
    """Return the stream that leaves the last block, of the last tokens."""
    last = model.config.n_layers - 1
    for index in range(first, last + 1):
        written = {site: edit for (site, at), edit in edits.items() if at == index}
        stream = _through(model.layer(index), stream, written, read if index == last else None,
                          cut=cut)
    return stream


def _through(
    block: Block, stream: Tensor, written: Mapping[str, Edit], read: int | None, *,
    cut: bool = False,
) -> Tensor:
    """Return the stream that leaves a block whose sites are written."""
    if "residual" in written:
        stream = written["residual"](stream)
    write, is_behind = partial(_behind, written), bool(written.keys() & BEHIND)
    whole = None if is_behind else read  # edits of these are given those of all tokens
    put = {site for site, edit in written.items() if isinstance(edit, Put)}
    queries = last_tokens(stream, whole)
    if "z" in put and not written.keys() & {"code", "value", "message"}:
        # What is given is not computed.
        return last_tokens(block.after_z(
            queries, _last_z(written["z"](stream), whole), write), read)
    of_z = bool(written.keys() & {"z", "message"})  # edits of these are given those of all queries
    computed_queries = None if of_z else whole
    if "code" not in put:
        edit = written.get("code")
        of_last = edit.of_last(computed_queries) if isinstance(edit, InScope) else None
        if of_last is not None:
            written = {**written, "code": of_last}
        all_queries = edit is not None and of_last is None and not cut
        code, value = block.codes(stream, None if all_queries else computed_queries)
    else:  # what is given is not computed
        code = written["code"](stream)
        value = written["value"](stream) if "value" in put else block.values(stream)
    code, value = _written(code, value, written)
    if not of_z and not is_behind:
        return block.after_codes(queries, last_tokens(code, read), value)
    z = block.attn.z(last_tokens(code, computed_queries), value)
    if "message" in written:
        z = _with_messages(block, code, value, written["message"], z)
    if "z" in written:
        z = written["z"](z)
    return last_tokens(block.after_z(queries, _last_z(z, whole), write), read)


def _written(code: Tensor, value: Tensor, written: Mapping[str, Edit]) -> tuple[Tensor, Tensor]:
    """Return codes and values as they are written, in the order of a pass: it counts for noise."""
    if "value" in written:
        value = written["value"](value)
    return (written["code"](code) if "code" in written else code), value


def _with_messages(block: Block, code: Tensor, value: Tensor, edit: Edit, z: Tensor) -> Tensor:
    own = messages_of(block.attn, code, value)
    return with_messages(own, edit(own), z)


def _behind(written: Mapping[str, Edit], site: str, live: Tensor) -> Tensor:
    edit = written.get(site)
    return live if edit is None else edit(live)


def _few_queries(written: Mapping[str, Edit]) -> tuple[InScope, Tensor, Tensor] | None:
    """Return the edit of codes, and the instances and queries that it changes; None where they
    are many or unknown, or something else is written beside them."""
    edit = written.get("code")
    if len(written) > 1 or not isinstance(edit, InScope):
        return None
    queries = edit.scope.any(2)  # [B, Q]
    if float(queries.float().mean()) > FEW_QUERIES:
        return None
    instance, query = queries.nonzero(as_tuple=True)
    return edit, instance, query


def _last_z(z: Tensor, read: int | None) -> Tensor:
    """Return what the heads put out for the last queries, or for all."""
    return z if read is None else z[:, -read:]


def logits_at(
    model: Any, tokens: Tensor, padding: Mapping[str, Tensor], at: Int[Tensor, " R"],
    hooks: Sequence[Hook], n: int = 1,
) -> Float[Tensor, "n R V"]:
    """Return the logits at some tokens of a batch that passes n times at once, through hooks.

    at  numbers of the tokens through all texts: b T + t
    """
    given = _repeated(tokens, n)
    if isinstance(model, HookedTransformer):
        stream = model.run_with_hooks(given, fwd_hooks=list(hooks),
                                      stop_at_layer=model.config.n_layers)
        return model.read_out(_at(stream, at, n))

    def read(stream: Tensor, hook: object) -> Tensor:
        return _at(stream, at, n)

    logits: Tensor = model.run_with_hooks(
        given, **{name: _repeated(x, n) for name, x in padding.items()},
        fwd_hooks=[*hooks, (read_out_hook(model), read)])
    return logits


@torch.no_grad()
def unshared(model: Any, layers: Collection[int] | None = None) -> str:
    """Why do passes that begin in some layers (default: any) not share those below? "" where they
    do.

    Ours share them, or pass as a whole where hooks sit on them. A bridge is tried on a few tokens:
    a pass that begins in any layer, with nothing written, gives the bits of the whole pass.
    """
    if not hasattr(model, "original_model"):
        return ""
    with locked(model):
        clean = clean_pass(model, few_tokens(model))
        for layer in range(len(clean.layers)) if layers is None else layers:
            try:
                same = clean.patched({("residual", layer): lambda live: live})
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                return f"layer {layer}: {error}"
            if not torch.equal(same, clean.logits):
                return f"layer {layer} is not computed from what the layer below puts out"
    return ""


def few_tokens(model: Any) -> Int[Tensor, "B T"]:
    """Return a few texts on which a language model is tried."""
    n_ids = int(getattr(model.cfg, "d_vocab", 8))
    device = next(model.parameters()).device
    return (torch.arange(8, device=device) % max(1, n_ids)).view(2, 4)


def _at(stream: Tensor, at: Tensor, n: int) -> Float[Tensor, "n R D"]:
    return stream.reshape(n, -1, stream.shape[-1])[:, at]


def _tokens(stream: Tensor, read: Bool[Tensor, "B T"], n: int) -> Float[Tensor, "n R D"]:
    return _at(stream, read.flatten().nonzero().flatten(), n)


def _copy(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _repeated(x: Tensor, n: int) -> Tensor:
    return x if n == 1 else x.repeat(n, *[1] * (x.ndim - 1))


def _attention(model: Any, layer: int) -> Any:
    return model.blocks[layer].attn


@contextmanager
def _replayed(model: Any, first: int, entering: Output | None, n: int) -> Iterator[None]:
    """Let the blocks below a layer return what enters it, n times, in place of what they compute.

    That of the lowest of them goes on to the next, and so on; None: all of them compute.
    """
    with ExitStack() as stack:
        for layer in () if entering is None else range(first):
            assert entering is not None
            stack.enter_context(_replaced(model.blocks[layer], partial(_given_back, entering, n)))
        yield


def _given_back(kept: Output, n: int, *args: Any, **kwargs: Any) -> Any:
    return kept.holding(_repeated(kept.first, n))


def _changed(forward: Callable[..., Any], edit: Edit) -> Callable[..., Any]:
    """Return the forward of a module whose output an edit changes."""
    def changed(*args: Any, **kwargs: Any) -> Any:
        output = Output.of(forward(*args, **kwargs))
        return output.holding(edit(output.first))
    return changed


@contextmanager
def _replaced(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Let a module compute something else; restore it afterwards, whatever happens.

    In its `__dict__`, as bridges hand attributes on to the module that they wrap.
    """
    own = vars(module).get("forward")
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        if own is None:
            del vars(module)["forward"]
        else:
            vars(module)["forward"] = own
