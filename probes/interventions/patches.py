"""Values that a patch can write: sources, means, differences, nothing, noise, and their controls.

A value is a function of the activation that is computed in the patched run, of the source's, and of
the problem (`Problem`). Each family of them is a class; users add functions with `register_patch`.
Means, and erasers of labels, are measured on training instances first (`measure`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import Any, ClassVar, TypeAlias, TypeVar

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
    sums: dict[str, dict[Place, Tensor]] = {"means": {}, "groups": {}, "overall": {}}
    count = torch.zeros((), device=device)
    codes: dict[tuple[str, Place], list[Tensor]] = {}
    slots, labels = [], []
    n_drawn = 0
    for pairs in task.batches(split, n, batch_size, generator):
        n_drawn += len(pairs)
        member = task.membership(pairs.bases).float()  # [B, slot, constituent]
        others = member[torch.randperm(len(member), generator=shuffling, device=device)]
        count = count + member.sum(0)
        _, activations = capture(model, pairs.bases.inputs, places)
        for place, x in activations.items():
            x = x.to(torch.promote_types(x.dtype, torch.float32))
            for name, added in (
                    ("means", torch.einsum("bsc,b...->sc...", member.to(x), x)),
                    ("groups", torch.einsum("bsc,b...->sc...", others.to(x), x)),
                    ("overall", x.sum(0))):
                sums[name][place] = sums[name].get(place, 0.0) + added
        for scope in {scope for scope, _ in erase}:
            where = task.scope(scope, pairs)
            for place, x in activations.items():
                if place[0] == "code":
                    codes.setdefault((scope, place), []).append(
                        x.movedim(1, -1)[where].view(len(x), -1, x.shape[1]))
        slots.append(pairs.slot)
        labels.append(member[torch.arange(len(pairs), device=device), pairs.slot])
        if progress is not None:
            progress(n_drawn, n)
    means, groups = (
        {place: total / count.clamp_min(1.0).view(*count.shape, *[1] * (total.ndim - 2))
         for place, total in sums[name].items()} for name in ("means", "groups"))
    slot, label = torch.cat(slots), torch.cat(labels)
    order = torch.randperm(n, generator=generator, device=device)
    return References(
        count, means, groups, {place: x / n_drawn for place, x in sums["overall"].items()},
        {(scope, shuffled): {
            place: Erasers.fit(torch.cat(parts), slot, label[order] if shuffled else label, task)
            for (of_scope, place), parts in codes.items() if of_scope == scope}
         for scope, shuffled in erase})


@dataclass(frozen=True)
class Problem:
    """B bases into which something is put, and whatever it can be made of.

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
    scope: Tensor
    generator: torch.Generator
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

    def mean(self, constituent: Tensor) -> Tensor:
        """Return the mean activation of a constituent [B] of each base in its slot, [B, ...].

        `ProbeError` for a function that has not said that it needs them.
        """
        check(self.place in self.references.means, f"problem.mean is asked for at {self.place}, "
              "where no means are measured; expected a patch that is registered with "
              "lc.register_patch(..., means=True)", ProbeError)
        return self.references.means[self.place][self.pairs.slot, constituent]

    def noise(self, x: Tensor) -> Tensor:
        """Return random vectors as long as those of x, which is an activation of the place."""
        axis = SITES[self.place[0]].vector % x.ndim
        noise = torch.randn(x.shape, generator=self.generator, device=x.device, dtype=x.dtype)
        return noise * x.norm(dim=axis, keepdim=True) / noise.norm(dim=axis, keepdim=True)


Value: TypeAlias = Callable[[Tensor, Tensor | None, Problem], Tensor]
"""(base, source, problem) -> what is put at a place.

base    what is computed there in the patched run, so that what was written in an earlier layer has
        had its effect
source  what the model computes there for the source; None for a patch that comes from none
result  of the shape of the base. Where it is put is not its business
"""


