"""What a model answers to a problem when other codes are patched into it, beside random ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from latentcode.app.charts import selected as panels
from latentcode.app.charts.theme import is_dark
from latentcode.app.data.preload import until_ready
from latentcode.app.data.problem import problem
from latentcode.app.state.sidebar import Chosen, number_input
from latentcode.app.state.url import choose
from latentcode.app.words import literal
from latentcode.errors import LatentCodeError

if TYPE_CHECKING:
    from latentcode.app.data.benches import OpenBench
    from latentcode.probes.interventions.outcomes import Answers

SHOWN = 10
"""Symbols of which a bar is drawn, where there are more."""


def show_answer(open_: OpenBench, found: Answers, *, wrote: str, control: str) -> None:
    """Show what became of the answer with the first of the codes, and how many others agree.

    wrote    what is written where, as a sentence
    control  what the others are
    """
    from latentcode.probes.interventions.outcomes import answer_of, answer_text

    task = open_.bench.task

    def name(answer: float) -> str:
        return answer_text(answer, task)

    before, after = answer_of(found.before), answer_of(found.outputs[0])
    several = open_.kind == "rule" and task.held(open_.bench.rows([0])).shape[1] > 1
    of = f" of token {found.which}" if several else ""
    said = f"**{literal(name(after))}**"
    if abs(before - after) <= found.least / 2:
        shares = f" ({name(before)} before)"
        if task.symbolic:
            now, then = found.outputs[0][int(after)], found.before[int(after)]
            shares = f", with probability {now:.2f} ({then:.2f} before)"
        text = f"The answer{of} stays {said}{shares}."
    else:
        text = f"The answer{of} becomes {said}; before: **{literal(name(before))}**."
    truth = "" if np.isnan(found.truth) else f" Correct answer: {literal(name(found.truth))}."
    st.markdown(text + truth)
    if task.symbolic:
        most = np.argsort(-np.maximum(found.before, found.outputs[0]), kind="stable")[:SHOWN]
        drawn = np.sort(most)
        bars = panels.outputs(found.before[drawn], found.outputs[0][drawn],
                              [name(answer) for answer in drawn], dark=is_dark())
        panels.show(bars, "answer bars")
    n = len(found.outputs) - 1
    st.caption(f"{wrote} {control}: {found.alike(after)[1:].sum()} of {n} give this answer.")


def show_mean(chosen: Chosen, selected: np.ndarray, instance: int) -> None:
    """Show what the mean code of a selection does to the answer of one problem."""
    if chosen.entry.kind == "codes":
        return
    title, number = st.columns([1.6, 1], vertical_alignment="center")
    title.markdown("**Patched into problem**")
    with number:
        number_input("Problem", "instance", instance, len(chosen.codes), labelled=False)
    where = st.empty()
    for _ in until_ready():
        where.empty()  # lets a click go first
    try:
        problem(chosen.entry, chosen.codes, instance)  # says where it is not that of the codes
        _mean(chosen, selected, int(chosen.codes.instances()[instance]))
    except LatentCodeError as error:
        st.caption(f":material/info: Nothing can be patched into it: {literal(error)}")


def _mean(chosen: Chosen, selected: np.ndarray, instance: int) -> None:
    from latentcode.app.data import benches

    open_ = benches.open_bench(chosen.entry, chosen.split, instance)
    query, key = benches.position(open_, instance, chosen.pair)
    cells = benches.cells_at(open_, instance, chosen.layer, query, key)
    rows = chosen.codes.instances()[selected]
    rows = rows[rows < len(open_.bench)]
    # In a text a query stands elsewhere, and its row is as long.
    offered = [benches.PAIR] if open_.kind == "place" or not len(rows) else [
        name for name in (benches.ROW, benches.PAIR, benches.CONTEXT) if name in cells]
    at = choose("Where", offered, key="at", form="buttons", label_visibility="collapsed")
    codes = (benches.mean_code(chosen.points, selected) if at == benches.PAIR else
             benches.mean_codes_at(open_, cells[at], rows.tolist()))
    n = int(selected.sum()) if at == benches.PAIR else min(len(rows), benches.MOST_AVERAGED)
    place = {benches.PAIR: chosen.pair, benches.CONTEXT: "context->every token",
             benches.ROW: f"{chosen.pair.partition('->')[0]}->every token"}[at]
    some = "" if n == selected.sum() else " of the"
    show_answer(open_, benches.answers_to(open_, instance, cells[at], codes),
                wrote=literal(f"Mean over {n:,}{some} selected, {place}, layer {chosen.layer}."),
                control="Control, as many random ones")
