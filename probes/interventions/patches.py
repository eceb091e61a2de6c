"""Values that a patch can write: sources, means, differences, nothing, noise, and their controls.

A value is a function of the activation that is computed in the patched run, of the source's, and of
the problem (`Problem`). Each family of them is a class; users add functions with `register_patch`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from latentcode.config import LogicConfig, model_for
from latentcode.errors import ConfigError, ProbeError, as_tuple, called, check, check_choice
from latentcode.models.config import with_kind
from latentcode.models.patched.sites import SITES, Edit, Place, capture
from latentcode.models.registering import try_function
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.interventions.references import References, measure
from latentcode.registry import Registry
from latentcode.tasks import make_counterfactuals, make_task
from latentcode.tasks.counterfactuals import OTHERS, Counterfactuals, MinimalPairs


@dataclass(frozen=True)
class Clean:
    """What the model computes for a batch before anything is written.

    pairs       the B pairs of the batch that count: the model gives both answers
    answered    the logits of their sources
    sources     name of a batch of `MinimalPairs` -> place -> its activations [B, ...]
    right       name of a batch -> bool [B]: the model answers it rightly
    pool        place -> activations of the whole batch, to resample from
    own         place -> activations of the pairs themselves
    membership  which constituents the whole batch has, bool [N, S, C]
    """

    pairs: MinimalPairs
    answered: Tensor
    sources: Mapping[str, Mapping[Place, Tensor]]
    right: Mapping[str, Tensor]
    pool: Mapping[Place, Tensor]
    own: Mapping[Place, Tensor]
    membership: Tensor


@dataclass(frozen=True)
class Problem:
    """B bases into which something is put, and whatever it can be made of.

    pairs      the bases, their sources and constituents (`MinimalPairs`)
    sources    name of a batch of the pairs -> place -> its activations [B, ...]
    scope      bool [B, Q, K], the codes that are written
    generator  for noise
    place      the site and layer at which something is put
    alpha      how far to steer
    references means over training instances; None where they are not measured
    erasers    place -> what erases the label from activations, given the scope; or empty
    pool       place -> activations of the whole batch, to resample from
    resampled  int64 [B], which of the pool has the source's constituent in the same slot; -1 none
    third      int64 [B], a constituent that neither the base nor its source has, drawn among
               those that were measured in the slot; -1 none
    """

    pairs: MinimalPairs
    sources: Mapping[str, Mapping[Place, Tensor]]
    scope: Tensor
    generator: torch.Generator
    place: Place = ("code", 0)
    alpha: float = 1.0
    references: References | None = None
    erasers: Mapping[Place, Edit] | None = None
    pool: Mapping[Place, Tensor] | None = None
    resampled: Tensor | None = None
    third: Tensor | None = None

    @property
    def measured(self) -> References:
        """The references, where a patch has said that it needs them."""
        assert self.references is not None
        return self.references

    def constituent(self, name: str) -> Tensor:
        """Return the `base_label`, the `source_label` or the `third` constituent, int64 [B]."""
        constituent = self.third if name == "third" else getattr(self.pairs, name)
        assert constituent is not None
        return constituent

    def mean(self, constituent: Tensor) -> Tensor:
        """Return the mean activation of a constituent [B] of each base in its slot, [B, ...].

        `ProbeError` for a function that has not said that it needs them.
        """
        if self.references is None or self.place not in self.references.means:
            raise ProbeError(f"problem.mean is asked for at {self.place}, where no means are "
                             "measured; expected a patch that is registered with "
                             "lc.register_patch(..., means=True)")
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

    def value(self, base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
        """Return what is put at a place (`Value`)."""
        raise NotImplementedError

    def possible(self, problem: Problem, clean: Clean) -> Tensor:
        """Return which instances something can be written to, bool [B]; others do not count.

        Not those whose control the model itself answers wrongly, or whose constituents were not
        measured.
        """
        pairs = problem.pairs
        rows = torch.ones_like(pairs.counts)
        if self.source in ("control", *OTHERS) and self.source in clean.right:
            rows = clean.right[self.source]
        for name in self.measured:
            constituent = problem.constituent(name)
            count = problem.measured.count[pairs.slot, constituent.clamp_min(0)]
            rows = rows & (constituent >= 0) & (count > 0)
        return rows


@dataclass(frozen=True)
class Source(Kind):
    """The activations of a batch of `MinimalPairs`, whatever is computed at the place."""

    real: ClassVar[bool] = True

    def value(self, base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
        assert source is not None
        return source


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

    def value(self, base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
        assert source is not None
        n = len(problem.pairs)
        order = torch.randperm(n, generator=problem.generator, device=source.device)
        other = torch.empty_like(order)
        other[order] = order.roll(1)
        return source[other]

    def possible(self, problem: Problem, clean: Clean) -> Tensor:
        return super().possible(problem, clean) & (len(problem.pairs) > 1)


@dataclass(frozen=True)
class Resampled(Kind):
    """The activations of another instance of the batch that has the source's constituent."""

    needs: ClassVar[str] = "pool"
    real: ClassVar[bool] = True

    def value(self, base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
        assert problem.pool is not None
        return problem.pool[problem.place][problem.resampled]

    def possible(self, problem: Problem, clean: Clean) -> Tensor:
        assert problem.resampled is not None
        return super().possible(problem, clean) & (problem.resampled >= 0)


MEANS: Mapping[str, str] = {
    "source_label": "instances with the source's constituent",
    "base_label": "instances with the base's own constituent",
    "third": "instances with a third constituent", "group": "as many instances drawn at random"}
"""Over which training instances a mean can be."""


@dataclass(frozen=True)
class Mean(Kind):
    """A mean over training instances.

    over    of `MEANS`; `any`, the mean of a constituent drawn at random; `all`, of all instances
    pooled  one code for all positions of the scope, the mean over them
    """

    over: str = "source_label"
    pooled: bool = False

    needs: ClassVar[str] = "means"

    @property
    def measured(self) -> tuple[str, ...]:
        return {"group": ("source_label",), "any": (), "all": ()}.get(self.over, (self.over,))

    def value(self, base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
        measured, slot = problem.measured, problem.pairs.slot
        if self.over == "all":
            return measured.overall[problem.place].expand_as(base)
        if self.over == "group":
            mean = measured.groups[problem.place][slot, problem.pairs.source_label]
        elif self.over == "any":
            known = measured.count[slot] > 0  # [B, C]
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

    def value(self, base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
        step = (problem.mean(problem.constituent(self.towards))
                - problem.mean(problem.pairs.base_label))
        return base + problem.alpha * (problem.noise(step) if self.random else step)


@dataclass(frozen=True)
class Erased(Kind):
    """The same without its label (LEACE), or without shuffled labels."""

    shuffled: bool = False

    needs: ClassVar[str] = "erasers"

    @property
    def measured(self) -> tuple[str, ...]:
        return ("base_label",)

    def value(self, base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
        assert problem.erasers is not None
        return problem.erasers[problem.place](base)


@dataclass(frozen=True)
class Formula(Kind):
    """A function of what is computed at the place."""

    function: Value = lambda base, source, problem: base

    def value(self, base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
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

    def value(self, base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
        """Return what the function returns; `ProbeError` unless it can be put at the place.

        It is a tensor of the shape of `base`, finite, and neither `base` nor `source` is changed:
        it is given copies of these.
        """
        at = "site {!r} of layer {}".format(*problem.place)
        given = {"base": (base, base.clone())} | (
            {} if source is None else {"source": (source, source.clone())})
        value = called(f"the patch {self.name!r} at {at}", ProbeError, self.function,
                       given["base"][1], None if source is None else given["source"][1], problem)
        described = (f"a tensor {list(value.shape)}" if isinstance(value, Tensor)
                     else f"a {type(value).__name__}")
        check(isinstance(value, Tensor) and value.shape == base.shape,
              f"the patch {self.name!r} returned {described} at {at}; expected a tensor "
              f"{list(base.shape)}, the shape of base", ProbeError)
        changed = [name for name, both in given.items() if not torch.equal(*both)]
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
        try:
            object.__setattr__(self, "numbers", tuple(map(float, plain(self.numbers))))
        except (TypeError, ValueError):
            raise ConfigError(f"numbers are {self.numbers!r}; expected finite ones, one per head"
                              ) from None
        check_choice("how", self.how, HOW)
        check(bool(np.isfinite(self.numbers).all()), f"numbers are {self.numbers}; expected "
              "finite ones, one per head")

    def check(self, n_heads: int) -> None:
        """Raise `ConfigError` unless there is one for each head."""
        check(len(self.numbers) == n_heads, f"numbers are {self.numbers}; expected {n_heads}, one "
              "per head")

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


def _means(over: str, *, control: bool) -> dict[str, Kind]:
    """Return the mean of some instances, and the same pooled over positions."""
    name = {"source_label": "class_mean", "base_label": "class_mean_base"}.get(
        over, f"class_mean_{over}")
    return {name: Mean(f"the mean over {MEANS[over]}", control=control, over=over),
            f"{name}_pooled": Mean(f"the mean over {MEANS[over]}, and over positions",
                                   control=control, sites=("code",), over=over, pooled=True)}


_CLASS_MEANS = {name: kind for over in MEANS
                for name, kind in _means(over, control=over != "source_label").items()}

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
    **{name: _CLASS_MEANS[name] for name in ("class_mean", "class_mean_base")},
    "class_mean_shuffled": Mean("the mean of a constituent drawn at random", control=True,
                                over="any"),
    **{name: _CLASS_MEANS[name] for name in ("class_mean_third", "class_mean_group")},
    **{name: kind for name, kind in _CLASS_MEANS.items() if name.endswith("_pooled")},
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


def draw_thirds(pairs: MinimalPairs, count: Tensor, generator: torch.Generator) -> Tensor:
    """Return for each base a measured constituent that is neither its own nor its source's.

    count float [slot, constituent] -> int64 [B], uniform; -1 where there is none
    """
    keys = torch.rand(len(pairs), count.shape[1], generator=generator, device=pairs.slot.device)
    keys = torch.where(count[pairs.slot] > 0, keys, -1.0)
    taken = torch.stack([pairs.base_label, pairs.source_label], 1)
    best = keys.scatter(1, taken, -1.0).max(1)
    return torch.where(best.values >= 0.0, best.indices, -1)


def draw_resampled(
    pool_membership: Tensor, pairs: MinimalPairs, generator: torch.Generator
) -> Tensor:
    """Return for each base one of a pool that has its source's constituent in its slot.

    pool_membership bool [N, S, C] -> int64 [B], -1 where the pool has none. (An instance is never
    its own, because it lacks the source's constituent.)
    """
    fits = pool_membership[:, pairs.slot, pairs.source_label].T  # [B, N]
    keys = torch.rand(fits.shape, generator=generator, device=fits.device)
    best = torch.where(fits, keys, -1.0).max(1)
    return torch.where(best.values >= 0.0, best.indices, -1)


Registered = TypeVar("Registered", bound=Callable[..., Tensor])
PAIRED = {"interchange": "sources", "control": "control"}
"""Sources of a minimal pair, and the batches of `MinimalPairs` that they are."""
TRIED = ("code", "value", "z", "residual")
"""Sites of a registered function that names none."""


def register_patch(
    name: str,
    *,
    description: str | None = None,
    source: str | None = "interchange",
    control: bool = False,
    means: bool = False,
    sites: Collection[str] | str = TRIED,
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

    The function is tried on a small model at each site: its result has the shape and type of
    `base` and is finite, its gradients, where it has any, are finite, and it changes nothing that
    it is given. Raises `ConfigError` that says which of these fails, and for a name that is taken.
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
        _try(name, kind)
        PATCHES.add(name, kind, replace=replace)
        return function

    return register


@cache
def _small() -> tuple[Any, Counterfactuals]:
    """Return a small model with fresh weights, and the pairs of its task."""
    config = LogicConfig(n_variables=3, n_examples=4)
    return HookedTransformer(with_kind(model_for(
        config, n_layers=1, d_model=8, n_heads=3, d_head=2, d_head_v=2, d_mlp=8), "hyla"),
        seed=0).eval(), make_counterfactuals(make_task(config))


def _try(name: str, kind: Function) -> None:
    """Raise `ConfigError` unless a patch gives finite values at all its sites, in a small model."""
    model, task = _small()
    pairs = task.sample("train", 5, torch.Generator().manual_seed(0))
    places: list[Place] = [(site, 0) for site in kind.sites]
    _, bases = capture(model, pairs.bases.inputs, places)
    sources = capture(model, pairs.batch(kind.source).inputs, places)[1] if kind.source else {}
    references = measure(model, task, places, n=64) if kind.means else None
    for place in places:
        problem = Problem(
            pairs, {kind.source: sources}, task.scope("everything", pairs),
            torch.Generator().manual_seed(0), place, references=references)

        def call(base: Tensor, source: Tensor | None = None, problem: Problem = problem) -> Tensor:
            problem.generator.manual_seed(0)
            try:
                return kind.function(base, source, problem)
            except ProbeError as error:
                raise ConfigError(f"patch {name!r}: {error}") from error

        given = [bases[place], *([sources[place]] if kind.source else [])]
        try_function(f"patch {name!r}", call, tuple(bases[place].shape), *given,
                     note=f" at site {place[0]!r}")
