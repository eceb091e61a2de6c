"""Linear estimates of what patches would do, at places that are named by the roles of tokens.

The effect of writing a source's activation is estimated as (d step / d a) (a_source - a), and the
same activations are written there. `step` says how far an answer went towards the source's: of
answers that are

    symbols   log p(source's answer) - log p(base's answer), a difference of two logits
    numbers   sign(source's answer - base's answer) times the answer

A place is a layer, a query and a key. Queries and keys are named by their role
(`Counterfactuals.roles`), which says what a token is to the question, and not by their position,
which permutations and slots change. The places of a site are numbered layer by layer, in each of
them by `cells`: of codes role_q R + role_k, of others the role of the token. A place holds all
codes, over heads and over tokens of the same roles; of z (`MAPPED`) each head is a place by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentcode.errors import ConfigError, check, check_choice
from latentcode.metrics import CLASSES
from latentcode.models.patched.passes import CleanPass, clean_pass, computed
from latentcode.models.patched.sites import InScope, Place, Put, gradients
from latentcode.probes.interventions.intervention import clean_batch
from latentcode.tasks.counterfactuals import OTHERS, Counterfactuals, MinimalPairs, control_source

SOURCES: Mapping[str, tuple[str, int]] = {"interchange": ("sources", 1), **{
    name: (name, ("operation" in name) + 2 * ("operands" in name))
    for name in OTHERS if "operation" in name or "operands" in name}}
"""Sources whose answer differs from the base's: their batch of `MinimalPairs`, and which of the
candidates is their answer."""
MAPPED = ("z", "mlp_out", "residual")
"""Sites of which every activation [B, T, ...] is a place: layer, token and, of z, head."""
TOKENS_AT_ONCE = 512
"""Tokens of one pass in which several places are written, each by itself."""


@dataclass(frozen=True)
class Known:
    """B bases that the model answers rightly, and their sources likewise.

    pairs      the bases; `sources` are those that are written from
    own, theirs  float64 [B], the two answers
    role       int64 [B, T], of the tokens
    unpatched  the pass of the bases, which patched ones share
    answered   the logits of the sources
    activations  place -> what the model computes for the sources [B, ...]
    parts      (method, place) -> each head's part of the estimate, slope times (source's - own),
               [B, H, cell]; method `control`: the gradient's for the control's activations
    control    of mapped sites: what the control is
    controls   place -> what the model computes for the controls [B, ...] (`control_source`); NaN
               where a base has none
    """

    pairs: MinimalPairs
    own: Tensor
    theirs: Tensor
    role: Tensor
    unpatched: CleanPass
    answered: Tensor
    activations: Mapping[Place, Tensor]
    parts: Mapping[tuple[str, Place], Tensor]
    control: str
    controls: Mapping[Place, Tensor]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: slice) -> Known:
        return Known(
            self.pairs[index], self.own[index], self.theirs[index], self.role[index],
            self.unpatched[index], self.answered[index],
            {place: x[index] for place, x in self.activations.items()},
            {key: x[index] for key, x in self.parts.items()}, self.control,
            {place: x[index] for place, x in self.controls.items()})

    def estimates(self, method: str, site: str) -> Tensor:
        """Return the estimates of a site, [B, layer, head, cell]."""
        layers = sorted(place for used, place in self.parts if (used, place[0]) == (method, site))
        return torch.stack([self.parts[method, place] for place in layers], 1)


@dataclass(frozen=True)
class Setting:
    """A model, what it is asked, whose activations are written, where, and points on the path.

    shared  whether passes share the layers below what is written
    """

    model: Any
    task: Counterfactuals
    source: str
    places: Collection[Place]
    n_points: int
    shared: bool = True

    def known(self, pairs: MinimalPairs) -> Known | None:
        """Return those of the pairs that count, with their attribution; None where there are none.
        """
        model, task, name = self.model, self.task, SOURCES[self.source][0]
        logits, problem = clean_batch(model, task, pairs, self.places, [name])
        rows = problem.right[name].nonzero()[:, 0]
        if not len(rows):
            return None
        pairs = problem.pairs[rows].with_sources(name)
        sources = {place: x[rows] for place, x in problem.sources[name].items()}
        own, theirs = known_answers(task, pairs, self.source, logits["bases"][rows])
        # Once more, because the last digits depend on which instances are computed together.
        unpatched = clean_pass(model, pairs.bases.inputs, self.places, shared=self.shared)

        def measure(logits: Tensor) -> Tensor:
            return step(task, pairs, own, theirs, logits)

        live, slopes = gradients(model, pairs.bases.inputs, self.places, measure)
        difference = {place: sources[place] - live[place] for place in live}
        parts = {("gradient", place): slopes[place] * difference[place] for place in live}
        mapped = [place for place in live if place[0] in MAPPED]
        control = ""
        controls: dict[Place, Tensor] = {}
        if mapped:
            control, batch, has = control_source(task, pairs)
            _, controls = computed(model, batch.inputs, mapped, task.n_read)
            for x in controls.values():
                x[~has] = torch.nan
            parts |= {("control", place): slopes[place] * (controls[place] - live[place])
                      for place in mapped}
        moved = {site: [place for place in live if place[0] == site]
                 for site, _ in live if site not in MAPPED}
        steps = [(places, {place: (live[place], difference[place]) for place in places})
                 for places in moved.values()]
        if mapped and self.n_points:
            steps.append((mapped, self._embedded(pairs)))
        for places, written in steps:
            for point in (np.arange(self.n_points) + 0.5) / self.n_points:
                _, slopes = gradients(model, pairs.bases.inputs, places, measure, {
                    place: start + float(point) * whole
                    for place, (start, whole) in written.items()})
                for place, slope in slopes.items():
                    part = slope * difference[place] / self.n_points
                    parts["path", place] = parts.get(("path", place), 0.0) + part
        names, role = task.roles(pairs)
        n = len(names)
        return Known(pairs, own, theirs, role, unpatched, logits[name][rows], sources, {
            (method, (site, layer)): by_cell(
                site, part, cells(site, role, n), n * n if site == "code" else n)
            for (method, (site, layer)), part in parts.items()}, control, controls)

    def _embedded(self, pairs: MinimalPairs) -> dict[Place, tuple[Tensor, Tensor]]:
        """Return what enters the first layer, and how far the source's is from it."""
        first: Place = ("residual", 0)
        base, source = (computed(self.model, batch.inputs, [first], self.task.n_read)[1][first]
                        for batch in (pairs.bases, pairs.sources))
        return {first: (base, source - base)}


