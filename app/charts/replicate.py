"""Replicate it: the same patch in many problems, with bars of whose answers came out."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from latentcode.app.charts.theme import LEGEND_OVER, is_dark, show_still, styled
from latentcode.app.data.benches import OpenBench
from latentcode.app.look import ACCENT
from latentcode.app.state.messages import guarded
from latentcode.app.words import literal
from latentcode.probes.interventions.outcomes import ANSWERS, Ask
from latentcode.probes.interventions.replication import Replication

PROBLEMS = 200
AT_ONCE = 20
"""Problems of one pass."""
TITLES = {"control": "same {kind}s", "unrelated": "other problems", "random": "random codes"}
"""The controls in the words of the page."""
_KEPT = "replication"
"""Name in the session: a patch, with its model and split, and what came of it."""


def show_replication(open_: OpenBench, ask: Ask) -> None:
    """Offer to put the same into many problems, and show what comes of it.

    What was found stays while the patch does.
    """
    _section(open_, ask)


@st.fragment
@guarded
def _section(open_: OpenBench, ask: Ask) -> None:
    patch = (open_.name, replace(ask, instance=0, target=""))
    n = min(PROBLEMS, len(open_.bench))
    with st.container(border=True, key="replicate"):
        place = st.empty()
        known, outcome = st.session_state.get(_KEPT, (None, None))
        if known != patch:
            with place.container():
                begins = st.button(f"Replicate on {n} problems", icon=":material/bar_chart:")
                st.caption(f"Applies this patch to {n} problems, each with a target of its own, "
                           "beside the controls.")
            if not begins:
                return
            outcome = _replicated(open_, ask, n, place)
            st.session_state[_KEPT] = patch, outcome
        place.caption(f"{outcome.n_seen} of {outcome.n} problems")
        _show(open_, outcome)


def _replicated(open_: OpenBench, ask: Ask, n: int, place: DeltaGenerator) -> Replication:
    """Put the same into n problems, with a bar; whatever else is changed on the page ends it."""
    bar, begun = place.progress(0.0, text=f"0 of {n} problems"), time.monotonic()
    coming = open_.bench.replicating(
        ask.patch, range(n), which=ask.which, other=ask.other, batch_size=AT_ONCE)
    while True:
        outcome = open_.next_of(coming)
        seen = outcome.n_seen
        if seen == outcome.n:
            return outcome
        left = (time.monotonic() - begun) / seen * (n - seen)
        bar.progress(seen / n, text=f"{seen} of {n} problems, about {max(1, round(left))} s left")


def _show(open_: OpenBench, outcome: Replication) -> None:
    st.markdown(literal(outcome.sentence()))
    if outcome.n_counted:
        show_still(bars(outcome, open_.kind, dark=is_dark()), "replicated")
    for note in outcome.notes():
        st.caption(f":material/info: {literal(note)}")
    st.download_button("Table, CSV", outcome.table.to_csv(index=False).encode(),
                       f"{open_.file}-replication.csv", "text/csv", key="replication, table",
                       on_click="ignore", icon=":material/download:")


def bars(outcome: Replication, kind: str, *, dark: bool) -> go.Figure:
    """The rate of each class of answers, and its interval: what was written beside its controls.

    kind  what the task calls a constituent
    """
    greys = ("#93A0AD", "#6B7783", "#495560") if dark else ("#7C8894", "#A9B3BC", "#D2D8DD")
    titles = ["what was written", *(title.format(kind=kind) for title in TITLES.values())]
    rates = outcome.rates()
    figure = go.Figure()
    for patch, title, color in zip(outcome.patches, titles, (ACCENT, *greys), strict=True):
        block = rates[rates["patch"] == patch]
        low, high = (np.nan_to_num(np.abs(block[end] - block["value"])) for end in ("low", "high"))
        figure.add_bar(
            x=[f"{name}<br>{ANSWERS.get(name, 'none of these')}" for name in block["class"]],
            y=block["value"], name=title, marker_color=color,
            error_y={"type": "data", "symmetric": False, "array": high, "arrayminus": low,
                     "thickness": 1.2, "width": 3, "color": "#C9D1D9" if dark else "#3B4754"},
            customdata=np.stack([block["low"], block["high"]], 1),
            hovertemplate="%{y:.0%} [%{customdata[0]:.0%}, %{customdata[1]:.0%}]"
                          f"<extra>{title}</extra>")
    figure.update_xaxes(showgrid=False, zeroline=False, tickangle=0, tickfont={"size": 12})
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%", title="of what counts")
    return styled(figure, height=290, dark=dark, barmode="group", bargap=0.25, dragmode=False,
                  legend=LEGEND_OVER)
