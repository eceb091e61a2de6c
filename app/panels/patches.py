"""What is put where: the choices of Intervene."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import streamlit as st

from latentcode.app.components.numbers import choose_numbers
from latentcode.app.components.problems import ROLES, from_text, to_text
from latentcode.app.data.benches import MOST, OpenBench, usual
from latentcode.app.state.sidebar import number_input
from latentcode.app.state.url import choose, choose_several, remember, remembered
from latentcode.app.words import literal
from latentcode.models.patched.sites import SITES as WRITTEN
from latentcode.probes.interventions.outcomes import Ask
from latentcode.probes.interventions.patch import Added, Patch
from latentcode.probes.interventions.patches import PATCHES, ByHand, Function
from latentcode.tasks.counterfactuals import PLACES, SCOPES

if TYPE_CHECKING:
    from latentcode.probes.interventions.bench import Bench

WHAT = {"operation+operands": "other {kind} and operands", "interchange": "minimal pair",
        "operands": "other operands", "rest": "other rest",
        "operation+rest": "other {kind} and rest", "operands+rest": "other operands and rest",
        "operation+operands+rest": "other {kind}, operands and rest",
        "instance": "other problem", "mean": "mean", "hand": "by hand"}
"""What can be put, in the words of the page; after these come patches of one's own."""
VALUES = {"instance": "interchange", "mean": "class_mean"}
"""The patches that the page calls otherwise."""
ABOUT = {
    "interchange": "The same problem with **{target}** in place of **{base}**.",
    "instance": "Any other problem of this split.",
    "mean": "The mean of training problems that have **{target}** in that place.",
    "hand": "One number per head, for every code that is patched.",
}
OTHER = {
    "operation": "its {kind} (**{target}** in place of **{base}**)",
    "operands": "what the {kind} is applied to",
    "rest": "the rest of the problem",
}
"""What a source has that the problem has not, by the parts of its name."""
SITES = {"codes": ("code",), "values": ("value",), "codes and values": ("code", "value"),
         "z": ("z",), "residual stream": ("residual",)}
"""What is replaced, in the words of the page."""
AND = {"nothing": "", "from the source": "source", "held": "held"}
"""What is put in the same pass, as a second patch."""


def choose_problem(open_: OpenBench, instance: int, number: int) -> Ask:
    """Let a person choose what is put where in a problem.

    number  of another problem, where that is put
    """
    bench, kind = open_.bench, open_.kind
    held = bench.constituents(instance)
    visible, by_hand = st.container(key="pairs choices"), st.container()
    more = st.expander("More choices", icon=":material/tune:")
    alone = len(bench.targets(instance, 0)) == 1
    with more:
        first, second = st.columns(2)
        with first:
            of = "the rule of token" if kind == "rule" else f"the {kind}"
            which = 0 if len(held) == 1 else choose(
                f"Replace {of}", range(len(held)), key="which", form="buttons",
                help=f"Which of the problem's {kind}s the source replaces.")
        with second:
            if not alone:
                what = _choose_what(bench, kind)
    usually = usual(bench)
    with visible:
        columns = st.columns(4)
        with columns[0]:
            if alone:  # there is nothing to choose
                (target,) = bench.targets(instance, which)
                what = _choose_what(bench, kind)
            else:
                target = choose(
                    f"{kind.capitalize()} of the source", bench.targets(instance, which),
                    key="target", default=lambda: open_.telling(instance, which, usually))
        with columns[1]:
            site = choose("What is put", list(SITES), key="site", default=next(
                name for name, parts in SITES.items() if parts == usually.sites),
                help="codes: of a query and a key; values: of a key, by head; z: what a head puts "
                "out for a query, before W_O; residual stream: what enters the layer at a query.")
        with columns[2]:
            task = bench.task
            every = dict.fromkeys((*task.places, "everything", *task.scopes, *task.place_scopes))
            about = {**dict(task.about_places), **SCOPES}
            scope = choose("Where", list(every), key="scope",
                           default=str(usually.where).removeprefix("within "),
                           help="; ".join(f"{name}: {about[name]}" for name in every
                                          if name in about))
        with columns[3]:
            layers = _choose_layers(bench, usually.layers)
    with more:
        st.caption(_about(what).format(base=held[which], target=target, kind=kind))
        if what == "instance":
            number_input("Number of the other problem", "other", number, MOST)
        heads = choose_several("Heads (none chosen: all)", range(bench.model.cfg.n_heads),
                               key="heads") if "residual" not in SITES[site] else []
        chosen = chosen_tokens(open_)
        value: str | ByHand = VALUES.get(what, what)
        if what == "hand":
            key = next(iter(chosen.get("keys") or ()), None)
            with by_hand:  # bars that are folded away could not be dragged
                how, numbers = choose_numbers(open_, instance, which, target, layer=max(layers),
                                              scope=scope, key=key)
            value = ByHand(numbers, how)
        patch = put(value, SITES[site], scope, layers, heads, chosen)
        second_one = _choose_second(bench, value)
    if second_one is not None:
        patch = patch + second_one
    return Ask(patch, instance, target, which, number if what == "instance" else None)


