"""A patch: value, site, layers, heads, positions. Patches add, and are written and read as data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial, reduce
from hashlib import sha256
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from latentcode.errors import ConfigError, as_tuple, called, check, check_choice
from latentcode.models.hooks import check_layer
from latentcode.models.patched.sites import (
    SITES,
    Edit,
    InScope,
    Place,
    Put,
    check_constraint,
    normalization_of,
)
from latentcode.probes.interventions.patches import (
    HOW,
    PATCHES,
    ByHand,
    Elsewhere,
    Erased,
    Formula,
    Frozen,
    Function,
    Kind,
    Problem,
    Source,
    Value,
    lacked,
    name_of,
    plain,
)
from latentcode.probes.interventions.references import ERASABLE
from latentcode.tasks.counterfactuals import PLACES, SCOPES, Counterfactuals, MinimalPairs

Tokens: TypeAlias = str | int | Sequence[int] | None
"""Some tokens: a place of the task (`PLACES`), one or several numbers (negative ones from the end),
or None, all."""
Chooser: TypeAlias = Callable[[MinimalPairs], Tensor]
"""Problems -> bool [B, Q, K], which codes are written."""


@dataclass(frozen=True)
class Mask:
    """Codes of every problem alike, bool [Q][K]."""

    cells: tuple[tuple[bool, ...], ...]

    @property
    def named(self) -> str:
        """What tables call it: how many codes it has, and a few letters that others have not."""
        digest = sha256(repr(self.cells).encode()).hexdigest()[:4]
        return f"mask {digest} of {sum(map(sum, self.cells))} codes"

    @classmethod
    def of(cls, array: Any) -> Mask:
        """Return the mask that an array or tensor is; `ConfigError` unless it is bool [Q, K]."""
        array = np.asarray(array.cpu() if isinstance(array, Tensor) else array)
        check(array.ndim == 2 and array.dtype == bool, f"where is a mask {array.dtype} "
              f"{list(array.shape)}; expected bool [query, key]")
        check(bool(array.any()), "where is a mask without a code; expected at least one that is "
              "True")
        return cls(tuple(tuple(map(bool, row)) for row in array))


class Added:
    """What can be put together with `+`: all of it is put in one forward pass."""

    @property
    def parts(self) -> tuple[Patch, ...]:
        """The patches, in the order in which they are put at a place that several have."""
        raise NotImplementedError

    def __add__(self, other: object) -> Patches:
        if not isinstance(other, Added):
            return NotImplemented
        return Patches((*self.parts, *other.parts))

    def __radd__(self, other: object) -> Added:
        return self if other == 0 else NotImplemented  # of `sum`

    @property
    def places(self) -> tuple[Place, ...]:
        """Every site in every layer that is written."""
        return tuple(dict.fromkeys(place for part in self.parts for place in part.own_places))

    @property
    def source(self) -> str:
        """The batch of `MinimalPairs` whose answer would come out: that of the first part which
        comes from one other than the base itself; "" for what comes from none."""
        return next((part.kind.source for part in self.parts
                     if part.kind.source not in ("", "bases")), "")

    @property
    def control(self) -> bool:
        """Whether nothing should come of it."""
        return all(part.kind.control for part in self.parts)

    def check(self, task: Counterfactuals, model: Any, *, made: bool = False) -> None:
        """Raise a `ConfigError` that names what does not fit the task or the model.

        made  sources are made for a base that somebody chooses, also where drawn ones lack some
        """
        for part in self.parts:
            part.check_alone(task, model, {} if made else task.lacking)

    def row(self) -> dict[str, Any]:
        """Return the columns that name this intervention in tables."""
        rows = [part.own_row() for part in self.parts]
        if len(rows) == 1:
            return rows[0]
        joined: dict[str, Any] = {}
        for name in rows[0]:
            different = list(dict.fromkeys(row[name] for row in rows if row[name] == row[name]))
            joined[name] = (different[0] if len(different) == 1 else float("nan")
                            if name == "alpha" else any(different) if name == "renormalized"
                            else " + ".join(map(str, different)))
        return joined


@dataclass(frozen=True)
class Patch(Added):
    """What is put where.

    value        what: a name of `PATCHES` (`lc.register_patch` adds to these), or a function
                 (base, source, problem) -> Tensor as it takes
    where        into which codes: a scope or place that the task offers, such as `row`,
                 `everything`, `context` or `within context`; a mask, bool [query, key]; or a
                 function of the problems (`MinimalPairs`) that returns bool [B, query, key]
    layers       in which layers, all in one pass
    site         the activation that is written: `code`; `value`; `z`, what heads put out before
                 W_O; `message`, what a key contributes to z of a query; `residual`, the stream
                 entering the layer; `mlp_in` and `mlp_out`, what the feed-forward layer is given
                 and adds. Several joined by `+`, such as `code+value`, are written in one pass
    alpha        how far `steer` goes
    heads        of which heads alone; None: all
    renormalize  bring what was written back to the constraint of the model's codes
    queries, keys  of these queries or keys of `where` alone: a place of the task, such as
                 `response`, one or several numbers of tokens, or None, all

    `a + b` puts both in one pass. Raises `ConfigError` for values that no task or model could take.
    """

    value: str | Value = "interchange"
    where: str | Mask | Chooser = "row"
    layers: tuple[int, ...] = (0,)
    site: str = "code"
    alpha: float = 1.0
    heads: tuple[int, ...] | None = None
    renormalize: bool = False
    queries: Tokens = None
    keys: Tokens = None

    def __post_init__(self) -> None:
        check(isinstance(self.value, str) or callable(self.value), f"value is {self.value!r}; "
              "expected the name of a patch, or a function (base, source, problem)")
        for name in ("layers", "heads", "queries", "keys"):
            numbers = getattr(self, name)
            if numbers is not None and not isinstance(numbers, str):
                object.__setattr__(self, name, plain(numbers))
        object.__setattr__(self, "alpha", float(self.alpha))
        for site in self.sites:
            check_choice("site", site, SITES)
        check(len(set(self.sites)) == len(self.sites), f"site is {self.site!r}; expected each of "
              "its parts once")
        for name in ("layers", "heads", "queries", "keys"):
            check(getattr(self, name) not in ((), ""), f"{name} is empty; expected at least one"
                  f"{'' if name == 'layers' else ', or None for all'}")
        check(len(set(self.layers)) == len(self.layers), f"layers is {self.layers}; expected each "
              "layer once")
        check(math.isfinite(self.alpha), f"alpha is {self.alpha!r}; expected a finite number")
        check(not self.renormalize or self.sites == ("code",), f"{self.named!r} with renormalize="
              f"True at site {self.site!r}; expected 'code', as codes alone are renormalised")
        if not isinstance(self.where, str | Mask) and not callable(self.where):
            object.__setattr__(self, "where", Mask.of(self.where))

    @property
    def parts(self) -> tuple[Patch, ...]:
        return (self,)

    @property
    def named(self) -> str:
        """What tables call the value: its name, or that of its function."""
        return self.value if isinstance(self.value, str) else name_of(self.value)

    @property
    def kind(self) -> Kind:
        """What is put, with what it needs; `UnknownNameError` for a name that is not registered."""
        if isinstance(self.value, str):
            return PATCHES.find(self.value)
        if isinstance(self.value, ByHand):
            return Formula(f"numbers set by hand: {HOW[self.value.how]}", sites=("code",),
                           function=self.value)
        return Function(name_of(self.value), "sources", function=self.value, name=self.named)

    @property
    def sites(self) -> tuple[str, ...]:
        """The parts of `site`."""
        return tuple(self.site.split("+"))

    @property
    def own_places(self) -> tuple[Place, ...]:
        """Every site in every layer that is written."""
        return tuple((site, layer) for site in self.sites for layer in self.layers)

    def cells(self, task: Counterfactuals, pairs: MinimalPairs) -> Tensor:
        """Return which codes are written, bool [B, Q, K].

        `ConfigError` for tokens that the problems do not have, a mask of another size, and where
        nothing is left to be written in some problem.
        """
        n, n_tokens = pairs.bases.inputs.shape[:2]
        if isinstance(self.where, str):
            scope = task.scope(self.where, pairs, elsewhere=isinstance(self.kind, Elsewhere))
        else:
            scope = (torch.tensor(self.where.cells).expand(n, -1, -1)
                     if isinstance(self.where, Mask) else
                     called(f"where is {self._where()}, which", ConfigError, self.where, pairs))
            shape = list(getattr(scope, "shape", ()))
            check(shape == [n, n_tokens, n_tokens] and scope.dtype == torch.bool,
                  f"where is {self._where()}, which gives {getattr(scope, 'dtype', scope)} {shape} "
                  f"for {n} problems of {n_tokens} tokens; expected bool "
                  f"{[n, n_tokens, n_tokens]}")
            scope = scope.to(pairs.slot.device)
        whole = scope
        for name, axis in (("queries", 2), ("keys", 1)):
            tokens = getattr(self, name)
            if tokens is not None:
                chosen = _chosen(name, tokens, task, pairs)  # [B, T]
                scope = scope & chosen.unsqueeze(axis)
        if scope is not whole or not isinstance(self.where, str):
            left = scope.any(2).any(1)
            check(bool(left.all()), f"{self.restriction() or 'where is ' + self._where()}, of "
                  f"which {self._where()} has none; expected some of its queries "
                  f"{whole[0].any(1).nonzero().flatten().tolist()} and keys "
                  f"{whole[0].any(0).nonzero().flatten().tolist()}")
        return scope

    def restriction(self) -> str:
        """Return `queries are ...` and `keys are ...`, as far as they are given."""
        return " and ".join(f"{name} are {getattr(self, name)}" for name in ("queries", "keys")
                            if getattr(self, name) is not None)

    def check_alone(self, task: Counterfactuals, model: Any, lacking: Mapping[str, str]) -> None:
        """Raise what `check` does."""
        how = self.kind
        if isinstance(self.where, str):
            task.check_scope(self.where)
        for name in ("queries", "keys"):
            tokens = getattr(self, name)
            if isinstance(tokens, str):
                check_choice("place", tokens, task.places)
        for site in self.sites:
            for layer in self.layers:
                check_layer(model, layer, attention=SITES[site].attention)
        lacks = lacked(how, lacking)
        if lacks:
            raise ConfigError(f"{self.named!r} cannot be written: {lacking[lacks]}")
        if isinstance(self.value, ByHand):
            self.value.check(model.cfg.n_heads)
        for site in self.sites:
            check(site in how.sites, f"{self.named!r} at site {self.site!r}; expected "
                  f"{' or '.join(map(repr, how.sites))}, where it can be put (a registered "
                  "function at those that lc.register_patch(sites=) names)")
        check(not isinstance(how, Elsewhere) or (
            isinstance(self.where, str) and not self.restriction()
            and self.where not in ("examples", "everything", *task.place_scopes)),
              f"{self.named!r} at scope {self._where()!r}, which leaves no other position; "
              "expected another scope")
        every_key = ("row", "feature", *(
            name for name in task.place_scopes if not name.startswith("within")))
        for name, of in (("queries", "keys"), ("keys", "queries")):
            whose = next((site for site in self.sites if SITES[site].of == of), None)
            instead = f"{of}=" if len(self.sites) == 1 else "a patch of each site, a + b"
            check(getattr(self, name) is None or whose is None, f"{name} is {getattr(self, name)} "
                  f"at site {self.site!r}; expected None, or {instead}, as {whose} is of {of} "
                  "alone")
        check("value" not in self.sites or self.keys is not None or self.where not in every_key,
              f"scope is {self._where()!r} at site {self.site!r}, where it covers every key, for "
              "all queries; expected 'everything', the keys of a place with 'within ...', single "
              "keys with 'pair' or 'pairs', or keys=")
        check(not isinstance(how, Erased) or (self.where in ERASABLE and not self.restriction()),
              f"scope is {self._where()!r}; expected one of {', '.join(ERASABLE)}, whole, to erase "
              "a label")
        if self.renormalize:
            check_constraint(normalization_of(model))
        groups = getattr(model.cfg, "n_key_value_heads", None) or model.cfg.n_heads
        check(self.heads is None or "value" not in self.sites or groups == model.cfg.n_heads,
              f"heads is {self.heads} at site {self.site!r}; expected None, as the "
              f"{model.cfg.n_heads} heads of this model share the values of {groups}")
        for head in self.heads or ():
            check(all(SITES[site].heads is not None for site in self.sites)
                  and head in range(model.cfg.n_heads),
                  f"head {head} at site {self.site!r}; expected 0 to {model.cfg.n_heads - 1}, "
                  "heads of codes, values, messages or z")

    def edits(self, model: Any, problem: Problem) -> dict[Place, Edit]:
        """Return what puts the value into the codes, or whatever the site holds, of each layer."""
        how = self.kind
        masks = {site: SITES[site].mask(problem.scope, self.heads, model.cfg.n_heads)
                 for site in self.sites}
        normalization = normalization_of(model) if self.renormalize else None

        def put(place: Place, base: Tensor) -> Tensor:
            source = problem.sources[how.source][place] if how.source else None
            return how.value(base, source, replace(problem, place=place, alpha=self.alpha))

        def edit_of(place: Place) -> Edit:
            if type(how) not in GIVEN:
                return InScope(partial(put, place), masks[place[0]], problem.scope, normalization)
            given = Put(problem.sources[how.source][place])
            whole = (self.where == "everything" and self.heads is None and normalization is None
                     and not self.restriction())
            return given if whole else InScope(given, masks[place[0]], problem.scope,
                                               normalization)

        return {place: edit_of(place) for place in self.own_places}

    def own_row(self) -> dict[str, Any]:
        """Return the columns that name this patch in tables."""
        scope = self._where() + "".join(
            f", {name} {tokens if isinstance(tokens, str) else ','.join(map(str, tokens))}"
            for name in ("queries", "keys") if (tokens := getattr(self, name)) is not None)
        return {"patch": self.named, "scope": scope,
                "layers": ",".join(map(str, self.layers)), "site": self.site,
                "alpha": self.alpha if self.kind.steers or self.alpha != 1.0 else float("nan"),
                "heads": "all" if self.heads is None else ",".join(map(str, self.heads)),
                "renormalized": self.renormalize}

    def _where(self) -> str:
        if isinstance(self.where, str):
            return self.where
        return (self.where.named if isinstance(self.where, Mask)
                else name_of(self.where))

    def __str__(self) -> str:
        """What it does, in words."""
        row = self.own_row()
        where = next((of for name, of in (SCOPES | PLACES).items() if name == self.where), "")
        heads = "" if self.heads is None else f", heads {row['heads']} alone"
        return (f"{row['site']} at {row['scope']}{f' ({where})' if where else ''}, layers "
                f"{row['layers']}{heads} <- {self.named}: {self.kind.description}"
                + (f", alpha {self.alpha:g}" if row["alpha"] == row["alpha"] else "")
                + (", renormalized" if self.renormalize else ""))


GIVEN = (Source, Frozen, Elsewhere)
"""Kinds that put a source's activations, whatever is computed at the place."""
FIELDS: tuple[str, ...] = tuple(f.name for f in fields(Patch))


