"""Language models some of whose heads are set by hand, among others that are random.

The stream of a token has a block for each of: the signs of its code, by alphabet; which alphabet it
is of; the code of the word before; two codes that are found; and the code that is said, which alone
is read out. Blocks are orthogonal to each other and to (1, ..., 1), so that LayerNorm does nothing
but divide by the length.

    previous    attends to the token before; writes its code as that of the word before
    induction   attends where the word before is the query's own; says the code that is there
    duplicate   attends to the same word before the query; says its code
    first, second redundant    attend to the word of c; say its code, the first one louder
    first, second synergetic   attend to the word of d, of e; write its code as one that is found.
                A feed-forward layer says the product of the two: a unit for each sign and each pair
                of signs, which is silent unless both are there

Where there is nothing to attend to, a head looks at the first token, the end of a document, and
writes nothing; where nothing is said, the end comes next. All other heads are as `init_weights`
draws them, but for what they write, which is divided so that in all layers together it stays small
beside a word. Other feed-forward layers do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from latentcode.experiments.studies.heads.words import (
    ALPHABETS,
    END,
    N_SIGNS,
    PIECES,
    Words,
    codes,
    id_of,
)
from latentcode.models.blocks import Attention
from latentcode.models.config import ModelConfig
from latentcode.models.feedforward import GeluLayer
from latentcode.models.transformer import HookedTransformer
from latentcode.prompts import OwnLanguageModel
from latentcode.seeds import make_generator

D, D_HEAD = 64, 8
CONTEXT = 24
SINK = N_SIGNS
"""The number of a head's query and key that finds the end of a document."""
SCORE, TO_END = 90.0, 45.0
"""Scores of a key that is looked for, and of the first token; another code has 30 at most."""
QUIETER = 0.7
"""What the second redundant head says, beside the first."""
GAIN, UNKNOWN = 1.0, 5.0
"""Logits: of a code, times c . c' and the length of the stream; and of the end."""
WORD = N_SIGNS + 1.0
"""Squared length of a word: its signs, and its alphabet."""
AFTER = WORD + N_SIGNS
"""The same with the code of the word before."""
Head = tuple[int, int]


@dataclass(frozen=True)
class Known:
    """Where the heads that are set by hand are, of a model of some size.

    heads    role -> layer and number
    product  layer whose feed-forward layer says the product; None: none does
    quiet    what other heads write is multiplied by
    """

    n_layers: int
    n_heads: int
    heads: Mapping[str, Head]
    product: int | None = None
    quiet: float = 1.0

    @property
    def n(self) -> int:
        """Number of heads."""
        return self.n_layers * self.n_heads

    @property
    def random(self) -> list[Head]:
        """The heads that are not set by hand."""
        return [(layer, head) for layer in range(self.n_layers) for head in range(self.n_heads)
                if (layer, head) not in self.heads.values()]


ROLES = ("previous", "induction", "duplicate", "first redundant", "second redundant",
         "first synergetic", "second synergetic")
MODELS: Mapping[str, Known] = {
    "2 heads": Known(2, 1, {"previous": (0, 0), "induction": (1, 0)}),
    "12 heads": Known(3, 4, dict(zip(ROLES, (
        (0, 1), (1, 3), (1, 0), (0, 2), (2, 1), (0, 0), (1, 2)), strict=True)), 1, 0.1),
    "144 heads": Known(12, 12, dict(zip(ROLES, (
        (0, 5), (3, 7), (2, 3), (4, 9), (8, 10), (4, 1), (6, 2)), strict=True)), 6, 0.04)}


def make(known: Known, seed: int = 0) -> OwnLanguageModel:
    """Return a model; the seed is that of the random heads, and of the directions of blocks."""
    model = HookedTransformer(ModelConfig(
        d_input=len(PIECES), d_output=len(PIECES), n_layers=known.n_layers, d_model=D,
        n_heads=known.n_heads, d_head=D_HEAD, d_head_v=D_HEAD, d_mlp=4 * N_SIGNS,
        normalization="softmax", value_network="linear", nonlinearity="identity", positions="t5",
        n_buckets=CONTEXT, max_distance=2 * CONTEXT, causal=True, attention_dropout=0.0,
        embedding="token"), seed)
    blocks = _blocks(seed)
    with torch.no_grad():
        _embed(model, blocks)
        for layer in range(known.n_layers):
            block = model.layer(layer)
            block.attn.W_O.mul_(known.quiet)
            for weight in block.mlp.parameters():
                weight.zero_()
        for role, (layer, head) in known.heads.items():
            attention = model.layer(layer).attn
            for name, weight in attention.named_parameters():
                if name != "b_O":
                    weight[head] = 0.0
            _set(attention, head, role, blocks)
        if known.product is not None:
            mlp = model.layer(known.product).mlp
            assert isinstance(mlp, GeluLayer)
            _multiply(mlp, blocks)
    return OwnLanguageModel(model, Words(), context=CONTEXT, settings={"run": f"{known.n} heads"})