def put(
    value: str | ByHand, sites: Sequence[str], scope: str, layers: Sequence[int],
    heads: Sequence[int] = (), chosen: Mapping[str, tuple[int, ...]] | None = None,
) -> Added:
    """Return what puts a value at some sites of a scope: one patch, or one a site.

    chosen  queries and keys that somebody has clicked, of which alone it is written. Values are
            those of keys, z and residual streams those of queries: there all that are clicked count
    """
    queries, keys = ((chosen or {}).get(role) or None for role in ROLES)
    either = tuple(sorted({*(queries or ()), *(keys or ())})) or None
    parts = []
    for site in sites:
        where = scope
        of: dict[str, Any] = {"queries": queries, "keys": keys}
        if site == "value":
            # A place over every key would be the values of all tokens.
            where = f"within {scope}" if scope in PLACES else scope if (
                scope.startswith("within") or scope in ("pair", "pairs")) else "everything"
            of = {"keys": keys or queries}
            where = "everything" if of["keys"] else where
        elif WRITTEN[site].of == "queries":
            of = {"queries": either}
            where = "everything" if either else where
        parts.append(Patch(value, where, tuple(layers), site, heads=(
            None if WRITTEN[site].heads is None else tuple(heads) or None), **of))
    return reduce(add, parts)


def chosen_tokens(open_: OpenBench) -> dict[str, tuple[int, ...]]:
    """Return the queries and keys that the URL has; what they are not is forgotten, and said."""
    n = len(open_.names)
    found: dict[str, tuple[int, ...]] = {}
    for role in ROLES:
        text = remembered(role)
        if text is None:
            continue
        numbers = from_text(text, n)
        if numbers is None:
            remember(role, None)
            st.warning(literal(f"There are no {role} {text[:40]!r} here; expected numbers from 0 "
                               f"to {n - 1}, such as 0-5_7."), icon=":material/link_off:")
        else:
            found[role] = numbers
    return found


def note_tokens(chosen: Mapping[str, tuple[int, ...]]) -> None:
    """Put tokens that were clicked into the URL; queries are chosen out of all of them."""
    for role in ROLES:
        remember(role, to_text(chosen[role]) if chosen[role] else None)
    if chosen["queries"]:
        remember("scope", "everything", step=True)


def note_place(name: str) -> None:
    """Choose the place where something is put, all of it."""
    for role in ROLES:
        remember(role, None)
    remember("scope", name, step=True)


def _choose_what(bench: Bench, kind: str) -> str:
    offered = [*(name for name in WHAT if name in ("instance", "hand")
                 or VALUES.get(name, name) in bench.values),
               *(name for name in bench.values if isinstance(PATCHES[name].function, Function))]
    return choose("Source", offered, key="what", shown=lambda w: WHAT.get(w, w).format(kind=kind),
                  help="Where the patched activations come from. A source with other operands, "
                       "too, tells the operation from a copied answer.")


def _choose_layers(bench: Bench, usually: Sequence[int], key: str = "layers") -> list[int]:
    every = range(bench.model.cfg.n_layers)
    return sorted(choose_several(
        "Layers (none chosen: all)", every, key=key, default=list(usually),
        help="Layers count from 0, the one nearest to the input.")) or list(every)


def _choose_second(bench: Bench, value: str | ByHand) -> Added | None:
    """Let a person put something else in the same pass: held as it was, or from the source too."""
    with st.container(key="stacks second"):
        columns = st.columns(4)
        with columns[0]:
            also = choose("In the same pass, also", list(AND), key="and",
                          help="Held: as the problem itself has it, whatever is put elsewhere.")
        if also == "nothing":
            return None
        with columns[1]:
            site = choose("What", list(SITES), key="site2", default="values")
        with columns[2]:
            places = [*bench.task.places, "everything"]
            scope = choose("Where", places, key="scope2",
                           default="response" if "response" in places else "everything")
        with columns[3]:
            chosen = _choose_layers(bench, range(bench.model.cfg.n_layers), key="layers2")
    return put("held" if AND[also] == "held" else value, SITES[site], scope, chosen)


def _about(what: str) -> str:
    """Return what is put, in a sentence."""
    if what in ABOUT:
        return ABOUT[what]
    if what not in WHAT:
        return literal(f"{what}: {PATCHES[what].description}.").replace("{", "{{").replace(
            "}", "}}")
    first, *more = [OTHER[part] for part in what.split("+")]
    *middle, last = more or [""]
    listed = ", ".join([first, *middle]) + (f" and {last}" if last else "")
    return f"The source differs in {listed}."
