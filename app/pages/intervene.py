"""Intervene: write other codes into one problem, and see whether the model changes its mind."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import streamlit as st

from latentcode.app.attribution.section import choose_keys, shown_key, where_it_lives
from latentcode.app.beside.swap import choose_swap, show_swap
from latentcode.app.charts import intervene as charts
from latentcode.app.charts.replicate import TITLES, show_replication
from latentcode.app.charts.theme import is_dark, show_still
from latentcode.app.data import loaded
from latentcode.app.data.benches import MOST, OpenBench, drawn, given_pairs, open_bench
from latentcode.app.data.catalog import Entry
from latentcode.app.handles.numbers import choose_numbers
from latentcode.app.state.messages import answering, guarded
from latentcode.app.state.sidebar import choose_entry, choose_layers_and_heads, choose_split
from latentcode.app.state.url import choose, remember, remembered_number
from latentcode.app.words import literal
from latentcode.probes.interventions.bench.ask import Ask
from latentcode.probes.interventions.bench.outcome import BenchOutcome
from latentcode.probes.interventions.patch import Patch
from latentcode.probes.interventions.patches import PATCHES
from latentcode.probes.interventions.values import ByHand

if TYPE_CHECKING:
    from latentcode.probes.interventions.bench.bench import Bench

WHAT = {"interchange": "minimal pair", "instance": "other problem", "mean": "mean",
        "hand": "by hand",
        "operands": "other operands", "operation+operands": "other {kind} and operands",
        "rest": "other rest", "operation+rest": "other {kind} and rest",
        "operands+rest": "other operands and rest",
        "operation+operands+rest": "other {kind}, operands and rest"}
"""What can be written, in the words of the page; after these come patches of one's own."""
VALUES = {"instance": "interchange", "mean": "class_mean"}
"""The patches that the page calls otherwise."""
ABOUT = {
    "interchange": "The codes of the same problem with **{target}** in place of **{base}**.",
    "instance": "The codes of any other problem of this split.",
    "mean": "The mean codes of training problems that have **{target}** in that place.",
    "hand": "One number per head, for every code that is written.",
}
OTHER = {
    "operation": "its {kind} (**{target}** in place of **{base}**)",
    "operands": "what the {kind} is applied to",
    "rest": "the rest of the problem",
}
"""What a source has that the problem has not, by the parts of its name."""
FIRST = 2_000
"""Another problem is drawn from these, which are those that the zoo has codes of."""
CONTROLS = {name: title.capitalize() for name, title in TITLES.items()}


def page() -> None:
    """Show one problem of the model that the sidebar chooses, and what is written into it."""
    entry = choose_entry(models_only=True)
    _body(entry, choose_split(loaded.splits(entry)))


@st.fragment
@guarded
def _body(entry: Entry, split: str) -> None:
    instance = remembered_number("instance", 0, MOST - 1)
    other = remembered_number("other", 1, MOST - 1)
    left, right = st.columns([1.0, 1.3], gap="large")
    with left:
        _choose_instance(instance)
        st.html(f"<div class='problem'>{drawn(entry, split, instance)}</div>")
        if given_pairs(entry, split) is not None:
            swapped = choose_swap(entry, split, instance)
    if given_pairs(entry, split) is not None:
        with right:
            show_swap(swapped)
        return
    with left:
        # The problem stands while the model is loaded.
        bench = open_bench(entry, split, max(instance, other))
        ask = _choose_patch(bench, instance, other)
    if ask is None:
        return
    with right:
        _show(bench, bench.outcome(ask))
    where_it_lives(bench, ask)


def _choose_instance(instance: int) -> None:
    number, another = st.columns([1, 1], vertical_alignment="bottom")
    with another:
        st.button("Another one", icon=":material/casino:", width="stretch",
                  on_click=answering(
                      lambda: remember("instance", str(random.randrange(FIRST)))))
    with number:
        _number_input("Problem", "instance", instance)


def _number_input(label: str, key: str, value: int) -> None:
    widget = f"{key} number"
    st.session_state[widget] = value
    st.number_input(label, min_value=0, max_value=MOST - 1, step=1, key=widget,
                    on_change=answering(
                        lambda: remember(key, str(st.session_state[widget]))))


