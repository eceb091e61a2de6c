"""Write other codes into one problem, and see its answer beside those of controls.

`intervene` says what codes cause over thousands of problems; here is one of them to look at, with
a source that is made for a chosen constituent, and its replication over others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.codes.reader import instances
from latentcode.config import TaskConfig
from latentcode.devices import make_generator
from latentcode.errors import (
    ConfigError,
    ProbeError,
    UnknownNameError,
    as_tuple,
    check,
    check_count,
)
from latentcode.models.hooks import attention_layers
from latentcode.models.kernels.fused import written_out
from latentcode.models.patched.passes import clean_pass, unshared
from latentcode.models.patched.sites import Edit, Place, capture, check_written
from latentcode.probes.interventions.outcomes import (
    ANSWERS,
    LEFT_OUT,
    Ask,
    BenchOutcome,
    Replication,
    answer_of,
)
from latentcode.probes.interventions.patch import Added, edits_of, with_value
from latentcode.probes.interventions.patches import (
    PATCHES,
    Problem,
    References,
    Sources,
    lacked,
    measure,
)
from latentcode.runs import Run
from latentcode.subjects import subject as resolve
from latentcode.subjects.tasks import TaskSubject
from latentcode.tasks import Task
from latentcode.tasks.base import Batch
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs, all_differ
from latentcode.tasks.registry import chosen_pairs

DRAWS = 8
"""How often each control is drawn: one same-rule source or random code more or less says little."""
KEPT = 256
"""Minimal pairs that are kept: what shows an outcome asks for the same ones again."""


@dataclass(frozen=True)
class Passes:
    """N instances into which the same is put, and with each d draws of every control.

    pairs    the N minimal pairs
    source   logits of the sources that are put [N, ...]
    before   float [N, n], what is answered before (`Counterfactuals.outputs`)
    outputs  float [rows, n], the same after each row of the table
    table    `patch`, `draw`, `owner` (which of the N) and `answer`: a row per instance, then
             per draw of `control`, `unrelated` and `random` and instance, last per instance with
             its own codes
    codes    of the instances before and after what was asked for: place -> [N, H, Q, K]
    exact    whether own codes, put back, leave all logits as they are, bit for bit
    """

    pairs: MinimalPairs
    source: Tensor
    before: np.ndarray
    outputs: np.ndarray
    table: pd.DataFrame
    codes: tuple[Mapping[Place, Tensor], Mapping[Place, Tensor]]
    exact: bool


class Bench:
    """A model, instances, and what can be written into their codes.

    model  anything with `cfg` and `run_with_hooks`
    task   `make_counterfactuals(make_task(...), factorial=False)`
    batch  the instances, numbered from 0
    seed   of sources and of noise: the same patch gives the same outcome
    n_reference  training instances that `mean` codes are taken of, when they are first asked for

    `ConfigError` for a task that offers no minimal pairs of a chosen constituent, or a model that
    does not go on with the codes that are written.
    """

    def __init__(
        self, model: Any, task: Counterfactuals, batch: Batch, *, seed: int = 0,
        n_reference: int = 1_024,
    ) -> None:
        self.task = chosen_pairs(task)
        check(len(batch) > DRAWS, f"there are {len(batch)} instances; expected at least "
              f"{DRAWS + 1}, so that {DRAWS} unrelated ones can be a control", ConfigError)
        check_count("n_reference", n_reference, 2)
        self.model, self.seed, self.n_reference = model, seed, n_reference
        self.device = next(model.parameters()).device
        self.batch = batch.to(self.device)
        self.places: tuple[Place, ...] = tuple(("code", i) for i in attention_layers(model))
        check_written(model, self.batch.inputs[:2], self.places)
        self._shared = not unshared(model)
        self._written = {"code"}
        self.measured: dict[tuple[str, ...], References] = {}
        self._pairs = lru_cache(KEPT)(self._with_target)

    @classmethod
    def of_run(
        cls, run: Run | str | Path, problems: Task | TaskConfig | None = None, *,
        split: str = "ood", n: int = 2_000, n_reference: int = 1_024, step: int | None = None,
        seed: int = 0, device: str | None = None,
    ) -> Self:
        """Return the bench of a trained run; its instances are those of `extract`, by row.

        run       a run, its folder, or the name of a model of the zoo
        problems  the task that the codes were drawn from; default: the run's own
        split     which combinations
        n         instances, from the first
        n_reference  training instances that means are taken over
        step      the checkpoint; default: the newest
        seed      that of the extraction
        device    cpu or cuda; default: cpu
        """
        subject = resolve(run, problems, step=step, device=device)
        if not isinstance(subject, TaskSubject):
            raise ConfigError("the problems are prompts, whose constituents nobody can choose; "
                              "expected a task")
        model = subject.model()
        batch = instances(subject.task, split, range(n), seed=seed,
                          device=next(model.parameters()).device)
        return cls(model, subject.counterfactuals(factorial=False), batch, seed=seed,
                   n_reference=n_reference)

    # The instances

    def __len__(self) -> int:
        return len(self.batch)

    def rows(self, rows: Sequence[int]) -> Batch:
        """Return instances by their numbers."""
        for row in set(rows):
            check(row in range(len(self)), f"instance is {row}; expected 0 to {len(self) - 1}")
        return self.batch[torch.tensor(rows, device=self.device)]

    def constituents(self, instance: int) -> tuple[str, ...]:
        """Return the constituents of an instance, in the order in which `which` numbers them."""
        held = self.task.held(self.rows([instance]))[0].tolist()
        return tuple(self.task.constituents[c] for c in held)

    def targets(self, instance: int, which: int) -> tuple[str, ...]:
        """Return what can stand in place of a constituent of an instance."""
        n_held = len(self.constituents(instance))
        check(which in range(n_held), f"which is {which}; expected 0 to {n_held - 1}, one of the "
              f"{n_held} constituents of an instance")
        choices = self.task.choices(self.rows([instance]), self._numbers(which))[0]
        return tuple(name for name, possible in zip(
            self.task.constituents, choices.tolist(), strict=True) if possible)

    def pairs(self, instance: int, which: int, target: str, n: int = DRAWS) -> MinimalPairs:
        """Return n minimal pairs of an instance, with fresh sources each; `patch` has the first."""
        if target not in self.task.constituents:
            raise UnknownNameError("target", target, self.targets(instance, which))
        return self._pairs(instance, which, target, n)

    def _with_target(self, instance: int, which: int, target: str, n: int) -> MinimalPairs:
        return self.task.with_target(
            self.rows([instance] * n), self._numbers(which, n),
            self._numbers(self.task.constituents.index(target), n),
            self._generator("donors", instance, which, target))

    def answers(self, instance: int, which: int = 0) -> dict[str, float]:
        """Return the defined answers of each constituent in place of one of an instance."""
        answers = self.task.answers(self._first_pair(instance, which))[0].tolist()
        return {name: answer for name, answer in zip(self.task.constituents, answers, strict=True)
                if not np.isnan(answer)}

    def code(self, instance: int, which: int = 0, key: int | None = None) -> np.ndarray:
        """Return the code of the response attending to a key (None: to itself), float [L, H]."""
        pair = self._first_pair(instance, which)
        _, codes = capture(self.model, pair.bases.inputs, self.places)
        return self._response_code({place: x[0] for place, x in codes.items()}, pair, key)

    def mean_codes(
        self, instance: int, which: int = 0, key: int | None = None, *, centred: bool = False
    ) -> dict[str, np.ndarray]:
        """Return mean_i a_i[:, q, k] over training instances i by constituent, float [L, H].

        q is the response of an instance's constituent `which`, k a key (None: q itself). Centred:
        minus the mean over all training instances.
        """
        pair, measured = self._first_pair(instance, which), self.references_at(("code",))
        slot = int(pair.slot)
        overall = self._response_code(measured.overall, pair, key) if centred else 0.0
        return {name: self._response_code(
            {place: means[slot, c] for place, means in measured.means.items()}, pair, key) - overall
            for c, name in enumerate(self.task.constituents) if measured.count[slot, c] > 0}

    def references_at(self, sites: tuple[str, ...]) -> References:
        """Return the mean activations of training instances at some sites of every layer."""
        if sites not in self.measured:
            places = [(site, layer) for site in sites for _, layer in self.places]
            self.measured[sites] = measure(
                self.model, self.task, places, n=self.n_reference, seed=self.seed)
        return self.measured[sites]

    @property
    def values(self) -> tuple[str, ...]:
        """The patches that can be put here, by name: those of a source of the minimal pair or of a
        factorial that the task makes, means, and what comes from nothing."""
        made = ("sources", "", *self._first_pair(0, 0).others)
        return tuple(name for name, kind in PATCHES.items()
                     if kind.source in made and kind.needs in ("", "means")
                     and not kind.control and not lacked(kind, self.task.lacks))

    # One instance

    def patch(
        self, patch: Added, instance: int, target: str, which: int = 0, *, other: int | None = None,
    ) -> BenchOutcome:
        """Return what the model answers when a patch is put into one instance.

        patch     what is put where (`lc.Patch`): one of `values` or a function; or several,
                  `a + b`, of which one may hold what the base has (`held`)
        instance, target, which, other  the base and its source (`Ask`)

        Beside it, at the same codes: `DRAWS` sources with the same constituents, as many unrelated
        instances, random codes of equal norm, and the instance's own codes. `ProbeError` for a mean
        of something that no training instance has.
        """
        return self.outcome(Ask(patch, instance, target, which, other))

    def outcome(self, ask: Ask, draws: int = DRAWS) -> BenchOutcome:
        """Return what `patch` does of what is asked.

        draws  of every control, at most `DRAWS`; 0: none of them, which takes a tenth of the time
        """
        check(draws in range(DRAWS + 1), f"draws is {draws}; expected 0 to {DRAWS}")
        self.check(ask)
        passes = self._passes([ask], [self.pairs(ask.instance, ask.which, ask.target)], draws)
        task, pair = self.task, passes.pairs
        codes = [self._response_code({place: x[0] for place, x in shown.items()}, pair, ask.key)
                 for shown in passes.codes]
        layer, head = np.indices(codes[0].shape).reshape(2, -1)
        counts = bool(pair.counts)
        candidates = dict(zip(ask.classes, self._candidates(ask.classes, pair)[0].tolist(),
                              strict=True)) if ask.of_source else {}
        return BenchOutcome(
            ask=ask, task=task, base_label=task.constituents[int(pair.base_label)],
            answers=dict(zip(task.constituents, task.answers(pair)[0].tolist(), strict=True)),
            counts=counts, source_answer=answer_of(self._outputs(pair, passes.source)[0]),
            source_right=counts and bool(task.right(pair, passes.source, ask.source)),
            candidates={} if np.isnan(list(candidates.values())).any() else candidates,
            natural=all(bool(task.natural(batch, pair.slot))
                        for batch in (pair.sources, pair.batch(ask.source))),
            before=passes.before[0], outputs=passes.outputs,
            table=passes.table.drop(columns="owner"),
            codes=pd.DataFrame({"layer": layer, "head": head, "before": codes[0].ravel(),
                                "after": codes[1].ravel()}),
            exact=passes.exact)

    def check(self, ask: Ask) -> None:
        """Raise what `patch` raises of what fits neither task nor model, before it is computed."""
        patch = ask.patch
        held = ("held",) if len(patch.parts) > 1 else ()
        for part in patch.parts:
            if isinstance(part.value, str):
                PATCHES.find(part.value, (*self.values, *held))
        # A chosen target has sources of a factorial, which drawn pairs need not have.
        patch.check(self.task, self.model, made=True)
        for site in {site for site, _ in patch.places} - self._written:
            check_written(self.model, self.batch.inputs[:2],
                          [(site, layer) for _, layer in self.places])
            self._written.add(site)
        self.targets(ask.instance, ask.which)
        if ask.other is not None:
            self.rows([ask.other])
            check(any(part.kind.source == "sources" for part in patch.parts), f"other is "
                  f"{ask.other}, but {ask.named!r} does not put the minimal pair's; expected a "
                  "patch such as 'interchange'")

    # Many instances

    def replicate(
        self, patch: Added, instances: Sequence[int] | None = None, *, which: int = 0,
        other: int | None = None, batch_size: int = 50,
    ) -> Replication:
        """Return whose answers come out where the same is put into many instances.

        patch      what is put where
        instances  their numbers; default: the first 200
        which, other  see `Ask`
        batch_size  instances at once

        Each instance has its own target: drawn among those whose source is natural, whose answers
        can be told apart, and whose source the model answers rightly. An instance without such a
        target, or that the model itself answers wrongly, does not count (`Replication.left_out`).
        But for noise, what is put, and the controls, are those of `patch` (its draw 0).
        """
        *_, replication = self.replicating(patch, instances, which=which, other=other,
                                           batch_size=batch_size)
        return replication

    def replicating(
        self, patch: Added, instances: Sequence[int] | None = None, *, which: int = 0,
        other: int | None = None, batch_size: int = 50,
    ) -> Iterator[Replication]:
        """Yield what `replicate` knows after each batch of instances, so that one can stop."""
        numbers = range(min(200, len(self))) if instances is None else as_tuple(instances)
        check(len(numbers) > 0, "instances are empty; expected the number of at least one")
        twice = [number for number, n in Counter(numbers).items() if n > 1]
        check(not twice, f"instances name {twice[:5]} more than once; expected different numbers")
        check_count("batch_size", batch_size)
        self.rows(numbers)
        ask = Ask(patch, numbers[0], "", which, other)
        self.check(ask)
        left_out = Counter(dict.fromkeys(LEFT_OUT, 0))
        names, least = np.array(self.task.constituents), self.task.least_difference
        tables = [pd.DataFrame(columns=[
            "number", "combination", "base_label", "source_label", "patch", "answer", "class",
            *(ANSWERS[name] for name in ask.classes)])]
        exact = True
        for start in range(0, len(numbers), batch_size):
            chosen, reasons = self._chosen(ask, numbers[start:start + batch_size])
            left_out.update(reasons)
            if chosen:
                passes = self._passes([replace(ask, instance=number, target=target)
                                       for number, (target, _) in chosen.items()],
                                      [pairs for _, pairs in chosen.values()], draws=1)
                exact = exact and passes.exact
                table, pairs = passes.table, passes.pairs
                owner, answers = table["owner"].to_numpy(), table["answer"].to_numpy()
                candidates = self._candidates(ask.classes, pairs).cpu().numpy()[owner]
                # At most one is near: they are told apart.
                near = np.abs(answers[:, None] - candidates) <= least / 2
                nearest = np.where(near.any(1), near.argmax(1), len(ask.classes))
                table = table.assign(**{
                    "number": np.array([*chosen])[owner],
                    "combination": pairs.bases.combination.cpu().numpy()[owner],
                    "base_label": names[pairs.base_label.cpu().numpy()][owner],
                    "source_label": names[pairs.source_label.cpu().numpy()][owner],
                    "class": np.array([*ask.classes, "else"])[nearest],
                    **{ANSWERS[name]: candidates[:, i] for i, name in enumerate(ask.classes)}})
                tables.append(table.loc[table["patch"] != "identity", list(tables[0])])
            yield Replication(
                ask=ask, classes=ask.classes, table=pd.concat(tables[1:] or tables),
                n_seen=min(start + batch_size, len(numbers)), n=len(numbers),
                left_out=dict(left_out), least=least, exact=exact, seed=self.seed)

    def telling(self, ask: Ask, numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
        """Yield those of some instances that count in `replicate`, with a target each.

        What is put there has no part in it, nor do the instance and target of what is asked.
        """
        for number in numbers:
            chosen, _ = self._chosen(ask, [number])
            yield from ((number, target) for target, _ in chosen.values())

    def _chosen(
        self, ask: Ask, numbers: Sequence[int]
    ) -> tuple[dict[int, tuple[str, MinimalPairs]], list[str]]:
        """Return a target and its pair for each instance that counts, and why the others do not.

        The target is the first, in a random order, whose answers can be told apart and whose source
        the model answers rightly.
        """
        why = {number: "own" if ask.other == number else "alike" for number in numbers}
        offered = self._offered(ask, numbers)
        waiting = {number: self._told_apart(ask, number, targets)
                   for number, targets in zip(numbers, offered, strict=True)
                   if ask.other != number}
        chosen: dict[int, tuple[str, MinimalPairs]] = {}
        while tried := {number: target for number, targets in waiting.items()
                        if (target := next(targets, None)) is not None}:
            pairs = MinimalPairs.cat([pair for _, pair in tried.values()])
            logits, _ = capture(self.model, torch.cat([
                pairs.bases.inputs, pairs.batch(ask.source).inputs]), ())
            own, source = logits.chunk(2)
            right = self.task.right(pairs, own, "bases").tolist()
            solved = self.task.right(pairs, source, ask.source).tolist()
            for row, number in enumerate(tried):
                why[number] = "unsolved" if right[row] else "wrong"
                if right[row] and solved[row]:
                    chosen[number] = tried[number]
            waiting = {number: waiting[number] for number in tried
                       if why[number] == "unsolved" and number not in chosen}
        return ({number: chosen[number] for number in numbers if number in chosen},
                [why[number] for number in numbers if number not in chosen])

    def _offered(self, ask: Ask, numbers: Sequence[int]) -> list[list[bool]]:
        """Return which constituents are worth a try as targets of some instances, one draw each.

        Most fall at once, by their answers on the operands of the base.
        """
        task, batch = self.task, self.rows(numbers)
        offered = task.choices(batch, self._numbers(ask.which, len(numbers)))  # [N, constituent]
        row, target = offered.nonzero().unbind(1)
        pairs = task.with_target(batch[row], self._numbers(ask.which, len(row)), target,
                                 self._generator("offered", numbers[0], ask.which, ""))
        offered[row, target] = self._apart(
            [name for name in ask.classes if name in ("base", "operation")], pairs)
        return [list(map(bool, possible)) for possible in offered.tolist()]

    def _told_apart(
        self, ask: Ask, number: int, offered: Sequence[bool]
    ) -> Iterator[tuple[str, MinimalPairs]]:
        """Yield the targets of an instance, in a random order, whose answers tell what arrived.

        Those that the task could have drawn, and whose mean was measured where it is put.
        """
        # "hold" names a stream of random numbers: another name would draw other targets.
        order = torch.randperm(len(offered), device=self.device,
                               generator=self._generator("hold", number, ask.which, ""))
        for target in (self.task.constituents[c] for c in order.tolist() if offered[c]):
            pair = self.pairs(number, ask.which, target)[:1]
            apart = self._apart(ask.classes, pair)
            apart = apart & self.task.natural(pair.batch(ask.source), pair.slot)
            if ask.measured:
                count = self.references_at(ask.measured).count
                apart = apart & (count[pair.slot, pair.source_label] > 0)
            if bool(apart):
                yield target, pair

    def _apart(self, classes: Sequence[str], pairs: MinimalPairs) -> Tensor:
        """Return where answers of some classes tell whose they are, bool [B].

        All are defined and differ, and the task could have drawn the source: one that is not
        natural may be answered rightly by luck.
        """
        answers = self._candidates(classes, pairs)
        apart = answers.isfinite().all(1) & all_differ(answers, self.task.least_difference)
        if "operation" in classes:
            apart = apart & pairs.counts
        return apart & self.task.natural(pairs.sources, pairs.slot)

    def _candidates(self, classes: Sequence[str], pairs: MinimalPairs) -> Tensor:
        """Return the answer of each class, float64 [B, class]."""
        candidates = pairs.candidates
        if candidates is None:  # without a factorial: A(x) and B(x)
            candidates = torch.stack(self.task.two_answers(pairs), 1)
        return candidates[:, [list(ANSWERS).index(name) for name in classes]]

    # Passes

    def _passes(self, asks: Sequence[Ask], pairs: Sequence[MinimalPairs], draws: int) -> Passes:
        """Patch several instances in one pass and, in another, `draws` times for every control.

        asks   alike but for instance and target
        pairs  the minimal pairs of each, at least one, and at least `draws`
        """
        ask, patch, n = asks[0], asks[0].patch, len(asks)
        first = MinimalPairs.cat([drawn[:1] for drawn in pairs])
        references = self.references_at(ask.measured) if ask.measured else References()
        for name in {name for part in patch.parts for name in part.kind.measured}:
            constituent = getattr(first, name)
            known = references.count[first.slot, constituent] > 0
            if not bool(known.all()):
                unknown = self.task.constituents[int(constituent[~known][0])]
                raise ProbeError(f"none of {self.n_reference} training instances has {unknown}; "
                                 "expected a constituent that is trained on")
        # The batch whose answer is asked about comes first.
        names = list(dict.fromkeys([ask.source, *(
            part.kind.source for part in patch.parts if part.kind.source)]))
        batches = [self.rows([a.other for a in asks if a.other is not None])
                   if ask.other is not None and name == "sources" else first.batch(name)
                   for name in names]
        source, put = capture(self.model, torch.cat([batch.inputs for batch in batches]),
                              sorted({*patch.places}))
        sources = {name: {place: x.chunk(len(names))[i] for place, x in put.items()}
                   for i, name in enumerate(names)}
        generators = [self._generator("noise", a.instance, a.which, a.target) for a in asks]
        if draws:
            # Unrelated instances are drawn first: the generator then goes on with noise.
            unrelated = torch.stack([a.instance + 1 + torch.randperm(
                len(self) - 1, generator=generator, device=self.device)[:draws]
                for a, generator in zip(asks, generators, strict=True)], 1) % len(self)
            same = Batch.cat([of_base[:draws].control for of_base in pairs])
            _, put = capture(self.model, torch.cat([
                same.inputs.unflatten(0, (n, draws)).transpose(0, 1).flatten(0, 1),
                self.batch[unrelated.flatten()].inputs]), sorted({*patch.places}))

        def edits(
            patch: Added, generator: torch.Generator, n_times: int = 1, **more: Any
        ) -> dict[Place, Edit]:
            """Return the edits of the instances, those of the second time after all others."""
            rows = torch.arange(n, device=self.device).repeat(n_times)
            of_rows: Sources = {name: {place: x[rows] for place, x in of_batch.items()}
                                for name, of_batch in sources.items()}
            return edits_of(patch, self.model, [
                Problem(first[rows], {**of_rows, **more}, part.cells(self.task, first[rows]),
                        generator, references=references) for part in patch.parts])

        def keep(place: Place, live: Tensor) -> Tensor:
            after[place] = asked_for[place](live) if place in asked_for else live
            return after[place]

        places = sorted({*self.places, *patch.places})
        with written_out():
            clean = clean_pass(self.model, first.bases.inputs, places, shown=True,
                               shared=self._shared)
            before = {place: clean.at(place) for place in self.places}
            after = dict(before)
            asked_for = edits(patch, self._generator("patch", ask.instance, ask.which, ask.target))
            results = [(ask.named, clean.patched({
                place: partial(keep, place) for place in places}))]
            for i, name in enumerate(("control", "unrelated", "random") if draws else ()):
                more = {} if name == "random" else {
                    name: {place: x.chunk(2)[i] for place, x in put.items()}}
                results.append((name, clean.patched(
                    edits(with_value(patch, name), generators[0], draws, **more), draws)))
            results.append(("identity", clean.patched(edits(
                with_value(patch, "identity", all_parts=True), generators[0]))))
        check(all(bool(logits.isfinite().all()) for _, logits in results),
              f"{patch} gives logits that are not finite", ProbeError)
        outputs = [self._outputs(first, logits) for _, logits in results]
        table = pd.concat([pd.DataFrame({
            "patch": name, "draw": np.arange(len(rows)) // n, "owner": np.arange(len(rows)) % n,
            "answer": [*map(answer_of, rows)]})
            for (name, _), rows in zip(results, outputs, strict=True)], ignore_index=True)
        return Passes(first, source[:n], self._outputs(first, clean.logits),
                      np.concatenate(outputs), table,
                      (before, {place: after[place] for place in self.places}),
                      torch.equal(clean.logits, results[-1][1]))

    # Small things

    def _outputs(self, pairs: MinimalPairs, logits: Tensor) -> np.ndarray:
        """Return the outputs of the response, float64 [rows, n], of the pairs again and again."""
        token = self.task.answer_token(pairs).repeat(len(logits) // len(pairs))
        return self.task.outputs(token, logits).cpu().numpy()

    def _response_code(
        self, codes: Mapping[Place, Tensor], pair: MinimalPairs, key: int | None
    ) -> np.ndarray:
        """Return the code a[:, q, k] of the response q and a key k (None: itself), float [L, H].

        codes  place -> [H, Q, K], a layer after the other
        """
        n_tokens = pair.bases.inputs.shape[1]
        if "pair" in self.task.scopes:
            query, own = self.task.scope("pair", pair)[0].nonzero()[0].tolist()
        else:
            query = own = int(self.task.answer_token(pair)[0]) % n_tokens
        key = own if key is None else key
        check(key in range(-n_tokens, n_tokens), f"key is {key}; expected 0 to {n_tokens - 1}")
        return np.stack([code[:, query, key].float().cpu().numpy() for code in codes.values()])

    def _first_pair(self, instance: int, which: int) -> MinimalPairs:
        """Return an instance, with a source of the first target."""
        return self.pairs(instance, which, self.targets(instance, which)[0], 1)

    def _numbers(self, value: int, n: int = 1) -> Tensor:
        return torch.full((n,), value, device=self.device)

    def _generator(self, purpose: str, instance: int, which: int, target: str) -> torch.Generator:
        """Return a generator that depends on these, the split and the seed of the bench."""
        return make_generator(self.seed, f"bench {purpose} {self.batch.split} {instance} {which} "
                              f"{target}", self.device)
