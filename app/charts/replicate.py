"""Replicate it: the same patch in many problems, with bars of whose answers came out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from latentcode.app.charts.theme import LEGEND_OVER, is_dark, show_still, styled
from latentcode.app.data.benches import OpenBench
from latentcode.app.look import ACCENT
from latentcode.app.state.messages import answering, guarded
from latentcode.app.words import literal
from latentcode.probes.interventions.bench.ask import ANSWERS, Ask
from latentcode.probes.interventions.bench.replication import Replication

PROBLEMS = 200
AT_ONCE = 20
"""Problems of one pass: a stop is heeded after each."""
TITLES = {"control": "same {kind}s", "unrelated": "other problems", "random": "random codes"}
"""The controls in the words of the page."""
_KEPT, _BUTTON = "replication", "replication, button"
"""Names in the session."""


@dataclass
class Replicating:
    """What is known so far of a patch in many problems.

    asked    the model, its split, and the patch without its problem and target
    coming   what will be known after each pass to come
    outcome  what is known; None before the first pass
    running  whether the next pass follows
    seconds  what the passes took
    """

    asked: tuple[object, ...]
    coming: Iterator[Replication]
    outcome: Replication | None = None
    running: bool = True
    seconds: float = 0.0

    @property
    def done(self) -> bool:
        return self.outcome is not None and self.outcome.n_seen == self.outcome.n


def show_replication(open_: OpenBench, ask: Ask) -> None:
    """Offer to write the same into many problems, and show what comes of it.

    What another part of the page changes ends a run; what was found stays while the patch does.
    """
    asked = (open_.name, replace(ask, instance=0, target=""))
    state: Replicating | None = st.session_state.get(_KEPT)
    if state is not None:
        state.running = False
        if state.asked != asked:
            del st.session_state[_KEPT]
    _section(open_, ask, asked)


@st.fragment
@guarded
def _section(open_: OpenBench, ask: Ask, asked: tuple[object, ...]) -> None:
    state: Replicating | None = st.session_state.get(_KEPT)
    # The button is one and the same, whatever it says: one that a run leaves out would stay on the
    # page until the last run has ended.
    with st.container(border=True, key="replicate"):
        if state is None:
            _offer(open_, ask, asked)
            return
        _controls(state)
        if state.outcome is not None:
            _show(open_, state.outcome)
    if state.running:
        _pass(open_, state)
        st.rerun(scope="fragment")


def _offer(open_: OpenBench, ask: Ask, asked: tuple[object, ...]) -> None:
    n = min(PROBLEMS, len(open_.bench))

    def begin() -> None:
        st.session_state[_KEPT] = Replicating(asked, open_.bench.replicating(
            ask.patch, range(n), which=ask.which, other=ask.other, batch_size=AT_ONCE))

    st.button(f"Replicate on {n} problems", icon=":material/bar_chart:", on_click=answering(begin),
              key=_BUTTON)
    st.caption(f"Applies this patch to {n} problems, each with a target of its own, beside the "
               "controls. It can be stopped at any time.")


def _controls(state: Replicating) -> None:
    """Say how far it is, and let a person stop it or go on."""
    seen, n = (0, PROBLEMS) if state.outcome is None else (state.outcome.n_seen, state.outcome.n)
    text = f"{seen} of {n} problems"
    if state.running and seen:
        text += f", about {max(1, round(state.seconds / seen * (n - seen)))} s left"

    def run(on: bool) -> None:
        state.running = on

    if not state.done:
        label, icon = ("Stop", "stop") if state.running else ("Go on", "play_arrow")
        st.button(label, icon=f":material/{icon}:", on_click=answering(run),
                  args=(not state.running,), key=_BUTTON)
    st.progress(seen / n, text=text if state.running or state.done else f"Stopped at {text}")


def _pass(open_: OpenBench, state: Replicating) -> None:
    """Let the next problems be written to, after which the section is shown again."""
    begun = time.monotonic()
    try:
        state.outcome = open_.next_of(state.coming)
    except Exception:
        st.session_state.pop(_KEPT, None)  # what has failed cannot go on
        raise
    state.seconds += time.monotonic() - begun
    state.running = state.running and not state.done


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
