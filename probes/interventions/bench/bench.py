"""Take one instance, write other codes into it, and see its answer beside those of controls.

`intervene` says what codes cause over thousands of instances; here is one of them to look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pandas as pd
from torch import Tensor

from latentcode.arguments import as_tuple
from latentcode.errors import ConfigError, check, check_count
from latentcode.probes.interventions.bench.ask import Ask, answer_of, code_at
from latentcode.probes.interventions.bench.instances import DRAWS, Instances
from latentcode.probes.interventions.bench.outcome import BenchOutcome, candidates, is_target
from latentcode.probes.interventions.bench.passes import Passes, passes
from latentcode.probes.interventions.bench.replication import (
    Replication,
    chosen,
    offered,
    replicating,
)
from latentcode.probes.interventions.patch import Added, Patch
from latentcode.probes.interventions.patches import PATCHES, lacked
from latentcode.probes.interventions.sites import Place, capture
from latentcode.progress import Progress
from latentcode.tasks.counterfactuals import MinimalPairs


class Bench(Instances):
    """A model, instances, and what can be written into their codes; see `Instances`."""

    def constituents(self, instance: int) -> tuple[str, ...]:
        """Return the constituents of an instance, in the order in which `which` numbers them."""
        held = self.task.held(self.rows([instance]))[0].tolist()
        return tuple(self.task.constituents[c] for c in held)

    @cached_property
    def _others(self) -> frozenset[str]:
        """The sources of a factorial that the task makes for a chosen target."""
        return frozenset(self._one(0, 0).others)

    @property
    def values(self) -> tuple[str, ...]:
        """The patches that can be put here, by name: those of a source of the minimal pair or of a
        factorial that the task makes, means, and what comes from nothing."""
        return tuple(name for name, kind in PATCHES.items()
                     if kind.source in ("sources", "", *self._others)
                     and not kind.control and not kind.frozen and not kind.pooled
                     and kind.needs in ("", "means") and "third" not in kind.measured
                     and not lacked(kind, self.task.lacks))

    def answers(self, instance: int, which: int = 0) -> dict[str, float]:
        """Return what each constituent would answer in place of one of an instance.

        Those that have no defined answer there are left out.
        """
        answers = self.task.answers(self._one(instance, which))[0].tolist()
        return {name: answer for name, answer in zip(self.task.constituents, answers, strict=True)
                if not np.isnan(answer)}

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

    def patch(
        self, patch: Added, instance: int, target: str, which: int = 0, *, other: int | None = None,
    ) -> BenchOutcome:
        """What does the model answer when a patch is put into one instance?

        patch     what is put where (`lc.Patch`): one of `values` or a function; or several,
                  `a + b`, of which one may hold what the base has (`held`)
        instance, target, which, other  the base and its source (`Ask`)

        Beside it, at the same codes: `DRAWS` sources with the same constituents, as many unrelated
        instances, random codes of equal norm, and the instance's own codes. Raises `ConfigError`
        for what does not fit the task or the model, with the choices; `ProbeError` for a mean of
        something that no training instance has.
        """
        return self.outcome(Ask(patch, instance, target, which, other))

    def outcome(self, ask: Ask, draws: int = DRAWS) -> BenchOutcome:
        """Return what `patch` does of what is asked.

        draws  of every control, at most `DRAWS`; 0: none of them, which takes a tenth of the time
        """
        check(draws in range(DRAWS + 1), f"draws is {draws}; expected 0 to {DRAWS}")
        self.check(ask)
        pairs = self.pairs(ask.instance, ask.which, ask.target, DRAWS)
        return self._outcome(ask, passes(self, [ask], [pairs], draws))

    def replicate(
        self, patch: Added, instances: Sequence[int] | None = None, *, which: int = 0,
        other: int | None = None, batch_size: int = 50, progress: Progress | None = None,
    ) -> Replication:
        """Replicate it: whose answers come out where the same is put into many instances?

        patch      what is put where
        instances  their numbers; default: the first 200
        which, other  see `Ask`
        batch_size  instances at once
        progress   called with (instances looked at, those in all)

        Each instance has its own target: drawn among those whose source is natural, whose answers
        can be told apart, and whose source the model answers rightly. An instance without such a
        target, or that the model itself answers wrongly, does not count (`Replication.left_out`).
        What is put, and the controls `control` and `unrelated`, are those that `patch` has for
        that target (its draw 0). Raises what `patch` raises.
        """
        for outcome in self.replicating(patch, instances, which=which, other=other,
                                        batch_size=batch_size):
            if progress is not None:
                progress(outcome.n_seen, outcome.n)
        return outcome

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
        ask = Ask(patch, numbers[0], "", which, other)
        for number in numbers:
            self.check(replace(ask, instance=number))
        return replicating(self, ask, numbers, batch_size)

    def telling(self, ask: Ask, numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
        """Yield those of some instances, with a target each, whose answer can tell what arrived.

        As those that count in `replicate`: the model answers base and source rightly, the answers
        that can come all differ, and the task could have drawn the source. What is put there has no
        part in it. The instance and target of what is asked do not matter.
        """
        worth = offered(self, ask, numbers)
        for row, number in enumerate(numbers):
            if bool(worth[row].any()):
                found, _ = chosen(self, ask, [number], worth[row:row + 1])
                yield from ((number, target) for target, _ in found.values())

    def _outcome(self, ask: Ask, done: Passes) -> BenchOutcome:
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
        if self.task.symbolic:  # the model need not have been right before
            kept = (rows["answer"] == answer_of(was)).to_numpy(np.float64)
        answer = float(answers[int(one.source_label)])
        told = counts and not is_target(answer_of(was), answer, float(answers[int(one.base_label)]),
                                        symbolic=self.task.symbolic)
        if not told:
            flipped = np.full(len(rows), np.nan)
            kept = kept if self.task.symbolic else flipped
        rows["kept"], rows["flipped"] = kept, flipped
        before, after = (code_at(_first(codes), self.task, one, ask.key)
                         for codes in (done.before, done.after))
        n_layers, n_heads = before.shape
        layer, head = np.divmod(np.arange(n_layers * n_heads), n_heads)
        return BenchOutcome(
            ask=ask, base_label=base_label, symbolic=self.task.symbolic,
            symbols=self.task.symbols, whole=self.task.whole,
            truth=float(answers[int(one.base_label)]),
            answers=pd.DataFrame({"constituent": names, "answer": answers,
                                  "role": [role.get(name, "") for name in names]}),
            counts=counts, source_answer=answer_of(outputs(source)[0]),
            source_right=counts and bool(self.task.right(one, source, ask.source)),
            candidates=candidates(ask, one), least=self.task.least_difference,
            natural=all(bool(self.task.natural(batch, one.slot))
                        for batch in (one.sources, one.batch(ask.source))),
            before=was, outputs=result, table=rows,
            codes=pd.DataFrame({
                "layer": layer, "head": head, "before": before.ravel(), "after": after.ravel(),
                "written": np.any([_covers(part, layer, head) for part in ask.patch.parts], 0)}),
            exact=done.exact)

    def check(self, ask: Ask) -> None:
        """Raise what `patch` raises of what fits neither task nor model, before it is computed."""
        patch = ask.patch
        check(isinstance(patch, Added), f"patch is a {type(patch).__name__}; expected one "
              "lc.Patch, which says what is put where, or several, a + b")
        held = ("held",) if len(patch.parts) > 1 else ()
        for part in patch.parts:
            if isinstance(part.value, str):
                PATCHES.find(part.value, (*self.values, *held))
        # A chosen target has sources of a factorial, which drawn pairs need not have.
        patch.check(self.task, self.model, made=True)
        for part in patch.parts:
            check(part.kind.source in ("", "bases", "sources", *self._others), f"{part.named!r} "
                  "needs a source that this task does not make", ConfigError)
            self.check_sites(part.sites)
        self._check_which(ask.instance, ask.which)
        if ask.other is not None:
            self._check_instance(ask.other)
            check(any(part.kind.source == "sources" for part in patch.parts), f"other is "
                  f"{ask.other}, but {ask.named!r} does not put the minimal pair's; expected a "
                  "patch such as 'interchange'")

    def _one(self, instance: int, which: int) -> MinimalPairs:
        """Return an instance, with a source of the first target."""
        return self.pairs(instance, which, self.targets(instance, which)[0], 1)


def _covers(part: Patch, layer: np.ndarray, head: np.ndarray) -> np.ndarray:
    """Return which codes of layers and heads a patch may write, bool [n]."""
    heads = np.ones(len(head), bool) if part.heads is None else np.isin(head, part.heads)
    return np.isin(layer, part.layers) & heads & ("code" in part.sites)


def _first(codes: Mapping[Place, Tensor]) -> dict[Place, Tensor]:
    """Return the codes [H, Q, K] of the first instance."""
    return {place: code[0] for place, code in codes.items()}


__all__ = ["DRAWS", "Bench"]
