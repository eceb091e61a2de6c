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
    Answers,
    Ask,
    BenchOutcome,
    Cells,
    Replication,
    answer_text,
)

if TYPE_CHECKING:
    from torch import Tensor

    from latentcode.probes.interventions.bench import Bench
    from latentcode.probes.interventions.patch import Patch
    from latentcode.tasks import Batch
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
PAIR, ROW, CONTEXT = "this pair", "its row", "the context"
CONTROLS = 16
"""Random ones that are written beside what is asked for."""
MOST_AVERAGED = 128
"""Problems over which a mean of many codes is taken."""
POOL = 1_024
"""Problems out of which random ones are drawn."""


@dataclass(frozen=True)
class Opening:
    """A problem that a page can open on, and a target that can tell what arrived.

    quiet  whether its random controls do not bring the operation; else none was found that does
    """

    instance: int
    target: str
    quiet: bool


OPENINGS: dict[tuple[object, ...], Opening] = {}
"""Where pages open, by the weights of a model and the split: as long as the server runs."""


class OpenBench:
    """The bench of a model and a split, for one session at a time: its hooks are the model's.

    kind     what people call a constituent
    name     of the model and the split
    weights  by what the newest weights of the model, and the split, are known
    """

    def __init__(
        self, bench: Bench, task: Any, name: str, weights: tuple[object, ...] = ()
    ) -> None:
        self.bench, self.task, self.name = bench, task, name
        self.weights = weights
        copies = bench.task.symbolic and not bench.task.whole
        self.kind = "place" if copies else str(task.constituent)
        self._lock = Lock()
        self._outcomes: dict[tuple[Ask, int], BenchOutcome] = {}

    @property
    def file(self) -> str:
        """How files begin that are made of it."""
        return self.name.replace("/", "-")

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

    def alone(self) -> AbstractContextManager[object]:
        """Let nobody else run the model meanwhile."""
        return self._lock

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
        if self.weights not in OPENINGS:
            with self._lock:
                OPENINGS[self.weights] = self._found(patch)
        return OPENINGS[self.weights]

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
        opening = OPENINGS.get(self.weights)
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
            one = self.bench.pairs(ask.instance, ask.which, ask.target)[:1]
            for part in ask.patch.parts:
                part.cells(self.bench.task, one)

    def right(self, pairs: MinimalPairs, name: str) -> str:
        """Return the right answer to a problem of a pair, as people write it; "" if unknown."""
        asked = {"bases": "base", "sources": "operation", "operands": "operands",
                 "operation+operands": "answer"}
        classes = list(ANSWERS)
        if name not in asked or pairs.candidates is None:
            return ""
        answer = float(pairs.candidates[0, classes.index(asked[name])])
        if np.isnan(answer):
            return ""
        return answer_text(answer, self.bench.task)

    def pairs(self, ask: Ask) -> MinimalPairs:
        """Return the minimal pair of a problem, with its further sources."""
        with self._lock:
            return self.bench.pairs(ask.instance, ask.which, ask.target)[:1]

    def drawn(self, batch: Batch) -> str:
        """Return a problem as HTML: in small, or whole where that leaves out some of its tokens."""
        small: str = self.task.sketch(batch, 0)
        whole: str = self.task.render(batch, 0, "html")
        return small if small.count(" data-token=") >= batch.inputs.shape[1] else whole


