"""Replication of a patch over many problems, each with a target of its own.

The first three functions are methods of `Bench`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.errors import as_tuple, check, check_count
from latentcode.figures.style import Figure
from latentcode.metrics import IN_WORDS
from latentcode.models.patched.sites import capture
from latentcode.probes.common.results import with_interval
from latentcode.probes.common.statistics import mean_and_interval
from latentcode.probes.interventions.outcomes import ANSWERS, IN_SHORT, Ask, answer_of
from latentcode.probes.interventions.patch import Added, Patch
from latentcode.probes.interventions.result import class_figure
from latentcode.progress import Progress
from latentcode.tasks.counterfactuals import MinimalPairs, all_differ

LEFT_OUT: dict[str, str] = {
    "wrong": "that the model answers wrongly",
    "alike": "without a natural source whose answers can be told apart",
    "unsolved": "whose sources the model answers wrongly",
    "own": "whose own codes would be written",
}
"""Which instances do not count, for people."""
N_BOOTSTRAP = 1_000


@dataclass(frozen=True, repr=False)
class Replication:
    """What became of the answers of many instances.

    ask       what was put where; its instance and target stand for any
    classes   whose answers can come out of it, those of `CLASSES`; all others are `else`
    table     one row per instance that counts and patch (what was asked for, then one draw of
              `control`, `unrelated` and `random`): `number`, `combination`, `base_label`,
              `source_label`, `patch`, `answer`, `class` and the answer of each class, `A(x)`
              and so on
    n_seen    instances that were looked at so far
    n         instances that were asked for
    left_out  reason (`LEFT_OUT`) -> how many of these do not count
    least     an answer is of a class where it lies within half of it of that class's
    exact     whether their own codes, written back, leave all logits as they are, bit for bit
    seed      of the bench, and of the intervals
    """

    ask: Ask
    classes: tuple[str, ...]
    table: pd.DataFrame
    n_seen: int
    n: int
    left_out: Mapping[str, int]
    least: float
    exact: bool
    seed: int

    @property
    def n_counted(self) -> int:
        """Return how many instances count."""
        return self.n_seen - sum(self.left_out.values())

    @property
    def patches(self) -> tuple[str, ...]:
        """Return what was asked for, then its controls."""
        return (self.ask.named, *IN_SHORT)

    def rates(self) -> pd.DataFrame:
        """How often is an answer of each class? One row per patch and class.

        `patch`, `class`, `value`, its 95 % interval `low`, `high` clustered by combination (NaN for
        a single one), `n`, `n_combinations`. All patches are those of the same instances.
        """
        names = [*self.classes, "else"]
        blocks = []
        for patch in self.patches:
            block = self.table[self.table["patch"] == patch]
            hits = block["class"].to_numpy()[:, None] == np.array(names)
            value, low, high, n_combinations = mean_and_interval(
                hits.astype(np.float64), block["combination"].to_numpy(), N_BOOTSTRAP, self.seed)
            blocks.append(pd.DataFrame({
                "patch": patch, "class": names, "value": value, "low": low, "high": high,
                "n": len(block), "n_combinations": n_combinations}))
        return pd.concat(blocks, ignore_index=True)

    def sentence(self) -> str:
        """Does it replicate? One sentence: how often the answer stays, and what it mostly becomes.

        Beside the latter, how often the controls bring the same.
        """
        if not self.n_counted:
            return f"None of {self.n_seen} instances counts."
        rates = {(row["patch"], row["class"]): row for row in self.rates().to_dict("records")}

        def rate(patch: str, name: str) -> str:
            value, low, high = (100 * rates[patch, name][end] for end in ("value", "low", "high"))
            return f"{value:.0f} %" + ("" if np.isnan(low) else f" [{low:.0f}, {high:.0f}]")

        what = self.ask.named
        sentence = (f"Over {self.n_counted} problems the answer stays the problem's own in "
                    f"{rate(what, 'base')}")
        others = [name for name in self.classes if name != "base"]
        name = max(others, key=lambda name: float(rates[what, name]["value"]), default="base")
        if others:
            most = "" if len(others) == 1 else "most often "
            meant = IN_WORDS[name]
            if not self.ask.of_source:
                meant = "the target's answer"
            elif "operands" not in self.ask.source and name == "operation":
                # Its operands are the base's: B(x) is what it answers itself.
                meant = "the source's answer (its operation, or a copy: not told apart)"
            sentence += f" and {most}becomes {meant}, in {rate(what, name)}"
        *first, last = (f"{rate(patch, name)} ({text})" for patch, text in IN_SHORT.items())
        return f"{sentence}; controls bring the same in {', '.join(first)} and {last}."

    def notes(self) -> list[str]:
        """Return what a reader of these numbers must know, one sentence each."""
        left = ", ".join(f"{count} {LEFT_OUT[reason]}"
                         for reason, count in self.left_out.items() if count)
        notes = [f"{self.n_counted} of {self.n_seen} instances count"
                 + (f"; left out are {left}." if left else ".")]
        n_combinations = self.table["combination"].nunique()
        if n_combinations > 1:
            notes.append(f"In brackets 95 % intervals, clustered by the {n_combinations} "
                         "combinations of the instances.")
        elif self.n_counted:
            notes.append("All instances are of one combination: there is no interval.")
        if self.least:
            notes.append("An answer is of a class where it lies within "
                         f"{self.least / 2:g} of that class's.")
        ask = self.ask
        if ask.of_source and "operation" in ask.classes and "operands" not in ask.source:
            notes.append("The sources have the operands of their bases: operation and answer "
                         "are the same.")
        if not self.exact:
            notes.append("Own codes, written back, change the output: do not trust these numbers.")
        return notes

    def summary(self) -> pd.DataFrame:
        """Return one row per patch, and `value [low, high]` by class."""
        rates = self.rates()
        return rates.assign(cell=[*map(with_interval, rates.itertuples())]).pivot(
            index="patch", columns="class", values="cell").reindex(
            index=list(self.patches), columns=list(rates["class"].unique())).reset_index(
            ).rename_axis(columns=None)

    def figure(self) -> Figure:
        """Return the classes as stacked bars, a bar per patch."""
        place = self.ask.patch.row()
        return class_figure(self.rates().rename(columns={"class": "metric"}).assign(
            **{name: value for name, value in place.items() if name != "patch"}))

    def __repr__(self) -> str:
        return "\n".join([f"Replication: {self.ask.patch}", self.sentence(), *self.notes(), "",
                          self.summary().to_string(index=False)])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes())
        title = f"whose answers came out: {self.ask.first.kind.description}"
        figure = self.figure().to_html(title) if self.n_counted else ""
        return (f"<b>{escape(self.sentence())}</b>{notes}{self.summary().to_html(index=False)}"
                f"{figure}")


def replicate(
    bench: Any, patch: Added, instances: Sequence[int] | None = None, *, which: int = 0,
    other: int | None = None, batch_size: int = 50, progress: Progress | None = None,
) -> Replication:
    """Replicate it: whose answers come out where the same is put into many instances?

    patch      what is put where
    instances  their numbers; default: the first 200
    which, other  see `Ask`
    batch_size  instances at once
    progress   called with (instances looked at, those in all)

    Each instance has its own target: drawn among those whose source is natural, whose answers can
    be told apart, and whose source the model answers rightly. An instance without such a target, or
    that the model itself answers wrongly, does not count (`Replication.left_out`). What is put, and
    the controls `control` and `unrelated`, are those that `Bench.patch` has for that target (its
    draw 0). Raises what `Bench.patch` raises.
    """
    for outcome in replicating(bench, patch, instances, which=which, other=other,
                               batch_size=batch_size):
        if progress is not None:
            progress(outcome.n_seen, outcome.n)
    return outcome


def replicating(
    bench: Any, patch: Added, instances: Sequence[int] | None = None, *, which: int = 0,
    other: int | None = None, batch_size: int = 50,
) -> Iterator[Replication]:
    """Yield what `replicate` knows after each batch of instances, so that one can stop."""
    numbers = range(min(200, len(bench))) if instances is None else as_tuple(instances)
    check(len(numbers) > 0, "instances are empty; expected the number of at least one")
    twice = [number for number, n in Counter(numbers).items() if n > 1]
    check(not twice, f"instances name {twice[:5]} more than once; expected different numbers")
    check_count("batch_size", batch_size)
    ask = Ask(patch, numbers[0], "", which, other)
    for number in numbers:
        bench.check(replace(ask, instance=number))
    left_out: Counter[str] = Counter(dict.fromkeys(LEFT_OUT, 0))
    tables = [pd.DataFrame(columns=[
        "number", "combination", "base_label", "source_label", "patch", "answer", "class",
        *(ANSWERS[name] for name in ask.classes)])]
    exact = True
    for start in range(0, len(numbers), batch_size):
        chosen, reasons = chosen_targets(bench, ask, numbers[start:start + batch_size])
        left_out.update(reasons)
        if chosen:
            passes = bench._passes([replace(ask, instance=number, target=target)
                                   for number, (target, _) in chosen.items()],
                                  [pairs for _, pairs in chosen.values()], draws=1)
            exact = exact and passes.exact
            tables.append(classified(bench, ask, passes, list(chosen))[[*tables[0]]])
        yield Replication(
            ask=ask, classes=ask.classes, table=pd.concat(tables[1:] or tables),
            n_seen=min(start + batch_size, len(numbers)), n=len(numbers),
            left_out=dict(left_out), least=bench.task.least_difference, exact=exact,
            seed=bench.seed)


def classified(bench: Any, ask: Ask, passes: Any, numbers: Sequence[int]) -> pd.DataFrame:
    """Return one row per instance and patch: `Replication.table`."""
    owner, pairs = passes.owner.cpu().numpy(), passes.pairs
    outputs = bench.task.outputs(bench.task.answer_token(pairs)[passes.owner],
                                passes.patched).cpu().numpy()
    answers = np.array([answer_of(output) for output in outputs])
    candidates = candidates_of(bench, ask, pairs).cpu().numpy()[owner]
    # At most one is near: they are told apart.
    near = np.abs(answers[:, None] - candidates) <= bench.task.least_difference / 2
    nearest = np.where(near.any(1), near.argmax(1), len(ask.classes))
    names = np.array(bench.task.constituents)
    table = passes.table.assign(**{
        "number": np.array(numbers)[owner],
        "combination": pairs.bases.combination.cpu().numpy()[owner],
        "base_label": names[pairs.base_label.cpu().numpy()][owner],
        "source_label": names[pairs.source_label.cpu().numpy()][owner],
        "answer": answers, "class": np.array([*ask.classes, "else"])[nearest],
        **{ANSWERS[name]: candidates[:, i] for i, name in enumerate(ask.classes)}})
    return table[table["patch"] != "identity"]


def telling(bench: Any, ask: Ask, numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield those of some instances, with a target each, whose answer can tell what arrived.

    As those that count in `replicate`: the model answers base and source rightly, the answers that
    can come all differ, and the task could have drawn the source. What is put there has no part in
    it. The instance and target of what is asked do not matter.
    """
    offered = offered_targets(bench, ask, numbers)
    for row, number in enumerate(numbers):
        if bool(offered[row].any()):
            chosen, _ = chosen_targets(bench, ask, [number], offered[row:row + 1])
            yield from ((number, target) for target, _ in chosen.values())