@dataclass(frozen=True)
class Patches(Added):
    """Several patches that are put in one forward pass: `a + b`.

    At a place that several have, each is given what those before it left there. Whose answer comes
    out is asked of the source of the first that comes from one.
    """

    together: tuple[Patch, ...]

    @property
    def parts(self) -> tuple[Patch, ...]:
        return self.together

    def __str__(self) -> str:
        """What each does, a line per part."""
        return "\n+ ".join(map(str, self.parts))


def edits_of(patch: Added, model: Any, problems: Sequence[Problem]) -> dict[Place, Edit]:
    """Return what every part of a patch puts at each place, one after the other.

    problems  one per part, which differ in their scopes
    """
    found: dict[Place, list[Edit]] = {}
    for part, problem in zip(patch.parts, problems, strict=True):
        for place, edit in part.edits(model, problem).items():
            found.setdefault(place, []).append(edit)
    return {place: in_turn(*edits) for place, edits in found.items()}


def in_turn(*edits: Edit | None) -> Edit:
    """Return the edit that puts what one after the other makes of what is there; None: nothing."""
    some = [edit for edit in edits if edit is not None]
    return some[0] if len(some) == 1 else lambda base: reduce(lambda x, edit: edit(x), some, base)


def _chosen(
    name: str, tokens: str | tuple[int, ...], task: Counterfactuals, pairs: MinimalPairs
) -> Tensor:
    """Return which tokens are chosen, bool [B, T]."""
    n, n_tokens = pairs.bases.inputs.shape[:2]
    if isinstance(tokens, str):
        return task.place(tokens, pairs)
    for token in tokens:
        check(token in range(-n_tokens, n_tokens), f"{name} has {token}; expected 0 to "
              f"{n_tokens - 1}, or negative ones from the end")
    chosen = torch.zeros(n_tokens, dtype=torch.bool, device=pairs.slot.device)
    chosen[list(tokens)] = True
    return chosen.expand(n, -1)


