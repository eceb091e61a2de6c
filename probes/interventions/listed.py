"""Patches as data: as commands say them, and as results keep them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from latentcode.arguments import as_tuple
from latentcode.errors import check, check_choice
from latentcode.probes.interventions.patch import FIELDS, Added, Mask, Patch, Patches
from latentcode.probes.interventions.values import ByHand, name_of
from latentcode.tasks.counterfactuals import PLACES

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
