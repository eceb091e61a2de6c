"""A language model of two layers and two heads with weights set by hand, whose heads are known.

    layer 0  head 0  attends to the token before, and writes it into a block of its own
             head 1  attends to all tokens alike, and writes nothing
    layer 1  head 0  attends to what followed earlier occurrences of its token (induction), and
                     raises the logit of what is there
             head 1  attends to the same token before it, and writes nothing

The residual stream is a one-hot token, then a one-hot token that came before it. The first token,
which ends a document, occurs nowhere else, so that nothing is mistaken for what follows it.
"""

from __future__ import annotations

import torch
from hand_built import spread
from small_text import PIECES, WordTokenizer
from torch import Tensor

from latentcode.models.config import ModelConfig
from latentcode.models.transformer import HookedTransformer
from latentcode.prompts import OwnLanguageModel

V = len(PIECES)
D = 2 * V
SHARP = 30.0
"""Score of a key that is attended to, above the others' 0."""
GAIN = 4.0
"""What the induction head writes, above the token itself."""


def known_heads() -> OwnLanguageModel:
    """Return the model, with the tokenizer of words."""
    model = HookedTransformer(ModelConfig(
        d_input=V, d_output=V, n_layers=2, d_model=D, n_heads=2, d_head=V, d_head_v=V, d_mlp=1,
        normalization="softmax", value_network="linear", nonlinearity="identity", positions="t5",
        causal=True, attention_dropout=0.0, embedding="token", n_buckets=8, max_distance=8))
    token, before, eye = slice(0, V), slice(V, D), torch.eye(V)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1.0 if name.endswith((".ln1.w", ".ln2.w", "ln_final.w")) else 0.0)
        model.embed.W_E[:, token] = eye
        assert model.unembed is not None
        model.unembed.W_U[token] = eye
        first, second = model.layer(0).attn, model.layer(1).attn
        assert first.rel_pos_bias is not None
        assert second.rel_pos_bias is not None
        first.rel_pos_bias[0, 1] = SHARP
        _read(first, "V", 0, token, 1, 1.0)
        first.W_O[0, :, before] = eye
        # What a query looks for is its own token, in what came before a key, or in the key.
        second.rel_pos_bias[1, 0] = -2.0 * SHARP
        for head, block in enumerate((before, token)):
            _read(second, "Q", head, token, 2, SHARP * V**0.5)
            _read(second, "K", head, block, 2, 1.0)
        _read(second, "V", 0, token, 2, 1.0)
        second.W_O[0, :, token] = GAIN * eye
    return OwnLanguageModel(model, WordTokenizer(), context=24)


def _read(attention: torch.nn.Module, name: str, head: int, block: slice, n: int, by: float
          ) -> None:
    """Let a head read a block of the stream x behind the LayerNorm, where n numbers of x are 1."""
    weight: Tensor = getattr(attention, f"W_{name}")
    weight[head, block] = by * spread(n, D) * torch.eye(V)
    getattr(attention, f"b_{name}")[head] = by * n / D


def sentences(n: int, seed: int = 0, shortest: int = 8, longest: int = 20) -> list[str]:
    """Return texts of a few words each, many of which occur again."""
    generator = torch.Generator().manual_seed(seed)
    words = PIECES[14:26]
    found = []
    for _ in range(n):
        length = int(torch.randint(shortest, longest + 1, (1,), generator=generator))
        drawn = torch.randint(len(words), (length,), generator=generator)
        found.append("".join(words[int(i)] for i in drawn))
    return found
