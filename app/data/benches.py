"""The bench of a model, with the problems that the pages show one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from latentcode.app.data import loaded
from latentcode.app.data.catalog import Entry
from latentcode.probes.interventions.outcomes import (
    ANSWERS,
    Ask,
    BenchOutcome,
    Replication,
    answer_text,
)

if TYPE_CHECKING:
    from latentcode.probes.interventions.bench import Bench
    from latentcode.probes.interventions.patch import Patch
    from latentcode.tasks.counterfactuals import MinimalPairs

DRAWN = 4_096
"""Problems drawn at once; a number beyond them draws as many more."""
MOST = 131_072
"""Problems that can be asked for."""
KEPT = 64
"""Outcomes of a model and split that are kept."""
LOOKED_AT, MOST_TRIED = 48, 8
"""Problems among which one is looked for that a page can open on, and how many of those that can
tell are tried with their controls."""


@dataclass(frozen=True)
class Opening:
    """A problem that a page can open on, and a target that can tell what arrived.

    quiet  whether its random controls do not bring the operation; else none was found that does
    """

    instance: int
    target: str
    quiet: bool


class OpenBench:
    """The bench of a model and a split, for one session at a time: its hooks are the model's.

    kind  what people call a constituent
    name  of the model and the split
    """

    def __init__(self, bench: Bench, task: Any, name: str) -> None:
        self.bench, self.task, self.name = bench, task, name
        copies = bench.task.symbolic and not bench.task.whole
        self.kind = "place" if copies else str(task.constituent)
        self._lock = Lock()
        self._outcomes: dict[tuple[Ask, int], BenchOutcome] = {}
        self._opening: Opening | None = None

    def outcome(self, ask: Ask, *, controls: bool = True) -> BenchOutcome:
        """Return an outcome; the last ones are kept.

        controls  without them it takes less than half as long
        """
        with self._lock:
            measured = not ask.measured or ask.measured in self.bench.measured
            with nullcontext() if measured else self._measuring():
                return self._outcome(ask, controls=controls)

    def _outcome(self, ask: Ask, *, controls: bool) -> BenchOutcome:
        from latentcode.probes.interventions.bench import DRAWS

        asked = ask, DRAWS if controls else 0
        if asked not in self._outcomes:
            if len(self._outcomes) >= KEPT:
                self._outcomes.pop(next(iter(self._outcomes)))
            self._outcomes[asked] = self.bench.outcome(*asked)
        return self._outcomes[asked]

    def next_of(self, coming: Iterator[Replication]) -> Replication:
        """Return the next of what this bench yields."""
        with self._lock:
            return next(coming)

    def code(self, instance: int, which: int, key: int | None = None) -> np.ndarray:
        """Return the code of the response to a key (None: to itself), float [L, H]."""
        with self._lock:
            return self.bench.code(instance, which, key)

    def means(
        self, instance: int, which: int, key: int | None = None, *, centred: bool = False
    ) -> dict[str, np.ndarray]:
        """Return the mean code of each constituent there, float [L, H]."""
        measured = ("code",) in self.bench.measured
        with self._lock, nullcontext() if measured else self._measuring():
            return self.bench.mean_codes(instance, which, key, centred=centred)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of a problem's tokens, each once."""
        names = tuple(self.task.token_names)
        return names if len(set(names)) == len(names) else tuple(
            f"{number}: {name}" for number, name in enumerate(names))

    def _measuring(self) -> AbstractContextManager[object]:
        """Say that means are measured, which takes a while."""
        return st.spinner("Measuring means over training problems …")

    def opening(self, patch: Patch) -> Opening:
        """Return the first problem that can tell what arrived, of the first ones.

        Its answers differ, its source is natural and the model answers both rightly; and its random
        controls bring no other answer of these. What the patch brings has no part in it.
        """
        with self._lock:
            if self._opening is None:
                self._opening = self._found(patch)
            return self._opening

    def _found(self, patch: Patch) -> Opening:
        first = None
        for tried, (instance, target) in enumerate(self.bench.telling(
                Ask(patch, 0, ""), range(min(LOOKED_AT, len(self.bench))))):
            first = first or Opening(instance, target, quiet=False)
            drawn = self._outcome(Ask(patch, instance, target), controls=True).drawn("random")
            if sum(drawn.values()) == drawn["base"] + drawn["else"]:
                return Opening(instance, target, quiet=True)
            if tried == MOST_TRIED:
                break
        return first or Opening(0, self.bench.targets(0, 0)[0], quiet=False)

    def telling(self, instance: int, which: int, patch: Patch) -> str:
        """Return a target that can tell what arrived, if there is one, else one that differs."""
        opening = self._opening
        if opening is not None and (instance, which) == (opening.instance, 0):
            return opening.target
        with self._lock:
            found = next(self.bench.telling(Ask(patch, instance, "", which), [instance]), None)
            if found is not None:
                return found[1]
            answers = self.bench.answers(instance, which)
            targets = self.bench.targets(instance, which)
        right = answers.get(self.bench.constituents(instance)[which])
        return next((name for name in targets if answers.get(name, right) != right), targets[0])

    def another(self, patch: Patch, which: int, numbers: Sequence[int]) -> int:
        """Return the first of some problems that can tell what arrived; the first where none can.
        """
        with self._lock:
            return next(self.bench.telling(Ask(patch, 0, "", which), numbers), (numbers[0],))[0]

    def check(self, ask: Ask) -> None:
        """Raise `ConfigError` for what fits neither model nor problem."""
        with self._lock:
            self.bench.check(ask)
            pairs = self.bench.pairs(ask.instance, ask.which, ask.target)[:1]
            for part in ask.patch.parts:
                part.cells(self.bench.task, pairs)

    def right(self, pairs: MinimalPairs, name: str) -> str:
        """Return the right answer to a problem of a pair, as people write it; "" if unknown."""
        asked = {"bases": "base", "sources": "operation", "operands": "operands",
                 "operation+operands": "answer"}
        if name not in asked or pairs.candidates is None:
            return ""
        answer = float(pairs.candidates[0, list(ANSWERS).index(asked[name])])
        return "" if np.isnan(answer) else answer_text(answer, self.bench.task)

    def pairs(self, ask: Ask) -> MinimalPairs:
        """Return the minimal pair of a problem, with its further sources."""
        with self._lock:
            return self.bench.pairs(ask.instance, ask.which, ask.target)[:1]


