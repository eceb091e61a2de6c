"""What would the answer be under another rule or term? What every task offers to interventions.

An intervention needs, for a base, the problem that is patched, sources: problems that differ from
it in what is asked about. The source of a *minimal pair* shares everything with it but one
constituent. An answer *flips* where it becomes the source's. Of a minimal pair that is also what
the source's constituent answers to the base: a flip does not tell which of the two arrived.

A *factorial* of sources tells. A base applies operation A to operands x, beside the rest of the
problem; sources have another operation B, other operands x', another rest, or several of these.
The answers A(x), B(x), A(x') and B(x') all differ, and each is a class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.errors import UnknownNameError, check, check_choice
from latentcode.metrics import CLASSES
from latentcode.tasks.base import Batch, Task, at

SCOPES: dict[str, str] = {
    "pair": "the pair that the paper looks at: the response attending to itself",
    "pairs": "that pair, and the response attending to the same feature in its row",
    "row": "the response attending to every key",
    "feature": "every query of the response's feature, attending to every key",
    "examples": "every example attending to every example",
    "everything": "every query attending to every key",
}
"""Which codes an intervention writes; a task offers some of them, and those of its `PLACES`."""

PLACES: dict[str, str] = {
    "context": "where the operation can be inferred: the first rows, the examples",
    "operands": "what it is applied to: what the last row shows",
    "response": "where the answer is read; the query of fuzzy logic, which holds its operand, too",
}
"""Sets of tokens of a problem; a task has some of them."""

AT_PLACES: dict[str, str] = {
    "{}": "every query of the place attending to every key",
    "outside {}": "every other query attending to every key",
    "within {}": "every query of the place attending to every key of it",
}
"""Scopes at a place, by their names."""

OTHERS: dict[str, str] = {
    "operands": "other operands",
    "operation+operands": "another operation and other operands",
    "rest": "the rest of another problem",
    "operation+rest": "another operation and the rest of another problem",
    "operands+rest": "other operands and the rest of another problem",
    "operation+operands+rest": "another operation, other operands and the rest of another problem",
    "unrelated": "another problem, with a third operation",
}
"""What the sources of a factorial have that the base has not, beside the minimal pair's."""


@dataclass(frozen=True)
class MinimalPairs:
    """B bases, and for each two sources that are made for it.

    bases      the problems that are patched
    sources    the same but for one constituent: the base's `base_label` is `source_label` here
    control    a control: all constituents as in the base, with fresh values where `sources`
               differs from it
    slot       int64 [B], which of the constituents of a base differs (SRAVEN: the response token
               whose rule it is; 0 where constituents have no place of their own)
    base_label, source_label  int64 [B], the constituent of the base, and of its source, of which
               something is put into it
    counts     bool [B]: the answers are known, and they differ; other pairs do not count
    others     the sources of a factorial, by their name in `OTHERS`, and further ones of the task's
               own; empty where there is none
    candidates float64 [B, 4], the answers A(x), B(x), A(x') and B(x') of a factorial, NaN where
               one is not defined; None where there is none

    The `combination` of a source is that of its base.
    """

    bases: Batch
    sources: Batch
    control: Batch
    slot: Tensor
    base_label: Tensor
    source_label: Tensor
    counts: Tensor
    others: Mapping[str, Batch] = field(default_factory=dict)
    candidates: Tensor | None = None

    def __len__(self) -> int:
        return len(self.slot)

    def __getitem__(self, index: slice | Tensor) -> MinimalPairs:
        """Return the pairs of a slice, an index tensor or a boolean mask."""
        return _together(lambda parts: parts[0][index], [self])

    @staticmethod
    def cat(parts: Sequence[MinimalPairs]) -> MinimalPairs:
        """Concatenate pairs of one task and split along the bases."""
        return _together(lambda values: Batch.cat(values) if isinstance(values[0], Batch)
                         else torch.cat(values), parts)

    def batch(self, name: str) -> Batch:
        """Return `bases`, `sources`, `control` or one of `others`."""
        return self.others[name] if name in self.others else getattr(self, name)

    def with_sources(self, name: str) -> MinimalPairs:
        """Return the same with another batch as the sources, whose answers are then theirs."""
        return self if name == "sources" else replace(self, sources=self.batch(name))


def _together(function: Callable[[list[Any]], Any], parts: Sequence[MinimalPairs]) -> MinimalPairs:
    """Return what a function makes of each batch and tensor of several pairs."""
    made: dict[str, Any] = {}
    for name in [each.name for each in fields(MinimalPairs)]:
        values: list[Any] = [getattr(part, name) for part in parts]
        made[name] = ({other: function([batches[other] for batches in values])
                       for other in values[0]} if name == "others" else
                      None if values[0] is None else function(values))
    return MinimalPairs(**made)