def chosen_targets(
    bench: Any, ask: Ask, numbers: Sequence[int], offered: Tensor | None = None
) -> tuple[dict[int, tuple[str, MinimalPairs]], list[str]]:
    """Return a target and its pair for each instance that counts, and why the others do not.

    The target is the first, in a random order, whose answers can be told apart and whose source
    the model answers rightly.

    offered  which targets are tried (`offered_targets`), where that is known
    """
    task, names = bench.task, bench.task.constituents
    offered = offered_targets(bench, ask, numbers) if offered is None else offered
    waiting: dict[int, list[str]] = {}
    why = dict.fromkeys(numbers, "alike")
    for number, possible in zip(numbers, offered.tolist(), strict=True):
        # "hold" names a stream of random numbers: another name would draw other targets.
        order = torch.randperm(len(names), device=bench.device, generator=bench.generator(
            "hold", number, ask.which, "")).tolist()
        waiting[number] = [names[c] for c in order if possible[c]]
        if ask.other == number:
            waiting[number], why[number] = [], "own"
    chosen: dict[int, tuple[str, MinimalPairs]] = {}
    while waiting := {number: targets for number, targets in waiting.items() if targets}:
        targets = {number: targets.pop(0) for number, targets in waiting.items()}
        drawn = [bench.pairs(number, ask.which, target)[:1]
                 for number, target in targets.items()]
        pairs = MinimalPairs.cat(drawn)
        logits, _ = capture(bench.model, torch.cat([
            pairs.bases.inputs, pairs.batch(ask.source).inputs]), ())
        own, source = logits.chunk(2)
        known = task.right(pairs, own, "bases").tolist()
        solved = task.right(pairs, source, ask.source).tolist()
        apart = told_apart(bench, ask, pairs).tolist()
        for row, (number, target) in enumerate(targets.items()):
            if not known[row]:
                why[number] = "wrong"
                waiting.pop(number)
            elif apart[row] and not solved[row]:
                why[number] = "unsolved"
            elif apart[row]:
                chosen[number] = target, drawn[row]
                waiting.pop(number)
    return ({number: chosen[number] for number in numbers if number in chosen},
            [why[number] for number in numbers if number not in chosen])


