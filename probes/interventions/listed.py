"""Patches as commands and study files say them: every combination of lists of words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from latentcode.arguments import as_tuple
from latentcode.errors import check, check_choice
from latentcode.probes.interventions.patch import FIELDS, Added, Patch, from_plain

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


def layer_sets(words: Any, n_layers: int) -> tuple[tuple[int, ...], ...]:
    """Return sets of layers, each once: names of `LAYERS`, numbers, or text such as `2,3`.

    `UnknownNameError` for what is neither.
    """
    every = tuple(range(n_layers))
    named: dict[str, list[tuple[int, ...]]] = {
        "each": [(layer,) for layer in every],
        "upward": [every[:last] for last in range(2, n_layers + 1)], "first": [every[:1]],
        "lower": [every[:max(1, n_layers // 2)]],
        "upper": [every[n_layers // 2:]], "above": [every[1:]] if n_layers > 1 else [],
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
    words: Mapping[str, Any], n_layers: int, places: Sequence[str] | None = None
) -> Iterator[Patch]:
    """Yield the patches of lists of words, one per combination.

    words   field of `lc.Patch` -> a word or several; of layers see `LAYERS`. Sites vary slowest,
            then scopes, layers, alphas and values; alphas vary for values that steer alone
    places  those of the task; scopes at others are left out. None: nothing is left out
    """
    for name in words:
        check_choice("field of a patch", name, FIELDS)
    listed = {name: as_tuple(words[name]) for name in ("site", "where", "alpha", "value")
              if name in words}
    rest = {name: words[name] for name in words if name not in {*listed, "layers"}}
    for site, where, layers, alpha, value in product(
            listed.get("site", ("code",)), listed.get("where", ("row",)),
            layer_sets(words.get("layers", "upper"), n_layers), listed.get("alpha", (1.0,)),
            listed.get("value", ("interchange",))):
        lacked = places is not None and _place(where) not in (None, *places)
        steers = str(value).startswith("steer") or alpha == listed.get("alpha", (1.0,))[0]
        if steers and not lacked:
            yield Patch(value, where, layers, site,
                        alpha if str(value).startswith("steer") else 1.0, **rest)


def _place(where: str) -> str | None:
    """Return the place that a scope is at; None for a scope that is at none."""
    from latentcode.tasks.counterfactuals import PLACES

    return next((place for place in PLACES if place in where.split()), None)


def as_patches(given: Any) -> tuple[Added, ...]:
    """Return patches that are given as such or, as study files and results hold them, as data."""
    several = [given] if isinstance(given, Mapping) else as_tuple(given)
    return tuple(from_plain(one) if isinstance(one, Mapping | list) else one for one in several)
