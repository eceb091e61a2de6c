"""Replicate one patch on many instances, each with a target of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.answers import CLASSES
from latentcode.probes.interventions.bench.ask import ANSWERS, Ask, answer_of
from latentcode.probes.interventions.bench.instances import Instances
from latentcode.probes.interventions.bench.passes import Passes, passes
from latentcode.probes.interventions.bench.replication import LEFT_OUT, Replication
from latentcode.probes.interventions.patch import Patch
from latentcode.probes.interventions.sites import capture
from latentcode.tasks.counterfactuals import MinimalPairs, all_differ


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


__all__ = ["chosen", "offered", "replicating"]