def offered_targets(bench: Any, ask: Ask, numbers: Sequence[int]) -> Tensor:
    """Return which targets are worth a try, bool [N, constituent].

    By what hangs on the base and the target alone, and not on which operands a source has.
    """
    batch = bench.rows(list(numbers))
    which = torch.full((len(batch),), ask.which, device=bench.device)
    offered = bench.task.choices(batch, which)
    generator = bench.generator("offered", numbers[0], ask.which, "")
    alone = replace(ask, patch=Patch(
        "interchange" if "operation" in ask.classes else "rest"), other=None)
    for target in range(len(bench.task.constituents)):
        rows = offered[:, target].nonzero()[:, 0]
        if len(rows):
            pairs = bench.task.with_target(
                batch[rows], which[rows], torch.full_like(rows, target), generator)
            offered[rows, target] = told_apart(bench, alone, pairs)
    return offered


def told_apart(bench: Any, ask: Ask, pairs: MinimalPairs) -> Tensor:
    """Return where the answers that can come out tell whose they are, bool [B].

    All are defined and differ, and the task could have drawn the sources: one that is not
    natural may be answered rightly by luck. A mean must have been measured.
    """
    task, answers = bench.task, candidates_of(bench, ask, pairs)
    apart = answers.isfinite().all(1) & all_differ(answers, task.least_difference)
    if "operation" in ask.classes:
        apart = apart & pairs.counts
    for batch in (pairs.sources, pairs.batch(ask.source)):
        apart = apart & task.natural(batch, pairs.slot)
    if ask.measured:
        count = bench.references_at(ask.measured).count
        apart = apart & (count[pairs.slot, pairs.source_label] > 0)
    return apart


def candidates_of(bench: Any, ask: Ask, pairs: MinimalPairs) -> Tensor:
    """Return the answer of each class that can come out, float64 [B, class]."""
    candidates = pairs.candidates
    if candidates is None:  # without a factorial: A(x) and B(x)
        both = torch.stack([pairs.base_label, pairs.source_label], 1)
        candidates = bench.task.answers(pairs).gather(1, both)
    return candidates[:, [list(ANSWERS).index(name) for name in ask.classes]]
