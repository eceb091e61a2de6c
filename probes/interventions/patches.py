"""Values that a patch can write: sources, means, differences, nothing, noise, and their controls.

A value is a function of the activation that is computed in the patched run, of the source's, and of
the problem (`Problem`). Each is a row of `PATCHES`; users add functions with `register_patch`.
Means, and erasers of labels, are measured on training instances first (`measure`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from latentcode.config import LogicConfig
from latentcode.devices import make_generator
from latentcode.errors import ConfigError, ProbeError, as_tuple, called, check, check_choice
from latentcode.models.config import with_kind
from latentcode.models.patched.sites import SITES, Place, capture
from latentcode.models.transformer import HookedTransformer
from latentcode.presets import model_for
from latentcode.progress import Progress
from latentcode.registry import Registry
from latentcode.tasks import make_counterfactuals, make_task
from latentcode.tasks.counterfactuals import OTHERS, Counterfactuals, MinimalPairs

ERASABLE: tuple[str, ...] = ("pair", "pairs", "row")
"""Scopes in which labels can be erased; others have too many positions, each with its eraser."""
NOTHING = torch.zeros(0)
Sources: TypeAlias = Mapping[str, Mapping[Place, Tensor]]
"""Name of a batch of `MinimalPairs` -> place -> its activations [B, ...]."""


@dataclass(frozen=True)
class Erasers:
    """x -> x - P (x - mean): LEACE (Belrose et al. 2023) of codes x at each position of a scope.

    matrices  float [slot, label, position, H, H], the projections P; a single label where a slot
              holds exactly one constituent
    means     float [slot, position, H]
    """

    matrices: Tensor
    means: Tensor

    @classmethod
    def fit(cls, codes: Tensor, slot: Tensor, label: Tensor, task: Counterfactuals) -> Erasers:
        """Fit an eraser per slot, label and position to codes [N, P, H] with labels [N, C]."""
        from concept_erasure import LeaceFitter

        n_positions, n_heads = codes.shape[1:]
        labels = [label] if task.exclusive else list(label[..., None].unbind(1))  # [N, classes]
        matrices = codes.new_zeros(task.n_slots, len(labels), n_positions, n_heads, n_heads,
                                   dtype=torch.float64)
        means = codes.new_zeros(task.n_slots, n_positions, n_heads, dtype=torch.float64)
        for s in range(task.n_slots):
            x = codes[slot == s].double()
            means[s] = x.mean(0)
            for i, every in enumerate(labels):
                z = every[slot == s].double()
                if bool((z == z[:1]).all()):
                    continue  # the label does not occur: there is nothing to erase
                for p in range(n_positions):
                    fitter = LeaceFitter(n_heads, z.shape[1], device=x.device, dtype=torch.float64)
                    eraser = fitter.update(x[:, p], z).eraser
                    matrices[s, i, p] = eraser.proj_left @ eraser.proj_right
        return cls(matrices, means)

    def erase(self, code: Tensor, scope: Tensor, slot: Tensor, label: Tensor) -> Tensor:
        """Return codes [B, H, Q, K] without label [B] in a scope [B, Q, K] of slots [B]."""
        projections = self.matrices[slot, label.clamp_max(self.matrices.shape[1] - 1)]
        last = code.movedim(1, -1).clone()  # [B, Q, K, H]
        x = last[scope].view(len(code), -1, code.shape[1]).to(projections.dtype)
        removed = (projections @ (x - self.means[slot])[..., None])[..., 0]
        last[scope] = (x - removed).flatten(0, 1).to(code.dtype)
        return last.movedim(-1, 1)


@dataclass(frozen=True)
class References:
    """What was measured on training instances.

    count    float [slot, constituent], how many instances have that constituent in that slot
    means    place -> [slot, constituent, ...], their mean activation; zero where there is none
    groups   place -> [slot, constituent, ...], the mean of as many instances drawn at random
    overall  place -> the mean activation of all instances
    erasers  (scope, shuffled) -> place -> `Erasers`
    """

    count: Tensor = NOTHING
    means: Mapping[Place, Tensor] = field(default_factory=dict)
    groups: Mapping[Place, Tensor] = field(default_factory=dict)
    overall: Mapping[Place, Tensor] = field(default_factory=dict)
    erasers: Mapping[tuple[str, bool], Mapping[Place, Erasers]] = field(default_factory=dict)


def measure(
    model: Any, task: Counterfactuals, places: Collection[Place], *,
    erase: Collection[tuple[str, bool]] = (), split: str = "train", n: int = 4_096, seed: int = 0,
    batch_size: int = 256, progress: Progress | None = None,
) -> References:
    """Return means over n instances of a split, and erasers fitted on them.

    erase  (scope, shuffled) of the erasers that are wanted; shuffled ones are fitted to the labels
           of other instances

    The instances are others than those that `intervene_model` writes to, of the same split too;
    of restricted pairs any that the task draws (`Counterfactuals.unrestricted`).
    """
    device = next(model.parameters()).device
    generator = make_generator(seed, f"interventions reference {split}", device)
    shuffling = make_generator(seed, f"interventions groups {split}", device)
    task = task.unrestricted
    count: Any = 0.0
    sums: dict[Place, list[Any]] = {place: [0.0, 0.0, 0.0] for place in places}
    codes: dict[tuple[str, Place], list[Tensor]] = {}
    slots: list[Tensor] = []
    labels: list[Tensor] = []
    for pairs in task.batches(split, n, batch_size, generator):
        member = task.membership(pairs.bases).float()  # [B, slot, constituent]
        others = member[torch.randperm(len(member), generator=shuffling, device=device)]
        count = count + member.sum(0)
        slots.append(pairs.slot)
        labels.append(member[torch.arange(len(pairs), device=device), pairs.slot])
        _, activations = capture(model, pairs.bases.inputs, places)
        for place, x in activations.items():
            for scope in {scope for scope, _ in erase} if place[0] == "code" else ():
                codes.setdefault((scope, place), []).append(
                    x.movedim(1, -1)[task.scope(scope, pairs)].view(len(x), -1, x.shape[1]))
            x = x.to(torch.promote_types(x.dtype, torch.float32))
            more = (torch.einsum("bsc,b...->sc...", member.to(x), x),
                    torch.einsum("bsc,b...->sc...", others.to(x), x), x.sum(0))
            sums[place] = [total + added for total, added in zip(sums[place], more, strict=True)]
        if progress is not None:
            progress(sum(map(len, slots)), n)
    means, groups = (
        {place: totals[i] / count.clamp_min(1.0).view(*count.shape, *[1] * (totals[i].ndim - 2))
         for place, totals in sums.items()} for i in range(2))
    slot, label = torch.cat(slots), torch.cat(labels)
    shuffled_label = label[torch.randperm(len(label), generator=generator, device=device)]
    return References(
        count, means, groups, {place: total / len(label) for place, (*_, total) in sums.items()},
        {(scope, shuffled): {
            place: Erasers.fit(torch.cat(parts), slot, shuffled_label if shuffled else label, task)
            for (of_scope, place), parts in codes.items() if of_scope == scope}
         for scope, shuffled in erase})


@dataclass(frozen=True)
class Problem:
    """B bases that are patched, and what a value can be made of.

    pairs      the bases, their sources and constituents (`MinimalPairs`)
    sources    name of a batch of the pairs -> place -> its activations [B, ...]
    scope      bool [B, Q, K], the codes that are written
    generator  for noise
    place      the site and layer at which something is put
    alpha      how far to steer
    where      the name of the scope, by which erasers are known
    references means over training instances, and erasers; empty where they are not measured
    right      name of a batch -> bool [B], whether the model answers it rightly
    pool       place -> activations of the whole batch, to resample from
    resampled  int64 [B], which of the pool has the source's constituent in the same slot; -1 none
    third      int64 [B], a constituent that neither the base nor its source has, drawn among
               those that were measured in the slot; -1 none
    """

    pairs: MinimalPairs
    sources: Sources
    scope: Tensor = NOTHING
    generator: torch.Generator = torch.default_generator
    place: Place = ("code", 0)
    alpha: float = 1.0
    where: str = ""
    references: References = References()
    right: Mapping[str, Tensor] = field(default_factory=dict)
    pool: Mapping[Place, Tensor] = field(default_factory=dict)
    resampled: Tensor = NOTHING
    third: Tensor = NOTHING

    def constituent(self, name: str) -> Tensor:
        """Return the `base_label`, the `source_label` or the `third` constituent, int64 [B]."""
        constituent: Tensor = getattr(self if name == "third" else self.pairs, name)
        return constituent

    def n_measured(self, name: str) -> Tensor:
        """Return over how many training instances the mean of a constituent is, float [B]."""
        constituent = self.constituent(name)
        count = self.references.count[self.pairs.slot, constituent.clamp_min(0)]
        return count * (constituent >= 0)

    def mean(self, constituent: Tensor) -> Tensor:
        """Return the mean activation of a constituent [B] of each base in its slot, [B, ...]."""
        check(self.place in self.references.means, f"no means are measured at {self.place}; "
              "expected a patch that is registered with lc.register_patch(..., means=True)",
              ProbeError)
        return self.references.means[self.place][self.pairs.slot, constituent]

    def noise(self, x: Tensor) -> Tensor:
        """Return random vectors as long as those of x, which is an activation of the place."""
        axis = SITES[self.place[0]].vector % x.ndim
        noise = torch.randn(x.shape, generator=self.generator, device=x.device, dtype=x.dtype)
        return noise * x.norm(dim=axis, keepdim=True) / noise.norm(dim=axis, keepdim=True)


Value: TypeAlias = Callable[[Tensor, Any, Problem], Tensor]
"""(base, source, problem) -> what is put at a place, of the shape of the base.

