"""Intervene: patch one problem, and see whose answer the model gives then."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import streamlit as st

from latentcode.app.charts import intervene as charts
from latentcode.app.charts.intervene import show_replication
from latentcode.app.charts.theme import STACKS, is_dark, show_still
from latentcode.app.components.problems import Place, show_places, tokens
from latentcode.app.data import loaded
from latentcode.app.data.benches import MOST, OpenBench, open_bench, usual
from latentcode.app.data.catalog import Entry
from latentcode.app.data.problem import drawn
from latentcode.app.panels.patches import (
    choose_problem,
    chosen_tokens,
    note_place,
    note_tokens,
)
from latentcode.app.state.messages import answering, guarded
from latentcode.app.state.sidebar import choose_entry, choose_split, number_input
from latentcode.app.state.url import remember, remembered_number
from latentcode.app.words import literal
from latentcode.errors import ConfigError
from latentcode.models.patched.sites import SITES as WRITTEN
from latentcode.probes.interventions.outcomes import Ask, BenchOutcome

if TYPE_CHECKING:
    from torch import Tensor

    from latentcode.tasks import Batch
    from latentcode.tasks.counterfactuals import MinimalPairs

FIRST = 2_000
"""Another problem is drawn from these, which are those that the zoo has codes of."""
DRAWN_AT_ONCE = 6
"""Problems of which the first that can tell is the other one."""


def page() -> None:
    """Show one problem of the model that the sidebar chooses, and what is written into it."""
    entry = choose_entry(models_only=True)
    _body(entry, choose_split(loaded.splits(entry)))


@st.fragment
@guarded
def _body(entry: Entry, split: str) -> None:
    asked = remembered_number("instance", None, MOST - 1)
    other = remembered_number("other", 1, MOST - 1) or 0
    open_ = open_bench(entry, split, max(asked or 0, other))
    instance, opened = _opened(open_, asked)
    problems, choices = st.container(key=f"{STACKS} problems"), st.container()
    with choices:
        ask = choose_problem(open_, instance, other)
    with problems:
        _show_problems(open_, ask, instance)
    try:
        open_.check(ask)
    except ConfigError as error:
        st.info(f"This cannot be put there: {literal(error)}", icon=":material/info:")
        return
    outcome = open_.outcome(ask, controls=False)
    _show(open_, outcome, opened)
    _show_codes(open_, outcome)


def _opened(open_: OpenBench, asked: int | None) -> tuple[int, str]:
    """Return the problem that is shown, and why it is that one, where nobody has asked for it."""
    if asked is not None:
        return asked, ""
    with st.spinner("Looking for a problem whose answers differ …"):
        opening = open_.opening(usual(open_.bench))
    remember("instance", str(opening.instance))
    if not opening.quiet:
        return opening.instance, ""
    return opening.instance, ("The first problem whose answers all differ, whose source is natural "
                              "and solved, and which random codes leave alone.")


def _show_problems(open_: OpenBench, ask: Ask, instance: int) -> None:
    """Draw the problem, whose tokens can be clicked, and its source beside it."""
    left, right = st.columns(2, gap="medium")
    pairs = open_.pairs(ask)
    with left:
        with st.container(key="pairs problem"):
            number, another = st.columns([1, 1], vertical_alignment="bottom")
        with number:
            number_input("Problem", "instance", instance, MOST)
        with another:
            st.button("Another one", icon=":material/casino:", width="stretch",
                      on_click=answering(_another), args=(open_, ask),
                      help="A random one whose answers tell what arrived, if one is found quickly.")
        n = pairs.bases.inputs.shape[1]
        fits = _written(open_, ask, pairs)
        tokens("tokens", drawn(open_.task, pairs.bases), chosen_tokens(open_), fits, note_tokens,
               n=n, label=f"Problem {instance}; each of its tokens is a button")
        st.caption(_told(open_, ask, pairs, "bases"))
    with right:
        source = (open_.bench.rows([ask.other]) if ask.other is not None
                  else pairs.batch(ask.source) if ask.of_source else None)
        if source is None:
            st.markdown("**No source**")
            st.caption("This patch comes from no other problem.")
            return
        st.markdown("**Source**")
        show_places("places", drawn(open_.task, source), _places(open_, pairs.bases, source),
                    note_place, current=None if chosen_tokens(open_) else str(
                        ask.first.where).removeprefix("within "), problem="tokens",
                    label="The source; its places are buttons")
        st.caption(_told(open_, ask, pairs, ask.source))


def _places(open_: OpenBench, problem: Batch, source: Batch) -> list[Place]:
    """Return the places of a problem and its source, with the positions of their tokens."""
    about, names = open_.bench.task.about_places, open_.bench.task.places
    of_problem, of_source = open_.task.places(problem), open_.task.places(source)
    return [Place(name, about.get(name, name), of_source[name][0].tolist(),
                  of_problem[name][0].tolist()) for name in names if name in of_problem]


def _another(open_: OpenBench, ask: Ask) -> None:
    numbers = random.sample(range(min(FIRST, len(open_.bench))), DRAWN_AT_ONCE)
    remember("instance", str(open_.another(usual(open_.bench), ask.which, numbers)))


def _told(open_: OpenBench, ask: Ask, pairs: MinimalPairs, name: str) -> str:
    """Return what a problem is, and what is right there."""
    bench = open_.bench
    if ask.other is not None and name != "bases":
        return f"Problem {ask.other}, another one."
    label = bench.constituents(ask.instance)[ask.which] if name == "bases" or (
        "operation" not in name and name != "sources") else ask.target
    where = f" of token {ask.which}" if open_.kind == "rule" else ""
    right = open_.right(pairs, name)
    return f"{open_.kind.capitalize()}{where}: **{literal(label)}**." + (
        f" Correct answer: **{literal(right)}**." if right else "")


def _written(open_: OpenBench, ask: Ask, pairs: MinimalPairs) -> dict[str, list[int]]:
    """Return the queries and keys of which something is put, to be marked; no tokens if all are."""
    found: dict[str, list[int]] = {"queries": [], "keys": []}
    for part in ask.patch.parts:
        try:
            cells: Tensor = part.cells(open_.bench.task, pairs)[0]
        except ConfigError:
            continue
        whose = {WRITTEN[site].of for site in part.sites}
        if whose != {"keys"}:
            found["queries"] += cells.any(1).nonzero().flatten().tolist()
        if whose != {"queries"}:
            keys = cells.any(0).nonzero().flatten().tolist()
            found["keys"] += keys if len(keys) < cells.shape[1] else []
    return found


def _show(open_: OpenBench, outcome: BenchOutcome, opened: str) -> None:
    """Show what became of the answer, then the controls, then whether others replicate it.

    opened  why it is this problem, where nobody has asked for one
    """
    dark = is_dark()
    st.markdown(f"##### {literal(outcome.sentence())}")
    notes = outcome.caveats()
    for note in notes[:2]:
        st.caption(f":material/info: {literal(note)}")
    with st.container(key=f"{STACKS} outcome"):
        left, right = st.columns([1.25, 1.0], gap="medium")
        with left:
            show_still(charts.answers(outcome, dark=dark), "answers")
        with right:
            place = st.empty()
            with place, st.spinner("Running the controls …"):
                full = open_.outcome(outcome.ask) if outcome.telling else outcome
            with place.container():
                if full.telling:
                    show_still(charts.controls(full, open_.kind, dark=dark), "controls")
                    st.caption("Whose answer comes, with this patch and with draws of each control "
                               "at the same place, in the colours of the answers. Grey: none of "
                               "these.")
                else:
                    st.caption(":material/info: Controls are left out: no answer to this problem "
                               "could show that something arrived.")
    said = ("Here: on this problem's operands; there: on the source's."
            if "operands" in outcome.candidates else "")
    if said or opened:
        st.caption(" ".join(filter(None, (said, opened))))
    show_replication(open_, outcome.ask)


def _show_codes(open_: OpenBench, outcome: BenchOutcome) -> None:
    """Show, folded, the code of the response before and after."""
    if not outcome.exact:
        st.error("Patching in the model's own activations changes its output: do not trust this "
                 "page.", icon=":material/error:")
    with st.expander("Codes before and after", icon=":material/grid_on:"):
        key = outcome.ask.key
        attended = "itself" if key is None else literal(open_.names[key])
        st.markdown(f"**The code of the response attending to {attended}**, before and after")
        show_still(charts.codes(outcome, dark=is_dark()), "codes")
        if outcome.exact:
            st.caption("Patching in the model's own activations there leaves every bit of the "
                       "output as it is.")
