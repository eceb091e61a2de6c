"""One problem and its source, and what each kind's model of the zoo answers after every move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from latentcode.answers import CLASSES
from latentcode.config import TaskConfig
from latentcode.experiments.moves.states import BOTH, KINDS, Move, moves_of
from latentcode.experiments.studies.context.patches import directions
from latentcode.probes.interventions.passes import Unpatched, computed, unpatched_pass
from latentcode.probes.interventions.patch import Patch
from latentcode.probes.interventions.problem import Problem
from latentcode.runs.named import load_run
from latentcode.seeds import make_generator
from latentcode.tasks import make_counterfactuals, make_task
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs
from latentcode.tasks.logic.task import FuzzyLogic
from latentcode.tasks.sraven.rules import RULES
from latentcode.tasks.sraven.sources import operands_of
from latentcode.tasks.sraven.task import Sraven, tokens_of
from latentcode.tasks.text.counterfactuals import TextCounterfactuals
from latentcode.tasks.text.render import visible
from latentcode.tasks.text.task import Text

DRAWN = 8
"""Bases drawn at once, of which the first is shown that every kind in question knows."""
TRIES = 32
"""How often so many are drawn."""
KNOWING: Mapping[str, tuple[str, ...]] = {"text": ("softmax",)}
"""The kinds whose models have to know a problem, where not all do: of text, HYLA's and linear
attention's in the zoo copy rightly in 4 and 2 of 400 problems."""
ANSWERED = ("bases", "sources", "operands", BOTH)
"""What a model has to answer rightly to know a problem."""


