"""The bench of a model, with the problems that the pages show one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from latentcode.app.data import loaded
from latentcode.app.data.catalog import Entry
from latentcode.probes.interventions.bench.ask import Ask
from latentcode.probes.interventions.bench.outcome import BenchOutcome
from latentcode.probes.interventions.bench.replication import Replication

if TYPE_CHECKING:
    from latentcode.probes.attribution import ProblemMap
    from latentcode.probes.interventions.bench.bench import Bench
    from latentcode.tasks import Batch
    from latentcode.tasks.text.counterfactuals import TextCounterfactuals

DRAWN = 4_096
"""Problems drawn at once; a number beyond them draws as many more."""
MOST = 131_072
"""Problems that can be asked for."""
KEPT = 64
"""Outcomes, and maps, of a model and split that are kept."""


class OpenBench:
    """The bench of a model and a split, for one session at a time: its hooks are the model's.

    name  of the model and the split
    """

    def __init__(self, bench: Bench, task: Any, name: str) -> None:
        self.bench, self.task, self.kind, self.name = bench, task, str(task.constituent), name
        self._lock = Lock()
        self._outcomes: dict[Ask, BenchOutcome] = {}
        self._maps: dict[tuple[int, int, str, str], ProblemMap] = {}

    @property
    def file(self) -> str:
        """How files begin that are made of it."""
        return self.name.replace("/", "-")

    def outcome(self, ask: Ask) -> BenchOutcome:
        """Return an outcome; the last ones are kept."""
        with self._lock:
            if ask not in self._outcomes:
                if len(self._outcomes) >= KEPT:
                    self._outcomes.pop(next(iter(self._outcomes)))
                measures = ask.patch.kind.needs == "means"
                with self._measuring() if measures else nullcontext():
                    self._outcomes[ask] = self.bench.outcome(ask)
            return self._outcomes[ask]

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
        with self._lock, self._measuring():
            return self.bench.mean_codes(instance, which, key, centred=centred)

    def keys(self, instance: int, which: int, scope: str) -> tuple[int, ...]:
        """Return the keys of a scope, by the numbers of their tokens."""
        return self.bench.keys(instance, which, scope)

    def tokens(self, ask: Ask) -> tuple[np.ndarray, list[str]]:
        """Return the tokens of a problem, float [T, D], and what each is to the question."""
        one = self.bench.pairs(ask.instance, ask.which, ask.target, 1)
        names, role = self.bench.task.roles(one)
        return one.bases.inputs[0].cpu().numpy(), [names[r] for r in role[0].tolist()]

    def map(self, ask: Ask) -> ProblemMap:
        """Return on which codes a problem hangs, and keep it; the source is the one written.

        Where none is written whose answer is another, it is the minimal pair.
        """
        from latentcode.probes.attribution import attribute_problem
        from latentcode.probes.attribution.steps import SOURCES

        source = ask.patch.named if ask.of_source and ask.patch.named in SOURCES else "interchange"
        asked = ask.instance, ask.which, ask.target, source
        with self._lock:
            if asked not in self._maps:
                if len(self._maps) >= KEPT:
                    self._maps.pop(next(iter(self._maps)))
                self._maps[asked] = attribute_problem(
                    self.bench.model, self.bench.task, self.bench.pairs(*asked[:3])[:1], source)
            return self._maps[asked]

    def _measuring(self) -> AbstractContextManager[object]:
        """Say, the first time, that mean codes are measured."""
        measured = "references" in vars(self.bench)
        return nullcontext() if measured else st.spinner("Measuring mean codes …")

    def telling(self, instance: int, which: int) -> str:
        """Return a target whose flip would show: one that the model solves, if there is one.

        Of these the one whose answer is farthest from the right one, or the first.
        """
        with self._lock:
            targets = self.bench.targets(instance, which)
            answers = self.bench.answers(instance, which)
            solved = self.bench.solved(instance, which)
        right = answers[self.bench.constituents(instance)[which]]
        offered = [name for name in solved or targets if answers.get(name, right) != right]
        if self.bench.task.symbolic or not offered:
            return (offered or list(solved or targets))[0]
        return max(offered, key=lambda name: abs(answers[name] - right))


def drawn(entry: Entry, split: str, instance: int) -> str:
    """Return a problem as HTML, for which its model need not be there yet."""
    task, batch = _problems(entry, split, _enough(instance))
    html: str = task.render(batch, instance, "html")
    return html


def open_bench(entry: Entry, split: str, last: int) -> OpenBench:
    """Return the bench of an entry, with at least the problems up to number `last`."""
    return _bench(entry, split, _enough(last))


def _enough(last: int) -> int:
    return DRAWN * (last // DRAWN + 1)


@st.cache_resource(max_entries=6, show_spinner="Loading PyTorch and the problems …",
                   hash_funcs=loaded.UNTIL_TRAINED)
def _problems(entry: Entry, split: str, n: int) -> tuple[Any, Batch]:
    """Return the task that the explorer shows, and its first n instances."""
    from latentcode.codes.instances import instances

    task = loaded.task_shown(entry, split)
    return task, instances(task, split, range(n))


def given_pairs(entry: Entry, split: str) -> TextCounterfactuals | None:
    """Return what makes the minimal pair of an instance where nobody chooses its constituents."""
    from latentcode.tasks.text.counterfactuals import TextCounterfactuals

    pairs = _pairs(entry, split)
    return pairs if isinstance(pairs, TextCounterfactuals) else None


@st.cache_resource(max_entries=6, show_spinner=False, hash_funcs=loaded.UNTIL_TRAINED)
def _pairs(entry: Entry, split: str) -> Any:
    from latentcode.tasks import make_counterfactuals

    return make_counterfactuals(loaded.task_shown(entry, split), factorial=False)


@st.cache_resource(max_entries=6, show_spinner="Loading the model …",
                   hash_funcs=loaded.UNTIL_TRAINED)
def _bench(entry: Entry, split: str, n: int) -> OpenBench:
    from latentcode.probes.interventions.bench.bench import Bench

    task, batch = _problems(entry, split, n)
    run = loaded.open_run(entry.path)
    # A model of its own: other pages hook theirs.
    model = run.load_model(loaded.newest_step(run))
    return OpenBench(Bench(model, _pairs(entry, split), batch), task,
                     f"{entry.key}-{split}")
