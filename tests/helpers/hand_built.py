"""Models of `Selector` with weights set by hand, whose codes provably carry one thing each.

    model      layer     code of a query              value
    operation  0 of 1    its rule, at the symbol      the symbol
    operands   1 of 2    the symbol, at itself        its rule
    answer     1 of 2    the answer, at the symbol    the same always

All codes are one-hot over the heads, and zero at all other keys. In the first two, head h turns
the value v into v + h, and only code and value reach the answer. The residual stream consists of
blocks of K numbers; n of a token's numbers are 1 and the others 0, and n is the same for all the
tokens that enter a layer. LayerNorm makes (x - n / D) / s of it, from which x can be read exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from selector import N_INPUT, K
from torch import Tensor

from latentcode.models.blocks import LAYER_NORM_EPSILON, Attention
from latentcode.models.config import ModelConfig
from latentcode.models.transformer import HookedTransformer

SYMBOL, RULE_0, RULE_1, FIRST, SECOND, ANSWER = (slice(K * i, K * (i + 1)) for i in range(6))
"""Blocks of the residual stream: the inputs, what the first layer may add, and what is read out."""
RULES = (RULE_0, RULE_1)
D = 6 * K
EYE = torch.eye(K)
ADD = torch.stack([EYE.roll(head, 1) for head in range(K)])
"""[H, K, K], what turns a one-hot v into v + h."""


def operation_model() -> HookedTransformer:
    """Return the model whose codes are the rule."""
    model = blank(n_layers=1, d_head=1)
    with torch.no_grad():
        _add_rule(model.layer(0).attn, ANSWER)
    return model


def operands_model() -> HookedTransformer:
    """Return the model whose codes are the symbol, in layer 1."""
    model = blank(n_layers=2, d_head=2)
    with torch.no_grad():
        # Each query takes the symbol, into the block of its own place, so that layer 1 can tell
        # a query from the other one. The symbol adds itself to a block that it alone has: all
        # tokens are two numbers then.
        q, k, v = maps(2)
        for head, (reader, block) in enumerate(
                ((RULE_0, FIRST), (RULE_1, SECOND), (SYMBOL, ANSWER))):
            q[head, reader, 0] = 1.0
            k[head, SYMBOL, 0] = 1.0
            v[head, SYMBOL] = EYE
            model.layer(0).attn.W_O[head, :, block] = EYE
        read(model.layer(0).attn, 1, q, k, v)
        # The query says its place j, the key the symbol at place j: 1 at itself, by head s.
        q, k, v = maps(2)
        for place, block in enumerate((FIRST, SECOND)):
            q[:, RULES[place], place] = 1.0
            k[:, block, place] = EYE
            v[:, RULES[place]] = EYE
        read(model.layer(1).attn, 2, q, k, v)
        model.layer(1).attn.W_O[:, :, ANSWER] = ADD
    return model


def answer_model() -> HookedTransformer:
    """Return the model whose codes are the answer, in layer 1; in layer 0 they are the rule."""
    model = blank(n_layers=2, d_head=1)
    with torch.no_grad():
        _add_rule(model.layer(0).attn, FIRST, symbol_is=0)
        q, k, v = maps(1)
        q[:, FIRST, 0] = EYE
        k[:, SYMBOL, 0] = 1.0
        v[:, SYMBOL, 0] = 1.0
        read(model.layer(1).attn, 2, q, k, v)
        model.layer(1).attn.W_O[:, 0, ANSWER] = EYE
    return model


MODELS: dict[str, Callable[[], HookedTransformer]] = {
    "operation": operation_model, "operands": operands_model, "answer": answer_model}


def blank(
    n_layers: int, d_head: int, *, n_input: int = N_INPUT, d_model: int = D, n_heads: int = K,
    d_mlp: int = 1, answer: slice = ANSWER,
) -> HookedTransformer:
    """Return a model that embeds the inputs, reads out `answer` and does nothing between."""
    model = HookedTransformer(ModelConfig(
        d_input=n_input, d_output=K, n_layers=n_layers, d_model=d_model, n_heads=n_heads,
        d_head=d_head, d_head_v=K, d_mlp=d_mlp, normalization="none", value_network="linear",
        positions="none", attention_dropout=0.0))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.endswith((".ln1.w", ".ln2.w", "ln_final.w")) else 0.0)
        model.embed.W_E[:, :n_input] = torch.eye(n_input)
        model.unembed.W_U[answer] = EYE
    return model


def _add_rule(attention: Attention, block: slice, symbol_is: int | None = None) -> None:
    """Let queries look at the symbol s with a code that is their rule r, and write s + r.

    symbol_is  the rule of the symbol itself: then all tokens have two numbers behind the layer
    """
    q, k, v = maps(1)
    for rules in RULES:
        q[:, rules, 0] = EYE
    if symbol_is is not None:
        q[symbol_is, SYMBOL, 0] = 1.0
    k[:, SYMBOL, 0] = 1.0
    v[:, SYMBOL] = EYE
    read(attention, 1, q, k, v)
    attention.W_O[:, :, block] = ADD


def maps(d_head: int, n_heads: int = K, d_model: int = D) -> tuple[Tensor, Tensor, Tensor]:
    """Return what queries, keys and values read of the stream, all zero: [H, D, d] each."""
    q, k, v = (torch.zeros(n_heads, d_model, size) for size in (d_head, d_head, K))
    return q, k, v


def read(attention: Attention, n: int, q: Tensor, k: Tensor, v: Tensor) -> None:
    """Read q, k, v of the streams x behind the LayerNorm, where n numbers of x are 1: x q, ..."""
    d_model = q.shape[1]
    for name, wanted in (("Q", q * q.shape[-1] ** 0.5), ("K", k), ("V", v)):
        getattr(attention, f"W_{name}").copy_(wanted * spread(n, d_model))
        getattr(attention, f"b_{name}").copy_(wanted.sum(1) * n / d_model)


def spread(n: int, d_model: int = D) -> float:
    """Return the deviation of a token of which n numbers are 1 and the others 0."""
    return (n / d_model * (1.0 - n / d_model) + LAYER_NORM_EPSILON) ** 0.5
