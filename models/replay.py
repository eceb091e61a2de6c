"""What follows when heads put out something else? Passes that share the layers below.

    y = sum_h z_h W_O^h + b_O    ->    y' = y + sum_h (z'_h - z_h) W_O^h

A clean pass keeps what every block and every attention puts out. A later pass, in which z of some
heads is replaced, *replays* the blocks below the lowest layer that is written: their modules return
what was kept. In that layer attention is not computed again either, as the equation says what it
puts out. What lies above is computed. Of a language model logits are read at some tokens only: the
unembedding of a vocabulary of 50,000 is a third of a pass through a GPT-2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentcode.errors import LatentCodeError, check, is_out_of_memory
from latentcode.models.layers import attention_layers
from latentcode.models.modes import evaluating
from latentcode.models.read_out import read_out_hook
from latentcode.models.transformer import HookedTransformer
from latentcode.seeds import make_generator

TOKENS = 4096
"""Tokens that pass through the model at once, where they are those of one batch several times."""
NUMBERS = 2**25
"""Logits, and codes of a layer, that are computed at once."""
AGREES = 1e-3
"""How far a replay may be from a whole pass, as a share of what the change changes; in types of few
bits `ROUNDINGS` times their rounding."""
ROUNDINGS = 16
FEW = 2, 4
"""Texts and tokens on which `unshared` tries a model."""


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

    def holding(self, first: Tensor) -> Any:
        """Return the same with another first tensor."""
        return self.kind((first, *self.rest)) if issubclass(self.kind, tuple | list) else first


@dataclass(frozen=True)
class CleanPass:
    """A pass in which nothing is written, which others share.

    tokens   ids [B, T], `padding` what the model is told of them
    at       int64 [R], the tokens that are read, numbered through all texts: b T + t
    logits   [R, V], those of these tokens
    z        by layer with attention [B, T, H, d], what each head puts out before W_O^h
    streams  by these layers [B, T, D], what enters the block
    attentions  by these layers, what attention put out
    blocks   of all layers, what the block put out; empty where passes share nothing
    """

    model: Any
    tokens: Int[Tensor, "B T"]
    at: Int[Tensor, " R"]
    padding: Mapping[str, Tensor]
    logits: Float[Tensor, "R V"]
    z: Mapping[int, Tensor]
    streams: Mapping[int, Tensor]
    attentions: Mapping[int, Output]
    blocks: tuple[Output, ...] = ()

    @property
    def room(self) -> int:
        """How many passes fit into memory at once."""
        n_texts, n_tokens = self.tokens.shape
        codes = n_texts * next(iter(self.z.values())).shape[2] * n_tokens**2
        return max(1, min(TOKENS // (n_texts * n_tokens), NUMBERS // max(1, self.logits.numel()),
                          NUMBERS // codes))

    def stream(self, layer: int) -> Float[Tensor, "B T D"]:
        """Return the stream that attention leaves: what enters the block, and what it adds.

        Where a norm follows attention, as in Gemma 2, without that norm.
        """
        return self.streams[layer] + self.attentions[layer].first

    def moved(self, write: Write) -> Float[Tensor, "B T D"]:
        """sum_h (z'_h - z_h) W_O^h: what a write of z adds to what attention puts out."""
        assert write.z is not None
        weight = _attention(self.model, write.layer).W_O[list(write.heads)]  # [h, d, D]
        difference = write.z - self.z[write.layer][:, :, list(write.heads)]
        return difference.flatten(2) @ weight.flatten(0, 1)

    def after(self, passes: Sequence[Sequence[Write]]) -> Float[Tensor, "N R V"]:
        """Return the logits of N passes, in each of which something is written.

        passes  what each of them writes, no layer twice; they share the layers below the lowest
                that any writes
        """
        written: dict[int, dict[int, Write]] = {}
        for number, writes in enumerate(passes):
            for write in writes:
                written.setdefault(write.layer, {})[number] = write
        n = len(passes)
        if not written:
            return self.logits.expand(n, -1, -1)
        lowest = min(written) if self.blocks else -1
        with evaluating(self.model), ExitStack() as stack:
            for layer in range(lowest):
                stack.enter_context(_replaced(
                    self.model.blocks[layer], _returning(self.blocks[layer], n)))
            hooks = []
            for layer, writes_of in sorted(written.items()):
                attention = _attention(self.model, layer)
                if layer == lowest:
                    stack.enter_context(_replaced(attention, self._given(writes_of, n)))
                    continue
                if any(write.heads for write in writes_of.values()):
                    hooks.append((z_hook(layer), _putting(writes_of, n)))
                if any(write.added is not None for write in writes_of.values()):
                    stack.enter_context(_replaced(attention, _adding(
                        attention.forward, writes_of, n)))
            return logits_at(self.model, self.tokens, self.padding, self.at, hooks, n)

    def _given(self, writes: Mapping[int, Write], n: int) -> Callable[..., Any]:
        """Return the forward of the lowest attention that is written, which computes nothing."""
        layer = next(iter(writes.values())).layer

        def forward(*args: Any, **kwargs: Any) -> Any:
            kept = self.attentions[layer]
            rows = kept.first.repeat(n, *[1] * (kept.first.ndim - 1))
            by_pass = rows.view(n, *kept.first.shape)
            for number, write in writes.items():
                if write.heads:
                    by_pass[number] += self.moved(write)
                if write.added is not None:
                    by_pass[number] += write.added
            return kept.holding(rows)
        return forward


def logits_at(
    model: Any, tokens: Tensor, padding: Mapping[str, Tensor], at: Tensor,
    hooks: Sequence[tuple[str, Callable[..., Any]]], n: int = 1,
) -> Float[Tensor, "n R V"]:
    """Return the logits at some tokens of a batch that passes n times at once, through hooks.

    at  as in `CleanPass`
    """
    given = tokens.repeat(n, 1)
    if isinstance(model, HookedTransformer):
        stream = model.run_with_hooks(given, fwd_hooks=list(hooks),
                                      stop_at_layer=model.config.n_layers)
        return model.read_out(_at(stream, at, n))

    def read(stream: Tensor, hook: object) -> Tensor:
        return _at(stream, at, n)

    logits: Tensor = model.run_with_hooks(
        given, **{name: x.repeat(n, 1) for name, x in padding.items()},
        fwd_hooks=[*hooks, (read_out_hook(model), read)])
    return logits


def z_hook(layer: int) -> str:
    """Return the hook that shows what each head puts out, z [B, T, H, d], before W_O."""
    return f"blocks.{layer}.attn.hook_z"


def check_shown(model: Any) -> list[str]:
    """Return the hooks that show z, and what enters, of every layer with attention.

    `ConfigError` for a model that does not have them.
    """
    shown = [hook(layer) for layer in attention_layers(model) for hook in (z_hook, _stream_hook)]
    hidden = [name for name in shown if name not in model.hook_dict]
    check(not hidden, f"the model has no hook {', '.join(hidden[:3])}; expected those that show "
          "what each head puts out, and what enters each layer with attention")
    return shown


def _stream_hook(layer: int) -> str:
    return f"blocks.{layer}.hook_resid_pre"


def clean_pass(
    model: Any, tokens: Int[Tensor, "B T"], read: Bool[Tensor, "B T"], *,
    padding: Mapping[str, Tensor] | None = None, shared: bool = True,
) -> CleanPass:
    """Return a pass in which nothing is written, for passes in which z of some heads is.

    model    a `HookedTransformer` or a `TransformerBridge` that is a language model
    read     where logits are read
    padding  what the model is told of padding, by the names of its arguments [B, T]
    shared   False: later passes go through the model as a whole (where `unshared` says why)

    `ConfigError` for a model that does not show z, and what enters, of every layer.
    """
    layers, shown = attention_layers(model), check_shown(model)
    seen: dict[str, Tensor] = {}
    kept: dict[nn.Module, Output] = {}

    def look(name: str) -> Callable[..., None]:
        def keep(activation: Tensor, hook: object) -> None:
            seen[name] = _copy(activation)
        return keep

    def keep_output(module: nn.Module, inputs: object, output: object) -> None:
        kept[module] = Output.of(output)

    at = read.flatten().nonzero().flatten()
    padding = dict(padding or {})
    blocks = list(model.blocks) if shared else []
    with evaluating(model), ExitStack() as stack:
        for module in (*blocks, *(_attention(model, layer) for layer in layers)):
            stack.callback(module.register_forward_hook(keep_output).remove)
        logits = logits_at(model, tokens, padding, at, [(name, look(name)) for name in shown])
    z, streams = ({layer: seen[hook(layer)] for layer in layers}
                  for hook in (z_hook, _stream_hook))
    shapes = [tuple(x.shape) for x in z.values()]
    check(all(len(shape) == 4 and shape[:2] == tokens.shape for shape in shapes), "the model shows "
          f"z {shapes[:3]} for tokens {tuple(tokens.shape)}; expected [B, T, H, d] in every layer")
    return CleanPass(model, tokens, at, padding, logits[0], z, streams,
                     {layer: kept[_attention(model, layer)] for layer in layers},
                     tuple(kept[block] for block in blocks))


@torch.no_grad()
def unshared(model: Any) -> str:
    """Why do passes of a model not share layers? "" where they do.

    Tried on a few tokens, in every layer: a replay in which a head's z is put back gives the bits
    of the pass itself, and one with another z what a whole pass gives. `ConfigError` where another
    z changes nothing in any layer, also in whole passes; in a layer alone it may write where
    nothing reads.
    """
    device = next(model.parameters()).device
    n_ids = int(getattr(model.cfg, "d_vocab", FEW[0] * FEW[1]))
    tokens = (torch.arange(FEW[0] * FEW[1], device=device) % max(1, n_ids)).view(FEW)
    read = torch.ones(FEW, dtype=torch.bool, device=device)
    whole = clean_pass(model, tokens, read, shared=False)
    generator = make_generator(0, "another z")
    try:
        shared = clean_pass(model, tokens, read)
    except LatentCodeError as error:
        return str(error)
    found, changed = "", False
    for layer, z in whole.z.items():
        head = layer % z.shape[2]
        noise = torch.randn(z[:, :, :1].shape, generator=generator).to(z)
        # Of the size of what is there, so that layers of small z change something, too.
        other = z[:, :, head:head + 1] + noise * z.float().std().to(z)
        writes = [Write(layer, (head,), other)]
        by_hook = whole.after([writes])
        changed = changed or not torch.equal(by_hook[0], whole.logits)
        try:
            same = shared.after([[Write(layer, (head,), z[:, :, head:head + 1])]])
            replayed = shared.after([writes])
        except Exception as error:
            if is_out_of_memory(error):
                raise
            found = found or f"layer {layer}: {error}"
            continue
        if not torch.equal(same[0], whole.logits):
            found = found or f"layer {layer} is not computed from what the layer below puts out"
        elif not agrees(replayed, by_hook, whole.logits):
            found = found or f"what attention puts out in layer {layer} is not sum_h z_h W_O^h"
    check(changed, "another z of a head changes no logit of this model, in any layer; expected an "
          "architecture that goes on with what is written there")
    return found


def agrees(one: Tensor, other: Tensor, clean: Tensor) -> bool:
    """Whether the logits of two passes are the same but for rounding, beside what they change."""
    within = max(AGREES, ROUNDINGS * torch.finfo(clean.dtype).eps)
    changed = (other.float() - clean.float()).norm()
    return bool((one.float() - other.float()).norm() <= within * changed)


def _at(stream: Tensor, at: Tensor, n: int) -> Float[Tensor, "n R D"]:
    return stream.reshape(n, -1, stream.shape[-1])[:, at]


def _copy(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _attention(model: Any, layer: int) -> Any:
    return model.blocks[layer].attn


def _returning(kept: Output, n: int) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        return kept.holding(kept.first.repeat(n, *[1] * (kept.first.ndim - 1)))
    return forward


def _putting(writes: Mapping[int, Write], n: int) -> Callable[..., Tensor]:
    """Return the hook that replaces z of some heads in some of n passes."""
    def put(z: Tensor, hook: object) -> Tensor:
        z = _copy(z)
        by_pass = z.view(n, -1, *z.shape[1:])  # [n, B, T, H, d]
        for number, write in writes.items():
            if write.heads:
                assert write.z is not None
                by_pass[number][:, :, list(write.heads)] = write.z.to(z.dtype)
        return z
    return put


def _adding(
    forward: Callable[..., Any], writes: Mapping[int, Write], n: int
) -> Callable[..., Any]:
    """Return the forward of an attention to whose output something is added in some passes."""
    def adding(*args: Any, **kwargs: Any) -> Any:
        output = Output.of(forward(*args, **kwargs))
        by_pass = output.first.view(n, -1, *output.first.shape[1:])
        for number, write in writes.items():
            if write.added is not None:
                by_pass[number] += write.added
        return output.holding(output.first)
    return adding


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
