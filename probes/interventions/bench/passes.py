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
from latentcode.probes.interventions.patch import Added, Patches, edits_of
from latentcode.probes.interventions.problem import Problem
from latentcode.probes.interventions.sites import Edit, Place, capture, run_patched
from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import MinimalPairs

Sources = Mapping[str, Mapping[Place, Tensor]]
"""Name of a batch of `MinimalPairs` -> place -> its activations."""


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
    clean, patched  logits of the rows before and after
    before, after   place -> codes of the instances before and after what was asked for
    exact    whether own codes, put back, leave all logits as they are, bit for bit
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
    exact: bool


@dataclass(frozen=True)
class Group:
    """Rows into which the same patch is put.

    rows     int64 [n], whose they are of the N instances
    sources  of the rows
    """

    patch: Added
    rows: Tensor
    sources: Sources
    generator: torch.Generator


def passes(
    bench: Instances, asked: Sequence[Ask], pairs: Sequence[MinimalPairs], draws: int
) -> Passes:
    """Patch several instances in one pass and, in another, `draws` times for every control.

    asked  alike but for instance and target
    pairs  the minimal pairs of each, at least one, and at least `draws`
    """
    ask, n = asked[0], len(asked)
    one = MinimalPairs.cat([drawn[:1] for drawn in pairs])
    _check_measured(bench, ask, one)
    generators = [bench.generator("noise", a.instance, a.which, a.target) for a in asked]
    # Unrelated instances are drawn first: the generators then go on with noise.
    unrelated = [bench.unrelated(a.instance, generator, draws)
                 for a, generator in zip(asked, generators, strict=True)] if draws else []
    every = torch.arange(n, device=bench.device)
    answered, sources = _sources(bench, asked, one)
    whole = ask.patch
    own = any(part.kind.own for part in whole.parts)
    # What a function of a user's draws hangs on its instance alone.
    mine = ([Group(whole, every, sources, generators[0])] if not own else [
        Group(whole, every[i:i + 1], _of(sources, slice(i, i + 1)),
              bench.generator("patch", a.instance, a.which, a.target))
        for i, a in enumerate(asked)])
    back = Group(with_value(whole, "identity", all_parts=True), every, sources, generators[0])
    # Instances of one pass are compared: the last digits depend on how many are computed.
    twice = torch.cat([every, every])
    clean, before = capture(bench.model, one.bases.inputs[twice], bench.places)
    patched, after = together(bench, ask, one, [*mine, back])
    owner, names, numbers = [every], [ask.named] * n, [0] * n
    results = [patched[:n]]
    if draws:
        drawn = every.repeat_interleave(draws)
        same = Batch.cat([drawn_pairs[:draws].control for drawn_pairs in pairs])
        places = sorted({*whole.places})
        _, found = capture(bench.model, torch.cat([
            same.inputs, Batch.cat(unrelated).inputs]), places)
        half = n * draws
        held = _of(sources, drawn)
        groups = [
            Group(with_value(whole, name), drawn,
                  {**held, name: {place: x[start:start + half] for place, x in found.items()}},
                  generators[0])
            for name, start in (("control", 0), ("unrelated", half))]
        groups += [Group(with_value(whole, "random"), every[i:i + 1].expand(draws),
                         _of(sources, every[i:i + 1].expand(draws)), generator)
                   for i, generator in enumerate(generators)]
        results.append(together(bench, ask, one, groups)[0])
        owner += [drawn] * 3
        names += [name for name in ("control", "unrelated", "random") for _ in range(half)]
        numbers += list(range(draws)) * (3 * n)
    results.append(patched[n:])
    rows = torch.cat([*owner, every])
    logits = torch.cat(results)
    check(bool(logits.isfinite().all()), f"{ask.patch} gives logits that are not finite",
          ProbeError)
    return Passes(
        one, (*names, *["identity"] * n), (*numbers, *[0] * n), rows, answered, clean[rows],
        logits, {place: x[:n] for place, x in before.items()},
        {place: x[:n] for place, x in after.items()}, torch.equal(clean[n:], patched[n:]))


def with_value(patch: Added, value: str, *, all_parts: bool = False) -> Added:
    """Return a patch that puts something else at the same places.

    What parts hold that keep the base's own stays, unless all parts are meant.
    """
    # Own codes stay as they are, whatever their constraint does to last digits.
    parts = tuple(
        part if part.kind.source == "bases" and not all_parts else replace(
            part, value=value, renormalize=part.renormalize and value != "identity")
        for part in patch.parts)
    return parts[0] if len(parts) == 1 else Patches(parts)


def together(
    bench: Instances, ask: Ask, one: MinimalPairs, groups: Sequence[Group]
) -> tuple[Tensor, dict[Place, Tensor]]:
    """Return the logits of one pass in which groups of rows have patches of their own, and codes.

    groups  rows after rows; all write at the same places
    """
    edits, rows = [], [group.rows for group in groups]
    for group in groups:
        pairs = one[group.rows]
        edits.append(edits_of(group.patch, bench.model, [Problem(
            pairs, group.sources, part.cells(bench.task, pairs), group.generator,
            references=(bench.references_at(ask.measured) if part.kind.needs == "means" else None))
            for part in group.patch.parts]))
    sizes = [len(some) for some in rows]
    after: dict[Place, Tensor] = {}

    def put(place: Place, live: Tensor) -> Tensor:
        written = live if place not in edits[0] else torch.cat([
            _put(of_group, place, part) for of_group, part in zip(
                edits, live.split(sizes), strict=True)])
        if place in bench.places:
            after[place] = written
        return written

    places = sorted({*bench.places, *ask.patch.places})
    return run_patched(bench.model, one.bases.inputs[torch.cat(rows)], {
        place: partial(put, place) for place in places}), after


def _put(edits: Mapping[Place, Edit], place: Place, live: Tensor) -> Tensor:
    return edits[place](live)


def _sources(
    bench: Instances, asked: Sequence[Ask], one: MinimalPairs
) -> tuple[Tensor, Sources]:
    """Return the logits of the sources that are asked about, and the activations of all."""
    ask = asked[0]
    # What is asked about comes first, the base's own where it is put anywhere.
    names = list(dict.fromkeys([ask.source, *(
        part.kind.source for part in ask.patch.parts if part.kind.source)]))
    batches = [bench.rows([a.other for a in asked if a.other is not None])
               if ask.other is not None and name == "sources" else one.batch(name)
               for name in names]
    logits, found = capture(bench.model, torch.cat([batch.inputs for batch in batches]),
                            sorted({*ask.patch.places}))
    n = len(asked)
    return logits[:n], {name: {place: x[n * i:n * (i + 1)] for place, x in found.items()}
                        for i, name in enumerate(names)}


def _of(sources: Sources, rows: Tensor | slice) -> Sources:
    """Return the activations of some instances."""
    return {name: {place: x[rows] for place, x in found.items()}
            for name, found in sources.items()}


def _check_measured(bench: Instances, ask: Ask, one: MinimalPairs) -> None:
    """Raise `ProbeError` for a mean of a constituent that no training instance has."""
    for part in ask.patch.parts:
        for name in part.kind.measured:
            constituent = getattr(one, name)
            known = bench.references_at(ask.measured).count[one.slot, constituent] > 0
            if not bool(known.all()):
                unknown = bench.task.constituents[int(constituent[~known][0])]
                raise ProbeError(f"none of {bench.n_reference} training instances has {unknown}; "
                                 "expected a constituent that is trained on")
