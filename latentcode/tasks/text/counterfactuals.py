"""Texts that copy from another place: the minimal pairs of text.

A window `... A B ... x C ... A` continues with B in fact, with A at the query q and, alone before
it, at p. In its source A stands at another place p', before C, and another token at p: the source
copies C. Tokens are replaced in place, so that every token stays where it was, each by another of
the same class of characters and frequency.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.errors import check, check_choice
from latentcode.tasks.base import Batch, at, one_of
from latentcode.tasks.counterfactuals import (
    OTHERS,
    ChosenPairs,
    MinimalPairs,
    row_mask,
    symbol_outcomes,
)
from latentcode.tasks.text.render import visible
from latentcode.tasks.text.task import Text, whole
from latentcode.tasks.text.tokens import SAME, keys_at, previous_same

MOST_CODES = 2**20
"""Pairs of tokens that a batch has at most, of each of which every head has a code."""
CHANGED = 2
"""Tokens that the control changes."""
TRIES = 16
"""Tokens drawn to find one that may stand in place of another."""
ROLES = ("query", "earlier", "key", "other earlier", "other key", "previous", "first", "before",
         "after")
"""Roles of tokens: the query, p, p + 1, p', p' + 1, the token before the query, the first one,
and the others before and after the query."""


class TextCounterfactuals(ChosenPairs):
    """Whether a code carries an operation, *copy what follows p*, or an answer, B.

    The operation is the place that is copied from, p or p'; the operands are the tokens after both
    places, B and C in the base, B' and C' in the sources with other operands; the rest is the rest
    of the text. So all four answers are known: B, C, B' and C'. Sources in another context are
    other excerpts with the same tokens after both places and their own query's token at the place
    that is copied from; `unrelated` is yet another excerpt, untouched. `control` has other tokens
    in two other places before the query.

    Pairs count where the model says what is copied.
    """

    constituents = ("copied from p", "copied from elsewhere")
    task: Text
    n_slots = 1
    exclusive = True
    symbolic = True
    whole = False
    factorial = True
    scopes = ("row", "everything")
    carried_at = "response"
    places = ("context", "operands", "response")
    about_places: Mapping[str, str] = {
        "context": "the two tokens after which there is something to copy",
        "operands": "the two tokens that could be copied",
        "response": "the query, after which the copy is read"}

    def __init__(self, task: Text) -> None:
        self.task = task
        self.chance = 1.0 / task.config.n_vocabulary
        nowhere = "the query is at another place in every text, where codes have no mean"
        self.lacks = {"means": nowhere, "erasers": nowhere,
                      "pool": "no other text has its query and key at the same places",
                      "permuted": "a text has no examples whose values could be permuted"}
        table = task.token_table
        self._alike = Alike.of(np.stack(
            [table.classes, table.spaced, task.frequency_bins], axis=1))

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(visible(name) for name in self.task.token_table.names)

    def sample(self, split: str, n: int, generator: torch.Generator) -> MinimalPairs:
        """Draw n excerpts whose next token is the induction pair's, and make the sources."""
        queries = self._queries(split, generator.device)
        check(bool(queries.any()), f"no excerpt of split {split!r} has a token that occurred once "
              "before, followed by what follows it now; expected more or longer excerpts")
        text = self.task.sample(split, n, generator, queries)
        return self.pairs_of(text, generator, factorial=self.factorial)

    def batches(
        self, split: str, n: int, batch_size: int, generator: torch.Generator
    ) -> Iterator[MinimalPairs]:
        """Yield n minimal pairs, fewer at once of long texts: codes grow with the square."""
        most = max(MOST_CODES // self.task.config.n_tokens**2, 2)
        return super().batches(split, n, min(batch_size, most), generator)

    def pairs_of(
        self, text: Batch, generator: torch.Generator, *, factorial: bool = True
    ) -> MinimalPairs:
        """Return the minimal pairs of bases, which count where the query's token occurred once
        before, followed by what follows it now."""
        tokens, query = text.inputs, text.info["query"]
        p = keys_at(tokens, query, (SAME,))[:, 0]
        other_p, offered = self._other_place(text, p, generator)
        a, b, c = (at(tokens, place) for place in (query, p + 1, other_p + 1))
        other_b = self._alike.draw(b, torch.stack([a, b, c], 1), generator)
        other_c = self._alike.draw(c, torch.stack([a, b, other_b, c], 1), generator)
        other_a = self._alike.draw(a, torch.stack([a, b, other_b, c, other_c], 1), generator)
        n = len(self.task.excerpts(text.split).tokens)
        context, unrelated = (self.task.build(text.split, (
            text.info["sequence"] + torch.randint(
                1, max(n, 2), (len(text),), generator=generator, device=tokens.device)) % n, query)
            for _ in range(2))
        context_a = at(context.inputs, query)
        # What stands at p and at p' where that is not the place that is copied from.
        idle = (other_a, at(tokens, other_p))
        idle_in_context = tuple(
            torch.where(at(context.inputs, place) == context_a, self._alike.draw(
                context_a, context_a[:, None], generator), at(context.inputs, place))
            for place in (p, other_p))
        zero, places = torch.zeros_like(a), torch.stack([p, other_p], 1)

        def written(name: str) -> Batch:
            """Return the source with another operation, operands or rest, as its name says."""
            excerpt, first, (at_p, at_other) = (context, context_a, idle_in_context) if (
                "rest" in name) else (text, a, idle)
            after_p, after_other = (other_b, other_c) if "operands" in name else (b, c)
            elsewhere = "operation" in name
            new = excerpt.inputs
            for place, token in ((p, at_p if elsewhere else first), (p + 1, after_p),
                                 (other_p, first if elsewhere else at_other),
                                 (other_p + 1, after_other)):
                new = new.scatter(1, place[:, None], token[:, None])
            copied = after_other if elsewhere else after_p
            batch = with_tokens(excerpt, new, {
                **excerpt.info, "copied": copied, "copying": zero == 0,
                "elsewhere": torch.full_like(p, elsewhere, dtype=torch.bool), "places": places})
            return replace(batch, targets=batch.targets.scatter(
                1, query[:, None], copied[:, None]))

        fits = self._queries(text.split, tokens.device)[text.info["sequence"], query]
        fits = fits & offered & (other_a != a) & (other_b != b) & (other_c != c)
        for token in idle_in_context:
            fits = fits & (token != context_a)
        bases = written("")
        pairs = MinimalPairs(bases, written("operation"), self._control(bases, a, b, generator),
                             zero, zero, zero + 1, fits)
        if not factorial:
            return pairs
        others = {name: written(name) for name in OTHERS if name != "unrelated"}
        others["unrelated"] = replace(unrelated, info={
            **unrelated.info, "copied": at(unrelated.inputs, p + 1),
            "copying": zero.bool(), "elsewhere": zero.bool(), "places": places})
        return replace(pairs, others=others, candidates=torch.stack(
            [b, c, other_b, other_c], 1).double())

    def held(self, batch: Batch) -> Tensor:
        """Return from where each text copies, which is p: int64 [B, 1]."""
        return torch.zeros(len(batch), 1, dtype=torch.long, device=batch.inputs.device)

    def choices(self, batch: Batch, which: Tensor) -> Tensor:
        """Return that the source copies from elsewhere: bool [B, 2]."""
        return torch.tensor([[False, True]], device=which.device).repeat(len(batch), 1)

    def _with_target(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        return self.pairs_of(batch, generator)

    def answers(self, pairs: MinimalPairs) -> Tensor:
        """Return B and C, which follow the two places in the base: float64 [B, 2]."""
        bases = pairs.bases
        return bases.inputs.gather(1, bases.info["places"] + 1).double()

    def membership(self, batch: Batch) -> Tensor:
        """Return whether each text copies from p, or from elsewhere: bool [B, 1, 2]."""
        return F.one_hot(batch.info["elsewhere"].long(), 2).bool()[:, None]

    def own_scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        """Return the codes of the query attending to every token, bool [B, Q, K].

        elsewhere  of the token before the query
        """
        query = pairs.bases.info["query"] - int(elsewhere)
        return row_mask(query[:, None], pairs.bases.inputs.shape[1])

    def place(self, name: str, pairs: MinimalPairs) -> Tensor:
        """Return p and p', the tokens after them, or the query."""
        check_choice("place", name, self.places)
        info, inputs = pairs.bases.info, pairs.bases.inputs
        tokens = torch.zeros(inputs.shape[:2], dtype=torch.bool, device=inputs.device)
        where = info["query"][:, None] if name == "response" else (
            info["places"] + int(name == "operands"))
        return tokens.scatter(1, where, True)

    def roles(self, pairs: MinimalPairs) -> tuple[tuple[str, ...], Tensor]:
        """Return what each token is to its text (`ROLES`), int64 [B, T]."""
        info, inputs = pairs.bases.info, pairs.bases.inputs
        query, (p, other) = info["query"][:, None], info["places"].split(1, dim=1)
        position = torch.arange(inputs.shape[1], device=inputs.device).expand_as(inputs)
        role = torch.where(position < query, ROLES.index("before"), ROLES.index("after"))
        for name, where in (("first", torch.zeros_like(query)), ("previous", query - 1),
                            ("other earlier", other), ("other key", other + 1), ("earlier", p),
                            ("key", p + 1), ("query", query)):
            role = role.scatter(1, where, ROLES.index(name))
        return ROLES, role

    def answer_token(self, pairs: MinimalPairs) -> Tensor:
        """Return the query, int64 [B]."""
        return pairs.bases.info["query"]

    def right(self, pairs: MinimalPairs, logits: Tensor, name: str) -> Tensor:
        """Return where the model says what is copied, or of `unrelated` none of the four answers:
        bool [B]."""
        says, info = at(logits, pairs.bases.info["query"]).argmax(-1), pairs.batch(name).info
        if pairs.candidates is None:
            return says == info["copied"]
        none = (says[:, None] != pairs.candidates).all(1)
        return torch.where(info["copying"], says == info["copied"], none)

    def outcomes(
        self, pairs: MinimalPairs, clean: Tensor, source: Tensor, patched: Tensor
    ) -> Mapping[str, Tensor]:
        """Return the `symbol_outcomes` of the next token, the base's being what the model said."""
        before, after = (at(logits, pairs.bases.info["query"]) for logits in (clean, patched))
        return symbol_outcomes(pairs, after.argmax(-1), before.argmax(-1),
                               pairs.sources.info["copied"], before, after)

    def _other_place(
        self, text: Batch, p: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return p' [B], another place that could be copied from, and whether there is one.

        It and the token after it are neither at p nor at p + 1, and before the query; what would
        be copied is neither A nor B.
        """
        tokens, query = text.inputs, text.info["query"]
        where = torch.arange(tokens.shape[1], device=tokens.device)
        after = torch.cat([tokens[:, 1:], tokens[:, :1]], 1)
        free = (where < query[:, None] - 1) & ((where - p[:, None]).abs() > 1)
        for taken in (query, p + 1):
            free = free & (after != at(tokens, taken)[:, None])
        # Where no place is free, any will do: the pair does not count.
        return one_of(free, generator).clamp_max(tokens.shape[1] - 2), free.any(1)

    def _control(
        self, bases: Batch, a: Tensor, b: Tensor, generator: torch.Generator
    ) -> Batch:
        """Return the bases with other tokens in `CHANGED` places before the query."""
        tokens, places = bases.inputs.clone(), bases.info["places"]
        position = torch.arange(tokens.shape[1], device=tokens.device)
        free = (position < bases.info["query"][:, None]) & (tokens != b[:, None])
        for taken in torch.cat([places, places + 1], 1).unbind(1):
            free = free & (position != taken[:, None])
        chance = torch.rand(tokens.shape, generator=generator, device=tokens.device)
        for where in torch.where(free, chance, -1.0).topk(CHANGED, 1).indices.unbind(1):
            was = at(tokens, where)
            now = self._alike.draw(was, torch.stack([was, a, b], 1), generator)
            tokens = tokens.scatter(
                1, where[:, None], torch.where(at(free, where), now, was)[:, None])
        return with_tokens(bases, tokens, bases.info)

    def _queries(self, split: str, device: torch.device) -> Tensor:
        """Return which tokens of the excerpts occurred once before, and are followed as then."""
        tokens = self.task.excerpts(split).tokens.to(device)
        inputs, after = tokens[:, :-1], tokens[:, 1:]
        earlier = previous_same(inputs)
        once = (earlier >= 0) & (earlier.gather(1, earlier.clamp_min(0)) < 0)
        copied = after.gather(1, earlier.clamp_min(0)) == after
        return self.task.queries(split, device) & once & copied


@dataclass(frozen=True)
class Alike:
    """Groups of ids that may stand in place of each other, side by side in `order`."""

    order: Tensor
    start: Tensor
    size: Tensor

    @classmethod
    def of(cls, properties: np.ndarray) -> Alike:
        """Group the ids of properties int [V, n]: alike are those that agree in all."""
        _, group, sizes = np.unique(properties, axis=0, return_inverse=True, return_counts=True)
        group = group.ravel()
        starts = np.cumsum(sizes) - sizes
        return cls(torch.from_numpy(np.argsort(group, kind="stable")),
                   torch.from_numpy(starts[group]), torch.from_numpy(sizes[group]))

    def draw(self, ids: Tensor, unlike: Tensor, generator: torch.Generator) -> Tensor:
        """Return for each id another of its group that is none of `unlike` [B, n]; the id itself
        where `TRIES` draws find none."""
        order, start, size = (x.to(ids.device) for x in (self.order, self.start, self.size))
        chance = torch.rand(len(ids), TRIES, generator=generator, device=ids.device)
        tried = order[start[ids][:, None] + (chance * size[ids][:, None]).long()]
        good = (tried[:, :, None] != unlike[:, None]).all(2)
        first = good.long().argmax(1, keepdim=True)
        return torch.where(good.any(1), tried.gather(1, first)[:, 0], ids)


def with_tokens(batch: Batch, tokens: Tensor, info: Mapping[str, Tensor]) -> Batch:
    """Return a text with other tokens [B, T]; the one after the last stays."""
    targets = torch.cat([tokens[:, 1:], whole(batch)[:, -1:]], 1)
    return replace(batch, inputs=tokens, targets=targets, info=info)
