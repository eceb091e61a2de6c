"""A patch on many instances, each with a target of its own: whose answers came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.answers import CLASSES, IN_WORDS
from latentcode.figures.style import Figure
from latentcode.probes.common.bootstrap import mean_and_interval
from latentcode.probes.common.results import with_interval
from latentcode.probes.interventions.bench.ask import ANSWERS, Ask, answer_of
from latentcode.probes.interventions.bench.instances import Instances
from latentcode.probes.interventions.bench.passes import Passes, passes
from latentcode.probes.interventions.patch import Patch
from latentcode.probes.interventions.result import class_figure
from latentcode.probes.interventions.sites import capture
from latentcode.tasks.counterfactuals import MinimalPairs, all_differ

LEFT_OUT: dict[str, str] = {
    "wrong": "that the model answers wrongly",
    "alike": "without a natural source whose answers can be told apart",
    "unsolved": "whose sources the model answers wrongly",
    "own": "whose own codes would be written",
}
"""Which instances do not count, for people."""
N_BOOTSTRAP = 1_000
IN_SHORT = {"control": "same constituents", "unrelated": "other problems",
            "random": "random codes"}
"""The controls in a sentence."""


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
        rows = []
        names = [*self.classes, [*CLASSES][-1]]
        for patch in self.patches:
            block = self.table[self.table["patch"] == patch]
            hits = block["class"].to_numpy()[:, None] == np.array(names)
            means, low, high, n_combinations = mean_and_interval(
                hits.astype(np.float64), block["combination"].to_numpy(), N_BOOTSTRAP, self.seed)
            rows += [{"patch": patch, "class": name, "value": means[i], "low": low[i],
                      "high": high[i], "n": len(block), "n_combinations": n_combinations}
                     for i, name in enumerate(names)]
        return pd.DataFrame(rows)

    def sentence(self) -> str:
        """Does it replicate? One sentence: how often the answer stays, and what it mostly becomes.

        Beside the latter, how often the controls bring the same.
        """
        if not self.n_counted:
            return f"None of {self.n_seen} instances counts."
        rates = {(row["patch"], row["class"]): row
                 for row in self.rates().to_dict(orient="records")}
        what = self.ask.named

        def rate(patch: str, name: str) -> str:
            value, low, high = (100 * rates[patch, name][part] for part in ("value", "low", "high"))
            return f"{value:.0f} %" + ("" if np.isnan(low) else f" [{low:.0f}, {high:.0f}]")

        said = (f"Over {self.n_counted} problems the answer stays the problem's own in "
                f"{rate(what, 'base')}")
        others = [name for name in self.classes if name != "base"]
        name = max(others, key=lambda name: float(rates[what, name]["value"]), default="base")
        meant = IN_WORDS[name]
        if others:
            most = "" if len(others) == 1 else "most often "
            if not self.ask.of_source:
                meant = "the target's answer"
            elif "operands" not in self.ask.source and name == "operation":
                # Its operands are the base's: B(x) is what it answers itself.
                meant = "the source's answer (its operation, or a copy: not told apart)"
            said += f" and {most}becomes {meant}, in {rate(what, name)}"
        controls = [f"{rate(patch, name)} ({text})" for patch, text in IN_SHORT.items()]
        return f"{said}; controls bring the same in {', '.join(controls[:-1])} and {controls[-1]}."

    def notes(self) -> list[str]:
        """Return what a reader of these numbers must know, one sentence each."""
        left = [f"{count} {LEFT_OUT[reason]}"
                for reason, count in self.left_out.items() if count]
        notes = [f"{self.n_counted} of {self.n_seen} instances count"
                 + (f"; left out are {', '.join(left)}." if left else ".")]
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
        cells = [with_interval(row) for row in rates.itertuples()]
        return rates.assign(cell=cells).pivot(index="patch", columns="class", values="cell").loc[
            list(self.patches), list(dict.fromkeys(rates["class"]))].reset_index().rename_axis(
            columns=None)

    def figure(self) -> Figure:
        """Return the classes as stacked bars, a bar per patch."""
        place, rates = self.ask.patch.row(), self.rates().set_index(["patch", "class"])
        return class_figure(pd.DataFrame([
            {**place, "patch": patch, "metric": name, "n": self.n_counted,
             "value": rates["value"].get((patch, name), 0.0)}
            for patch in self.patches for name in CLASSES]))

    def __repr__(self) -> str:
        return "\n".join([f"Replication: {self.ask.patch}", self.sentence(), *self.notes(), "",
                          self.summary().to_string(index=False)])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes())
        title = f"whose answers came out: {self.ask.first.kind.description}"
        figure = self.figure().to_html(title) if self.n_counted else ""
        return (f"<b>{escape(self.sentence())}</b>{notes}{self.summary().to_html(index=False)}"
                f"{figure}")


def replicating(
    bench: Instances, ask: Ask, instances: Sequence[int], batch_size: int
) -> Iterator[Replication]:
    """Yield what `Bench.replicate` knows after each batch of instances."""
    left_out: Counter[str] = Counter(dict.fromkeys(LEFT_OUT, 0))
    frames, exact = [_frame(bench, ask, None)], True
    for start in range(0, len(instances), batch_size):
        numbers = instances[start:start + batch_size]
        found, reasons = chosen(bench, ask, numbers)
        left_out.update(reasons)
        if found:
            done = passes(bench, [replace(ask, instance=number, target=target)
                                  for number, (target, _) in found.items()],
                          [pairs for _, pairs in found.values()], draws=1)
            exact = exact and done.exact
            frames.append(_frame(bench, ask, done, list(found)))
        yield Replication(
            ask=ask, classes=ask.classes, table=pd.concat(frames[1:] or frames),
            n_seen=start + len(numbers), n=len(instances), left_out=dict(left_out),
            least=bench.task.least_difference, exact=exact, seed=bench.seed)


def chosen(
    bench: Instances, ask: Ask, numbers: Sequence[int], worth: Tensor | None = None
) -> tuple[dict[int, tuple[str, MinimalPairs]], list[str]]:
    """Return a target and its pair for each instance that counts, and why the others do not.

    The target is the first, in a random order, whose answers can be told apart and whose source the
    model answers rightly.

    worth  which targets are tried (`offered`), where that is known
    """
    names = bench.task.constituents
    worth = offered(bench, ask, numbers) if worth is None else worth
    waiting: dict[int, list[str]] = {}
    why = dict.fromkeys(numbers, "alike")
    for number, possible in zip(numbers, worth.tolist(), strict=True):
        # "hold" names a stream of random numbers: another name would draw other targets.
        order = torch.randperm(len(names), device=bench.device, generator=bench.generator(
            "hold", number, ask.which, "")).tolist()
        waiting[number] = [names[c] for c in order if possible[c]]
        if ask.other == number:
            waiting[number], why[number] = [], "own"
    found: dict[int, tuple[str, MinimalPairs]] = {}
    while waiting := {number: targets for number, targets in waiting.items() if targets}:
        targets = {number: targets.pop(0) for number, targets in waiting.items()}
        drawn = [bench.pairs(number, ask.which, target)[:1]
                 for number, target in targets.items()]
        one = MinimalPairs.cat(drawn)
        logits, _ = capture(bench.model, torch.cat([
            one.bases.inputs, one.batch(ask.source).inputs]), ())
        own, source = logits.chunk(2)
        known = bench.task.right(one, own, "bases").tolist()
        solved = bench.task.right(one, source, ask.source).tolist()
        told = _told_apart(bench, ask, one).tolist()
        for row, (number, target) in enumerate(targets.items()):
            if not known[row]:
                why[number] = "wrong"
            elif told[row] and not solved[row]:
                why[number] = "unsolved"
            elif told[row]:
                found[number] = target, drawn[row]
            if not known[row] or number in found:
                waiting.pop(number)
    return ({number: found[number] for number in numbers if number in found},
            [why[number] for number in numbers if number not in found])


def offered(bench: Instances, ask: Ask, numbers: Sequence[int]) -> Tensor:
    """Return which targets are worth a try, bool [N, constituent].

    By what hangs on the base and the target alone, and not on which operands a source has.
    """
    batch = bench.rows(list(numbers))
    which = torch.full((len(batch),), ask.which, device=bench.device)
    worth = bench.task.choices(batch, which)
    generator = bench.generator("offered", numbers[0], ask.which, "")
    alone = replace(ask, patch=Patch(
        "interchange" if "operation" in ask.classes else "rest"), other=None)
    for target in range(len(bench.task.constituents)):
        rows = worth[:, target].nonzero()[:, 0]
        if len(rows):
            pairs = bench.task.with_target(
                batch[rows], which[rows], torch.full_like(rows, target), generator)
            worth[rows, target] = _told_apart(bench, alone, pairs)
    return worth


def _told_apart(bench: Instances, ask: Ask, pairs: MinimalPairs) -> Tensor:
    """Return where the answers that can come out tell whose they are, bool [B].

    All are defined and differ, and the task could have drawn the sources: one that is not natural
    may be answered rightly by luck. A mean must have been measured.
    """
    task, answers = bench.task, _candidates(bench, ask, pairs)
    told = answers.isfinite().all(1) & all_differ(answers, task.least_difference)
    if "operation" in ask.classes:
        told = told & pairs.counts
    for batch in (pairs.sources, pairs.batch(ask.source)):
        told = told & task.natural(batch, pairs.slot)
    if ask.measured:
        count = bench.references_at(ask.measured).count
        told = told & (count[pairs.slot, pairs.source_label] > 0)
    return told


def _candidates(bench: Instances, ask: Ask, pairs: MinimalPairs) -> Tensor:
    """Return the answer of each class that can come out, float64 [B, class]."""
    found = pairs.candidates
    if found is None:  # without a factorial: A(x) and B(x)
        both = torch.stack([pairs.base_label, pairs.source_label], 1)
        found = bench.task.answers(pairs).gather(1, both)
    return found[:, [list(ANSWERS).index(name) for name in ask.classes]]


def _frame(
    bench: Instances, ask: Ask, done: Passes | None, numbers: Sequence[int] = ()
) -> pd.DataFrame:
    """Return one row per instance and patch (`Replication.table`); none before there are passes."""
    classes = ask.classes
    columns = ["number", "combination", "base_label", "source_label", "patch", "answer", "class",
               *(ANSWERS[name] for name in classes)]
    if done is None:
        return pd.DataFrame(columns=columns)
    owner, pairs = done.owner.cpu().numpy(), done.pairs
    token = bench.task.answer_token(pairs)[done.owner]
    outputs = bench.task.outputs(token, done.patched).cpu().numpy()
    answers = np.array([answer_of(output) for output in outputs])
    candidates = _candidates(bench, ask, pairs).cpu().numpy()
    distance = np.abs(answers[:, None] - candidates[owner])
    near = distance <= bench.task.least_difference / 2  # at most one: they are told apart
    found = np.where(near.any(1), near.argmax(1), len(classes))
    names = np.array(bench.task.constituents)
    frame = pd.DataFrame({
        "number": np.array(numbers)[owner],
        "combination": pairs.bases.combination.cpu().numpy()[owner],
        "base_label": names[pairs.base_label.cpu().numpy()][owner],
        "source_label": names[pairs.source_label.cpu().numpy()][owner],
        "patch": done.patches, "answer": answers,
        "class": np.array([*classes, [*CLASSES][-1]])[found]})
    for column, name in enumerate(classes):
        frame[ANSWERS[name]] = candidates[owner, column]
    return frame[frame["patch"] != "identity"][columns]