@dataclass(frozen=True)
class Patched:
    """Instances in batches, into which the sources' activations are written at chosen places."""

    setting: Setting
    batches: Sequence[Known]

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    def every_second(self, first: int) -> Patched:
        """Return the instances number first, first + 2, ... of every batch."""
        halves = [batch[first::2] for batch in self.batches]
        return Patched(self.setting, [half for half in halves if len(half)])

    def combinations(self) -> np.ndarray:
        """Return the combination of each instance, int64 [N]."""
        return np.concatenate([b.pairs.bases.combination.cpu().numpy() for b in self.batches])

    def estimates(self, method: str, site: str) -> np.ndarray:
        """Return the attribution to each place, its heads summed (not those of z), [N, place]."""
        estimates = [b.estimates(method, site) for b in self.batches]
        return np.concatenate([(x if site in MAPPED else x.sum(2)).flatten(1).double().cpu().numpy()
                               for x in estimates])

    def singly(
        self, site: str, places: np.ndarray, advance: Callable[[], None], *, control: bool = False
    ) -> np.ndarray:
        """Return what each of some places of a mapped site does by itself, [N, place, 2].

        places   numbers, in the order of `estimates`
        advance  called after each of them
        control  write the control's activations, not the source's

        The last axis: how far answers go, and whether they become the source's. Several are written
        at once, each in instances of its own; they share the layers below.
        """
        task, effects = self.setting.task, []
        layers = sorted({layer for name, layer in self.setting.places if name == site})
        for known in self.batches:
            values = known.controls if control else known.activations
            numbers = np.unravel_index(places, known.estimates("gradient", site).shape[1:])
            units = list(zip(*(x.tolist() for x in numbers), strict=True))  # layer, head, cell
            order = sorted(range(len(units)), key=units.__getitem__)
            room = max(1, TOKENS_AT_ONCE // known.role.numel())
            result = np.zeros((len(known), len(places), 2))
            clean = known.unpatched.logits
            before = step(task, known.pairs, known.own, known.theirs, clean)
            for start in range(0, len(order), room):
                some = order[start:start + room]
                edits = {}
                for index in sorted({units[i][0] for i in some}):
                    place = (site, layers[index])
                    edits[place] = partial(_at_tokens, values[place], [
                        (number, head if site == "z" else None, known.role == cell)
                        for number, (layer, head, cell) in enumerate(units[i] for i in some)
                        if layer == index], len(some))
                logits = known.unpatched.patched(edits, len(some))
                for i, x in zip(some, logits.view(len(some), len(known), *clean.shape[1:]),
                                strict=True):
                    after = step(task, known.pairs, known.own, known.theirs, x)
                    flipped = task.outcomes(known.pairs, clean, known.answered, x)[
                        rate_of(task, self.setting.source)]
                    result[:, i] = torch.stack([after - before, flipped.double()], 1).cpu().numpy()
                    advance()
            effects.append(result)
        return np.concatenate(effects)

    def written(self, site: str, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Write places (numbers); return how far answers go and which become the source's, [N]."""
        task = self.setting.task
        layers = sorted({layer for name, layer in self.setting.places if name == site})
        steps, flips = [], []
        for known in self.batches:
            names, _ = task.roles(known.pairs)
            chosen = torch.zeros(known.estimates("gradient", site).shape[1::2], dtype=torch.bool,
                                 device=known.role.device)  # [layer, cell]
            chosen.view(-1)[torch.from_numpy(places).to(chosen.device)] = True
            clean, logits = known.unpatched.logits, known.unpatched.patched({
                place: InScope(Put(known.activations[place]), mask,
                               mask[:, 0] if site == "code" else mask[..., 0])
                for place, mask in masks(site, layers, chosen, known.role, len(names)).items()})
            after, before = (step(task, known.pairs, known.own, known.theirs, x)
                             for x in (logits, clean))
            steps.append((after - before).cpu().numpy())
            flips.append(task.outcomes(known.pairs, clean, known.answered, logits)[
                rate_of(task, self.setting.source)].double().cpu().numpy())
        return np.concatenate(steps), np.concatenate(flips)


def _at_tokens(
    value: Tensor, writes: Sequence[tuple[int, int | None, Tensor]], n: int, live: Tensor
) -> Tensor:
    """Put a value [B, T, ...] at the tokens of a mask [B, T], in some of n passes."""
    live = live.clone(memory_format=torch.contiguous_format)
    by_pass = live.view(n, -1, *live.shape[1:])
    for number, head, mask in writes:
        if head is None:
            by_pass[number][mask] = value[mask].to(live.dtype)
        else:
            by_pass[number, :, :, head][mask] = value[:, :, head][mask].to(live.dtype)
    return live


def cells(site: str, role: Tensor, n_roles: int) -> Tensor:
    """Return the cell of each code [B, Q, K], or of each token [B, T], from the roles [B, T]."""
    return role[:, :, None] * n_roles + role[:, None] if site == "code" else role


def by_cell(site: str, x: Tensor, cell: Tensor, n: int) -> Tensor:
    """Return the sums over the codes [B, H, Q, K] or vectors of heads [B, T, H, d] of each cell:
    [B, H, n]; of vectors [B, T, D], which have no heads, H = 1.
    """
    each = (x.flatten(2) if site == "code" else x.sum(-1)[:, None] if x.ndim == 3
            else x.sum(-1).transpose(1, 2))
    index = cell.flatten(1)[:, None].expand_as(each)
    return each.new_zeros(*each.shape[:2], n).scatter_add(2, index, each)


def masks(
    site: str, layers: Sequence[int], chosen: Tensor, role: Tensor, n_roles: int
) -> Mapping[Place, Tensor]:
    """Return where chosen places lie, bool [layer, cell] of some layers: a mask per layer with any.
    """
    cell = cells(site, role, n_roles)
    return {(site, layer): of_layer[cell][:, None] if site == "code"
            else of_layer[cell][..., None, None]
            for layer, of_layer in zip(layers, chosen, strict=True) if bool(of_layer.any())}


def rate_of(task: Counterfactuals, source: str) -> str:
    """Return the outcome that says that an answer is the source's, one of `CLASSES` or `flip`.

    `ConfigError` for a source that the task lacks, or without an answer of its own.
    """
    if source in SOURCES and SOURCES[source][0] in task.lacks:
        raise ConfigError(f"source {source!r} cannot be written: {task.lacks[source]}")
    check_choice("source", source, [name for name in SOURCES if name not in task.lacks]
                 if task.factorial else ("interchange",))
    return list(CLASSES)[SOURCES[source][1]] if task.factorial else "flip"


def known_answers(
    task: Counterfactuals, pairs: MinimalPairs, source: str, clean: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the answers of the bases and of their sources, float64 [B] each.

    Where a base's is not defined, it is what the model says: clean, the logits of the bases.
    `ConfigError` where that of the source is not defined.
    """
    own, theirs = (task.two_answers(pairs) if pairs.candidates is None else
                   (pairs.candidates[:, 0], pairs.candidates[:, SOURCES[source][1]]))
    check(not bool(theirs.isnan().any()), f"what is answered to source {source!r} is the model's "
          f"own affair in these pairs; expected one of {', '.join(SOURCES)}", ConfigError)
    if task.symbolic:
        answer = task.outputs(task.answer_token(pairs), clean).argmax(-1)
        own = torch.where(own.isnan(), answer.to(own.dtype), own)
    return own, theirs


def step(
    task: Counterfactuals, pairs: MinimalPairs, own: Tensor, theirs: Tensor, logits: Tensor
) -> Tensor:
    """Return how far answers went from the bases' (own) to the sources' (theirs): float64 [B].

    In nats where answers are symbols, in the answer's own unit where they are numbers.
    """
    outputs = task.outputs(task.answer_token(pairs), logits)
    if not task.symbolic:
        return (theirs - own).sign() * outputs[:, 0]
    # No probability is so small that its logarithm would be infinite.
    logs = outputs.clamp_min(torch.finfo(outputs.dtype).tiny).log()
    to, since = (logs.gather(1, symbol.long()[:, None])[:, 0] for symbol in (theirs, own))
    return to - since