LAYERS: dict[str, str] = {
    "each": "each layer alone",
    "upward": "the lowest two, the lowest three and so on up to all",
    "first": "the lowest",
    "lower": "the lower half, at least one",
    "upper": "the upper half",
    "above": "all but the lowest",
    "all": "all in one pass",
}
"""Sets of layers by name."""


def layer_sets(words: Any, layers: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return sets of layers, each once: names of `LAYERS`, numbers, or text such as `2,3`.

    layers  those with attention

    `UnknownNameError` for what is neither.
    """
    every = tuple(layers)
    named: dict[str, list[tuple[int, ...]]] = {
        "each": [(layer,) for layer in every],
        "upward": [every[:last] for last in range(2, len(every) + 1)], "first": [every[:1]],
        "lower": [every[:max(1, len(every) // 2)]],
        "upper": [every[len(every) // 2:]], "above": [every[1:]] if len(every) > 1 else [],
        "all": [every]}
    found: list[tuple[int, ...]] = []
    for word in as_tuple(words):
        if isinstance(word, str) and word not in named:
            parts = word.split(",")
            check(all(part.isdecimal() for part in parts), f"layers is {word!r}; expected "
                  f"{', '.join(LAYERS)}, or numbers such as 2,3")
            found.append(tuple(map(int, parts)))
        else:
            found += named[word] if isinstance(word, str) else [as_tuple(word)]
    return tuple(dict.fromkeys(found))


def every_patch(
    words: Mapping[str, Any], layers: Sequence[int], places: Sequence[str] | None = None
) -> Iterator[Patch]:
    """Yield the patches of lists of words, one per combination.

    layers  those with attention
    words   field of `lc.Patch` -> a word or several; of layers see `LAYERS`. Sites vary slowest,
            then scopes, layers, alphas and values; alphas vary for values that steer, and one's own
    places  those of the task; scopes at others are left out. None: nothing is left out
    """
    for name in words:
        check_choice("field of a patch", name, FIELDS)
    listed = {name: as_tuple(words[name]) for name in ("site", "where", "alpha", "value")
              if name in words}
    rest = {name: words[name] for name in words if name not in {*listed, "layers"}}
    for site, where, some, alpha, value in product(
            listed.get("site", ("code",)), listed.get("where", ("row",)),
            layer_sets(words.get("layers", "upper"), layers), listed.get("alpha", (1.0,)),
            listed.get("value", ("interchange",))):
        lacked = places is not None and _place(where) not in (None, *places)
        kind = Patch(value).kind
        steers = kind.steers or kind.own
        if not lacked and (steers or alpha == listed.get("alpha", (1.0,))[0]):
            yield Patch(value, where, some, site, alpha if steers else 1.0, **rest)


def _place(where: str) -> str | None:
    """Return the place that a scope is at; None for a scope that is at none."""
    return next((place for place in PLACES if place in where.split()), None)


def as_patches(given: Any) -> tuple[Added, ...]:
    """Return patches that are given as such or, as results hold them, as data."""
    several = [given] if isinstance(given, Mapping) else as_tuple(given)
    return tuple(from_plain(one) if isinstance(one, Mapping | list) else one for one in several)


def to_plain(patch: Added) -> dict[str, Any] | list[dict[str, Any]]:
    """Return a patch as JSON holds it, a dictionary; of several a list of them."""
    plain = [{name: _plain(getattr(part, name)) for name in FIELDS} for part in patch.parts]
    return plain[0] if len(plain) == 1 else plain


def from_plain(parts: Any) -> Patch | Patches:
    """Return the patch that `to_plain` wrote, to be run again.

    `ConfigError` for a function that is not registered, of which the name alone is known.
    """
    found = [_part(part) for part in ([parts] if isinstance(parts, Mapping) else parts)]
    return found[0] if len(found) == 1 else Patches(tuple(found))


def _part(plain: Mapping[str, Any]) -> Patch:
    known = dict(plain)
    for name in known:
        check_choice("field of a patch", name, FIELDS)
    for name in ("value", "where"):
        value = known.get(name)
        if isinstance(value, Mapping):
            instead = ("a patch that is registered with lc.register_patch" if name == "value"
                       else "a scope, a mask, or queries and keys")
            check("function" not in value, f"{name} is the function {value.get('function')!r}, "
                  f"which a result does not hold; expected {instead}")
            known[name] = (ByHand(tuple(value["numbers"]), value["how"]) if "numbers" in value
                           else Mask.of(np.asarray(value["mask"], dtype=bool)))
    return Patch(**known)


def _plain(value: Any) -> Any:
    if isinstance(value, ByHand):
        return {"numbers": list(value.numbers), "how": value.how}
    if isinstance(value, Mask):
        return {"mask": [[int(cell) for cell in row] for row in value.cells]}
    if callable(value):
        return {"function": name_of(value)}
    return list(value) if isinstance(value, tuple) else value