base    what is computed there in the patched run, so that what was written in an earlier layer has
        had its effect
source  what the model computes there for the source; None for a patch that comes from none
"""


@dataclass(frozen=True)
class Kind:
    """One way to patch.

    description  one sentence for people
    function  what is put at a place
    source   the batch of `MinimalPairs` that it comes from; "" for what comes from none
    control  whether nothing should come of it
    sites    where it can be put
    needs    beside a source: `means`, `erasers`, `pool`, `another` (instance of the batch) or
             `elsewhere` (another position than the one that differs)
    measured  constituents whose means it takes: `base_label`, `source_label`, `third`
    steers   whether `alpha` says how far it goes
    """

    description: str
    function: Value
    source: str = ""
    control: bool = False
    sites: tuple[str, ...] = tuple(SITES)
    needs: str = ""
    measured: tuple[str, ...] = ()
    steers: bool = False

    def possible(self, problem: Problem) -> Tensor:
        """Return which instances count, bool [B]: not those whose control the model itself answers
        wrongly, or whose constituents were not measured."""
        pairs = problem.pairs
        rows = torch.ones_like(pairs.counts)
        if self.source in ("control", *OTHERS) and self.source in problem.right:
            rows = problem.right[self.source]
        if self.needs == "pool":
            rows = rows & (problem.resampled >= 0)
        if self.needs == "another":
            rows = rows & (len(pairs) > 1)
        for name in self.measured:
            rows = rows & (problem.n_measured(name) > 0)
        return rows


@dataclass(frozen=True)
class Function:
    """A user's function, whose result is checked; `name` is what tables call it."""

    function: Value
    name: str

    def __call__(self, base: Tensor, source: Any, problem: Problem) -> Tensor:
        """Return what the function returns; `ProbeError` unless it can be put at the place.

        It is a tensor of the shape of `base`, finite, and neither `base` nor `source` is changed:
        it is given copies of these.
        """
        patch = f"the patch {self.name!r}"
        at = "site {!r} of layer {}".format(*problem.place)
        copies: list[Any] = [None if x is None else x.clone() for x in (base, source)]
        value = called(f"{patch} at {at}", ProbeError, self.function, *copies, problem)
        returned = (f"a tensor {list(value.shape)}" if isinstance(value, Tensor)
                    else f"a {type(value).__name__}")
        check(isinstance(value, Tensor) and value.shape == base.shape, f"{patch} returned "
              f"{returned} at {at}; expected a tensor {list(base.shape)}, the shape of base",
              ProbeError)
        for name, given, copy in zip(("base", "source"), (base, source), copies, strict=True):
            check(given is None or torch.equal(given, copy), f"{patch} changes {name} in place at "
                  f"{at}; expected a new tensor", ProbeError)
        check(bool(value.isfinite().all()), f"{patch} returned values that are not finite at {at}",
              ProbeError)
        return value