def usual(bench: Bench) -> Patch:
    """Return the patch that the page opens on: at the place that was found to carry the operation.

    Codes of the context in the lower layers or, in softmax attention, values of the context in the
    upper ones; of texts that copy, codes of the query in the
    upper ones. The source has another operation and other operands, which tells the two apart.
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
    return _bench(entry, split, _enough(last))


def _enough(last: int) -> int:
    return DRAWN * (last // DRAWN + 1)


@st.cache_resource(max_entries=6, show_spinner="Loading PyTorch and the problems …",
                   hash_funcs=loaded.UNTIL_TRAINED)
def _problems(entry: Entry, split: str, n: int) -> tuple[Any, Batch]:
    """Return the task that the explorer shows, and its first n instances."""
    from latentcode.codes.reader import instances

    task = loaded.task_shown(entry, split)
    return task, instances(task, split, range(n))


@st.cache_resource(max_entries=6, show_spinner="Loading the model …",
                   hash_funcs=loaded.UNTIL_TRAINED)
def _bench(entry: Entry, split: str, n: int) -> OpenBench:
    task, batch = _problems(entry, split, n)
    return _opened(entry, split, task, batch)


def _opened(entry: Entry, split: str, task: Any, batch: Batch) -> OpenBench:
    from latentcode.probes.interventions.bench import Bench
    from latentcode.runs import Run
    from latentcode.tasks import make_counterfactuals

    run = Run.open(entry.path)
    step = loaded.newest_step(run)
    # A model of its own: other pages hook theirs.
    bench = Bench(run.load_model(step), make_counterfactuals(task, factorial=False), batch)
    return OpenBench(bench, task, f"{entry.key}-{split}", (str(entry.path), run.id, step, split))


def find_opening(entry: Entry, split: str) -> None:
    """Look for the problem that Intervene opens on, for whoever comes to the page later.

    It needs no page and takes nothing out of Streamlit's caches: for a thread in the background.
    """
    from latentcode.codes.reader import instances
    from latentcode.runs import Run
    from latentcode.tasks import make_task

    task = make_task(make_task(Run.open(entry.path).config.task).probe_config)
    open_ = _opened(entry, split, task, instances(task, split, range(DRAWN)))
    open_.opening(usual(open_.bench))


def cells_at(
    open_: OpenBench, instance: int, layer: int, query: int, key: int
) -> dict[str, Cells]:
    """Return the codes of a layer that can be written together, by name."""
    with open_.alone():
        bench = open_.bench
        every = tuple(range(bench.batch.inputs.shape[1]))
        found = {PAIR: Cells(layer, (query,), (key,)), ROW: Cells(layer, (query,), every)}
        context = open_.task.places(bench.rows([instance])).get("context")
        # In a text, what stands at a token has no meaning that texts share.
        if context is not None and open_.kind != "place":
            found[CONTEXT] = Cells(layer, tuple(context[0].tolist()), every)
    return found


def position(open_: OpenBench, instance: int, pair: str) -> tuple[int, int]:
    """Return the query and key of a named pair in a problem."""
    with open_.alone():
        queries, keys = open_.task.positions([pair], open_.bench.rows([instance]))
    return int(queries[0, 0]), int(keys[0, 0])


def mean_code(codes: np.ndarray, selected: np.ndarray) -> Tensor:
    """Return the mean of some codes [N, H] of a pair, and of as many random ones: [1 + n, H, 1, 1].
    """
    import torch

    rng, n = np.random.default_rng(0), int(selected.sum())
    found = np.stack([codes[selected].mean(0), *(
        codes[rng.permutation(len(codes))[:n]].mean(0) for _ in range(CONTROLS))])
    return torch.from_numpy(found)[:, :, None, None]


def mean_codes_at(open_: OpenBench, at: Cells, rows: Sequence[int]) -> Tensor:
    """Return the mean codes of some problems, and of as many random ones: [1 + n, H, q, k].

    rows  numbers of problems; of more than `MOST`, some are drawn
    """
    import torch

    rng = np.random.default_rng(0)
    chosen = rng.permutation(np.asarray(rows))[:MOST_AVERAGED]
    with open_.alone():
        own = open_.bench.codes_at(chosen.tolist(), at).mean(0)
    pool = _pool(open_, at)
    return torch.stack([own, *(pool[torch.from_numpy(
        rng.permutation(len(pool))[:len(chosen)])].mean(0) for _ in range(CONTROLS))])


@st.cache_resource(max_entries=4, show_spinner=False, hash_funcs={
    OpenBench: lambda open_: open_.weights, Cells: repr})
def _pool(open_: OpenBench, at: Cells) -> Tensor:
    """Return the codes of random problems of a split, [N, H, q, k]."""
    drawn = np.random.default_rng(1).permutation(min(len(open_.bench), DRAWN))[:POOL]
    with open_.alone():
        return open_.bench.codes_at(drawn.tolist(), at)


def answers_to(open_: OpenBench, instance: int, at: Cells, codes: Tensor) -> Answers:
    """Return what a model answers to a problem with each of some codes."""
    with open_.alone():
        return open_.bench.written(instance, at, codes)
