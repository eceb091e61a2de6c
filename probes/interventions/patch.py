"""A patch: value, site, layers, heads, positions. Patches add; those that are run by default."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
    Function,
    Kind,
    Problem,
    Value,
    lacked,
    name_of,
    of_source,
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
        """The name in tables: how many codes it has, and a few letters that others have not."""
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
        return tuple(dict.fromkeys(place for part in self.parts
                                   for place in product(part.sites, part.layers)))

    @property
    def source(self) -> str:
        """The batch of `MinimalPairs` whose answer would come out, of the first part that comes
        from one other than the base; "" for what comes from none."""
        return next((part.kind.source for part in self.parts
                     if part.kind.source not in ("", "bases")), "")

    @property
    def control(self) -> bool:
        """Whether nothing should come of it."""
        return all(part.kind.control for part in self.parts)

    def check(self, task: Counterfactuals, model: Any, *, made: bool = False) -> None:
        """Raise `ConfigError` for what does not fit the task or the model.

        made  sources are made for a chosen base, also where drawn ones lack some
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
        check(not self.renormalize or self.sites == ("code",), f"{self.named!r} with renormalize="
              f"True at site {self.site!r}; expected 'code', as codes alone are renormalised")
        if not isinstance(self.where, str | Mask) and not callable(self.where):
            object.__setattr__(self, "where", Mask.of(self.where))

    @property
    def parts(self) -> tuple[Patch, ...]:
        return (self,)

    @property
    def named(self) -> str:
        """The name in tables, of the value or of its function."""
        return self.value if isinstance(self.value, str) else name_of(self.value)

    @property
    def kind(self) -> Kind:
        """What is put, with what it needs; `UnknownNameError` for a name that is not registered."""
        if isinstance(self.value, str):
            return PATCHES.find(self.value)
        if isinstance(self.value, ByHand):
            return Kind(f"numbers set by hand: {HOW[self.value.how]}", self.value, sites=("code",))
        return Kind(self.named, Function(self.value, self.named), "sources")

    @property
    def sites(self) -> tuple[str, ...]:
        """The parts of `site`."""
        return tuple(self.site.split("+"))

    def cells(self, task: Counterfactuals, pairs: MinimalPairs) -> Tensor:
        """Return which codes are written, bool [B, Q, K].

        `ConfigError` for tokens that the problems do not have, a mask of another size, and where
        nothing is left to be written in some problem.
        """
        n, n_tokens = pairs.bases.inputs.shape[:2]
        if isinstance(self.where, str):
            whole = task.scope(self.where, pairs, elsewhere=self.kind.needs == "elsewhere")
        else:
            chosen = (torch.tensor(self.where.cells).expand(n, -1, -1)
                      if isinstance(self.where, Mask) else
                      called(f"where is {self._where()}, which", ConfigError, self.where, pairs))
            shape = list(getattr(chosen, "shape", ()))
            check(shape == [n, n_tokens, n_tokens] and chosen.dtype == torch.bool,
                  f"where is {self._where()}, which gives {getattr(chosen, 'dtype', chosen)} "
                  f"{shape} for {n} problems of {n_tokens} tokens; expected bool "
                  f"{[n, n_tokens, n_tokens]}")
            whole = chosen.to(pairs.slot.device)
        scope = whole
        for name, axis in (("queries", 2), ("keys", 1)):
            tokens: Any = getattr(self, name)
            if isinstance(tokens, str):
                scope = scope & task.place(tokens, pairs).unsqueeze(axis)
            elif tokens is not None:
                for token in tokens:
                    check(token in range(-n_tokens, n_tokens), f"{name} has {token}; expected 0 to "
                          f"{n_tokens - 1}, or negative ones from the end")
                chosen = torch.zeros(1, n_tokens, dtype=torch.bool, device=scope.device)
                chosen[:, list(tokens)] = True
                scope = scope & chosen.unsqueeze(axis)
        if scope is not whole or not isinstance(self.where, str):
            check(bool(scope.any(2).any(1).all()),
                  f"where is {self.scope}, of which there is none; expected some of the queries "
                  f"{whole[0].any(1).nonzero().flatten().tolist()} and keys "
                  f"{whole[0].any(0).nonzero().flatten().tolist()} of {self._where()}")
        return scope

    def check_alone(self, task: Counterfactuals, model: Any, lacking: Mapping[str, str]) -> None:
        """Raise `ConfigError` for what does not fit the task or the model."""
        kind, sites, n_heads = self.kind, self.sites, model.cfg.n_heads
        if isinstance(self.where, str):
            task.check_scope(self.where)
        for tokens in (self.queries, self.keys):
            if isinstance(tokens, str):
                check_choice("place", tokens, task.places)
        for site, layer in self.places:
            check_layer(model, layer, attention=SITES[site].attention)
            check(site in kind.sites, f"{self.named!r} at site {site!r}; expected "
                  f"{' or '.join(map(repr, kind.sites))}, where it can be put (a registered "
                  "function at those that lc.register_patch(sites=) names)")
        lacks = lacked(kind, lacking)
        check(not lacks, f"{self.named!r} cannot be written: {lacking.get(lacks)}")
        check(not isinstance(self.value, ByHand) or len(self.value.numbers) == n_heads,
              f"numbers are {getattr(self.value, 'numbers', ())}; expected {n_heads}, one per head")
        whole = self.scope == self.where
        check(kind.needs != "elsewhere" or (
            whole and self.where not in ("examples", "everything", *task.place_scopes)),
              f"{self.named!r} at scope {self._where()!r}, which leaves no other position; "
              "expected another scope")
        check(kind.needs != "erasers" or (whole and self.where in ERASABLE),
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
        """Return the edits that put the value at the sites of each layer."""
        kind = self.kind
        normalization = normalization_of(model) if self.renormalize else None
        everywhere = self.scope == "everything" and self.heads is None and normalization is None

        def value(place: Place, base: Tensor) -> Tensor:
            source = problem.sources[kind.source][place] if kind.source else None
            return kind.function(base, source, replace(
                problem, place=place, alpha=self.alpha, where=str(self.where)))

        edits: dict[Place, Edit] = {}
        for place in self.places:
            put: Edit = partial(value, place)
            if kind.function is of_source:  # whatever is computed at the place
                put = Put(problem.sources[kind.source][place])
                if everywhere:
                    edits[place] = put
                    continue
            mask = SITES[place[0]].mask(problem.scope, self.heads, model.cfg.n_heads)
            edits[place] = InScope(put, mask, problem.scope, normalization)
        return edits

    def _where(self) -> str:
        if isinstance(self.where, str):
            return self.where
        return self.where.named if isinstance(self.where, Mask) else name_of(self.where)

    @property
    def scope(self) -> str:
        """`where`, with the queries and keys that alone are written: `row, keys 0,1`."""
        return self._where() + "".join(
            f", {name} {tokens if isinstance(tokens, str) else ','.join(map(str, tokens))}"
            for name in ("queries", "keys") if (tokens := getattr(self, name)) is not None)

    def own_row(self) -> dict[str, Any]:
        """Return the columns that name this patch in tables."""
        return {"patch": self.named, "scope": self.scope,
                "layers": ",".join(map(str, self.layers)), "site": self.site,
                "alpha": self.alpha if self.kind.steers or self.alpha != 1.0 else float("nan"),
                "heads": "all" if self.heads is None else ",".join(map(str, self.heads)),
                "renormalized": self.renormalize}

    def __str__(self) -> str:
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

    At a place that several have, each is given what those before it left there.
    """

    together: tuple[Patch, ...]

    @property
    def parts(self) -> tuple[Patch, ...]:
        return self.together

    def __str__(self) -> str:
        return "\n+ ".join(map(str, self.parts))


def with_value(patch: Added, value: str, *, all_parts: bool = False) -> Added:
    """Return a patch that puts something else at the same places.

    Parts that hold the base's own stay, unless all parts are meant.
    """
    # Own codes stay as they are, whatever their constraint does to last digits.
    parts = tuple(
        part if part.kind.source == "bases" and not all_parts else replace(
            part, value=value, renormalize=part.renormalize and value != "identity")
        for part in patch.parts)
    return parts[0] if len(parts) == 1 else Patches(parts)


def edits_of(patch: Added, model: Any, problems: Sequence[Problem]) -> dict[Place, Edit]:
    """Return what every part of a patch puts at each place, one after the other.

    problems  one per part, which differ in their scopes
    """
    edits: dict[Place, Edit] = {}
    for part, problem in zip(patch.parts, problems, strict=True):
        for place, edit in part.edits(model, problem).items():
            edits[place] = partial(_in_turn, edits[place], edit) if place in edits else edit
    return edits


def _in_turn(first: Edit, second: Edit, live: Tensor) -> Tensor:
    return second(first(live))


def layer_sets(words: Any, layers: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return sets of layers, each once: by name, as numbers, or as text such as `2,3`.

    layers  those with attention

    Names are `each` layer alone; `upward`, the lowest two, the lowest three and so on up to all;
    `first`, the lowest; `lower` and `upper` halves; `above`, all but the lowest; and `all` in one
    pass.
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
                  f"{', '.join(named)}, or numbers such as 2,3")
            sets.append(tuple(map(int, parts)))
    return tuple(dict.fromkeys(sets))


def every_patch(words: Mapping[str, Any], layers: Sequence[int]) -> Iterator[Patch]:
    """Yield the patches of lists of words, one per combination.

    layers  those with attention
    words   field of `lc.Patch` -> a word or several; of layers see `layer_sets`. Alphas vary for
            values that steer, and for functions
    """
    for name in words:
        check_choice("field of a patch", name, FIELDS)
    usual: dict[str, Any] = {"site": "code", "where": "row", "layers": "upper", "alpha": 1.0,
                             "value": "interchange"}
    listed = {name: as_tuple(words.get(name, word)) for name, word in usual.items()}
    rest = {name: words[name] for name in words if name not in usual}
    listed["layers"] = layer_sets(listed["layers"], layers)
    kinds = [Patch(value).kind for value in listed["value"]]
    steers = dict(zip(listed["value"], (
        kind.steers or isinstance(kind.function, Function) for kind in kinds), strict=True))
    check(listed["alpha"] == (1.0,) or any(steers.values()),
          f"alpha is {', '.join(map(str, listed['alpha']))}, and no patch of "
          f"{', '.join(map(str, listed['value']))} steers; expected one that does, or no alpha")
    for site, where, some, alpha, value in product(*listed.values()):
        if steers[value] or alpha == listed["alpha"][0]:
            yield Patch(value, where, some, site, alpha if steers[value] else 1.0, **rest)


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
        for name, value in part.items():
            check_choice("field of a patch", name, FIELDS)
            if isinstance(value, Mapping):
                check("function" not in value, f"{name} is the function {value.get('function')!r}, "
                      "which a result does not hold; expected a patch that is registered with "
                      "lc.register_patch, or a scope or mask")
                part[name] = (ByHand(tuple(value["numbers"]), value["how"]) if "numbers" in value
                              else Mask.of(np.asarray(value["mask"], dtype=bool)))
        parts.append(Patch(**part))
    return parts[0] if len(parts) == 1 else Patches(tuple(parts))


SOURCES: tuple[str, ...] = ("interchange", "control", "operands", "operation+operands", "unrelated")
"""Patches that tell operation, operands and answer apart; without a factorial there are two."""
MAPPED: tuple[str, ...] = ("row", "everything")
"""Scopes at which the sources of a factorial are written into every set of layers."""
CONTROLS = ("elsewhere", "shuffled", "random", "zero_ablation", "identity")
"""Patches that stand beside the sources where only what tells most is asked for."""


def first_interventions(
    layers: Sequence[int], scopes: Sequence[str], lacks: Collection[str] = (),
) -> tuple[Patch, ...]:
    """Return the patches that tell whether codes cause the answer, and the operation or it alone.

    Of `standard_interventions`: the sources at the response's row, in each layer, in the upper half
    and in all, and in all codes in the upper half and in all layers; of a factorial codes and
    values together, too, which are the source's whole computation; and `CONTROLS` at the row in the
    upper half.

    layers  those with attention
    """
    every = tuple(layers)
    upper = every[len(every) // 2:]
    chosen = {"row": (*((layer,) for layer in every), upper, every), "everything": (upper, every)}
    return tuple(
        i for i in standard_interventions(layers, 0, scopes, False, lacks)
        if (i.value in CONTROLS and (i.site, i.where, i.layers) == ("code", "row", upper))
        or (i.value in SOURCES and (i.site == "code+value" or (
            i.site == "code" and i.layers in chosen.get(str(i.where), ())))))


def prompt_interventions(
    task: Counterfactuals, layers: Sequence[int], normalized: bool = True
) -> tuple[Patch, ...]:
    """Return the patches of prompts: the source's codes, and codes that change nothing.

    Of `standard_interventions`: the sources' codes at pairs and rows, in each layer, in the upper
    half and in all, and all codes in all layers; and `CONTROLS` but zeros. Codes are renormalised
    only where `normalized` says that the model's codes of a query sum to 1. Means, erasure, single
    heads, values, z and residual streams have to be asked for.
    """
    every = tuple(layers)
    standard = standard_interventions(every, 0, task.scopes, normalized, task.lacking)
    return (*(i for i in standard
              if i.value in (*SOURCES, *CONTROLS) and i.value != "zero_ablation"
              and i.site == "code" and (i.where != "everything" or i.layers == every)
              and not (i.renormalize and i.value == "random")),
            Patch("identity", "everything", every))


def standard_interventions(
    layers: Sequence[int], n_heads: int, scopes: Sequence[str], normalized: bool = True,
    lacks: Collection[str] = (), places: Sequence[str] = (),
) -> tuple[Patch, ...]:
    """Return every way to patch, with its controls, once over.

    - the sources that tell operation, operands and answer apart (the minimal pair, other operands,
      both) beside the same constituents and an unrelated problem: rows and all codes in sets of
      layers, codes of other scopes in the upper half, those of the task's places in the lower half;
      values, residual streams, and codes and values together, at some places
    - without a factorial: the minimal pair's codes and the same constituents' at every scope
    - every other way to patch, with its controls, at the response's row in the upper half; steering
      by 1, 2 and 4 times the difference; what is no real code both raw and (where `normalized` says
      that the model's codes obey a constraint) renormalised
    - the source's codes of one head alone, for every head
    - labels erased at every scope that allows it

    layers  those with attention
    lacks   what the task does not offer (`Counterfactuals.lacking`) is left out
    places  the task's places; of a factorial alone

    Means of a third constituent are left out.
    """
    every = tuple(layers)
    upper, lower = every[len(every) // 2:], every[:max(1, len(every) // 2)]
    factorial = "factorial" not in lacks
    sources = SOURCES if factorial else SOURCES[:2]
    below = [every[:n] for n in range(2, len(every))] if factorial else []
    sets = (*((layer,) for layer in every), *below, upper, every)
    chosen = [Patch(patch, scope, some) for scope in scopes
              for some in ((upper,) if factorial and scope not in MAPPED else sets)
              for patch in sources]
    for name, kind in PATCHES.items():
        if isinstance(kind.function, Function) or "third" in kind.measured:
            continue
        if kind.needs == "erasers":
            chosen += [Patch(name, scope, upper) for scope in scopes if scope in ERASABLE]
            continue
        for alpha in (1.0, 2.0, 4.0) if name.startswith("steer") else (1.0,):
            chosen.append(Patch(name, "row", upper, alpha=alpha))
            if normalized and (kind.needs == "means" or name == "random"):
                chosen.append(Patch(name, "row", upper, alpha=alpha, renormalize=True))
    chosen += [Patch("interchange", "row", upper, heads=(head,)) for head in range(n_heads)]
    # Sources of another rest: at the row above, and in all codes here.
    chosen += [Patch(name, "everything", every) for name in PATCHES
               if name in ("shuffled", "resample", "random", "permuted") or name.endswith("rest")]
    if normalized:  # a pair alone breaks the sum over keys of a softmax
        chosen += [Patch(patch, scope, upper, renormalize=True)
                   for scope in scopes if scope.startswith("pair") for patch in SOURCES[:2]]
    for some in (every[:1], upper, every):
        chosen += [Patch(patch, "everything", some, "value") for patch in sources]
    for scope, some in (("row", upper), ("row", every), ("everything", every[:1]),
                        ("everything", upper)):
        chosen += [Patch(patch, scope, some, "residual") for patch in SOURCES[:2]]
    if factorial:
        chosen += [Patch(patch, place, lower) for place in places for patch in sources]
        chosen += [Patch(patch, "everything", every, "code+value") for patch in sources]
        if "examples" in scopes:
            chosen += [Patch(patch, "examples", every, "value")
                       for patch in (*sources, "permuted")]
    return tuple(i for i in dict.fromkeys(chosen) if not lacked(i.kind, lacks))