def usual(bench: Bench) -> Patch:
    """Return the patch that the page opens on: at the place that was found to carry the operation.

    Codes of the context in the lower layers or, in softmax attention, values of the context in the
    upper ones; of texts that copy, codes of the query in the upper ones. The source has another
    operation and other operands.
    """
    from latentcode.models.patched.sites import normalization_of
    from latentcode.probes.interventions.patch import Patch

    task, n = bench.task, bench.model.cfg.n_layers
    value = next(name for name in ("operation+operands", "interchange") if name in bench.values)
    lower, upper = tuple(range(max(1, n // 2))), tuple(range(n // 2, n))
    if task.carried_at not in task.places:
        return Patch(value, "everything", tuple(range(n)))
    if task.carried_at == "response":
        return Patch(value, "response", upper)
    if normalization_of(bench.model) == "softmax":
        return Patch(value, "within context", upper, "value")
    return Patch(value, "context", lower)


def open_bench(entry: Entry, split: str, last: int) -> OpenBench:
    """Return the bench of an entry, with at least the problems up to number `last`."""
    return _bench(entry, split, DRAWN * (last // DRAWN + 1))


@st.cache_resource(max_entries=6, show_spinner="Loading the model and the problems …",
                   hash_funcs=loaded.UNTIL_TRAINED)
def _bench(entry: Entry, split: str, n: int) -> OpenBench:
    from latentcode.codes.reader import instances
    from latentcode.probes.interventions.bench import Bench
    from latentcode.tasks import make_counterfactuals

    task = loaded.task_shown(entry, split)
    run = loaded.open_run(entry.path)
    # A model of its own: other pages hook theirs.
    model = run.load_model(loaded.newest_step(run))
    bench = Bench(model, make_counterfactuals(task, factorial=False),
                  instances(task, split, range(n)))
    return OpenBench(bench, task, f"{entry.key}-{split}")