def _choose_patch(open_: OpenBench, instance: int, other: int) -> Ask | None:
    """Let a person choose what is written where; None while something is missing."""
    bench, kind = open_.bench, open_.kind
    held = bench.constituents(instance)
    st.markdown("##### What is written")
    first, second = st.columns(2)
    with first:
        of = "the rule of token" if kind == "rule" else kind
        which = choose(f"Replace {of}", range(len(held)), key="which", form="buttons",
                       help=f"Which of the problem's {kind}s its minimal pair replaces.")
        st.caption(f"It is **{held[which]}**.")
    targets = bench.targets(instance, which)
    with second:
        target = choose(f"… by this {kind}", targets, key="target",
                        default=open_.telling(instance, which))
    offered = [*(name for name in WHAT if name in ("instance", "hand")
                 or VALUES.get(name, name) in bench.values),
               *(name for name in bench.values if PATCHES[name].own)]
    what = choose("Codes", offered, key="what", default="interchange",
                  shown=lambda w: WHAT.get(w, w).format(kind=kind))
    st.caption(_about(what).format(base=held[which], target=target, kind=kind))
    if what == "instance":
        _number_input("Number of the other problem", "other", other)
    layers, scope, heads = _choose_where(bench)
    if not layers:
        return None
    keys = choose_keys(open_, instance, which, scope)
    value: str | ByHand = VALUES.get(what, what)
    if what == "hand":
        how, numbers = choose_numbers(open_, instance, which, target, layer=layers[-1],
                                      scope=scope, key=keys[0] if keys else None)
        value = ByHand(numbers, how)
    patch = Patch(value, scope, tuple(layers), heads=tuple(heads) or None, keys=keys)
    return Ask(patch, instance, target, which, other if what == "instance" else None)


def _about(what: str) -> str:
    """Return what is written, in a sentence."""
    if what in ABOUT:
        return ABOUT[what]
    if what not in WHAT:
        return literal(f"{what}: {PATCHES[what].description}.").replace("{", "{{").replace(
            "}", "}}")
    first, *more = [OTHER[part] for part in what.split("+")]
    *middle, last = more or [""]
    listed = ", ".join([first, *middle]) + (f" and {last}" if last else "")
    return f"The codes of a source that differs in {listed}."


def _choose_where(bench: Bench) -> tuple[list[int], str, list[int]]:
    from latentcode.tasks.counterfactuals import SCOPES

    layers, heads = choose_layers_and_heads(bench.model.cfg.n_layers, bench.model.cfg.n_heads)
    scope = choose("Scope", bench.task.scopes, key="scope", form="buttons", default="everything",
                   help="; ".join(f"{name}: {SCOPES[name]}" for name in bench.task.scopes))
    st.caption(f"{SCOPES[scope].capitalize()}.")
    return layers, scope, heads


def _show(open_: OpenBench, outcome: BenchOutcome) -> None:
    """Show what became of the answer, whether others replicate that, and the controls."""
    dark = is_dark()
    st.markdown(f"##### {outcome.sentence()}")
    for note in filter(None, (outcome.whose(), *outcome.caveats())):
        st.caption(f":material/info: {note}")
    if not outcome.symbolic:
        st.caption("Ticks: what the function would be at the query with each term in that place.")
    show_still(charts.answers(outcome, dark=dark), "answers")
    if names := charts.names_below(outcome):
        st.caption(literal(names))
    show_replication(open_, outcome.ask)
    st.markdown(f"**Controls**: instead, the codes of sources with the same {open_.kind}s and "
                "fresh values, those of unrelated problems, and random ones of equal norm. None "
                "of them should flip the answer, that is, make it the target's; the first "
                "should keep it.")
    if outcome.symbolic:
        for column, (name, title) in zip(st.columns(3), CONTROLS.items(), strict=True):
            with column:
                rows = outcome.table[outcome.table["patch"] == name]
                flipped = rows["flipped"].sum() if outcome.counts else None
                st.markdown(f"{title.format(kind=open_.kind)}  \nof {len(rows)}: " + ", ".join(
                    f"**{int(number)}** {text}" for number, text in (
                        (rows["kept"].sum(), "keep it"), (flipped, "flip"))
                    if number is not None))
                show_still(charts.control(outcome, name, dark=dark), f"control {name}")
    else:
        titles = {name: title.format(kind=open_.kind) for name, title in CONTROLS.items()}
        show_still(charts.number_controls(outcome, titles, dark=dark), "controls")
    st.caption(":material/check_circle: Its own codes, written back, leave every bit of the "
               "output as it is." if outcome.exact else
               ":material/error: Its own codes, written back, change the output: do not trust "
               "this page.")
    st.markdown(f"**The code of the response attending to {shown_key(open_, outcome.ask)}**, "
                "before and after")
    show_still(charts.codes(outcome, dark=dark), "codes")
