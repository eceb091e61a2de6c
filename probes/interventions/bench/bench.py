"""Take one instance, write other codes into it, and see its answer beside those of controls.

`intervene` says what codes cause over thousands of instances; here is one of them to look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.arguments import as_tuple
from latentcode.codes.instances import instances
from latentcode.config import TaskConfig
from latentcode.errors import ConfigError, UnknownNameError, check, check_choice, check_count
from latentcode.probes.interventions.bench.cells import code_at
from latentcode.probes.interventions.bench.outcome import (
    HOW,
    WHAT,
    BenchOutcome,
    Patch,
    answer_of,
    candidates,
)
from latentcode.probes.interventions.bench.passes import Passes, passes, where
from latentcode.probes.interventions.bench.replicate import replicating
from latentcode.probes.interventions.bench.replication import Replication
from latentcode.probes.interventions.references import References, measure
from latentcode.probes.interventions.sites import Place, capture, check_written
from latentcode.progress import Progress
from latentcode.runs import Run
from latentcode.seeds import make_generator
from latentcode.subjects import subject
from latentcode.subjects.of_tasks import TaskSubject
from latentcode.tasks import Task
from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import OTHERS, ChosenPairs, Counterfactuals, MinimalPairs

DRAWS = 8
"""How often each control is drawn: one same-rule source or random code more or less says little."""


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
        check(isinstance(task, ChosenPairs), "the bench needs minimal pairs of a chosen "
              "constituent, which this task does not offer; expected counterfactuals that are "
              "ChosenPairs, as those of logic and sraven are", ConfigError)
        assert isinstance(task, ChosenPairs)
        check(len(batch) > DRAWS, f"there are {len(batch)} instances; expected at least "
              f"{DRAWS + 1}, so that {DRAWS} unrelated ones can be a control", ConfigError)
        check_count("n_reference", n_reference, 2)
        self.model, self.task, self.seed, self.n_reference = model, task, seed, n_reference
        self.device = next(model.parameters()).device
        self.batch = batch.to(self.device)
        self.places: tuple[Place, ...] = tuple(("code", i) for i in range(model.cfg.n_layers))
        check_written(model, self.batch.inputs[:2], self.places)

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
        of = subject(run, problems, step=step, device=device)
        check(isinstance(of, TaskSubject), "the problems are prompts, whose constituents nobody "
              "can choose; expected a task", ConfigError)
        assert isinstance(of, TaskSubject)
        model = of.model()
        place = next(model.parameters()).device
        batch = instances(of.task, split, range(n), seed=seed, device=place)
        return cls(model, of.counterfactuals(factorial=False), batch, seed=seed,
                   n_reference=n_reference)

    def __len__(self) -> int:
        return len(self.batch)

    def constituents(self, instance: int) -> tuple[str, ...]:
        """Return the constituents of an instance, in the order in which `which` numbers them."""
        held = self.task.held(self.rows([instance]))[0].tolist()
        return tuple(self.task.constituents[c] for c in held)

    def targets(self, instance: int, which: int) -> tuple[str, ...]:
        """Return what can stand in place of a constituent of an instance."""
        self._check_which(instance, which)
        choices = self.task.choices(self.rows([instance]), self._number(which))[0]
        return tuple(name for name, possible in zip(
            self.task.constituents, choices.tolist(), strict=True) if possible)

    @cached_property
    def what(self) -> tuple[str, ...]:
        """What can be written, those of `WHAT` for which the task makes sources."""
        others = self._one(0, 0).others
        return tuple(name for name in WHAT if name not in OTHERS or name in others)

    def answers(self, instance: int, which: int = 0) -> dict[str, float]:
        """Return what each constituent would answer in place of one of an instance.

        Those that have no defined answer there are left out.
        """
        answers = self.task.answers(self._one(instance, which))[0].tolist()
        return {name: answer for name, answer in zip(self.task.constituents, answers, strict=True)
                if not np.isnan(answer)}

    def solved(self, instance: int, which: int = 0) -> tuple[str, ...]:
        """Return the targets whose source the model answers rightly, and not as the base.

        Codes of other sources need not flip any answer. The sources are those of `patch`.
        """
        targets = self.targets(instance, which)
        pairs = [self.pairs(instance, which, target, DRAWS)[:1] for target in targets]
        logits, _ = capture(self.model, torch.cat([p.sources.inputs for p in pairs]), ())
        return tuple(
            target for row, (target, one) in enumerate(zip(targets, pairs, strict=True))
            if bool(one.counts) and bool(self.task.right(one, logits[row:row + 1], "sources")))

    def pairs(self, instance: int, which: int, target: str, n: int = DRAWS) -> MinimalPairs:
        """Return n minimal pairs of one instance, with fresh sources each; `patch` has the
        first."""
        if target not in self.task.constituents:
            raise UnknownNameError("target", target, self.targets(instance, which))
        wanted = self._number(self.task.constituents.index(target))
        return self.task.with_target(
            self.rows([instance] * n), self._number(which).expand(n), wanted.expand(n),
            self.generator("donors", instance, which, target))

    def code(self, instance: int, which: int = 0, key: int | None = None) -> np.ndarray:
        """Return the code of the response attending to a key (None: to itself), float [L, H]."""
        one = self._one(instance, which)
        _, codes = capture(self.model, one.bases.inputs, self.places)
        return code_at(_first(codes), self.task, one, key)

    def mean_codes(
        self, instance: int, which: int = 0, key: int | None = None, *, centred: bool = False
    ) -> dict[str, np.ndarray]:
        """Return mean_i a_i[:, q, k] over training instances i by constituent, float [L, H].

        q is the response of an instance's constituent `which`, k a key (None: q itself); the
        constituents are those that training instances have in that place. Centred: minus the mean
        over all training instances.
        """
        one, measured = self._one(instance, which), self.references
        slot = int(one.slot)
        overall = code_at(measured.overall, self.task, one, key) if centred else 0.0
        return {name: code_at({place: means[slot, c] for place, means in measured.means.items()},
                              self.task, one, key) - overall
                for c, name in enumerate(self.task.constituents) if measured.count[slot, c] > 0}

    def keys(self, instance: int, which: int, scope: str) -> tuple[int, ...]:
        """Return the keys of a scope, by the numbers of their tokens."""
        of_scope = self.task.scope(scope, self._one(instance, which))[0]  # [Q, K]
        return tuple(of_scope.any(0).nonzero().flatten().tolist())

    def patch(self, patch: Patch) -> BenchOutcome:
        """What does the model answer when other codes are written into an instance?

        Beside it, at the same codes: `DRAWS` sources with the same constituents, as many unrelated
        instances, random codes of equal norm, and the instance's own codes. Raises `ConfigError`
        for what does not fit the task or the model, with the choices; `ProbeError` for a mean of
        something that no training instance has.
        """
        self._check(patch)
        pairs = self.pairs(patch.instance, patch.which, patch.target, DRAWS)
        return self._outcome(patch, passes(self, [patch], [pairs], DRAWS))

    def replicate(
        self, patch: Patch, instances: Sequence[int] | None = None, *, batch_size: int = 50,
        progress: Progress | None = None,
    ) -> Replication:
        """Replicate it: whose answers come out where the same is written into many instances?

        patch      what, scope, layers and heads; its instance and target stand for any
        instances  their numbers; default: the first 200
        batch_size  instances at once
        progress   called with (instances looked at, those in all)

        Each instance has its own target: drawn among those whose source is natural, whose answers
        can be told apart, and whose source the model answers rightly. An instance without such a
        target, or that the model itself answers wrongly, does not count (`Replication.left_out`).
        What is written, and the controls `control` and `unrelated`, are those that `patch` has for
        that target (its draw 0). Raises what `patch` raises.
        """
        for outcome in self.replicating(patch, instances, batch_size=batch_size):
            if progress is not None:
                progress(outcome.n_seen, outcome.n)
        return outcome

    def replicating(
        self, patch: Patch, instances: Sequence[int] | None = None, *, batch_size: int = 50
    ) -> Iterator[Replication]:
        """Yield what `replicate` knows after each batch of instances, so that one can stop."""
        numbers = range(min(200, len(self))) if instances is None else as_tuple(instances)
        check(len(numbers) > 0, "instances are empty; expected the number of at least one")
        twice = [number for number, n in Counter(numbers).items() if n > 1]
        check(not twice, f"instances name {twice[:5]} more than once; expected different numbers")
        check_count("batch_size", batch_size)
        for number in numbers:
            self._check(replace(patch, instance=number))
        return replicating(self, patch, numbers, batch_size)

    @cached_property
    def references(self) -> References:
        """The mean codes of training instances, by layer, slot and constituent."""
        return measure(self.model, self.task, self.places, n=self.n_reference, seed=self.seed)

    def _outcome(self, patch: Patch, done: Passes) -> BenchOutcome:
        """Return what became of the answer."""
        one, source, patched = done.pairs, done.source, done.patched

        token = self.task.answer_token(one)

        def outputs(of: Tensor) -> np.ndarray:
            return self.task.outputs(token.expand(len(of)), of).cpu().numpy()

        names, was, result = self.task.constituents, outputs(done.clean)[0], outputs(patched)
        base_label, target = names[int(one.base_label)], names[int(one.source_label)]
        role = {base_label: "base", target: "target"}
        answers = self.task.answers(one)[0].cpu().numpy()
        counts = bool(one.counts)
        rows = pd.DataFrame({"patch": done.patches, "draw": done.draws,
                             "answer": [answer_of(output) for output in result]})
        became = self.task.outcomes(one[done.owner], done.clean, source.expand_as(patched), patched)
        kept, flipped = (became[name].double().cpu().numpy() for name in ("unchanged", "flip"))
        if not counts:
            kept, flipped = (np.full(len(rows), np.nan) for _ in range(2))
        if self.task.symbolic:  # the model need not have been right before
            kept = (rows["answer"] == answer_of(was)).to_numpy(np.float64)
        rows["kept"], rows["flipped"] = kept, flipped
        before, after = (code_at(_first(codes), self.task, one, patch.key)
                         for codes in (done.before, done.after))
        n_layers, n_heads = before.shape
        heads = range(n_heads) if patch.heads is None else patch.heads
        layer, head = np.divmod(np.arange(n_layers * n_heads), n_heads)
        return BenchOutcome(
            patch=patch, base_label=base_label, symbolic=self.task.symbolic,
            truth=float(answers[int(one.base_label)]),
            answers=pd.DataFrame({"constituent": names, "answer": answers,
                                  "role": [role.get(name, "") for name in names]}),
            counts=counts, source_answer=answer_of(outputs(source)[0]),
            source_right=counts and bool(self.task.right(one, source, patch.source)),
            candidates=candidates(patch, one), least=self.task.least_difference,
            natural=all(bool(self.task.natural(batch, one.slot))
                        for batch in (one.sources, one.batch(patch.source))),
            before=was, outputs=result, table=rows,
            codes=pd.DataFrame({
                "layer": layer, "head": head, "before": before.ravel(), "after": after.ravel(),
                "written": np.isin(layer, patch.layers) & np.isin(head, list(heads))}),
            exact=done.exact)

    def _check(self, patch: Patch) -> None:
        """Raise what `patch` raises, before anything is computed."""
        check_choice("what", patch.what, self.what)
        check_choice("how", patch.how, HOW)
        where(patch).check(self.task, self.model)
        self._check_which(patch.instance, patch.which)
        if patch.what == "instance":
            check(patch.other is not None, "other is None; expected the number of the instance "
                  "whose codes are written")
        if patch.other is not None:
            self._check_instance(patch.other)
        if patch.what == "hand":
            n_heads = self.model.cfg.n_heads
            numbers = patch.numbers or ()
            check(len(numbers) == n_heads and bool(np.isfinite(numbers).all()),
                  f"numbers are {patch.numbers}; expected {n_heads} finite ones, one per head")

    def _check_instance(self, instance: int) -> None:
        check(instance in range(len(self)), f"instance is {instance}; expected 0 to "
              f"{len(self) - 1}")

    def _check_which(self, instance: int, which: int) -> None:
        self._check_instance(instance)
        n_held = self.task.held(self.rows([instance])).shape[1]
        check(which in range(n_held), f"which is {which}; expected 0 to {n_held - 1}, one of the "
              f"{n_held} constituents of an instance")

    def unrelated(self, instance: int, generator: torch.Generator, n: int = DRAWS) -> Batch:
        """Return n other instances, at most `DRAWS`; fewer are the first of more."""
        order = torch.randperm(len(self) - 1, generator=generator, device=self.device)[:n]
        return self.batch[(instance + 1 + order) % len(self)]

    def rows(self, rows: list[int]) -> Batch:
        """Return instances by their numbers."""
        for row in set(rows):
            self._check_instance(row)
        return self.batch[torch.tensor(rows, device=self.device)]

    def _number(self, value: int) -> Tensor:
        return torch.tensor([value], device=self.device)

    def generator(self, purpose: str, instance: int, which: int, target: str) -> torch.Generator:
        """Return a generator that depends on these, the split and the seed of the bench."""
        return make_generator(self.seed, f"bench {purpose} {self.batch.split} {instance} {which} "
                              f"{target}", self.device)

    def _one(self, instance: int, which: int) -> MinimalPairs:
        """Return an instance, with a source of the first target."""
        return self.pairs(instance, which, self.targets(instance, which)[0], 1)


def _first(codes: Mapping[Place, Tensor]) -> dict[Place, Tensor]:
    """Return the codes [H, Q, K] of the first instance."""
    return {place: code[0] for place, code in codes.items()}


__all__ = ["DRAWS", "Bench"]