def _blocks(seed: int) -> dict[str, Tensor]:
    """Return orthonormal directions of the stream by block, [numbers, D]."""
    sizes = {**dict.fromkeys(ALPHABETS, N_SIGNS), **{f"is {name}": 1 for name in ALPHABETS},
             "is end": 1, **dict.fromkeys(("before", "found d", "found e", "said"), N_SIGNS)}
    drawn = torch.randn(D, sum(sizes.values()), generator=make_generator(seed, "blocks"))
    whole, _ = torch.linalg.qr(torch.cat([torch.ones(D, 1), drawn], 1).double())
    return dict(zip(sizes, whole[:, 1:].T.float().split(list(sizes.values())), strict=True))


def _embed(model: HookedTransformer, blocks: Mapping[str, Tensor]) -> None:
    """Set what tokens are, and how they are read out of what is said."""
    assert model.unembed is not None
    signs = codes()
    model.embed.W_E[END] = WORD**0.5 * blocks["is end"][0]
    for alphabet in ALPHABETS:
        first = id_of(alphabet, 0)
        model.embed.W_E[first:first + len(signs)] = (
            signs @ blocks[alphabet] + blocks[f"is {alphabet}"])
    model.unembed.W_U.zero_()
    model.unembed.b_U.zero_()
    first = id_of("a", 0)
    model.unembed.W_U[:, first:first + len(signs)] = GAIN * blocks["said"].T @ signs.T
    model.unembed.b_U[END] = UNKNOWN


def _set(attention: Attention, head: int, role: str, blocks: Mapping[str, Tensor]) -> None:
    """Make a head what its role says."""
    assert attention.rel_pos_bias is not None
    reads, writes, loud = {
        "previous": ("a", "before", 1.0), "induction": ("a", "said", 1.0),
        "duplicate": ("b", "said", 1.0), "first redundant": ("c", "said", 1.0),
        "second redundant": ("c", "said", QUIETER), "first synergetic": ("d", "found d", 1.0),
        "second synergetic": ("e", "found e", 1.0)}[role]
    # Words of a and b are alone in what they have; the one that counts stands behind a word of a.
    length = WORD if role in ("previous", "duplicate") else AFTER
    attention.W_V[head, :, :N_SIGNS] = unit(length) * blocks[reads].T
    attention.W_O[head, :N_SIGNS] = loud * blocks[writes]
    if role == "previous":
        attention.rel_pos_bias[head, 1] = SCORE
        return
    root = D_HEAD**0.5  # scores are divided by it
    attention.b_Q[head, SINK] = TO_END * root
    attention.W_K[head, :, SINK] = unit(WORD) / WORD**0.5 * blocks["is end"][0]
    if role in ("induction", "duplicate"):
        looked_for = "before" if role == "induction" else "b"
        attention.W_Q[head, :, :N_SIGNS] = SCORE / N_SIGNS * root * unit(length) * blocks[reads].T
        attention.W_K[head, :, :N_SIGNS] = unit(length) * blocks[looked_for].T
        attention.rel_pos_bias[head, 0] = -2.0 * SCORE
    else:
        attention.b_Q[head, 0] = SCORE * root
        attention.W_K[head, :, 0] = unit(length) * blocks[f"is {reads}"][0]


def _multiply(mlp: GeluLayer, blocks: Mapping[str, Tensor]) -> None:
    """Let a feed-forward layer say the product of the two codes that are found."""
    steep, by = 8.0, unit(AFTER + 2 * N_SIGNS)
    units = [(i, one, other) for i in range(N_SIGNS) for one in (1.0, -1.0)
             for other in (1.0, -1.0)]
    for number, (i, one, other) in enumerate(units):
        mlp.W_in[:, number] = steep * by * (one * blocks["found d"][i]
                                            + other * blocks["found e"][i])
        mlp.b_in[number] = -1.5 * steep
        # Both signs there: 2 - 1.5; the tanh approximation of GELU passes that on as it is.
        mlp.W_out[number] = one * other / (0.5 * steep) * blocks["said"][i]


def unit(length: float) -> float:
    """Return what makes 1 of a number that is 1 in a stream of squared length, behind LayerNorm."""
    return (length / D) ** 0.5