@dataclass(frozen=True)
class Kind:
    """One way to patch.

    description  one sentence for people
    source   the batch of `MinimalPairs` that it comes from; "" for what comes from none
    control  whether nothing should come of it
    sites    where it can be put
    """

    description: str
    source: str = ""
    control: bool = False
    sites: tuple[str, ...] = tuple(SITES)

    needs: ClassVar[str] = ""
    """What it needs beside a source: `means`, `erasers`, `pool`, `another` (instance of the batch),
    `elsewhere` (another position than the one that differs) or nothing."""
    real: ClassVar[bool] = False
    """Whether it is a code that the model computed for some instance: nothing to renormalise while
    a whole row is written."""
    steers: ClassVar[bool] = False
    """Whether `alpha` says how far it goes."""
    own: ClassVar[bool] = False
    """Whether it is a user's function, of which nothing is known."""

    @property
    def measured(self) -> tuple[str, ...]:
        """Constituents that must have been measured: `base_label`, `source_label`, `third`."""
        return ()

    def value(self, base: Tensor, source: Any, problem: Problem) -> Tensor:
        """Return what is put at a place (`Value`)."""
        raise NotImplementedError

    def possible(self, problem: Problem) -> Tensor:
        """Return which instances something can be written to, bool [B]; others do not count.

        Not those whose control the model itself answers wrongly, or whose constituents were not
        measured.
        """
        pairs = problem.pairs
        rows = torch.ones_like(pairs.counts)
        if self.source in ("control", *OTHERS) and self.source in problem.right:
            rows = problem.right[self.source]
        for name in self.measured:
            constituent = problem.constituent(name)
            count = problem.references.count[pairs.slot, constituent.clamp_min(0)]
            rows = rows & (constituent >= 0) & (count > 0)
        return rows


@dataclass(frozen=True)
class Source(Kind):
    """The activations of a batch of `MinimalPairs`, whatever is computed at the place."""

    real: ClassVar[bool] = True

    def value(self, base: Tensor, source: Any, problem: Problem) -> Tensor:
        result: Tensor = source
        return result


@dataclass(frozen=True)
class Frozen(Source):
    """A source's, while all codes are held at what they are in the unpatched pass."""


@dataclass(frozen=True)
class Elsewhere(Source):
    """A source's, put at another position than the one that differs."""

    needs: ClassVar[str] = "elsewhere"


@dataclass(frozen=True)
class Shuffled(Source):
    """The source's of another instance of the batch: a cyclic shift of a random order."""

    needs: ClassVar[str] = "another"

    def value(self, base: Tensor, source: Any, problem: Problem) -> Tensor:
        order = torch.randperm(len(source), generator=problem.generator, device=base.device)
        other = torch.empty_like(order)
        other[order] = order.roll(1)
        return super().value(base, source[other], problem)

    def possible(self, problem: Problem) -> Tensor:
        return super().possible(problem) & (len(problem.pairs) > 1)


@dataclass(frozen=True)
class Resampled(Kind):
    """The activations of another instance of the batch that has the source's constituent."""

    needs: ClassVar[str] = "pool"
    real: ClassVar[bool] = True

    def value(self, base: Tensor, source: Any, problem: Problem) -> Tensor:
        return problem.pool[problem.place][problem.resampled]

    def possible(self, problem: Problem) -> Tensor:
        return super().possible(problem) & (problem.resampled >= 0)


@dataclass(frozen=True)
class Mean(Kind):
    """A mean over training instances.

    over    those with the constituent `base_label`, `source_label` or `third`; `any`, those with
            one drawn at random; `group`, as many as have the source's; or `all`
    pooled  one code for all positions of the scope, the mean over them
    """

    over: str = "source_label"
    pooled: bool = False

    needs: ClassVar[str] = "means"

    @property
    def measured(self) -> tuple[str, ...]:
        return {"group": ("source_label",), "any": (), "all": ()}.get(self.over, (self.over,))

    def value(self, base: Tensor, source: Any, problem: Problem) -> Tensor:
        references, slot = problem.references, problem.pairs.slot
        if self.over == "all":
            return references.overall[problem.place].expand_as(base)
        if self.over == "group":
            mean = references.groups[problem.place][slot, problem.pairs.source_label]
        elif self.over == "any":
            known = references.count[slot] > 0  # [B, C]
            keys = torch.rand(known.shape, generator=problem.generator, device=known.device)
            mean = problem.mean(torch.where(known, keys, -1.0).argmax(1))
        else:
            mean = problem.mean(problem.constituent(self.over))
        if not self.pooled:
            return mean
        scope = problem.scope[:, None].to(base.dtype)  # [B, 1, Q, K]
        total = (mean * scope).sum((2, 3), keepdim=True)
        return (total / scope.sum((2, 3), keepdim=True)).expand_as(base)


@dataclass(frozen=True)
class Steer(Kind):
    """base + alpha (mean of a constituent - mean of the base's own).

    towards  the constituent: `source_label` or `third`
    random   a random direction that is as long
    """

    towards: str = "source_label"
    random: bool = False

    needs: ClassVar[str] = "means"
    steers: ClassVar[bool] = True

    @property
    def measured(self) -> tuple[str, ...]:
        return "base_label", self.towards

    def value(self, base: Tensor, source: Any, problem: Problem) -> Tensor:
        towards, own = (problem.mean(problem.constituent(name))
                        for name in (self.towards, "base_label"))
        step = towards - own
        return base + problem.alpha * (problem.noise(step) if self.random else step)