class Counterfactuals(ABC):
    """The minimal pairs of a task, where to write codes, and what became of the answer."""

    constituents: tuple[str, ...]
    """Names of what `base_label` and `source_label` number."""
    n_slots: int
    """Places that a constituent can have in a problem."""
    exclusive: bool
    """Whether a slot holds exactly one constituent (a label with classes), or several may occur
    (a label per constituent)."""
    chance: float
    """Rate at which an answer drawn at random becomes the source's; NaN where it has no meaning."""
    scopes: tuple[str, ...]
    """Those of `SCOPES` that the task knows."""
    places: tuple[str, ...] = ()
    """Those of `PLACES` that the task has."""
    about_places: Mapping[str, str] = PLACES
    """What these are, in its problems."""
    least_problems: int = 10
    """Instances that the mean of a constituent is at least over; one that none has has no mean."""
    lacks: Mapping[str, str] = {}
    """What a patch may need (or its source) and the task does not offer, and why."""
    notes: tuple[str, ...] = ()
    """What a reader of the outcomes must know, one sentence each."""
    doubt: str = ""
    """Why, beside too little training, a model may answer none of them."""
    factorial: bool = False
    """Whether `sample` draws the sources of a factorial (`MinimalPairs.others`)."""
    symbolic: bool | None = None
    """Whether an answer is one of several symbols, and not a number; None: the pairs do not say
    where it is read (`answer_token`)."""
    n_read: int | None = None
    """Tokens at the end of a problem whose logits `right` and `outcomes` look at; None: any."""
    least_difference: float = 0.0
    """Answers that are no farther apart are not told apart; one that is within half of it of a
    candidate is its."""

    @abstractmethod
    def sample(self, split: str, n: int, generator: torch.Generator) -> MinimalPairs:
        """Draw n bases of a split, a slot and another constituent for each, and the sources."""

    def batches(
        self, split: str, n: int, batch_size: int, generator: torch.Generator
    ) -> Iterator[MinimalPairs]:
        """Yield n minimal pairs of a split, at most `batch_size` at once."""
        for start in range(0, n, batch_size):
            yield self.sample(split, min(batch_size, n - start), generator)

    @abstractmethod
    def membership(self, batch: Batch) -> Tensor:
        """Return which constituents a problem has, bool [B, slot, constituent]."""

    def scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        """Return which codes a scope holds, bool [B, Q, K].

        elsewhere  the same scope at another slot or query, where the constituent that differs
                   has no business: a control. Raises `UnknownNameError` for an unknown scope.
        """
        self.check_scope(name)
        n, n_tokens = pairs.bases.inputs.shape[:2]
        if name == "everything":
            return torch.ones(n, n_tokens, n_tokens, dtype=torch.bool, device=pairs.slot.device)
        if name not in self.place_scopes:
            return self.own_scope(name, pairs, elsewhere=elsewhere)
        how, _, place = name.rpartition(" ")
        queries = self.place(place, pairs)
        if how == "within":
            return queries[:, :, None] & queries[:, None]
        chosen = ~queries if how == "outside" else queries
        return chosen[:, :, None].expand(-1, -1, n_tokens)

    def own_scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        """Return what `scope` does of those that are neither `everything` nor at a place."""
        raise NotImplementedError

    def place(self, name: str, pairs: MinimalPairs) -> Tensor:
        """Return which tokens a place holds, bool [B, T]; `UnknownNameError` for an unknown one."""
        raise UnknownNameError("place", name, self.places)

    @abstractmethod
    def right(self, pairs: MinimalPairs, logits: Tensor, name: str) -> Tensor:
        """Return where logits answer a batch of the pairs, bool [B].

        name  `bases`, `sources`, `control` or one of `others`
        """

    @abstractmethod
    def outcomes(
        self, pairs: MinimalPairs, clean: Tensor, source: Tensor, patched: Tensor
    ) -> Mapping[str, Tensor]:
        """Return what became of each answer, float [B] each; the arguments are logits.

        flip       1 where the answer is the source's
        unchanged  1 where it is still the base's
        """

    def answer_token(self, pairs: MinimalPairs) -> Tensor:
        """Return the token at which each answer is read, int64 [B]; negative ones from the end.
        """
        raise NotImplementedError

    def two_answers(self, pairs: MinimalPairs) -> tuple[Tensor, Tensor]:
        """Return the answers of the bases and of their sources, float64 [B] each."""
        raise NotImplementedError

    def outputs(self, token: Tensor, logits: Tensor) -> Tensor:
        """Return the probabilities of n symbols at the answers' tokens [B] or, where answers are
        numbers, the answer (n = 1): float64 [B, n]."""
        output = at(logits, token).double()
        return output.softmax(-1) if self.symbolic else output[:, :1]

    def loss(self, answer: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of answers [B, n], the model's at their tokens, towards targets [B]:
        cross entropy of symbols, squared error of numbers."""
        return (F.cross_entropy(answer, targets.long()) if self.symbolic else
                F.mse_loss(answer[:, 0], targets.to(answer.dtype)))

    def reading(self, model: Any) -> AbstractContextManager[Any]:
        """While this is open a model may compute only the logits at which answers are read, which
        are then the last ones; by default it computes all of them."""
        return nullcontext()

    def roles(self, pairs: MinimalPairs) -> tuple[tuple[str, ...], Tensor]:
        """Return names of roles, and the role of each token of a base, int64 [B, T].

        Tokens of one role mean the same in every base, so that averages over bases are taken role
        by role. By default a token's role is its place.
        """
        n, n_tokens = pairs.bases.inputs.shape[:2]
        places = torch.arange(n_tokens, device=pairs.slot.device)
        return tuple(f"token {place}" for place in range(n_tokens)), places.expand(n, -1)

    def role_labels(self, pairs: MinimalPairs) -> tuple[str, ...]:
        """Return what each role is called in tables and figures; by default its name."""
        return self.roles(pairs)[0]

    @property
    def unrestricted(self) -> Counterfactuals:
        """Pairs of any problems of the task, over which means are taken; by default these."""
        return self

    @property
    def lacking(self) -> Mapping[str, str]:
        """`lacks`, and why there is no factorial of sources, where there is none."""
        reason = ("these pairs have no sources with other operands or in another context, either "
                  "because of factorial=False (--no-factorial) or because the task offers none")
        return self.lacks if self.factorial else {
            "factorial": reason, "permuted": reason, **self.lacks}

    def answer_among(self, among: str) -> None:
        """Count as a model's answer the likeliest of all (`vocabulary`), or of the two `answers`;
        `ConfigError` for the second where a task has no such choice."""
        check(among == "vocabulary", f"among is {among!r}; expected 'vocabulary', as these pairs "
              "have no other way to read an answer")

    @property
    def place_scopes(self) -> tuple[str, ...]:
        """The scopes at the task's places: `context`, `outside context`, `within context`, ..."""
        return tuple(how.format(place) for place in self.places for how in AT_PLACES)

    def check_scope(self, name: str) -> None:
        """Raise `UnknownNameError` unless the task knows the scope."""
        check_choice("scope", name, (*self.scopes, *self.place_scopes))


def control_source(task: Counterfactuals, pairs: MinimalPairs) -> tuple[str, Batch, Tensor]:
    """Return another source of each pair, as a control: what it is, its batch, and which pairs have
    one, bool [B].

    Its answer is not that of the pair's source: it is the base's where there is such a prompt, else
    that of an unrelated one, or of another pair.
    """
    answers = pairs.sources.targets.flatten(1)
    if "control" not in task.lacking:
        every = torch.ones(len(pairs), dtype=torch.bool, device=answers.device)
        return "same answer", pairs.control, every
    if "unrelated" in pairs.others:
        other = pairs.others["unrelated"]
        return "unrelated", other, (other.targets.flatten(1) != answers).any(1)
    # The pair before it, or the first before that, with another answer of its source.
    n = len(pairs)
    differs = (answers[:, None] != answers).any(-1)
    at = torch.arange(n, device=answers.device)
    near = torch.where(differs, (at[:, None] - at) % n, n)
    return "another's source", pairs.sources[near.argmin(1)], differs.any(1)


class ChosenPairs(Counterfactuals):
    """Minimal pairs of given bases, under a constituent that somebody chooses.

    `which` numbers the constituents of a base as `held` lists them: the rules of SRAVEN's
    response tokens, the terms of a function.
    """

    task: Task
    symbolic: bool
    whole: bool = True
    """Whether a constituent is an operation that a sentence can call by its name, as a rule is; a
    term is a part of one."""
    carried_at: str = "context"
    """The place whose codes were found to carry the operation in some models."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """What people call the symbols that an answer can be; none where it is a number."""
        return ()

    def place(self, name: str, pairs: MinimalPairs) -> Tensor:
        """Return the tokens of one of the task's places, bool [B, T]."""
        places = self.task.places(pairs.bases)
        check_choice("place", name, places)
        tokens = torch.zeros(pairs.bases.inputs.shape[:2], dtype=torch.bool,
                             device=pairs.slot.device)
        return tokens.scatter(1, places[name], True)

    @abstractmethod
    def held(self, batch: Batch) -> Tensor:
        """Return the constituents of each instance, int64 [B, N]."""

    @abstractmethod
    def choices(self, batch: Batch, which: Tensor) -> Tensor:
        """Return what can stand in place of constituent `which` [B]: bool [B, constituent]."""

    def with_target(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        """Return sources of given bases that have `target` in place of constituent `which`.

        which, target  int64 [B]. `UnknownNameError` lists what could stand there.
        """
        n_held = self.held(batch).shape[1]
        check(bool(((which >= 0) & (which < n_held)).all()), f"which is {which.tolist()}; expected "
              f"0 to {n_held - 1}, one of the {n_held} constituents of an instance")
        choices = self.choices(batch, which)
        for row, wanted in enumerate(target.tolist()):
            possible = choices[row].nonzero().flatten().tolist()
            if wanted not in possible:
                known = 0 <= wanted < len(self.constituents)
                raise UnknownNameError("target", self.constituents[wanted] if known else wanted,
                                       [self.constituents[c] for c in possible])
        return self._with_target(batch, which, target, generator)

    @abstractmethod
    def _with_target(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        """Return what `with_target` returns, of targets that are possible."""

    @abstractmethod
    def answers(self, pairs: MinimalPairs) -> Tensor:
        """Return what each constituent would answer in place of the base's, float64
        [B, constituent]; NaN where that is not defined."""

    def two_answers(self, pairs: MinimalPairs) -> tuple[Tensor, Tensor]:
        """Return what the base's constituent answers, and what the source's does in its place."""
        answers = self.answers(pairs)
        return at(answers, pairs.base_label), at(answers, pairs.source_label)

    def natural(self, batch: Batch, slot: Tensor) -> Tensor:
        """Return whether the task itself could have drawn these problems, bool [B]."""
        return torch.ones_like(slot, dtype=torch.bool)


def class_rates(classes: Tensor, suffix: str = "") -> dict[str, Tensor]:
    """Return for each of `CLASSES` whether an answer is of it, float [B] of int64 [B]."""
    hits = F.one_hot(classes, len(CLASSES)).float().unbind(1)
    return {f"{name}{suffix}": hit for name, hit in zip(CLASSES, hits, strict=True)}


def symbol_outcomes(
    pairs: MinimalPairs, says: Tensor, base_answer: Tensor, source_answer: Tensor, clean: Tensor,
    patched: Tensor, probability: Callable[[Tensor, Tensor], Tensor] = at,
) -> dict[str, Tensor]:
    """Return what became of answers that are symbols, float [B] each.

    base, operation, operands, answer, else  of a factorial: whose answer it is (`CLASSES`)
    flip, unchanged  it is the source's, the base's
    p_source_answer, p_base_answer  probability of the source's answer, and of the base's
    kl             KL(clean || patched) where the answer is read, in nats

    says            int64 [B], the symbol that the patched model answers
    clean, patched  logits where the answer is read, [B, V]
    probability     of answers [B], from those of the symbols [B, V]
    """
    before, after = (F.log_softmax(logits.double(), -1) for logits in (clean, patched))
    classes: dict[str, Tensor] = {}
    if pairs.candidates is not None:
        is_one = says[:, None] == pairs.candidates
        classes = class_rates(torch.where(
            is_one.any(1), is_one.long().argmax(1), len(CLASSES) - 1))
    return {**classes, "flip": (says == source_answer).float(),
            "unchanged": (says == base_answer).float(),
            "p_source_answer": probability(after.exp(), source_answer).float(),
            "p_base_answer": probability(after.exp(), base_answer).float(),
            "kl": (before.exp() * (before - after)).sum(-1).float()}


def all_differ(candidates: Tensor, least: float = 0.0) -> Tensor:
    """Return where candidates [B, 4] are all defined, and differ by more than `least`: bool [B].
    """
    gaps = candidates.sort(1).values.diff(dim=1)  # NaN sorts last, and is never greater
    return (gaps > least).all(1)


def first_to_differ(
    x: Tensor, other: Tensor, answers: Tensor, least: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the first of N pairs of operands [B, N, ...] whose four answers [B, N, 4] all differ.

    The first of all where there is none. [B, ...] each.
    """
    differ = all_differ(answers.flatten(0, 1), least).view(answers.shape[:2])
    first, row = differ.long().argmax(1), torch.arange(len(x), device=x.device)
    return x[row, first], other[row, first]


def row_mask(queries: Tensor, n_tokens: int) -> Tensor:
    """Return which codes are those of queries and any key: int64 [B, n] -> bool [B, Q, K]."""
    rows = torch.zeros(len(queries), n_tokens, dtype=torch.bool, device=queries.device)
    return rows.scatter(1, queries, True)[:, :, None].expand(-1, -1, n_tokens)


def code_mask(query: Tensor, keys: Tensor, n_tokens: int) -> Tensor:
    """Return which codes are those of a query and some keys: int64 [B], [B, n] -> bool [B, Q, K].
    """
    columns = torch.zeros(len(keys), n_tokens, dtype=torch.bool, device=keys.device)
    return row_mask(query[:, None], n_tokens) & columns.scatter(1, keys, True)[:, None]
