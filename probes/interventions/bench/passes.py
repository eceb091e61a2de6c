"""What a model computes for instances before and after something is put there, and for controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from latentcode.errors import ProbeError, check
from latentcode.probes.interventions.bench.ask import Ask
from latentcode.probes.interventions.bench.instances import Instances
from latentcode.probes.interventions.patch import Patch
from latentcode.probes.interventions.problem import Problem
from latentcode.probes.interventions.sites import Edit, Place, capture, run_patched
from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import MinimalPairs


@dataclass(frozen=True)
class Passes:
    """N instances into which the same is put, and with each d draws of every control.

    A row is an instance and a patch: first what was asked for (N), then d sources with the same
    constituents, d unrelated instances and d random codes for each (N d each, those of an instance
    side by side), at last the instances' own codes (N).

    pairs    the N minimal pairs
    patches  the name of each row's patch
    draws    which of the draws of its control a row is
    owner    int64 [rows], the instance of each row
    source   logits of the sources that are put [N, ...]
    clean, patched  logits of the rows before and after, computed side by side
    before, after   place -> codes of the rows before and after
    """

    pairs: MinimalPairs
    patches: tuple[str, ...]
    draws: tuple[int, ...]
    owner: Tensor
    source: Tensor
    clean: Tensor
    patched: Tensor
    before: Mapping[Place, Tensor]
    after: Mapping[Place, Tensor]

    @property
    def exact(self) -> bool:
        """Whether own codes, put back, leave all logits as they are, bit for bit."""
        n = len(self.pairs)
        return torch.equal(self.clean[-n:], self.patched[-n:])


def passes(
    bench: Instances, asked: Sequence[Ask], pairs: Sequence[MinimalPairs], draws: int
) -> Passes:
    """Patch several instances in one pass, and beside it `draws` times every control.

    asked  alike but for instance and target
    pairs  the minimal pairs of each, at least `draws`
    """
    ask, n = asked[0], len(asked)
    one = MinimalPairs.cat([drawn[:1] for drawn in pairs])
    same = Batch.cat([drawn[:draws].control for drawn in pairs])
    generators = [bench.generator("noise", a.instance, a.which, a.target) for a in asked]
    unrelated = Batch.cat([bench.unrelated(a.instance, generator, draws)
                           for a, generator in zip(asked, generators, strict=True)])
    other = bench.rows([a.instance if a.other is None else a.other for a in asked])
    logits, codes = capture(bench.model, torch.cat([batch.inputs for batch in (
        one.bases, one.batch(ask.source), other, same, unrelated)]), bench.places)
    every = torch.arange(n, device=bench.device)
    drawn = every.repeat_interleave(draws)
    owner = torch.cat([every, drawn, drawn, drawn, every])
    scope = ask.patch.cells(bench.task, one)

    def of(batch: str, start: int, n_rows: int) -> dict[str, dict[Place, Tensor]]:
        return {batch: {place: code[start:start + n_rows] for place, code in codes.items()}}

    def group(
        value: str | Patch, rows: Tensor, sources: dict[str, dict[Place, Tensor]] | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Patch, Problem]:
        patch = value if isinstance(value, Patch) else replace(ask.patch, value=value)
        return patch, Problem(
            one[rows], sources or {}, scope[rows], generator or generators[0],
            references=bench.references if patch.kind.needs == "means" else None)

    controls = ("control", "unrelated", "random")
    kind = ask.patch.kind
    start = n if ask.other is None else 2 * n
    # What a function of a user's draws hangs on its instance alone.
    mine = ([group(ask.patch, every, of(kind.source, start, n))] if not kind.own else
            [group(ask.patch, every[i:i + 1], of(kind.source, start + i, 1),
                   bench.generator("patch", a.instance, a.which, a.target))
             for i, a in enumerate(asked)])
    groups = [
        *mine,
        group("control", drawn, of("control", 3 * n, n * draws)),
        group("unrelated", drawn, of("unrelated", (3 + draws) * n, n * draws)),
        *(group("random", every[i:i + 1].expand(draws), generator=generator)
          for i, generator in enumerate(generators)),
        # Own codes stay as they are, whatever their constraint does to last digits.
        group(replace(ask.patch, value="identity", renormalize=False), every)]
    for name in kind.measured:
        constituent = getattr(one, name)
        known = bench.references.count[one.slot, constituent] > 0
        if not bool(known.all()):
            unknown = bench.task.constituents[int(constituent[~known][0])]
            raise ProbeError(f"none of {bench.n_reference} training instances has {unknown}; "
                             "expected a constituent that is trained on")
    inputs = one.bases.inputs[owner]
    # Instances of one pass are compared: the last digits depend on how many are computed.
    clean, before = capture(bench.model, inputs, bench.places)
    patched, after = together(bench, inputs, groups)
    check(bool(patched.isfinite().all()), f"{ask.patch} gives logits that are not finite",
          ProbeError)
    return Passes(
        one, (ask.patch.named,) * n + tuple(name for name in controls for _ in range(n * draws))
        + ("identity",) * n, (0,) * n + tuple(range(draws)) * (n * len(controls)) + (0,) * n,
        owner, logits[n:2 * n], clean, patched, before, after)


def together(
    bench: Instances, inputs: Tensor, groups: Sequence[tuple[Patch, Problem]]
) -> tuple[Tensor, dict[Place, Tensor]]:
    """Return the logits of one pass in which groups of rows have patches of their own, and codes.

    groups  a patch and its problems, rows after rows of the inputs; all at the same places
    """
    sizes = [len(problem.pairs) for _, problem in groups]
    edits: list[dict[Place, Edit]] = [patch.edits(bench.model, problem)
                                      for patch, problem in groups]
    after: dict[Place, Tensor] = {}

    def put(place: Place, live: Tensor) -> Tensor:
        after[place] = live if place not in edits[0] else torch.cat([
            of_group[place](rows) for of_group, rows in zip(edits, live.split(sizes), strict=True)])
        return after[place]

    return run_patched(bench.model, inputs, {
        place: partial(put, place) for place in bench.places}), after


__all__ = ["Passes", "passes"]
