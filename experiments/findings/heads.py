"""Does `lc.heads` find what is there? Models some of whose heads are set by hand.

    python -m latentcode.experiments.findings.heads --out results/known_heads

Models. The stream of a token has orthogonal blocks, also orthogonal to (1, ..., 1), so that
LayerNorm does nothing but divide by the length: the six signs of its word, by alphabet; the signs
of the word before; and the signs that are said, which alone are read out. Three heads are set:

    previous    attends to the token before, and writes its word as that of the word before
    induction   attends where the word before is the query's own, and says the word that is there
    duplicate   attends to the same word before the query, and says it

Where there is nothing to attend to, a head looks at the first token, the end of a document, and
writes nothing. All other heads have random weights, and what they write is divided so that it stays
small beside a word. Feed-forward layers do nothing.

Prompts. 32 that are one but for their words, so that the mean of a place is 0 and what comes from
another prompt is always wrong: a_1 ... a_12 a_1 ... a_8 asks for a_9 (induction), b_1 ... b_12 and
some of them again for the last word (duplicate).

Criteria, as they were before the study of version 1.0: a head that is set by hand scores 1 in its
metric, within `WITHIN`; without it, by its mean, all right answers are lost; of random heads at
least `MOST_RANDOM` lie within the interval of heads with fresh weights, over all metrics of
attention, and at most `FEW_MARKED` are said to be outside it.

`score`, `mean lost` and `resample lost` of the known heads are those of
`experiments/results/heads/tables/known.csv` of v1.0.0, which has more roles and models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import tyro
from torch import Tensor

import latentcode as lc
from latentcode.devices import make_generator
from latentcode.models.blocks import Attention
from latentcode.models.config import ModelConfig
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.heads.metrics import METRICS
from latentcode.prompts import OwnLanguageModel

N_WORDS, N_SIGNS, D, D_HEAD, CONTEXT = 32, 6, 64, 8, 24
LISTED, AGAIN = 12, 8
"""Words that are listed in a prompt, and how many come again."""
ALPHABETS = "ab"
PIECES = ("<end>", *(f" {alphabet}{word:02d}" for alphabet in ALPHABETS for word in range(N_WORDS)))
SCORE, TO_END = 90.0, 45.0
"""Scores of a key that is looked for, and of the first token; another word has 30 at most."""
WITHIN, MOST_RANDOM, FEW_MARKED = 0.001, 0.9, 0.05
METRIC = {"previous": "previous_token", "induction": "induction", "duplicate": "duplicate_token"}
"""Role -> the metric that is 1 of such a head."""
ANSWERING = {"induction": ("previous", "induction"), "duplicate": ("duplicate",)}
"""Kind of prompts -> the heads that answer them."""
Head = tuple[int, int]


@dataclass(frozen=True)
class Known:
    """Where the heads that are set by hand are, in a model of some size."""

    n_layers: int
    n_heads: int
    heads: Mapping[str, Head]
    """Role -> layer and number."""
    quiet: float = 1.0
    """What the output of random heads is multiplied by."""

    @property
    def random(self) -> list[Head]:
        """The heads that are not set by hand."""
        return [(layer, head) for layer in range(self.n_layers) for head in range(self.n_heads)
                if (layer, head) not in self.heads.values()]


MODELS: Mapping[str, Known] = {
    "2 heads": Known(2, 1, {"previous": (0, 0), "induction": (1, 0)}),
    "12 heads": Known(3, 4, {"previous": (0, 1), "induction": (1, 3), "duplicate": (1, 0)}, 0.1),
    "144 heads": Known(12, 12, {"previous": (0, 5), "induction": (3, 7), "duplicate": (2, 3)},
                       0.04)}


class Words:
    """A tokenizer of words such as ` a07`; a space begins a word."""

    pieces, names, n_tokens, end = PIECES, PIECES, len(PIECES), 0
    _word = re.compile(r" [ab]\d\d")

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [self.locate(text)[0] for text in texts]

    def locate(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        words = list(self._word.finditer(text))
        return [PIECES.index(word[0]) for word in words], [word.span() for word in words]

    def decode(self, ids: list[int]) -> str:
        return "".join(PIECES[i] for i in ids)


def signs() -> Tensor:
    """Return the signs of all words, [word, sign]: an even number is -1, two words differ in two.

    The signs of word i xor j are the products of those of i and j.
    """
    bits = torch.arange(N_WORDS)[:, None] >> torch.arange(N_SIGNS - 1) & 1
    first = 1.0 - 2.0 * bits
    return torch.cat([first, first.prod(1, keepdim=True)], 1)


def prompts(kind: str, seed: int = 0) -> pd.DataFrame:
    """Return 32 prompts of a kind with their answers, alike but for their words."""
    rng = np.random.default_rng([seed, list(ANSWERING).index(kind)])
    listed = rng.permutation(N_WORDS)[:LISTED]
    again = (rng.permutation(LISTED) if kind == "duplicate" else np.arange(LISTED))[:AGAIN]
    words = [*listed, *listed[again]]
    answer = listed[AGAIN] if kind == "induction" else words[-1]
    alphabet = "b" if kind == "duplicate" else "a"
    return pd.DataFrame([{
        "prompt": "".join(f" {alphabet}{word ^ by:02d}" for word in words),
        "answer": f" a{answer ^ by:02d}"} for by in range(N_WORDS)])


def make(known: Known, seed: int = 0) -> OwnLanguageModel:
    """Return a model whose random heads, and directions of blocks, are drawn from a seed."""
    model = HookedTransformer(ModelConfig(
        d_input=len(PIECES), d_output=len(PIECES), n_layers=known.n_layers, d_model=D,
        n_heads=known.n_heads, d_head=D_HEAD, d_head_v=D_HEAD, d_mlp=D,
        normalization="softmax", value_network="linear", nonlinearity="identity", positions="t5",
        n_buckets=CONTEXT, max_distance=2 * CONTEXT, causal=True, attention_dropout=0.0,
        embedding="token"), seed)
    blocks = orthogonal_blocks(seed)
    assert model.unembed is not None
    with torch.no_grad():
        model.embed.W_E[0] = N_SIGNS**0.5 * blocks["end"][0]
        model.unembed.W_U.zero_()
        model.unembed.b_U.zero_()
        model.unembed.b_U[0] = 5.0
        for number, alphabet in enumerate(ALPHABETS):
            ids = slice(1 + number * N_WORDS, 1 + (number + 1) * N_WORDS)
            model.embed.W_E[ids] = signs() @ blocks[alphabet]
        model.unembed.W_U[:, 1:1 + N_WORDS] = blocks["said"].T @ signs().T
        for layer in range(known.n_layers):
            model.layer(layer).attn.W_O.mul_(known.quiet)
            for weight in model.layer(layer).mlp.parameters():
                weight.zero_()
        for role, (layer, head) in known.heads.items():
            set_head(model.layer(layer).attn, head, role, blocks)
    return OwnLanguageModel(model.eval(), Words(), context=CONTEXT,
                            settings={"run": f"{known.n_layers * known.n_heads} heads"})


def orthogonal_blocks(seed: int) -> dict[str, Tensor]:
    """Return orthonormal directions of the stream by block, [numbers, D]."""
    sizes = {"a": N_SIGNS, "b": N_SIGNS, "end": 1, "before": N_SIGNS, "said": N_SIGNS}
    drawn = torch.randn(D, sum(sizes.values()), generator=make_generator(seed, "blocks"))
    whole, _ = torch.linalg.qr(torch.cat([torch.ones(D, 1), drawn], 1).double())
    return dict(zip(sizes, whole[:, 1:].T.float().split(list(sizes.values())), strict=True))


def set_head(attention: Attention, head: int, role: str, blocks: Mapping[str, Tensor]) -> None:
    """Make a head what its role says.

    `unit` makes 1 of a number that is 1 in a stream of some squared length, behind LayerNorm.
    """
    assert attention.rel_pos_bias is not None
    for name, weight in attention.named_parameters():
        if name != "b_O":
            weight[head] = 0.0
    reads, writes = {"previous": ("a", "before"), "induction": ("a", "said"),
                     "duplicate": ("b", "said")}[role]
    # A word alone has the squared length of its signs; behind `previous`, of two words.
    unit = ((2 if role == "induction" else 1) * N_SIGNS / D) ** 0.5
    attention.W_V[head, :, :N_SIGNS] = unit * blocks[reads].T
    attention.W_O[head, :N_SIGNS] = blocks[writes]
    if role == "previous":
        attention.rel_pos_bias[head, 1] = SCORE
        return
    root = D_HEAD**0.5  # scores are divided by it
    attention.b_Q[head, N_SIGNS] = TO_END * root
    attention.W_K[head, :, N_SIGNS] = D**-0.5 * blocks["end"][0]
    attention.W_Q[head, :, :N_SIGNS] = SCORE / N_SIGNS * root * unit * blocks[reads].T
    looked_for = "before" if role == "induction" else reads
    attention.W_K[head, :, :N_SIGNS] = unit * blocks[looked_for].T
    attention.rel_pos_bias[head, 0] = -2.0 * SCORE


def measure(
    name: str, kind: str, *, seed: int = 0, n_bootstrap: int = 1_000
) -> dict[str, pd.DataFrame]:
    """Ask `lc.heads` about one model and kind of prompts.

    Returns:
        `known`, a row per head that answers these prompts: its score and the interval of heads with
        fresh weights, and the share of right answers lost without it, beside the control;
        `random`, of heads that are not set by hand: the share within that interval and the share
        that is marked as outside it, over all metrics of attention.
    """
    known = MODELS[name]
    result = lc.heads(make(known, seed), prompts(kind, seed), effects=["mean", "resample"],
                      n_bootstrap=n_bootstrap, seed=seed)
    labels = {"model": name, "prompts": kind, "seed": seed}
    scores = result.heads.set_index(["layer", "head", "metric"])
    effects = result.effects.query("quantity == 'right_lost'").set_index(["layer", "head", "patch"])
    rows: list[dict[str, Any]] = []
    for role in ANSWERING[kind]:
        layer, head = known.heads[role]
        score = scores.xs((layer, head, METRIC[role]))
        row = {**labels, "role": role, "head": f"L{layer}H{head}", "metric": METRIC[role],
               "score": score["value"], "fresh low": score["control_low"],
               "fresh high": score["control_high"]}
        for patch in ("mean", "resample"):
            lost = effects.xs((layer, head, patch))
            row |= {f"{patch} lost": lost["value"], f"{patch} control": lost["control"]}
        rows.append(row)
    marked = result.marked()
    is_random = pd.MultiIndex.from_frame(marked[["layer", "head"]]).isin(known.random)
    marked = marked[marked["metric"].isin(list(METRICS)) & marked["value"].notna() & is_random]
    within = marked["value"].between(marked["control_low"], marked["control_high"])
    random = [{**labels, "n": len(marked), "within": within.mean(),
               "marked": (marked["outside"] != 0).mean()}] if len(marked) else []
    return {"known": pd.DataFrame(rows), "random": pd.DataFrame(random)}


def verdicts(known: pd.DataFrame, random: pd.DataFrame) -> pd.DataFrame:
    """Return whether each criterion is met, by model; see the module."""
    models = known["model"]
    table = pd.DataFrame({
        "known heads score 1": ((known["score"] - 1.0).abs() <= WITHIN).groupby(models).all(),
        "known heads cause the answer": (known["mean lost"] == 1.0).groupby(models).all()})
    if len(random):
        shares = random.groupby("model")[["within", "marked"]].mean()
        table["random heads attend like fresh ones"] = shares["within"] >= MOST_RANDOM
        table["random heads are seldom marked"] = shares["marked"] <= FEW_MARKED
    return table.reindex(models.unique()).reset_index()


def main(out: Path, models: tuple[str, ...] = ("2 heads", "12 heads"), seeds: int = 3,
         n_bootstrap: int = 1_000) -> None:
    """Ask about the models and write the tables `known`, `random` and `verdicts`.

    Args:
        out: Folder of the tables.
        models: Some of `MODELS`; 144 heads take ten times as long as 12.
        seeds: Of weights, prompts and what `lc.heads` draws.
        n_bootstrap: Replicates of the intervals.
    """
    out.mkdir(parents=True, exist_ok=True)
    parts = [measure(name, kind, seed=seed, n_bootstrap=n_bootstrap)
             for name in models for seed in range(seeds) for kind in ANSWERING
             if set(ANSWERING[kind]) <= set(MODELS[name].heads)]
    known, random = (pd.concat([part[table] for part in parts], ignore_index=True)
                     for table in ("known", "random"))
    judged = verdicts(known, random)
    for name, table in {"known": known, "random": random, "verdicts": judged}.items():
        table.to_csv(out / f"{name}.csv", index=False, float_format="%.4g")
    print(judged.to_string(index=False))


if __name__ == "__main__":
    tyro.cli(main)
