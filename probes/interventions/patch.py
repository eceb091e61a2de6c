"""A patch: value, site, layers, heads, positions. Patches add, and are written and read as data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
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
    ERASABLE,
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
        return cls(tuple(map(tuple, array.tolist())))


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
        joined = rows[0]
        for name in joined if len(rows) > 1 else ():
            values = list(dict.fromkeys(row[name] for row in rows if row[name] == row[name]))
            if len(values) == 1:
                joined[name] = values[0]
            elif name == "alpha":
                joined[name] = float("nan")
            else:
                joined[name] = (any(values) if name == "renormalized"
                                else " + ".join(map(str, values)))
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
            check(getattr(self, name) not in ((), ""), f"{name} is empty; expected at least one"
                  f"{'' if name == 'layers' else ', or None for all'}")
        object.__setattr__(self, "alpha", float(self.alpha))
        for site in self.sites:
            check_choice("site", site, SITES)
        for name, part, parts in (
            ("site", "of its parts", self.sites), ("layers", "layer", self.layers),
            ("heads", "head", self.heads), ("queries", "query", self.queries),
            ("keys", "key", self.keys),
        ):
            check(not isinstance(parts, tuple) or len(set(parts)) == len(parts),
                  f"{name} is {getattr(self, name)!r}; expected each {part} once")
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
        return Function(self.named, "sources", function=self.value, name=self.named)

    @property
    def sites(self) -> tuple[str, ...]:
        """The parts of `site`."""
        return tuple(self.site.split("+"))

    @property
    def own_places(self) -> tuple[Place, ...]:
        """Every site in every layer that is written."""
        return tuple(product(self.sites, self.layers))

    def cells(self, task: Counterfactuals, pairs: MinimalPairs) -> Tensor:
        """Return which codes are written, bool [B, Q, K].

        `ConfigError` for tokens that the problems do not have, a mask of another size, and where
        nothing is left to be written in some problem.
        """
        n, n_tokens = pairs.bases.inputs.shape[:2]
        device = pairs.slot.device
        if isinstance(self.where, str):
            whole = task.scope(self.where, pairs, elsewhere=isinstance(self.kind, Elsewhere))
        else:
            chosen = (torch.tensor(self.where.cells).expand(n, -1, -1)
                      if isinstance(self.where, Mask) else
                      called(f"where is {self._where()}, which", ConfigError, self.where, pairs))
            shape = list(getattr(chosen, "shape", ()))
            check(shape == [n, n_tokens, n_tokens] and chosen.dtype == torch.bool,
                  f"where is {self._where()}, which gives {getattr(chosen, 'dtype', chosen)} "
                  f"{shape} for {n} problems of {n_tokens} tokens; expected bool "
                  f"{[n, n_tokens, n_tokens]}")
            whole = chosen.to(device)
        scope = whole
        for name, axis in (("queries", 2), ("keys", 1)):
            tokens: Any = getattr(self, name)
            if isinstance(tokens, str):
                scope = scope & task.place(tokens, pairs).unsqueeze(axis)
            elif tokens is not None:
                for token in tokens:
                    check(token in range(-n_tokens, n_tokens), f"{name} has {token}; expected 0 to "
                          f"{n_tokens - 1}, or negative ones from the end")
                chosen = torch.zeros(1, n_tokens, dtype=torch.bool, device=device)
                chosen[:, list(tokens)] = True
                scope = scope & chosen.unsqueeze(axis)
        if scope is not whole or not isinstance(self.where, str):
            check(bool(scope.any(2).any(1).all()),
                  f"{self.restriction() or 'where is ' + self._where()}, of which {self._where()} "
                  f"has none; expected some of its queries "
                  f"{whole[0].any(1).nonzero().flatten().tolist()} and keys "
                  f"{whole[0].any(0).nonzero().flatten().tolist()}")
        return scope

    def restriction(self) -> str:
        """Return `queries are ...` and `keys are ...`, as far as they are given."""
        return " and ".join(f"{name} are {getattr(self, name)}" for name in ("queries", "keys")
                            if getattr(self, name) is not None)

    def check_alone(self, task: Counterfactuals, model: Any, lacking: Mapping[str, str]) -> None:
        """Raise what `check` does."""
        kind, sites, n_heads = self.kind, self.sites, model.cfg.n_heads
        if isinstance(self.where, str):
            task.check_scope(self.where)
        for tokens in (self.queries, self.keys):
            if isinstance(tokens, str):
                check_choice("place", tokens, task.places)
        for site, layer in self.own_places:
            check_layer(model, layer, attention=SITES[site].attention)
        lacks = lacked(kind, lacking)
        check(not lacks, f"{self.named!r} cannot be written: {lacking.get(lacks)}")
        check(not isinstance(self.value, ByHand) or len(self.value.numbers) == n_heads,
              f"numbers are {getattr(self.value, 'numbers', ())}; expected {n_heads}, one per head")
        for site in sites:
            check(site in kind.sites, f"{self.named!r} at site {self.site!r}; expected "
                  f"{' or '.join(map(repr, kind.sites))}, where it can be put (a registered "
                  "function at those that lc.register_patch(sites=) names)")
        whole = isinstance(self.where, str) and not self.restriction()
        check(not isinstance(kind, Elsewhere) or (
            whole and self.where not in ("examples", "everything", *task.place_scopes)),
              f"{self.named!r} at scope {self._where()!r}, which leaves no other position; "
              "expected another scope")
        check(not isinstance(kind, Erased) or (whole and self.where in ERASABLE),
              f"scope is {self._where()!r}; expected one of {', '.join(ERASABLE)}, whole, to erase "
              "a label")
        for name, other in (("queries", "keys"), ("keys", "queries")):
            alone = [site for site in sites if SITES[site].of == other]
            check(getattr(self, name) is None or not alone, f"{name} is {getattr(self, name)} at "
                  f"site {self.site!r}; expected None, or "
                  f"{f'{other}=' if len(sites) == 1 else 'a patch of each site, a + b'}, as "
                  f"{alone[0] if alone else ''} is of {other} alone")
        every_key = ("row", "feature", *(
            name for name in task.place_scopes if not name.startswith("within")))
        check("value" not in sites or self.keys is not None or self.where not in every_key,
              f"scope is {self._where()!r} at site {self.site!r}, where it covers every key, for "
              "all queries; expected 'everything', the keys of a place with 'within ...', single "
              "keys with 'pair' or 'pairs', or keys=")
        if self.renormalize:
            check_constraint(normalization_of(model))
        groups = getattr(model.cfg, "n_key_value_heads", None) or n_heads
        check(self.heads is None or "value" not in sites or groups == n_heads,
              f"heads is {self.heads} at site {self.site!r}; expected None, as the "
              f"{n_heads} heads of this model share the values of {groups}")
        for head in self.heads or ():
            check(head in range(n_heads) and all(SITES[site].heads is not None for site in sites),
                  f"head {head} at site {self.site!r}; expected 0 to {n_heads - 1}, heads of "
                  "codes, values, messages or z")

    def edits(self, model: Any, problem: Problem) -> dict[Place, Edit]:
        """Return what puts the value into the codes, or whatever the site holds, of each layer."""
        kind = self.kind
        normalization = normalization_of(model) if self.renormalize else None
        everywhere = (self.where == "everything" and self.heads is None and normalization is None
                      and not self.restriction())

        def value(place: Place, base: Tensor) -> Tensor:
            source = problem.sources[kind.source][place] if kind.source else None
            return kind.value(base, source, replace(
                problem, place=place, alpha=self.alpha, where=str(self.where)))

        edits: dict[Place, Edit] = {}
        for place in self.own_places:
            put: Edit = partial(value, place)
            if type(kind) in (Source, Frozen, Elsewhere):  # whatever is computed at the place
                put = Put(problem.sources[kind.source][place])
                if everywhere:
                    edits[place] = put
                    continue
            mask = SITES[place[0]].mask(problem.scope, self.heads, model.cfg.n_heads)
            edits[place] = InScope(put, mask, problem.scope, normalization)
        return edits

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
        return self.where.named if isinstance(self.where, Mask) else name_of(self.where)

    def __str__(self) -> str:
        """What it does, in words."""
        row = self.own_row()
        about = (SCOPES | PLACES).get(self._where(), "")
        heads = "" if self.heads is None else f", heads {row['heads']} alone"
        return (f"{row['site']} at {row['scope']}{f' ({about})' if about else ''}, layers "
                f"{row['layers']}{heads} <- {self.named}: {self.kind.description}"
                + (f", alpha {self.alpha:g}" if row["alpha"] == row["alpha"] else "")
                + (", renormalized" if self.renormalize else ""))


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


def edits_of(
    patch: Added, model: Any, problems: Sequence[Problem], first: Mapping[Place, Edit] | None = None
) -> dict[Place, Edit]:
    """Return what every part of a patch puts at each place, one after the other.

    problems  one per part, which differ in their scopes
    first     what is put before all of them
    """
    edits = dict(first or {})
    for part, problem in zip(patch.parts, problems, strict=True):
        for place, edit in part.edits(model, problem).items():
            edits[place] = partial(_in_turn, edits[place], edit) if place in edits else edit
    return edits


def _in_turn(first: Edit, second: Edit, live: Tensor) -> Tensor:
    return second(first(live))


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
    n = len(every)
    named: dict[str, list[tuple[int, ...]]] = {
        "each": [(layer,) for layer in every], "upward": [every[:i] for i in range(2, n + 1)],
        "first": [every[:1]], "lower": [every[:max(1, n // 2)]], "upper": [every[n // 2:]],
        "above": [every[1:]] if n > 1 else [], "all": [every]}
    sets: list[tuple[int, ...]] = []
    for word in as_tuple(words):
        if not isinstance(word, str):
            sets.append(as_tuple(word))
        elif word in named:
            sets += named[word]
        else:
            parts = word.split(",")
            check(all(part.isdecimal() for part in parts), f"layers is {word!r}; expected "
                  f"{', '.join(LAYERS)}, or numbers such as 2,3")
            sets.append(tuple(map(int, parts)))
    return tuple(dict.fromkeys(sets))


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
    usual: dict[str, Any] = {"site": "code", "where": "row", "layers": "upper", "alpha": 1.0,
                             "value": "interchange"}
    listed = {name: as_tuple(words.get(name, word)) for name, word in usual.items()}
    rest = {name: words[name] for name in words if name not in usual}
    listed["layers"] = layer_sets(listed["layers"], layers)
    kinds = [Patch(value).kind for value in listed["value"]]
    check(listed["alpha"] == (1.0,) or any(kind.steers or kind.own for kind in kinds),
          f"alpha is {', '.join(map(str, listed['alpha']))}, and no patch of "
          f"{', '.join(map(str, listed['value']))} steers; expected one that does, or no alpha")
    for site, where, some, alpha, value in product(*listed.values()):
        place = next((place for place in PLACES if place in where.split()), None)
        kind = Patch(value).kind
        steers = kind.steers or kind.own
        if (places is None or place in (None, *places)) and (
                steers or alpha == listed["alpha"][0]):
            yield Patch(value, where, some, site, alpha if steers else 1.0, **rest)


def as_patches(given: Any) -> tuple[Added, ...]:
    """Return patches that are given as such or, as results hold them, as data."""
    several = [given] if isinstance(given, Mapping) else as_tuple(given)
    return tuple(from_plain(patch) if isinstance(patch, Mapping | list) else patch
                 for patch in several)


def to_plain(patch: Added) -> dict[str, Any] | list[dict[str, Any]]:
    """Return a patch as JSON holds it, a dictionary; of several a list of them."""
    def as_json(value: Any) -> Any:
        if isinstance(value, ByHand):
            return {"numbers": list(value.numbers), "how": value.how}
        if isinstance(value, Mask):
            return {"mask": [[int(cell) for cell in row] for row in value.cells]}
        if callable(value):
            return {"function": name_of(value)}
        return list(value) if isinstance(value, tuple) else value

    parts = [{name: as_json(getattr(part, name)) for name in FIELDS} for part in patch.parts]
    return parts[0] if len(parts) == 1 else parts


def from_plain(data: Any) -> Patch | Patches:
    """Return the patch that `to_plain` wrote, to be run again.

    `ConfigError` for a function that is not registered, of which the name alone is known.
    """
    parts = []
    for part in map(dict, [data] if isinstance(data, Mapping) else data):
        for name in part:
            check_choice("field of a patch", name, FIELDS)
        for name, instead in (("value", "a patch that is registered with lc.register_patch"),
                              ("where", "a scope, a mask, or queries and keys")):
            value = part.get(name)
            if isinstance(value, Mapping):
                check("function" not in value, f"{name} is the function {value.get('function')!r}, "
                      f"which a result does not hold; expected {instead}")
                part[name] = (ByHand(tuple(value["numbers"]), value["how"]) if "numbers" in value
                              else Mask.of(np.asarray(value["mask"], dtype=bool)))
        parts.append(Patch(**part))
    return parts[0] if len(parts) == 1 else Patches(tuple(parts))