@dataclass(frozen=True)
class Erased(Kind):
    """The same without its label (LEACE), or without shuffled labels."""

    shuffled: bool = False

    needs: ClassVar[str] = "erasers"

    @property
    def measured(self) -> tuple[str, ...]:
        return ("base_label",)

    def value(self, base: Tensor, source: Any, problem: Problem) -> Tensor:
        erasers = problem.references.erasers[problem.where, self.shuffled][problem.place]
        return erasers.erase(base, problem.scope, problem.pairs.slot, problem.pairs.base_label)


@dataclass(frozen=True)
class Formula(Kind):
    """A function of what is computed at the place."""

    function: Value = lambda base, source, problem: base

    def value(self, base: Tensor, source: Any, problem: Problem) -> Tensor:
        return self.function(base, source, problem)


@dataclass(frozen=True)
class Identity(Formula):
    """What is computed at the place."""

    real: ClassVar[bool] = True


@dataclass(frozen=True)
class Function(Formula):
    """A user's function, whose result is checked.

    name   what tables call it
    means  whether it asks for means over training problems
    """

    name: str = ""
    means: bool = False

    own: ClassVar[bool] = True

    @property
    def needs(self) -> str:  # type: ignore[override]
        return "means" if self.means else ""

    @property
    def measured(self) -> tuple[str, ...]:
        return ("base_label", "source_label") if self.means else ()

    def value(self, base: Tensor, source: Any, problem: Problem) -> Tensor:
        """Return what the function returns; `ProbeError` unless it can be put at the place.

        It is a tensor of the shape of `base`, finite, and neither `base` nor `source` is changed:
        it is given copies of these.
        """
        at = "site {!r} of layer {}".format(*problem.place)
        own: Tensor = base.clone()
        theirs: Any = None if source is None else source.clone()
        value = called(f"the patch {self.name!r} at {at}", ProbeError, self.function, own, theirs,
                       problem)
        shape = (f"a tensor {list(value.shape)}" if isinstance(value, Tensor)
                 else f"a {type(value).__name__}")
        check(isinstance(value, Tensor) and value.shape == base.shape,
              f"the patch {self.name!r} returned {shape} at {at}; expected a tensor "
              f"{list(base.shape)}, the shape of base", ProbeError)
        changed = [name for name, given, copy in (("base", base, own), ("source", source, theirs))
                   if given is not None and not torch.equal(given, copy)]
        check(not changed, f"the patch {self.name!r} changes {' and '.join(changed)} in place at "
              f"{at}; expected a new tensor, which is put where the patch says and nowhere "
              "else", ProbeError)
        check(bool(value.isfinite().all()), f"the patch {self.name!r} returned values that are not "
              f"finite at {at}; expected finite ones", ProbeError)
        return value


HOW: dict[str, str] = {"set": "a_h becomes v_h", "add": "a_h becomes a_h + v_h",
                       "scale": "a_h becomes a_h v_h"}
"""What the numbers v_h set by hand do to every code of the scope."""


@dataclass(frozen=True)
class ByHand:
    """Numbers v_h that are set by hand, one per head, for every code of the scope.

    how  `set`: a_h becomes v_h; `add`: a_h + v_h; `scale`: a_h v_h
    """

    numbers: tuple[float, ...]
    how: str = "set"

    def __post_init__(self) -> None:
        check_choice("how", self.how, HOW)
        try:
            numbers = tuple(map(float, plain(self.numbers)))
        except (TypeError, ValueError):
            numbers = (float("nan"),)
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
    return as_tuple(numbers.tolist() if hasattr(numbers, "tolist") else [
        n.item() if hasattr(n, "item") else n for n in as_tuple(numbers)])


_MEANS: dict[str, Kind] = {
    "class_mean": Mean("the mean over instances with the source's constituent"),
    "class_mean_base": Mean("the mean over instances with the base's own constituent",
                            control=True, over="base_label"),
    "class_mean_shuffled": Mean("the mean of a constituent drawn at random", control=True,
                                over="any"),
    "class_mean_third": Mean("the mean over instances with a third constituent", control=True,
                             over="third"),
    "class_mean_group": Mean("the mean over as many instances drawn at random", control=True,
                             over="group")}

