"""A language model of four heads with known parts, and texts for it.

Tokens 0 (sign +) and 1 (sign -) take turns, and what comes next is the same sign once more. Heads
0 and 1 attend to tokens of the query's sign s and put it out, so that their mean is 0; they write
it into a block of two numbers (+, -) of the stream. The read-out reads the block `SAID` alone.
Heads 2 and 3 have small random weights.

    redundant   both write s into `SAID`: the last LayerNorm makes nearly the same of one and two
    synergetic  each writes s into a block of its own, and a unit of the feed-forward layer writes
                into `SAID` where both are there
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from latentcode.models.config import ModelConfig
from latentcode.models.transformer import HookedTransformer
from latentcode.prompts import LanguageModel
from latentcode.prompts.texts import TextBatch
from latentcode.tasks.text.tokens import TokenTable

D = 16
SIGN, FIRST, SECOND, SAID = (slice(2 * i, 2 * i + 2) for i in range(4))
PLUS = torch.tensor([1.0, -1.0])


class Asked(LanguageModel):
    """A model in hand, asked in ids of tokens."""

    def __init__(self, model: Any) -> None:
        self.model, self.settings, self.context = model, {}, None
        self.vocabulary, self.padding = 2, 0

    def encode(self, text: str, prepend_bos: bool | None = None) -> Any:
        raise NotImplementedError

    def begins(self, prepend_bos: bool | None = None) -> bool:
        return False

    def texts(self, ids: Sequence[int]) -> list[str]:
        return [str(i) for i in ids]

    @property
    def table(self) -> TokenTable:  # type: ignore[override]
        raise NotImplementedError

    def padded(self, mask: Tensor) -> dict[str, Tensor]:
        return {}

    def untrained(self, seed: int = 0) -> Asked:
        raise NotImplementedError


def known_model(kind: str) -> HookedTransformer:
    """Return the model whose first two heads are `redundant` or `synergetic`."""
    model = HookedTransformer(ModelConfig(
        d_input=2, d_output=2, n_layers=1, d_model=D, n_heads=4, d_head=2, d_head_v=2, d_mlp=2,
        embedding="token", readout="dense", causal=True, positions="none",
        normalization="softmax", value_network="linear", nonlinearity="identity",
        attention_dropout=0.0))
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.endswith((".ln1.w", ".ln2.w", "ln_final.w")) else 0.0)
        model.embed.W_E[:, SIGN] = torch.stack([PLUS, -PLUS])
        block = model.layer(0)
        size = (D / 2) ** 0.5  # what LayerNorm makes of a block of 1 and -1
        for head in (0, 1):
            block.attn.W_V[head, SIGN.start, 0] = 1.0 / size
            block.attn.W_Q[head, SIGN.start, 0] = block.attn.W_K[head, SIGN.start, 0] = 3.0
        for head in (2, 3):
            block.attn.W_V[head] = 0.3 * torch.randn(D, 2, generator=random)
            block.attn.W_O[head] = 0.005 * torch.randn(2, D, generator=random)
        if kind == "redundant":
            block.attn.W_O[:2, 0, SAID] = PLUS
        else:
            block.attn.W_O[0, 0, FIRST] = block.attn.W_O[1, 0, SECOND] = PLUS
            # Together the two say 2 of 3 parts of the stream, alone 1 of 2.
            both, one = (parts * size / (1 + parts) ** 0.5 for parts in (2, 1))
            for unit, sign in enumerate((1.0, -1.0)):
                block.mlp.W_in[[FIRST.start, SECOND.start], unit] = 4.0 * sign
                block.mlp.b_in[unit] = -4.0 * (both + one) / 2
                block.mlp.W_out[unit, SAID] = 0.3 * sign * PLUS
        model.unembed.W_U[SAID] = 2.0 * torch.stack([PLUS, -PLUS], 1)
    return model


def random_model(seed: int = 0, *, vocabulary: int = 40, d_head_v: int = 2) -> HookedTransformer:
    """Return a model of two layers whose weights are random."""
    return HookedTransformer(ModelConfig(
        d_input=vocabulary, d_output=vocabulary, n_layers=2, d_model=32, n_heads=4,
        d_head=2, d_head_v=d_head_v, d_mlp=64, embedding="token", causal=True, positions="rotary",
        normalization="softmax", value_network="linear", nonlinearity="identity",
        attention_dropout=0.0), seed)


def signed_texts(n: int = 24, n_tokens: int = 6) -> list[TextBatch]:
    """Return texts in two batches, shorter ones among them."""
    found = []
    for some in torch.arange(n).tensor_split(2):
        tokens = (some[:, None] + torch.arange(n_tokens)) % 2
        lengths = n_tokens - 2 * (some % 3 // 2)
        read = torch.arange(n_tokens) < lengths[:, None] - 1
        found.append(TextBatch(tokens, lengths, tokens.clone(), read, some))
    return found
