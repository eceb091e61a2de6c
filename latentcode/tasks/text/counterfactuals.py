"""What would come next, had the text another token there? The minimal pairs of text.

A window `... A B ... A` whose next token is B in fact, A at the query q and at p < q alone before
it. Tokens are replaced in place, so that every token stays where it was, each by another of the
same class of characters and frequency.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.errors import check, check_choice
from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import (
    OTHERS,
    Counterfactuals,
    MinimalPairs,
    classes_of,
    code_mask,
    row_mask,
)
from latentcode.tasks.text.patterns import previous_same
from latentcode.tasks.text.replacing import Alike, Window, at, with_tokens
from latentcode.tasks.text.task import Text

OPERATIONS: dict[str, str] = {
    "copying": "copies, and the base does not",
    "elsewhere": "copies what stands at another place than the base does",
}
"""What a source with another operation does."""
MOST_CODES = 2**20
"""Pairs of tokens that a batch has at most, of each of which every head has a code."""
CHANGED = 2
"""Tokens that the control changes, as many as a source in the same context does at most."""
ROLES = ("query", "key", "earlier", "previous", "first", "before", "between", "after")
"""What a token is to the induction pair: A at q, B at p + 1, A at p, the one before the query, the
first one, and those before p, between B and the query, and after the query."""


FOUR = ("Of the four answers of a factorial two are known, those of texts that copy. What is said "
        "where nothing is copied is the model's own affair, and must be neither of them.")
LIKELIER = ("The likelier of the two answers counts as the model's, whatever else it would rather "
            "say.")


class TextCounterfactuals(Counterfactuals):
    """Is the induction pair's code an operation, *copy what stands at p + 1*, or an answer, B?

    factorial  The operation is copying or none, the operand is the token at p + 1, and all else is
               the rest. The base has another token in place of the earlier A: nothing leads
               from the query to B. Its source is the text as it was, where B is copied; of
               `OTHERS`, those with other operands have B' at p + 1, those of another rest are
               another excerpt with the same tokens at p + 1 and, where it copies, its own query's
               token at p. `unrelated` is yet another excerpt, untouched. After a source's code was
               written, B is the answer of its operation on the base's operand, and B' the source's
               own, copied
    operation  what sources with another operation do (`OPERATIONS`). For `elsewhere` the base
               copies B, too, and those sources have the A at another place p', drawn from those
               before the query, and another token at p. The operation is the place that is copied
               from, and the operands are the tokens after both places: the base's are B and C,
               which stands at p' + 1, the sources' B' and D
    not factorial  the base is the text as it was, the source has B' in place of B, and would
               copy that. A flip does not tell operation from answer

    What is said where nothing is copied is the model's own affair (NaN in `candidates`). Of the
    base it is what the model says before anything is written, of the minimal pair's source what
    it says there; of other operands it is not known, and no answer is of that class. Where both
    copy, all four answers are known: B, C, B' and D.

    The source `control` has other tokens in two other places before the query. Pairs count where
    the model itself says what is copied (B, and B' of a source with B'), and where nothing is
    copied neither of them.
    """

    constituents = ("not copied", "copied")
    n_slots = 1
    exclusive = True
    symbolic = True
    scopes: tuple[str, ...] = ("pair", "row", "feature", "everything")
    aliases: Mapping[str, str] = {"induction": "pair"}

    def __init__(
        self, task: Text, factorial: bool = True, operation: str = "copying"
    ) -> None:
        check_choice("operation", operation, OPERATIONS)
        self.task, self.factorial, self.among = task, factorial, "vocabulary"
        self.operation = operation
        if operation == "elsewhere":
            self.constituents = ("copied from p", "copied from elsewhere")
            self.scopes, self.aliases = ("row", "everything"), {}  # the two copy by different pairs
        self.chance = 1.0 / task.config.n_vocabulary
        nowhere = "the query is at another place in every text, where codes have no mean"
        self.lacks = {"means": nowhere, "erasers": nowhere,
                      "pool": "no other text has its query and key at the same places",
                      "permuted": "a text has no examples whose values could be permuted"}
        table = task.token_table
        self._alike = Alike.of(np.stack(
            [table.classes, table.spaced, task.frequency_bins], axis=1))

    @property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]
        """What readers of the results have to know."""
        if self.among == "answers":
            return (LIKELIER,)
        return (FOUR,) if self.factorial and self.operation != "elsewhere" else ()

    def answer_among(self, among: str) -> None:
        """Count as the model's answer the likeliest token of the `vocabulary` or, without a
        factorial, the likelier of the two `answers`, whatever else it would rather say.

        `ConfigError` for `answers` in a factorial, where one of the answers is neither.
        """
        check_choice("among", among, ("vocabulary", "answers"))
        check(among == "vocabulary" or not self.factorial, "among is 'answers' in a factorial of "
              "sources, of whose answers one is neither; expected minimal pairs (factorial=False, "
              "--no-factorial)")
        self.among = among
        self.chance = 0.5 if among == "answers" else 1.0 / self.task.config.n_vocabulary

    def sample(self, split: str, n: int, generator: torch.Generator) -> MinimalPairs:
        """Draw n excerpts whose next token is the induction pair's, and make the sources."""
        found = self._queries(split, generator.device)
        check(bool(found.any()), f"no excerpt of split {split!r} has a token that occurred once "
              "before, followed by what follows it now; expected more or longer excerpts")
        return self.pairs_of(self.task.sample_among(split, found, n, generator), generator)

    def pairs_of(self, text: Batch, generator: torch.Generator) -> MinimalPairs:
        """Return the minimal pairs of given bases of the task.

        Those count whose query's token occurred once before, followed by what follows it now.
        """
        device, place = generator.device, Window.of(text)
        fits = self._queries(text.split, device)[text.info["sequence"], place.query]
        a, b = (at(text.inputs, where) for where in (place.query, place.key))
        if self.factorial and self.operation == "elsewhere":
            return self._from_elsewhere(text, place, fits, generator)
        other_b = self._alike.draw(b, torch.stack([a, b], 1), generator)
        other_a = self._alike.draw(a, torch.stack([a, b, other_b], 1), generator)
        zero = torch.zeros_like(a)
        if not self.factorial:
            sources = place.written(text, a, other_b, copying=True)
            bases = place.written(text, a, b, copying=True)
            return MinimalPairs(
                bases, sources, self._same(bases, (place,), a, b, generator), zero,
                zero + 1, zero + 1, fits & (other_b != b))
        bases, sources = (place.written(text, first, b, copying=copying)
                          for first, copying in ((other_a, False), (a, True)))
        others, possible = self._others(text, place, (other_a, a), (b, other_b), generator)
        known = torch.full((len(b), 2, 2), torch.nan, dtype=torch.float64, device=device)
        known[:, :, 1] = torch.stack([b, other_b], 1).double()
        return MinimalPairs(
            bases, sources, self._same(bases, (place,), a, b, generator), zero, zero, zero + 1,
            fits & possible & (other_a != a) & (other_b != b), others, known.flatten(1))

    def batches(
        self, split: str, n: int, batch_size: int, generator: torch.Generator
    ) -> Iterator[MinimalPairs]:
        """Yield n minimal pairs, fewer at once of long texts: codes grow with the square."""
        most = max(MOST_CODES // self.task.config.n_tokens**2, 2)
        return super().batches(split, n, min(batch_size, most), generator)

    def _others(
        self, text: Batch, place: Window, first: tuple[Tensor, Tensor],
        second: tuple[Tensor, Tensor], generator: torch.Generator,
    ) -> tuple[dict[str, Batch], Tensor]:
        """Return the sources of `OTHERS`, and where another rest need not copy, bool [B].

        first, second  the tokens at p and p + 1 without and with copying, without and with B'
        """
        elsewhere, unrelated = (self._elsewhere(text, place, generator) for _ in range(2))
        own = at(elsewhere.inputs, place.query)
        at_p = at(elsewhere.inputs, place.earlier)
        free = torch.where(at_p == own, self._alike.draw(
            at_p, own[:, None], generator), at_p)
        others: dict[str, Batch] = {}
        for name in OTHERS:
            context, copying = "rest" in name, "operation" in name
            one = (free, own) if context else first
            others[name] = place.written(
                elsewhere if context else text, one[copying], second["operands" in name],
                copying=copying)
        others["unrelated"] = place.written(
            unrelated, at(unrelated.inputs, place.earlier), at(unrelated.inputs, place.key),
            copying=False)
        return others, free != own

    def _from_elsewhere(
        self, text: Batch, place: Window, fits: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        """Return the pairs whose sources copy from another place than the base."""
        a, b = (at(text.inputs, where) for where in (place.query, place.key))
        there, offered = self._second(text, place, generator)
        c = at(text.inputs, there.key)
        other_b = self._alike.draw(b, torch.stack([a, b, c], 1), generator)
        other_c = self._alike.draw(c, torch.stack([a, b, other_b, c], 1), generator)
        other_a = self._alike.draw(a, torch.stack([a, b, other_b, c, other_c], 1), generator)
        context, unrelated = (self._elsewhere(text, place, generator) for _ in range(2))
        own = at(context.inputs, place.query)
        # What stands at p and at p' where that is not what is copied from.
        idle = {False: (other_a, at(text.inputs, there.earlier)), True: tuple(
            torch.where(at(context.inputs, where) == own, self._alike.draw(
                own, own[:, None], generator), at(context.inputs, where))
            for where in (place.earlier, there.earlier))}

        def written(name: str) -> Batch:
            """Of the two places, that which is copied from last, as it says what comes next."""
            is_other, is_elsewhere = "rest" in name, "operation" in name
            second = (other_b, other_c) if "operands" in name else (b, c)
            first, last = (0, 1) if is_elsewhere else (1, 0)
            batch, places = context if is_other else text, (place, there)
            batch = places[first].written(
                batch, idle[is_other][first], second[first], copying=False)
            return _named(places[last].written(
                batch, own if is_other else a, second[last], copying=True), is_elsewhere)

        others = {name: written(name) for name in OTHERS if name != "unrelated"}
        others["unrelated"] = _named(place.written(
            unrelated, at(unrelated.inputs, place.earlier), at(unrelated.inputs, place.key),
            copying=False), False)
        bases, zero = written(""), torch.zeros_like(a)
        possible = offered & (other_a != a) & (other_b != b) & (other_c != c)
        for token in idle[True]:
            possible = possible & (token != own)
        return MinimalPairs(
            bases, written("operation"), self._same(
                bases, (place, there), a, b, generator), zero, zero, zero + 1,
            fits & possible, others, torch.stack([b, c, other_b, other_c], 1).double())

    def _second(
        self, text: Batch, place: Window, generator: torch.Generator
    ) -> tuple[Window, Tensor]:
        """Return another place that could be copied from, and whether there is one, bool [B].

        It and the token after it are neither at p nor at p + 1, and before the query; what would
        be copied is neither A nor B.
        """
        tokens = text.inputs
        where = torch.arange(tokens.shape[1], device=tokens.device)
        after = torch.cat([tokens[:, 1:], tokens[:, :1]], 1)
        free = where < place.query[:, None] - 1
        free = free & ((where - place.earlier[:, None]).abs() > 1)
        for taken in (place.query, place.key):
            free = free & (after != at(tokens, taken)[:, None])
        chance = torch.rand(tokens.shape, generator=generator, device=tokens.device)
        # Where no place is free, any will do: the pair does not count.
        found = torch.where(free, chance, -1.0).argmax(1).clamp_max(tokens.shape[1] - 2)
        return Window(place.query, found, found + 1), free.any(1)

    def _elsewhere(self, text: Batch, place: Window, generator: torch.Generator) -> Batch:
        """Return another excerpt of the split for each, with the query at the same place."""
        n = len(self.task.excerpts(text.split).tokens)
        step = torch.randint(1, max(n, 2), (len(text),), generator=generator,
                             device=generator.device)
        return self.task.build(text.split, (text.info["sequence"] + step) % n, place.query)

    def _same(
        self, batch: Batch, places: Sequence[Window], a: Tensor, b: Tensor,
        generator: torch.Generator,
    ) -> Batch:
        """Return the same with other tokens in `CHANGED` places before the query."""
        tokens = batch.inputs.clone()
        position = torch.arange(tokens.shape[1], device=tokens.device)
        free = (position < places[0].query[:, None]) & (tokens != b[:, None])
        for place in places:
            for taken in (place.earlier, place.key):
                free = free & (position != taken[:, None])
        chance = torch.rand(tokens.shape, generator=generator, device=tokens.device)
        for where in torch.where(free, chance, -1.0).topk(CHANGED, 1).indices.unbind(1):
            was = at(tokens, where)
            now = self._alike.draw(was, torch.stack([was, a, b], 1), generator)
            possible = at(free, where)
            tokens = tokens.scatter(1, where[:, None], torch.where(possible, now, was)[:, None])
        return with_tokens(batch, tokens, batch.info)

    def membership(self, batch: Batch) -> Tensor:
        """Return whether each text copies, or copies from elsewhere: bool [B, 1, 2]."""
        which = batch.info["elsewhere" if self.operation == "elsewhere" else "copying"]
        return F.one_hot(which.long(), 2).bool()[:, None]

    def own_scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        """Return which codes those of a query hold, bool [B, Q, K].

        pair     the query attending to what follows the earlier occurrence; row: to every token
        feature  the query and that token, both attending to every token
        elsewhere  of the token before the query, which is later than the key, too
        """
        batch = pairs.bases
        query, key, n_tokens = batch.info["query"], batch.info["key"], batch.inputs.shape[1]
        if elsewhere:
            query = query - 1
        if name == "pair":
            return code_mask(query, key[:, None], n_tokens)
        return row_mask(torch.stack([query, key], 1) if name == "feature" else query[:, None],
                        n_tokens)

    def roles(self, pairs: MinimalPairs) -> tuple[tuple[str, ...], Tensor]:
        """Return what each token is to the induction pair (`ROLES`), int64 [B, T]."""
        info, inputs = pairs.bases.info, pairs.bases.inputs
        query, key = info["query"][:, None], info["key"][:, None]
        place = torch.arange(inputs.shape[1], device=inputs.device).expand_as(inputs)
        role = torch.where(place < key, 5, torch.where(place < query, 6, 7))
        for name, where in (("first", torch.zeros_like(query)), ("previous", query - 1),
                            ("earlier", key - 1), ("key", key), ("query", query)):
            role = role.scatter(1, where, ROLES.index(name))
        return ROLES, role

    def answer_token(self, pairs: MinimalPairs) -> Tensor:
        """Return the query, int64 [B]."""
        return pairs.bases.info["query"]

    def two_answers(self, pairs: MinimalPairs) -> tuple[Tensor, Tensor]:
        """Return what is copied in the instance and in its source."""
        return (pairs.bases.info["copied"].double(), pairs.sources.info["copied"].double())

    def right(self, pairs: MinimalPairs, logits: Tensor, of: str) -> Tensor:
        """Return where the model says what is copied, or neither of the answers: bool [B]."""
        batch = pairs.batch(of)
        says, copied = self._says(pairs, logits), batch.info["copied"]
        if not self.factorial:
            return says == copied
        assert pairs.candidates is not None
        neither = (says[:, None] != pairs.candidates).all(1)
        return torch.where(batch.info["copying"], says == copied, neither)

    def outcomes(
        self, pairs: MinimalPairs, clean: Tensor, source: Tensor, patched: Tensor
    ) -> Mapping[str, Tensor]:
        """Return what the model says at the query, float [B] each.

        base, operation, operands, answer, else  of a factorial: whose answer it is
        flip, unchanged  it says what stands at p + 1 in the source; what it said before
        p_source_answer, p_base_answer  probability of the former, and of the latter
        kl             KL(clean || patched) of the next token, in nats

        and without a factorial

        logit_difference  logit of B minus that of B', patched; `logit_difference_clean`: unpatched
        moved          how far it went from the unpatched one (0) to that of the source's pass (1)
        """
        query = pairs.bases.info["query"]
        before, after = (F.log_softmax(_logits(x, query).double(), -1) for x in (clean, patched))
        ours, theirs = self._says(pairs, clean), pairs.sources.info["copied"]
        says = self._says(pairs, patched)
        found: dict[str, Tensor] = {}
        if pairs.candidates is not None:
            own = torch.stack([ours, self._says(pairs, source)], 1).double()
            same = pairs.candidates[:, :2]
            found = classes_of(says, torch.cat(
                [torch.where(same.isnan(), own, same), pairs.candidates[:, 2:]], 1))
        else:
            at_clean, at_source, at_patched = (
                self._difference(pairs, x) for x in (clean, source, patched))
            whole_way = torch.where(at_clean == at_source, 1.0, at_clean - at_source)
            found = {"logit_difference": at_patched, "logit_difference_clean": at_clean,
                     "moved": (at_clean - at_patched) / whole_way}
        return {**found, "flip": (says == theirs).float(), "unchanged": (says == ours).float(),
                "p_source_answer": at(after.exp(), theirs).float(),
                "p_base_answer": at(after.exp(), ours).float(),
                "kl": (before.exp() * (before - after)).sum(-1).float()}

    def _says(self, pairs: MinimalPairs, logits: Tensor) -> Tensor:
        """Return the token that the model says at the query, int64 [B]; -1 for neither of two."""
        if self.among == "vocabulary":
            return _logits(logits, pairs.bases.info["query"]).argmax(-1)
        difference = self._difference(pairs, logits)
        ours, theirs = (batch.info["copied"] for batch in (pairs.bases, pairs.sources))
        return torch.where(difference > 0.0, ours, torch.where(difference < 0.0, theirs, -1))

    @staticmethod
    def _difference(pairs: MinimalPairs, logits: Tensor) -> Tensor:
        here = _logits(logits, pairs.bases.info["query"]).float()
        return at(here, pairs.bases.info["copied"]) - at(here, pairs.sources.info["copied"])

    def _queries(self, split: str, device: torch.device) -> Tensor:
        """Return which tokens of the excerpts occurred once before, and are followed as then."""
        tokens = self.task.excerpts(split).tokens.to(device)
        inputs, after = tokens[:, :-1], tokens[:, 1:]
        earlier = previous_same(inputs)
        once = (earlier >= 0) & (earlier.gather(1, earlier.clamp_min(0)) < 0)
        copied = after.gather(1, earlier.clamp_min(0)) == after
        return self.task.queries(split, device) & once & copied


def _named(batch: Batch, elsewhere: bool) -> Batch:
    """Return a text that says whether it copies from elsewhere."""
    named = torch.full_like(batch.info["copying"], elsewhere)
    return replace(batch, info={**batch.info, "elsewhere": named})


def _logits(logits: Tensor, query: Tensor) -> Tensor:
    return logits[torch.arange(len(query), device=query.device), query]


__all__ = ["OPERATIONS", "TextCounterfactuals"]