PATCHES: Registry[Kind] = Registry("patch", "lc.register_patch", {
    "interchange": Source("the minimal pair's: another operation", "sources"),
    "control": Source("a source's with the same constituents and fresh values", "control",
                      control=True),
    **{name: Source(f"a source's with {what}", name, control=name == "unrelated")
       for name, what in OTHERS.items()},
    "permuted": Source("the base's with its examples' values permuted", "permuted", control=True),
    "frozen": Frozen(f"a source's with {OTHERS['operation+operands']}, while all codes are held",
                     "operation+operands", sites=("residual",)),
    "held": Source("the base's own, as in the unpatched pass", "bases", control=True),
    "elsewhere": Elsewhere("the minimal pair's, at another position", "sources", control=True),
    "shuffled": Shuffled("the source's of another instance", "sources", control=True),
    "resample": Resampled("another instance's that has the source's constituent"),
    **_MEANS,
    **{f"{name}_pooled": replaced(kind, description=f"{kind.description}, and over positions",
                                  sites=("code",), pooled=True)  # type: ignore[call-arg]
       for name, kind in _MEANS.items() if name != "class_mean_shuffled"},
    "steer": Steer("plus alpha times the difference of the two means"),
    "steer_third": Steer("plus alpha times the difference of a third constituent's mean",
                         control=True, towards="third"),
    "steer_random": Steer("plus a random direction as long as that difference", control=True,
                          random=True),
    "zero_ablation": Formula("zero", function=lambda base, source, problem: torch.zeros_like(base)),
    "mean_ablation": Mean("the mean over all training instances", over="all"),
    "erase": Erased("the same without its label (LEACE)", sites=("code",)),
    "erase_shuffled": Erased("the same without a shuffled label (LEACE)", control=True,
                             sites=("code",), shuffled=True),
    "random": Formula("a random one of equal norm", control=True,
                      function=lambda base, source, problem: problem.noise(base)),
    "identity": Identity("itself: nothing changes", control=True),
})
"""Ways to patch, by name; `register_patch` adds to them."""


def lacked(kind: Kind, lacks: Collection[str]) -> str:
    """Return what of `Counterfactuals.lacking` a patch needs, "" where it can be written."""
    factorial = ("factorial",) if kind.source in OTHERS else ()
    return next((name for name in (kind.needs, kind.source, *factorial) if name in lacks), "")


Registered = TypeVar("Registered", bound=Callable[..., Tensor])
PAIRED = {"interchange": "sources", "control": "control"}
"""Sources of a minimal pair, and the batches of `MinimalPairs` that they are."""


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
    """Make a patch of one's own known by a name: a decorator of its function.

        @lc.register_patch("halfway")
        def halfway(base, source, problem):
            return (base + source) / 2

        lc.intervene(run, interventions=lc.Patch("halfway", where="context", layers=(0, 1)))

    The function (base, source, problem) returns what is put there, of the shape of `base`: codes
    [B, H, Q, K], values or z [B, T, H, d], messages [B, Q, K, H, d], or streams [B, T, D]. `base`
    is what is computed at the place in the patched run, `source` what the model computes there for
    the source (None where the patch has none), `problem` a `Problem`: the pairs, the place,
    `alpha`, a generator for noise. Where it is put is the business of `lc.Patch`.

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

    The function is tried on a small model at each site: its result has the shape of `base` and is
    finite, and it changes nothing that it is given. Raises `ConfigError` that says which of these
    fails, and for a name that is taken.
    """
    PATCHES.check_name(name)
    if source is not None:
        check_choice("source", source, (*PAIRED, *OTHERS))
    sites = as_tuple(sites)
    check(len(sites) > 0, f"sites of patch {name!r} are empty; expected some of {list(SITES)}")
    for site in sites:
        check_choice("site", site, SITES)

    def register(function: Registered) -> Registered:
        first = (function.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        kind = Function(
            description or first or f"what {getattr(function, '__name__', name)} returns",
            "" if source is None else PAIRED.get(source, source), control, sites, function, name,
            means)
        _try(kind)
        PATCHES.add(name, kind, replace=replace)
        return function

    return register


def _try(kind: Function) -> None:
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
    references = measure(model, task, places, n=64) if kind.means else References()
    for place in places:
        problem = Problem(pairs, {kind.source: sources}, task.scope("everything", pairs), generator,
                          place, references=references)
        try:
            kind.value(bases[place], sources.get(place), problem)
        except ProbeError as error:
            raise ConfigError(f"patch {kind.name!r}: {error}") from error
