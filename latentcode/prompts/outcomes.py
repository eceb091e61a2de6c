"""What does a language model say after a prompt, and which codes lead there?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.models.hooks import last_token, read_out_hook
from latentcode.models.transformer import HookedTransformer
from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import (
    Counterfactuals,
    MinimalPairs,
    classes_of,
    code_mask,
    row_mask,
)

ROLES = ("first", "before", "key", "between", "query", "after")
"""What a token is to the first pair, where prompts are of several layouts."""
Among = Literal["vocabulary", "answers"]
AMONG = ("vocabulary", "answers")


class PromptOutcomes(Counterfactuals):
    """Pairs of prompts, whose answers are one token each and are read after the last token.

    among    what counts as the model's answer, see `PromptCounterfactuals`
    layouts  int64 [N], the layout of each prompt
    """

    n_slots = 1
    exclusive = True
    symbolic = True
    n_read = 1
    least_problems = 1  # no more can be drawn than there are
    among: str
    layouts: np.ndarray

    def membership(self, batch: Batch) -> Tensor:
        """Return which label each prompt has, bool [B, 1, label]."""
        return F.one_hot(batch.info["label"], len(self.constituents)).bool()[:, None]

    def own_scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        """Return which codes those of a pair hold, bool [B, Q, K]; of several `row` is the first's.

        elsewhere  of the token before the query, whose row is nearly as long (and its key the
                   token itself, where that does not see the key). Where the source differs in later
                   tokens only, its codes there are the prompt's own.
        """
        batch = pairs.bases
        query, key = batch.info["query"], batch.info["key"]  # [B, P]
        if elsewhere:
            query = query - 1
            key = torch.minimum(key, query)
        n_tokens = batch.inputs.shape[1]
        if name == "row":
            return row_mask(query[:, :1], n_tokens)
        n_pairs = query.shape[1] if name == "pairs" else 1
        return torch.stack([code_mask(query[:, p], key[:, p:p + 1], n_tokens)
                            for p in range(n_pairs)]).any(0)

    def roles(self, pairs: MinimalPairs) -> tuple[tuple[str, ...], Tensor]:
        """Return what each token is, int64 [B, T]: its place or, of several layouts, what it is to
        query and key (`ROLES`)."""
        if len(set(self.layouts)) == 1:
            return super().roles(pairs)
        batch = pairs.bases
        query, key = (batch.info[name][:, :1] for name in ("query", "key"))
        place = torch.arange(batch.inputs.shape[1], device=query.device).expand_as(batch.inputs)
        role = torch.where(place > query, 5, torch.where(place > key, 3, 1))
        for name, where in (("first", torch.zeros_like(key)), ("key", key), ("query", query)):
            role = role.scatter(1, where, ROLES.index(name))
        return ROLES, role

    def answer_token(self, pairs: MinimalPairs) -> Tensor:
        """Return the last token, int64 [B], from the end."""
        return torch.full_like(pairs.slot, -1)

    def two_answers(self, pairs: MinimalPairs) -> tuple[Tensor, Tensor]:
        """Return the answers of the prompts and of their sources, float64 [B] each."""
        own, theirs = (batch.targets[:, 0].double() for batch in (pairs.bases, pairs.sources))
        return own, theirs

    def reading(self, model: Any) -> AbstractContextManager[Any]:
        """While this is open a bridge computes the logits of the last token alone: those of all
        would be larger than everything else."""
        return (super().reading(model) if isinstance(model, HookedTransformer)
                else model.hooks(fwd_hooks=[(read_out_hook(model), last_token)]))

    def right(self, pairs: MinimalPairs, logits: Tensor, of: str) -> Tensor:
        """Return where the model says the answer, bool [B]."""
        return self._says(pairs, logits) == pairs.batch(of).targets[:, 0]

    def outcomes(
        self, pairs: MinimalPairs, clean: Tensor, source: Tensor, patched: Tensor
    ) -> Mapping[str, Tensor]:
        """Return what the model says after the prompt, float [B] each.

        base, operation, operands, answer, else  of a factorial: whose answer it is (`CLASSES`)
        flip, unchanged  it says the source's answer, the prompt's
        p_source_answer, p_base_answer  probability of the source's answer, and of the prompt's
        logit_difference  logit of the prompt's answer minus that of the source's, patched;
                       `logit_difference_clean`: unpatched
        moved          how far it went from the unpatched one (0) to that of the source's pass (1)
        kl             KL(clean || patched) of the next token, in nats
        """
        says = self._says(pairs, patched)
        ours, theirs = (batch.targets[:, 0] for batch in (pairs.bases, pairs.sources))
        before, after = (F.log_softmax(x[:, -1].double(), -1) for x in (clean, patched))
        probability = after.exp()
        at_clean, at_source, at_patched = (self._difference(pairs, x)
                                           for x in (clean, source, patched))
        # Pairs that count have a positive difference before and a negative one with the source; in
        # few bits both may be zero.
        whole = torch.where(at_clean == at_source, 1.0, at_clean - at_source)
        classes = {} if pairs.candidates is None else classes_of(says, pairs.candidates)
        return {**classes, "flip": (says == theirs).float(), "unchanged": (says == ours).float(),
                "moved": (at_clean - at_patched) / whole,
                "p_source_answer": probability.gather(1, pairs.sources.targets)[:, 0].float(),
                "p_base_answer": probability.gather(1, pairs.bases.targets)[:, 0].float(),
                "logit_difference": at_patched, "logit_difference_clean": at_clean,
                "kl": (before.exp() * (before - after)).sum(-1).float()}

    def _says(self, pairs: MinimalPairs, logits: Tensor) -> Tensor:
        """Return the token that the model says, int64 [B]; -1 where two of `answers` are as likely.
        """
        last = logits[:, -1]
        if self.among == "vocabulary":
            return last.argmax(-1)
        answers = (torch.cat([pairs.bases.targets, pairs.sources.targets], 1)
                   if pairs.candidates is None else pairs.candidates.long())
        likely = last.float().gather(1, answers)
        best = likely.topk(2).values
        said = answers.gather(1, likely.argmax(1, keepdim=True))[:, 0]
        return torch.where(best[:, 0] > best[:, 1], said, -1)

    @staticmethod
    def _difference(pairs: MinimalPairs, logits: Tensor) -> Tensor:
        last = logits[:, -1].float()
        return (last.gather(1, pairs.bases.targets)
                - last.gather(1, pairs.sources.targets))[:, 0]