HOW: dict[str, str] = {"set": "a_h becomes v_h", "add": "a_h becomes a_h + v_h",
                       "scale": "a_h becomes a_h v_h"}
"""What the numbers v_h set by hand do to every code of the scope."""


@dataclass(frozen=True)
class ByHand:
    """Numbers v_h that are set by hand, one per head, for every code of the scope (`HOW`)."""

    numbers: tuple[float, ...]
    how: str = "set"

    def __post_init__(self) -> None:
        check_choice("how", self.how, HOW)
        numbers = tuple(map(float, plain(self.numbers)))
        check(bool(np.isfinite(numbers).all()), f"numbers are {self.numbers!r}; expected finite "
              "ones, one per head")
        object.__setattr__(self, "numbers", numbers)

    def __call__(self, base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
        numbers = base.new_tensor(self.numbers)[None, :, None, None]
        if self.how == "set":
            return numbers.expand_as(base)
        return base + numbers if self.how == "add" else base * numbers


def name_of(value: object) -> str:
    """Return what tables call a value, or a function that chooses where."""
    if isinstance(value, ByHand):
        return f"{value.how} " + ",".join(f"{number:g}" for number in value.numbers)
    return str(getattr(value, "__name__", type(value).__name__))


def plain(numbers: Any) -> tuple[Any, ...]:
    """Return one or several numbers, also those of an array or a tensor, as Python's own."""
    return as_tuple((numbers if isinstance(numbers, Tensor) else np.asarray(numbers)).tolist())


def of_source(base: Tensor, source: Tensor, problem: Problem) -> Tensor:
    """Return the source's, whatever is computed at the place."""
    return source


def of_another(base: Tensor, source: Tensor, problem: Problem) -> Tensor:
    """Return the source's of another instance: a cyclic shift of a random order of the batch."""
    order = torch.randperm(len(source), generator=problem.generator, device=base.device)
    other = torch.empty_like(order)
    other[order] = order.roll(1)
    return source[other]


def mean(constituent: str) -> Value:
    """Return the mean over training instances with `base_label`, `source_label` or `third`."""
    return lambda base, source, problem: problem.mean(problem.constituent(constituent))


def mean_of_any(base: Tensor, source: Any, problem: Problem) -> Tensor:
    """Return the mean of a constituent drawn at random among those that were measured."""
    known = problem.references.count[problem.pairs.slot] > 0  # [B, C]
    keys = torch.rand(known.shape, generator=problem.generator, device=known.device)
    return problem.mean(torch.where(known, keys, -1.0).argmax(1))


def mean_of_group(base: Tensor, source: Any, problem: Problem) -> Tensor:
    """Return the mean over as many instances as have the source's constituent."""
    pairs = problem.pairs
    return problem.references.groups[problem.place][pairs.slot, pairs.source_label]


def steered(
    base: Tensor, source: Any, problem: Problem, towards: str = "source_label",
    random: bool = False,
) -> Tensor:
    """Return base + alpha (mean of a constituent - mean of the base's own).

    random   a random direction that is as long
    """
    there, own = (problem.mean(problem.constituent(name)) for name in (towards, "base_label"))
    step = there - own
    return base + problem.alpha * (problem.noise(step) if random else step)


def erased(base: Tensor, source: Any, problem: Problem, shuffled: bool = False) -> Tensor:
    """Return the same without its label (LEACE), or without shuffled labels."""
    erasers = problem.references.erasers[problem.where, shuffled][problem.place]
    return erasers.erase(base, problem.scope, problem.pairs.slot, problem.pairs.base_label)


_mean, _control = partial(Kind, needs="means"), partial(Kind, control=True)
_steer = partial(_mean, steers=True, measured=("base_label", "source_label"))
_erase = partial(Kind, needs="erasers", measured=("base_label",), sites=("code",))

PATCHES: Registry[Kind] = Registry("patch", "lc.register_patch", {
    "interchange": Kind("the minimal pair's: another operation", of_source, "sources"),
    "control": _control("a source's with the same constituents and fresh values", of_source,
                        "control"),
    **{name: Kind(f"a source's with {what}", of_source, name, control=name == "unrelated")
       for name, what in OTHERS.items()},
    "permuted": _control("the base's with its examples' values permuted", of_source, "permuted"),
    "held": _control("the base's own, as in the unpatched pass", of_source, "bases"),
    "elsewhere": _control("the minimal pair's, at another position", of_source, "sources",
                          needs="elsewhere"),
    "shuffled": _control("the source's of another instance", of_another, "sources",
                         needs="another"),
    "resample": Kind("another instance's that has the source's constituent",
                     lambda base, source, problem: problem.pool[problem.place][problem.resampled],
                     needs="pool"),
    "class_mean": _mean("the mean over instances with the source's constituent",
                        mean("source_label"), measured=("source_label",)),
    "class_mean_base": _mean("the mean over instances with the base's own constituent",
                             mean("base_label"), control=True, measured=("base_label",)),
    "class_mean_shuffled": _mean("the mean of a constituent drawn at random", mean_of_any,
                                 control=True),
    "class_mean_third": _mean("the mean over instances with a third constituent", mean("third"),
                              control=True, measured=("third",)),
    "class_mean_group": _mean("the mean over as many instances drawn at random", mean_of_group,
                              control=True, measured=("source_label",)),
    "steer": _steer("plus alpha times the difference of the two means", steered),
    "steer_third": _steer("plus alpha times the difference of a third constituent's mean",
                          partial(steered, towards="third"), control=True,
                          measured=("base_label", "third")),
    "steer_random": _steer("plus a random direction as long as that difference",
                           partial(steered, random=True), control=True),
    "zero_ablation": Kind("zero", lambda base, source, problem: torch.zeros_like(base)),
    "mean_ablation": _mean("the mean over all training instances", lambda base, source, problem: (
        problem.references.overall[problem.place].expand_as(base))),
    "erase": _erase("the same without its label (LEACE)", erased),
    "erase_shuffled": _erase("the same without a shuffled label (LEACE)",
                             partial(erased, shuffled=True), control=True),
    "random": _control("a random one of equal norm",
                       lambda base, source, problem: problem.noise(base)),
    "identity": _control("itself: nothing changes", lambda base, source, problem: base),
})
"""Ways to patch, by name; `register_patch` adds to them."""


def lacked(kind: Kind, lacks: Collection[str]) -> str:
    """Return what of `Counterfactuals.lacking` a patch needs, "" where it can be written."""
    factorial = ("factorial",) if kind.source in OTHERS else ()
    return next((name for name in (kind.needs, kind.source, *factorial) if name in lacks), "")


Registered = TypeVar("Registered", bound=Callable[..., Tensor])


def register_patch(
    name: str,
    *,
    description: str | None = None,
    source: str | None = "interchange",
    control: bool = False,
    means: bool = False,
    sites: Collection[str] | str = ("code", "value", "z", "residual"),
    replace: bool = False,
) -> Callable[[Registered], Registered]:
    """Register a patch under a name: a decorator of its function.

        @lc.register_patch("halfway")
        def halfway(base, source, problem):
            return (base + source) / 2

        lc.intervene(run, interventions=lc.Patch("halfway", where="context", layers=(0, 1)))

    The function (base, source, problem) returns what is put there, of the shape of `base`: codes
    [B, H, Q, K], values or z [B, T, H, d], messages [B, Q, K, H, d], or streams [B, T, D]. `base`
    is what is computed at the place in the patched run, `source` what the model computes there for
    the source (None where the patch has none), `problem` a `Problem`: the pairs, the place,
    `alpha`, a generator for noise.

    description  one sentence; default: the first of the function's docstring
    source    whose activations it is given, and whose answer would come out: `interchange` (the
              minimal pair's), `control`, one of a factorial such as `operation+operands`, or None
    control   nothing should come of it
    means     it asks for means over training problems: `problem.mean(problem.pairs.source_label)`.
              Bases count whose own and whose source's constituents were measured
    sites     where it can be put: some of `code`, `value`, `z`, `message`, `residual`, `mlp_in`,
              `mlp_out`
    replace   take the place of an earlier patch of that name, as when a cell of a notebook runs
              again

    The function is tried on a small model at each site. Raises `ConfigError` where its result is
    not finite or not of the shape of `base`, where it changes its arguments, and for a name that is
    taken.
    """
    PATCHES.check_name(name)
    if source is not None:
        check_choice("source", source, ("interchange", "control", *OTHERS))
    sites = as_tuple(sites)
    check(len(sites) > 0, f"sites of patch {name!r} are empty; expected some of {list(SITES)}")
    for site in sites:
        check_choice("site", site, SITES)

    def register(function: Registered) -> Registered:
        first = (function.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        kind = Kind(
            description or first or f"what {getattr(function, '__name__', name)} returns",
            Function(function, name), "sources" if source == "interchange" else source or "",
            control, sites, *(("means", ("base_label", "source_label")) if means else ()))
        _try(name, kind)
        PATCHES.add(name, kind, replace=replace)
        return function

    return register


def _try(name: str, kind: Kind) -> None:
    """Raise `ConfigError` unless a patch gives finite values at all its sites, in a small model."""
    config = LogicConfig(n_variables=3, n_examples=4)
    task = make_counterfactuals(make_task(config))
    model = HookedTransformer(with_kind(model_for(
        config, n_layers=1, d_model=8, n_heads=3, d_head=2, d_head_v=2, d_mlp=8), "hyla"),
        seed=0).eval()
    places: list[Place] = [(site, 0) for site in kind.sites]
    generator = torch.Generator().manual_seed(0)
    pairs = task.sample("train", 5, generator)
    _, bases = capture(model, pairs.bases.inputs, places)
    sources = capture(model, pairs.batch(kind.source).inputs, places)[1] if kind.source else {}
    references = measure(model, task, places, n=64) if kind.needs else References()
    for place in places:
        problem = Problem(pairs, {kind.source: sources}, task.scope("everything", pairs), generator,
                          place, references=references)
        try:
            kind.function(bases[place], sources.get(place), problem)
        except ProbeError as error:
            raise ConfigError(f"patch {name!r}: {error}") from error
