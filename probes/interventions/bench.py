"""Write other codes into one problem, and see its answer beside those of controls.

`intervene` says what codes cause over thousands of problems; here is one of them to look at, with
a source that is made for a chosen constituent, and its replication over others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.codes.reader import instances
from latentcode.config import TaskConfig
from latentcode.devices import make_generator
from latentcode.errors import ConfigError, ProbeError, UnknownNameError, check, check_count
from latentcode.models.hooks import attention_layers
from latentcode.models.kernels.fused import written_out
from latentcode.models.patched.passes import clean_pass, unshared
from latentcode.models.patched.sites import Place, capture, check_written
from latentcode.probes.interventions import replication
from latentcode.probes.interventions.outcomes import (
    Answers,
    Ask,
    BenchOutcome,
    Cells,
    answer_of,
    is_target,
)
from latentcode.probes.interventions.patch import Added, edits_of, with_value
from latentcode.probes.interventions.patches import (
    PATCHES,
    Frozen,
    Mean,
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
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs
from latentcode.tasks.registry import chosen_pairs

DRAWS = 8
"""How often each control is drawn: one same-rule source or random code more or less says little."""
KEPT = 256
"""Minimal pairs that are kept: what shows an outcome asks for the same ones again."""


@dataclass(frozen=True)
class Group:
    """Rows of a pass into which the same patch is put.

    name     what tables call it
    rows     int64 [n], whose rows they are, by the numbers of the instances that are patched
    sources  what is put, [n, ...] each
    """

    name: str
    patch: Added
    rows: Tensor
    sources: Sources
    generator: torch.Generator


@dataclass(frozen=True)
class Passes:
    """N instances into which the same is put, and with each d draws of every control.

    A row is an instance and a patch: first what was asked for (N), then d sources with the same
    constituents, d unrelated instances and d random codes for each (N d each, those of an instance
    side by side), at last the instances' own codes (N).

    pairs    the N minimal pairs
    source   logits of the sources that are put [N, ...]
    owner    int64 [rows], the instance of each row
    table    `patch` and `draw` of each row
    clean, patched  logits of the rows before and after
    before, after   place -> codes of the instances before and after what was asked for
    exact    whether own codes, put back, leave all logits as they are, bit for bit
    """

    pairs: MinimalPairs
    source: Tensor
    owner: Tensor
    table: pd.DataFrame
    clean: Tensor
    patched: Tensor
    before: Mapping[Place, Tensor]
    after: Mapping[Place, Tensor]
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
        pairs = chosen_pairs(task)
        check(len(batch) > DRAWS, f"there are {len(batch)} instances; expected at least "
              f"{DRAWS + 1}, so that {DRAWS} unrelated ones can be a control", ConfigError)
        check_count("n_reference", n_reference, 2)
        self.model, self.task, self.seed, self.n_reference = model, pairs, seed, n_reference
        self.device = next(model.parameters()).device
        self.batch = batch.to(self.device)
        self.places: tuple[Place, ...] = tuple(("code", i) for i in attention_layers(model))
        check_written(model, self.batch.inputs[:2], self.places)
        self._shared = not unshared(model)
        self._written, self._measured = {"code"}, dict[tuple[str, ...], References]()
        self._pairs: dict[tuple[int, int, str, int], MinimalPairs] = {}

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
        check(isinstance(subject, TaskSubject), "the problems are prompts, whose constituents "
              "nobody can choose; expected a task", ConfigError)
        assert isinstance(subject, TaskSubject)
        model = subject.model()
        batch = instances(subject.task, split, range(n), seed=seed,
                          device=next(model.parameters()).device)
        return cls(model, subject.counterfactuals(factorial=False), batch, seed=seed,
                   n_reference=n_reference)

    # What there is

    def __len__(self) -> int:
        return len(self.batch)

    def rows(self, rows: list[int]) -> Batch:
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
        self._check_which(instance, which)
        choices = self.task.choices(self.rows([instance]), self._numbers(which))[0]
        return tuple(name for name, possible in zip(
            self.task.constituents, choices.tolist(), strict=True) if possible)

    def pairs(self, instance: int, which: int, target: str, n: int = DRAWS) -> MinimalPairs:
        """Return n minimal pairs of one instance, with fresh sources each; `patch` has the
        first."""
        if target not in self.task.constituents:
            raise UnknownNameError("target", target, self.targets(instance, which))
        key = instance, which, target, n
        if key not in self._pairs:
            if len(self._pairs) >= KEPT:
                self._pairs.pop(next(iter(self._pairs)))
            self._pairs[key] = self.task.with_target(
                self.rows([instance] * n), self._numbers(which, n),
                self._numbers(self.task.constituents.index(target), n),
                self.generator("donors", instance, which, target))
        return self._pairs[key]

    def answers(self, instance: int, which: int = 0) -> dict[str, float]:
        """Return what each constituent would answer in place of one of an instance.

        Those that have no defined answer there are left out.
        """
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

        q is the response of an instance's constituent `which`, k a key (None: q itself); the
        constituents are those that training instances have in that place. Centred: minus the mean
        over all training instances.
        """
        pair, measured = self._first_pair(instance, which), self.references
        slot = int(pair.slot)
        overall = self._response_code(measured.overall, pair, key) if centred else 0.0
        return {name: self._response_code(
            {place: means[slot, c] for place, means in measured.means.items()}, pair, key) - overall
            for c, name in enumerate(self.task.constituents) if measured.count[slot, c] > 0}

    def keys(self, instance: int, which: int, scope: str) -> tuple[int, ...]:
        """Return the keys of a scope, by the numbers of their tokens."""
        cells = self.task.scope(scope, self._first_pair(instance, which))[0]  # [Q, K]
        return tuple(cells.any(0).nonzero().flatten().tolist())

    @property
    def references(self) -> References:
        """The mean codes of training instances, by layer, slot and constituent."""
        return self.references_at(("code",))

    def references_at(self, sites: tuple[str, ...]) -> References:
        """Return the mean activations of training instances at some sites of every layer."""
        if sites not in self._measured:
            places = [(site, layer) for site in sites for _, layer in self.places]
            self._measured[sites] = measure(
                self.model, self.task, places, n=self.n_reference, seed=self.seed)
        return self._measured[sites]

    def is_measured(self, sites: tuple[str, ...]) -> bool:
        """Whether the means at some sites are known, which takes a while."""
        return sites in self._measured

    @cached_property
    def _others(self) -> frozenset[str]:
        """The sources of a factorial that the task makes for a chosen target."""
        return frozenset(self._first_pair(0, 0).others)

    @property
    def values(self) -> tuple[str, ...]:
        """The patches that can be put here, by name: those of a source of the minimal pair or of a
        factorial that the task makes, means, and what comes from nothing."""
        return tuple(name for name, kind in PATCHES.items()
                     if kind.source in ("sources", "", *self._others)
                     and not (kind.control or isinstance(kind, Frozen)
                              or (isinstance(kind, Mean) and kind.pooled))
                     and kind.needs in ("", "means") and "third" not in kind.measured
                     and not lacked(kind, self.task.lacks))

    # One instance

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
        passes = self._passes([ask], [self.pairs(ask.instance, ask.which, ask.target, DRAWS)],
                              draws)
        task, pair, source = self.task, passes.pairs, passes.source
        token = task.answer_token(pair)

        def outputs(logits: Tensor) -> np.ndarray:
            return task.outputs(token.expand(len(logits)), logits).cpu().numpy()

        names, before, after = task.constituents, outputs(passes.clean)[0], outputs(passes.patched)
        answers = task.answers(pair)[0].cpu().numpy()
        base, target = int(pair.base_label), int(pair.source_label)
        truth, wanted = float(answers[base]), float(answers[target])
        counts = bool(pair.counts)
        table = passes.table.assign(answer=[answer_of(output) for output in after])
        became = task.outcomes(pair[passes.owner], passes.clean, source.expand_as(passes.patched),
                               passes.patched)
        kept, flipped = (became[name].double().cpu().numpy() for name in ("unchanged", "flip"))
        if task.symbolic:  # the model need not have been right before
            kept = (table["answer"] == answer_of(before)).to_numpy(np.float64)
        if not counts or is_target(answer_of(before), wanted, truth, symbolic=task.symbolic):
            flipped = np.full(len(table), np.nan)
            kept = kept if task.symbolic else flipped
        codes = [self._response_code({place: x[0] for place, x in shown.items()}, pair, ask.key)
                 for shown in (passes.before, passes.after)]
        layer, head = np.indices(codes[0].shape).reshape(2, -1)
        written = np.any([np.isin(layer, part.layers) & ("code" in part.sites)
                          & (part.heads is None or np.isin(head, part.heads))
                          for part in ask.patch.parts], 0)
        candidates = {}
        if pair.candidates is not None and ask.of_source:
            known = replication.candidates_of(self, ask, pair)[0].tolist()
            candidates = dict(zip(ask.classes, known, strict=True))
        return BenchOutcome(
            ask=ask, base_label=names[base], symbolic=task.symbolic, symbols=task.symbols,
            whole=task.whole, truth=truth,
            answers=pd.DataFrame({"constituent": names, "answer": answers, "role": [
                {base: "base", target: "target"}.get(c, "") for c in range(len(names))]}),
            counts=counts, source_answer=answer_of(outputs(source)[0]),
            source_right=counts and bool(task.right(pair, source, ask.source)),
            candidates={} if np.isnan(list(candidates.values())).any() else candidates,
            least=task.least_difference,
            natural=all(bool(task.natural(batch, pair.slot))
                        for batch in (pair.sources, pair.batch(ask.source))),
            before=before, outputs=after, table=table.assign(kept=kept, flipped=flipped),
            codes=pd.DataFrame({"layer": layer, "head": head, "before": codes[0].ravel(),
                                "after": codes[1].ravel(), "written": written}),
            exact=passes.exact)

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
            for site in set(part.sites) - self._written:
                # Does the model go on with what is written there?
                check_written(self.model, self.batch.inputs[:2],
                              [(site, layer) for _, layer in self.places])
                self._written.add(site)
        self._check_which(ask.instance, ask.which)
        if ask.other is not None:
            self.rows([ask.other])
            check(any(part.kind.source == "sources" for part in patch.parts), f"other is "
                  f"{ask.other}, but {ask.named!r} does not put the minimal pair's; expected a "
                  "patch such as 'interchange'")

    # Many instances

    replicate = replication.replicate
    replicating = replication.replicating
    telling = replication.telling

    # Passes

    def _passes(
        self, asks: Sequence[Ask], pairs: Sequence[MinimalPairs], draws: int
    ) -> Passes:
        """Patch several instances in one pass and, in another, `draws` times for every control.

        asks   alike but for instance and target
        pairs  the minimal pairs of each, at least one, and at least `draws`
        """
        ask, patch, n = asks[0], asks[0].patch, len(asks)
        first = MinimalPairs.cat([drawn[:1] for drawn in pairs])
        for constituent in (getattr(first, name) for part in patch.parts
                            for name in part.kind.measured):
            known = self.references_at(ask.measured).count[first.slot, constituent] > 0
            if not bool(known.all()):
                unknown = self.task.constituents[int(constituent[~known][0])]
                raise ProbeError(f"none of {self.n_reference} training instances has {unknown};"
                                 " expected a constituent that is trained on")
        generators = [self.generator("noise", a.instance, a.which, a.target) for a in asks]
        # Unrelated instances are drawn first: the generators then go on with noise.
        unrelated = [self.batch[(a.instance + 1 + torch.randperm(
            len(self) - 1, generator=generator, device=self.device)[:draws]) % len(self)]
            for a, generator in zip(asks, generators, strict=True) if draws]
        every = torch.arange(n, device=self.device)
        source, sources = self._sources(asks, first)

        def sources_of(rows: Tensor, **more: Mapping[Place, Tensor]) -> Sources:
            return {name: {place: x[rows] for place, x in of_batch.items()}
                    for name, of_batch in sources.items()} | more

        groups = [Group(ask.named, patch, every, sources, generators[0])]
        if any(part.kind.own for part in patch.parts):
            # What a function of a user's draws hangs on its instance alone.
            groups = [Group(ask.named, patch, row, sources_of(row), self.generator(
                "patch", a.instance, a.which, a.target))
                for row, a in zip(every.split(1), asks, strict=True)]
        back = Group("identity", with_value(patch, "identity", all_parts=True), every, sources,
                     generators[0])
        clean, patched, before, after = self._together(ask, first, [*groups, back])
        results = [patched[:n], patched[n:]]
        if draws:
            drawn = every.repeat_interleave(draws)
            same = Batch.cat([of_base[:draws].control for of_base in pairs])
            _, activations = capture(self.model, torch.cat([
                same.inputs, Batch.cat(unrelated).inputs]), sorted({*patch.places}))
            controls = [Group(name, with_value(patch, name), drawn, sources_of(drawn, **{
                name: {place: x.chunk(2)[i] for place, x in activations.items()}}), generators[0])
                for i, name in enumerate(("control", "unrelated"))]
            random = with_value(patch, "random")
            controls += [
                Group("random", random, rows, sources_of(rows), generator)
                for rows, generator in zip(drawn.split(draws), generators, strict=True)]
            groups += controls
            results.insert(1, self._together(ask, first, controls)[1])
        owner, logits = torch.cat([group.rows for group in (*groups, back)]), torch.cat(results)
        check(bool(logits.isfinite().all()), f"{ask.patch} gives logits that are not finite",
              ProbeError)
        table = pd.DataFrame({"patch": [group.name for group in (*groups, back)
                                        for _ in range(len(group.rows))]})
        table["draw"] = table.groupby(["patch", owner.cpu().numpy()]).cumcount()
        return Passes(
            first, source, owner, table, clean[owner], logits,
            {place: x[:n] for place, x in before.items()},
            {place: x[:n] for place, x in after.items()}, torch.equal(clean[n:], patched[n:]))

    def _together(
        self, ask: Ask, pairs: MinimalPairs, groups: Sequence[Group]
    ) -> tuple[Tensor, Tensor, dict[Place, Tensor], dict[Place, Tensor]]:
        """Return logits and codes of one pass before and after groups of rows are patched.

        groups  rows after rows; all write at the same places
        """
        references = self.references_at(ask.measured) if ask.measured else References()
        edits = [edits_of(group.patch, self.model, [Problem(
            pairs[group.rows], group.sources, part.cells(self.task, pairs[group.rows]),
            group.generator, references=references) for part in group.patch.parts])
            for group in groups]
        sizes = [len(group.rows) for group in groups]

        def put(place: Place, live: Tensor) -> Tensor:
            written = live if place not in edits[0] else torch.cat([
                of_group[place](part) for of_group, part in zip(
                    edits, live.split(sizes), strict=True)])
            if place in after:
                after[place] = written
            return written

        places = sorted({*self.places, *ask.patch.places})
        inputs = pairs.bases.inputs[torch.cat([group.rows for group in groups])]
        with written_out():
            clean = clean_pass(self.model, inputs, places, shown=True, shared=self._shared)
            before = {place: clean.at(place) for place in self.places}
            after = dict(before)
            patched = clean.patched({place: partial(put, place) for place in places})
        return clean.logits, patched, before, after

    def _sources(
        self, asks: Sequence[Ask], pairs: MinimalPairs
    ) -> tuple[Tensor, Sources]:
        """Return the logits of the sources that are asked about, and the activations of all."""
        ask, n = asks[0], len(asks)
        # What is asked about comes first, the base's own where it is put anywhere.
        names = list(dict.fromkeys([ask.source, *(
            part.kind.source for part in ask.patch.parts if part.kind.source)]))
        batches = [self.rows([a.other for a in asks if a.other is not None])
                   if ask.other is not None and name == "sources" else pairs.batch(name)
                   for name in names]
        logits, activations = capture(self.model, torch.cat([batch.inputs for batch in batches]),
                                      sorted({*ask.patch.places}))
        return logits[:n], {name: {place: x[n * i:n * (i + 1)] for place, x in activations.items()}
                            for i, name in enumerate(names)}

    # Arbitrary codes

    def codes_at(self, instances: Sequence[int], cells: Cells) -> Tensor:
        """Return the codes of some queries and keys of instances, float [B, H, q, k]."""
        self._check_cells(cells)
        place = ("code", cells.layer)
        _, codes = capture(self.model, self.rows([*instances]).inputs, [place])
        return codes[place][:, :, list(cells.queries)][..., list(cells.keys)]

    def written(self, instance: int, cells: Cells, codes: Tensor) -> Answers:
        """Write each of N codes [N, H, q, k] into an instance, one at a time.

        Where an instance has several answers it is that of the query or, if not a single query is
        written or it answers nothing, the one that the first of them moves most.
        """
        self._check_cells(cells)
        shape = [self.model.cfg.n_heads, len(cells.queries), len(cells.keys)]
        check(list(codes.shape[1:]) == shape and len(codes) > 0, f"codes have shape "
              f"{list(codes.shape)}; expected [N, {', '.join(map(str, shape))}], at least one")
        check(bool(codes.isfinite().all()), "codes are not finite; expected finite numbers")
        base = self.rows([instance])
        # The instance as it is has a row of the same pass: last digits depend on how many there
        # are.
        inputs = base.inputs.expand(len(codes) + 1, *base.inputs.shape[1:])
        queries = torch.tensor(cells.queries, device=self.device)[:, None]
        keys = torch.tensor(cells.keys, device=self.device)

        def put(live: Tensor) -> Tensor:
            changed = live.clone()
            changed[1:, :, queries, keys] = codes.to(live)
            return changed

        place = ("code", cells.layer)
        with written_out():
            logits = clean_pass(self.model, inputs, [place], shared=self._shared).patched(
                {place: put})
        task, answers = self.task, []
        for which in range(task.held(base).shape[1]):
            pair = self._first_pair(instance, which)
            token = task.answer_token(pair)
            outputs = task.outputs(token.expand(len(logits)), logits).cpu().numpy()
            answer = Answers(which, float(task.answers(pair)[0, int(pair.base_label)]), outputs[0],
                             outputs[1:], 0.0 if task.symbolic else task.least_difference)
            if (int(token) % self.batch.inputs.shape[1],) == cells.queries:
                return answer
            answers.append(answer)
        return max(answers, key=lambda answer: float(
            np.abs(answer.outputs[0] - answer.before).sum()))

    def _check_cells(self, cells: Cells) -> None:
        """Raise `ConfigError` for a layer without codes, and for tokens that no instance has."""
        layers, n_tokens = [layer for _, layer in self.places], self.batch.inputs.shape[1]
        check(cells.layer in layers, f"layer is {cells.layer}; expected one of {layers}")
        for name, tokens in (("queries", cells.queries), ("keys", cells.keys)):
            check(len(tokens) > 0 and all(token in range(n_tokens) for token in tokens),
                  f"{name} are {tokens}; expected at least one, from 0 to {n_tokens - 1}")

    # Small things

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
        return np.stack([code[:, query, key % n_tokens].float().cpu().numpy()
                         for code in codes.values()])

    def _first_pair(self, instance: int, which: int) -> MinimalPairs:
        """Return an instance, with a source of the first target."""
        return self.pairs(instance, which, self.targets(instance, which)[0], 1)

    def _check_which(self, instance: int, which: int) -> None:
        n_held = self.task.held(self.rows([instance])).shape[1]
        check(which in range(n_held), f"which is {which}; expected 0 to {n_held - 1}, one of the "
              f"{n_held} constituents of an instance")

    def _numbers(self, value: int, n: int = 1) -> Tensor:
        return torch.full((n,), value, device=self.device)

    def generator(self, purpose: str, instance: int, which: int, target: str) -> torch.Generator:
        """Return a generator that depends on these, the split and the seed of the bench."""
        return make_generator(self.seed, f"bench {purpose} {self.batch.split} {instance} {which} "
                              f"{target}", self.device)
