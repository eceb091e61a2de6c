"""A language model with one head that looks for a token's own kind, and texts that only it tells.

    code of head 0 = softmax_k c [x_k = x_q],    of head 1 = 1 / (q + 1)

over the keys k <= q: head 0 looks at equal tokens, evenly at all of them, head 1 at every token.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from small_text import PIECES, WORDS, WordTokenizer

from latentcode.models.config import ModelConfig
from latentcode.models.transformer import HookedTransformer
from latentcode.prompts import OwnLanguageModel

N = len(PIECES)
STRENGTH = 30.0


def same_token_model() -> OwnLanguageModel:
    """Return the model, whose embeddings are one-hot."""
    model = HookedTransformer(ModelConfig(
        d_input=N, d_output=N, n_layers=1, d_model=N, n_heads=2, d_head=N, d_head_v=1, d_mlp=1,
        normalization="softmax", value_network="linear", nonlinearity="identity",
        positions="none", causal=True, attention_dropout=0.0, embedding="token"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.endswith((".ln1.w", ".ln2.w", "ln_final.w")) else 0.0)
        model.embed.W_E[:N] = torch.eye(N)
        model.layer(0).attn.W_Q[0] = STRENGTH * torch.eye(N) / N**0.5
        model.layer(0).attn.W_K[0] = torch.eye(N)
    return OwnLanguageModel(model, WordTokenizer())


def ordered_texts(n_documents: int, seed: int = 0) -> pd.DataFrame:
    """Return documents of two texts with the same 6 words, each twice: a word at once again, or
    when all have been. Their bags of tokens are the same, so that order alone tells `kind`."""
    rng = np.random.default_rng(seed)
    rows = []
    for document in range(n_documents):
        words = [f" {word}" for word in rng.choice(WORDS, 6, replace=False)]
        rows += [("".join(np.repeat(words, 2)), "at once", f"d{document}"),
                 ("".join(words * 2), "later", f"d{document}")]
    return pd.DataFrame(rows, columns=["text", "kind", "document"]).sample(
        frac=1.0, random_state=seed, ignore_index=True)


def worded_texts(n_documents: int, seed: int = 0) -> pd.DataFrame:
    """Return texts in any order of words, of which those of `kind` b have words of their own."""
    rng = np.random.default_rng(seed)
    rows = []
    for document in range(n_documents):
        kind = "ab"[document % 2]
        own = WORDS[:6] if kind == "a" else WORDS[6:12]
        words = rng.permutation([*rng.choice(own, 4), *rng.choice(WORDS[12:], 10)])
        rows.append(("".join(f" {word}" for word in words[:int(rng.integers(12, 15))]), kind))
    return pd.DataFrame(rows, columns=["text", "kind"])