class Asked:
    """The models of a task in the zoo, and the problems that are drawn for them."""

    def __init__(self, task: str) -> None:
        self.name = task
        runs = {kind: load_run(f"zoo:{task}-{kind}") for kind in KINDS}
        self.models = {kind: run.load_model() for kind, run in runs.items()}
        config: TaskConfig = next(iter(runs.values())).config.task
        self.task = make_task(config)

    def counterfactuals(self, number: int) -> Counterfactuals:
        """Return what draws a problem: of SRAVEN to sum and from sum in turn."""
        if isinstance(self.task, Text):
            return TextCounterfactuals(self.task, operation="elsewhere")
        offered = [*directions(make_counterfactuals(self.task)).values()]
        return offered[number % len(offered)]

    def draw(self, number: int) -> tuple[Counterfactuals, MinimalPairs]:
        """Return the pairs of one base, the first that the kinds in question know.

        Where none of those drawn is known by all of them, one that most know.
        """
        pairs_of = self.counterfactuals(number)
        generator = make_generator(number, f"moves {self.name}", "cpu")
        best: tuple[int, MinimalPairs] | None = None
        asked = KNOWING.get(self.name, KINDS)
        for _ in range(TRIES):
            drawn = pairs_of.sample("ood", DRAWN, generator)
            drawn = drawn[drawn.counts.nonzero()[:, 0]]
            if not len(drawn):
                continue
            known = torch.stack([self.knows(kind, pairs_of, drawn) for kind in asked]).sum(0)
            first = int(known.argmax())
            if best is None or int(known[first]) > best[0]:
                best = int(known[first]), drawn[first:first + 1]
            if best[0] == len(asked):
                break
        assert best is not None
        return pairs_of, best[1]

    def knows(self, kind: str, pairs_of: Counterfactuals, pairs: MinimalPairs) -> Tensor:
        """Return which problems a model answers rightly, with their sources: bool [B]."""
        right = [pairs_of.right(pairs, computed(
            self.models[kind], pairs.batch(name).inputs, (), pairs_of.n_read)[0], name)
            for name in ANSWERED]
        return torch.stack(right).all(0)

    def problem(self, number: int) -> dict[str, Any]:
        """Return a problem as JSON holds it; see `problem`."""
        pairs_of, one = self.draw(number)
        with torch.inference_mode():
            kinds = {kind: self.answered(kind, pairs_of, one) for kind in KINDS}
        assert one.candidates is not None
        return {
            "number": number, **self.described(one),
            "four": [self.text(value) for value in one.candidates[0].tolist()],
            "kinds": kinds}

    def answered(
        self, kind: str, pairs_of: Counterfactuals, one: MinimalPairs
    ) -> dict[str, Any]:
        """Return what a model answers to base and source, and to the base after each move."""
        model, moves = self.models[kind], moves_of(self.name)
        places = sorted({place for move in moves for place in _patch(move).places})
        base = unpatched_pass(model, one.bases.inputs, places, pairs_of.n_read)
        source, found = computed(model, one.batch(BOTH).inputs, places, pairs_of.n_read)
        put = Problem(one, {BOTH: found}, torch.ones(0), make_generator(0, "moves"))

        def answer(logits: Tensor) -> str:
            said = pairs_of.outputs(pairs_of.answer_token(one), logits)[0]
            return self.text(float(said.argmax() if pairs_of.symbolic else said[0]))

        return {
            "known": bool(self.knows(kind, pairs_of, one)[0]),
            "base": answer(base.logits), "source": answer(source),
            "moves": {move.name: self.moved(move, model, pairs_of, put, base, source, answer)
                      for move in moves}}

    def moved(
        self, move: Move, model: Any, pairs_of: Counterfactuals, put: Problem, base: Unpatched,
        source: Tensor, answer: Any,
    ) -> list[str]:
        """Return whose answer comes (a row of `CLASSES`), and the answer."""
        patch, one = _patch(move), put.pairs
        scope = patch.cells(pairs_of, one)
        logits = base.patched(patch.edits(model, Problem(
            one, put.sources, scope, put.generator)))
        outcomes = pairs_of.outcomes(one.with_sources(BOTH), base.logits, source, logits)
        return [next(name for name in CLASSES if float(outcomes[name][0]) == 1.0), answer(logits)]

    def text(self, value: float) -> str:
        """Return an answer as people read it."""
        if isinstance(self.task, FuzzyLogic):
            return f"{value:.2f}"
        return visible(self.task.token_table.pieces[int(value)]) if isinstance(
            self.task, Text) else str(int(value))

    def described(self, one: MinimalPairs) -> dict[str, Any]:
        """Return base and source with what draws them, and which tokens each place has."""
        return {name: self.side(one, one.batch(batch))
                for name, batch in (("base", "bases"), ("source", BOTH))} | {
            "places": self.places(one), "own": self.own(one)}

    def side(self, one: MinimalPairs, batch: Any) -> dict[str, Any]:
        """Return `drawing`, and in words `operation` and `operands`."""
        if isinstance(self.task, Sraven):
            rule = one.base_label if batch is one.bases else one.source_label
            drawing = asdict(self.task.drawing(batch, 0)) | {"aligned": []}
            words = RULES[int(rule)], ", ".join(map(str, operands_of(batch, one.slot)[0].tolist()))
        elif isinstance(self.task, FuzzyLogic):
            tokens = [[round(value, 3) for value in token] for token in batch.inputs[0].tolist()]
            drawing = {"tokens": tokens}
            words = (self.task.function_symbols(batch.info["terms"][0].tolist()),
                     ", ".join(f"{value:.2f}" for value in tokens[-1][:-1]))
        else:
            assert isinstance(self.task, Text)
            drawing = asdict(self.task.drawing(batch, 0))
            pieces = [visible(piece) for piece in drawing["pieces"]]
            words = (f"{pieces[drawing['query']]} was followed by {pieces[drawing['key']]}",
                     ", ".join(pieces[key] for key in self.places(one)["what"]))
        return {"drawing": drawing, "operation": words[0], "operands": words[1]}

    def places(self, one: MinimalPairs) -> dict[str, list[int]]:
        """Return the tokens of each place; of text the query, and what stands at both places."""
        if isinstance(self.task, Text):
            what = [int(self.task.drawing(batch, 0).key) for batch in (one.bases, one.batch(BOTH))]
            query = int(one.bases.info["query"][0])
            return {"from where": [query], "what": what, "both": []}
        pairs_of = make_counterfactuals(self.task)
        return {place: pairs_of.place(place, one)[0].nonzero()[:, 0].tolist()
                for place in pairs_of.places}

    def own(self, one: MinimalPairs) -> list[int]:
        """Return the tokens of the feature that is asked about; of other tasks none."""
        if not isinstance(self.task, Sraven):
            return []
        columns = tokens_of(one.bases.info["permutations"], one.slot)[0].tolist()
        size, features = self.task.config.grid_size, self.task.config.n_features
        return [(row * size + column) * features + token for row in range(size)
                for column, token in enumerate(columns)]


def _patch(move: Move) -> Patch:
    return Patch(BOTH, move.scope, move.layers, move.site)


@cache
def asked(task: str) -> Asked:
    """Return the models of a task, loaded once."""
    return Asked(task)


def problem(task: str, number: int) -> dict[str, Any]:
    """Return a problem of a task by its number, its source, and every answer, as JSON holds it.

    base, source  `drawing`, as `app.moves` draws it, `operation` and `operands` in words
    places, own   tokens of each place, and those of the feature that is asked about
    four          A(x), B(x), A(x') and B(x')
    kinds         kind -> `known` (all of these are answered rightly), what the model answers to
                  `base` and `source`, and `moves`: move -> whose answer comes, and the answer
    """
    # A few problems at a time are no work for several threads, which would wait for each other.
    with threadpool_limits(1, user_api="openmp"):
        return asked(task).problem(number)


__all__ = ["asked", "problem"]
