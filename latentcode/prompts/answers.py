"""Answers to prompts: a token, several tokens, or a set of these, any of which is right.

    {"prompt": "The war lasted from 1749 to 17", "answer": ["5", "6", "7", "8", "9"], ...}

The score of an answer A after a prompt x is log p(A | x) = log sum_{a in A} prod_t p(a_t | x a_<t).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentcode.errors import check
from latentcode.models.hooks import evaluating
from latentcode.prompts.language_models import LanguageModel, as_language_model
from latentcode.prompts.prompts import alternatives, as_prompts

BATCH_SIZE = 32
"""Prompts of one forward pass."""
Member = tuple[tuple[int, ...], tuple[int, ...]]
"""Tokens of a prompt, and those of a member of an answer."""


def answer_tokens(
    model: LanguageModel, column: str, answer: Any, prompt: str, ids: list[int], name: str,
    prepend_bos: bool | None,
) -> tuple[tuple[int, ...], ...]:
    """Return the tokens of an answer after a prompt, of a set those of each of its members.

    `ConfigError` for one that is neither text nor a token's id, or changes the prompt's tokens.
    """
    size = model.vocabulary
    sequences: list[tuple[int, ...]] = []
    for text in alternatives(answer):
        if isinstance(text, Integral) and not isinstance(text, bool):
            check(0 <= int(text) < size, f"{column} of {name} is token {text}; expected 0 to "
                  f"{size - 1}")
            sequences.append((int(text),))
            continue
        check(isinstance(text, str) and bool(text), f"{column} of {name} is {text!r}; expected "
              "text, the id of a token, or a list of these")
        longer, _ = model.encode(prompt + text, prepend_bos)
        check(longer[:len(ids)] == ids, f"{column} {text!r} of {name} changes the tokens of the "
              f"prompt that it follows, {model.texts(ids)}, into {model.texts(longer)}; expected "
              "an answer that begins with the space before it, or the id of a token")
        check(len(longer) > len(ids), f"{column} {text!r} of {name} has no token of its own; "
              "expected one at least")
        sequences.append(tuple(longer[len(ids):]))
    return tuple(dict.fromkeys(sequences))


class AnswerSets:
    """Numbers of answers: that of the token, or from `n_vocabulary` on of a set of tokens.

    Of an answer of several tokens the first counts.
    """

    def __init__(self, n_vocabulary: int) -> None:
        self.n_vocabulary = n_vocabulary
        self.sets: dict[tuple[int, ...], int] = {}
        self.n_longer = 0

    def number(self, sequences: Sequence[Sequence[int]]) -> int:
        """Return the number of an answer."""
        self.n_longer += any(len(tokens) > 1 for tokens in sequences)
        firsts = tuple(sorted({tokens[0] for tokens in sequences}))
        if len(firsts) == 1:
            return firsts[0]
        return self.sets.setdefault(firsts, self.n_vocabulary + len(self.sets))

    def tokens_of(self, number: int) -> tuple[int, ...]:
        """Return the tokens of an answer."""
        return (number,) if number < self.n_vocabulary else [*self.sets][number - self.n_vocabulary]

    def members(self, answers: Int[Tensor, "*B"]) -> Int[Tensor, "*B M"]:
        """Return the tokens of answers, then -1."""
        width = max(map(len, self.sets), default=1)
        table = torch.tensor([[*tokens] + [-1] * (width - len(tokens)) for tokens in self.sets],
                             dtype=torch.int64, device=answers.device).reshape(-1, width)
        single = F.pad(answers[..., None].long(), (0, width - 1), value=-1)
        if not self.sets:
            return single
        in_table = (answers.long() - self.n_vocabulary).clamp_min(0)
        return torch.where(answers[..., None] < self.n_vocabulary, single, table[in_table])

    def scores(
        self, logits: Float[Tensor, "B V"], answers: Int[Tensor, "B K"]
    ) -> Float[Tensor, "B K"]:
        """Return the log-sum-exp of the logits of the tokens of each answer."""
        return log_sum(logits, self.members(answers))

    def probability(
        self, p: Float[Tensor, "B V"], answers: Int[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """Return the sum of the probabilities of the tokens of each answer."""
        members = self.members(answers)
        return p.gather(1, members.clamp_min(0)).masked_fill(members < 0, 0.0).sum(1)

    def hold(
        self, answers: Int[Tensor, "B K"], tokens: Int[Tensor, " B"]
    ) -> Bool[Tensor, "B K"]:
        """Return which answers a token belongs to."""
        return (self.members(answers) == tokens[:, None, None]).any(-1)

    def overlap(self, answers: Int[Tensor, "B K"]) -> Bool[Tensor, " B"]:
        """Return where two of K answers share a token."""
        members = self.members(answers)
        shared = (members[:, :, None, :, None] == members[:, None, :, None])
        shared = (shared & (members >= 0)[:, :, None, :, None]).any(-1).any(-1)  # [B, K, K]
        return shared.triu(1).flatten(1).any(1)


def log_sum(
    logits: Float[Tensor, "B V"], members: Int[Tensor, "B ... M"]
) -> Float[Tensor, "B ..."]:
    """Return the log-sum-exp of the logits of tokens, of which those below 0 are none."""
    rows = members.flatten(1)
    taken = logits.gather(1, rows.clamp_min(0)).masked_fill(rows < 0, -torch.inf)
    taken = taken.view(members.shape)
    return taken[..., 0] if members.shape[-1] == 1 else taken.logsumexp(-1)


def score_prompts(
    model: Any, prompts: Any, *, prepend_bos: bool | None = None, batch_size: int = BATCH_SIZE
) -> pd.DataFrame:
    """Score the answers of prompts: how likely each is, and whether the model would say it.

    Args:
        model: A bridge or a `LanguageModel`.
        prompts: What `as_prompts` takes, with a column `answer`.
        prepend_bos: As in `subject`.
        batch_size: Prompts of one forward pass.

    Returns:
        The labels of the prompts, and

        - `log_probability`: of the answer, in nats: summed over its tokens, of a set the log of
          the sum over its members.
        - `margin`: that minus the log-probability of the other answer to the same prompt:
          `source_answer`, or, of a factorial, the likeliest that another operation has in this
          wording with these operands; NaN where there is none.
        - `right`: whether greedy decoding says the answer, or a member of it.

    Raises:
        ConfigError: The prompts have no column `answer`, or one cannot be used.
    """
    model = as_language_model(model)
    prompts = as_prompts(prompts).for_model(model, prepend_bos)
    labels, names = prompts.labels.reset_index(drop=True), prompts.names
    check("answer" in labels, f"prompts have no column 'answer'; they have {list(labels)}")
    ids = [list(model.encode(text, prepend_bos)[0]) for text in labels["prompt"]]
    others: list[list[Any]] = [[] for _ in names]
    if "source_answer" in labels:
        others = [[answer] for answer in labels["source_answer"]]
    elif {"operation", "operands"} <= {*labels}:
        cell = [name for name in ("template", "operands") if name in labels]
        for _, rows in labels.groupby(cell, sort=False):
            for i in rows.index:
                others[i] = [answer for answer in rows["answer"].unique()
                             if answer != rows["answer"][i]]
    # Of each prompt the members of its answer, and of the others.
    members = [[[(tuple(ids[i]), tokens) for tokens in answer_tokens(
        model, "answer", answer, labels["prompt"][i], ids[i], names[i], prepend_bos)]
        for answer in (labels["answer"][i], *others[i])] for i in range(len(labels))]
    known = _member_scores(
        model, {member for answers in members for answer in answers for member in answer},
        batch_size)
    scores = [[float(np.logaddexp.reduce([known[member][0] for member in answer]))
               for answer in answers] for answers in members]
    return labels.assign(
        log_probability=[answer for answer, *_ in scores],
        margin=[answer - max(rest, default=np.nan) for answer, *rest in scores],
        right=[any(known[member][1] for member in answer) for answer, *_ in members])


def _member_scores(
    model: LanguageModel, members: Iterable[Member], batch_size: int
) -> dict[Member, tuple[float, bool]]:
    """Return the log-probability of all tokens after a prompt, and whether each is the likeliest.
    """
    forced: dict[tuple[int, ...], list[Member]] = {}
    for prompt, tokens in members:
        forced.setdefault((*prompt, *tokens[:-1]), []).append((prompt, tokens))
    rows = sorted(forced, key=len)
    device = next(model.model.parameters()).device
    scores: dict[Member, tuple[float, bool]] = {}
    for start in range(0, len(rows), batch_size):
        batch = rows[start:start + batch_size]
        padded = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(row) for row in batch], batch_first=True,
            padding_value=model.padding).to(device)
        lengths = torch.tensor([len(row) for row in batch], device=device)
        mask = torch.arange(padded.shape[1], device=device) < lengths[:, None]
        with evaluating(model.model):
            logits = model.model(padded, **model.padded(mask))
        for of_row, row in zip(logits, batch, strict=True):
            for prompt, tokens in forced[row]:
                log_p = F.log_softmax(of_row[len(prompt) - 1:len(row)].double(), -1)
                wanted = torch.tensor(tokens, device=device)
                scores[prompt, tokens] = (
                    float(log_p.gather(1, wanted[:, None]).sum()),
                    bool((log_p.argmax(-1) == wanted).all()))
    return scores
