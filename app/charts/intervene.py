"""Charts of one patched problem and of its replication on others."""

from __future__ import annotations

import time
from dataclasses import replace
from html import escape

import numpy as np
import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots
from streamlit.delta_generator import DeltaGenerator

from latentcode.app.charts.theme import LEGEND_OVER, grey, ink, is_dark, show_still, styled
from latentcode.app.data.benches import OpenBench
from latentcode.app.settings import ACCENT
from latentcode.app.state.messages import guarded
from latentcode.app.words import literal
from latentcode.figures.colours import DIVERGING
from latentcode.probes.interventions.intervention import COLOURS as CLASS_COLOURS
from latentcode.probes.interventions.outcomes import ANSWERS, Ask, BenchOutcome, Replication

COLOURS = {name: colour for name, colour in CLASS_COLOURS.items() if name != "else"}
"""The colours of classes of answers, as in figures; what is none of these is grey."""
SHOWN = 12
"""Symbols that are shown where there are more: those that could come, and the likeliest."""
LINE = 0.12
"""Height of a line of names above the axis of numbers, as a share of it."""
PROBLEMS = 200
AT_ONCE = 20
"""Problems of one pass."""
TITLES = {"control": "same {kind}s", "unrelated": "other problems", "random": "random codes"}
"""The controls in the words of the page."""
_KEPT = "replication"
"""Name in the session: a patch, with its model and split, and what came of it."""


def answers(outcome: BenchOutcome, *, dark: bool) -> go.Figure:
    """The answer before and after, and whose answer each would be."""
    return _symbols(outcome, dark=dark) if outcome.task.symbolic else _numbers(outcome, dark=dark)


def _symbols(outcome: BenchOutcome, *, dark: bool) -> go.Figure:
    """Bars that lie: whatever symbols are called, and whose they are, has room beside them."""
    symbols = _shown(outcome)
    at = np.arange(len(symbols))
    hovers = [outcome.written(symbol) + (f" ({', '.join(named)})" if named else "")
              for symbol in symbols for named in (outcome.owners(float(symbol)),)]
    figure = go.Figure()
    for name, values, color in (("before", outcome.before, grey(dark)),
                                ("after", outcome.after, ink(dark))):
        figure.add_bar(y=at, x=values[symbols], name=name, marker_color=color, orientation="h",
                       customdata=hovers,
                       hovertemplate="%{customdata}: %{x:.1%}<extra>" + name + "</extra>")
    whose, names = outcome.in_short(), []
    for symbol in symbols:
        owners = [f"{escape(whose[name])} {_square(name)}"
                  for name, answer in outcome.known.items() if answer == symbol]
        names.append("  ".join([*owners, f"<b>{escape(outcome.written(symbol))}</b>"]))
    figure.update_yaxes(tickvals=at, ticktext=names, tickfont={"size": 12}, autorange="reversed",
                        showgrid=False, zeroline=False)
    figure.update_xaxes(range=[0, 1], tickformat=".0%", nticks=3, zeroline=False)
    return styled(figure, height=62 + 24 * len(symbols), dark=dark, barmode="group", bargap=0.22,
                  dragmode=False, legend={**LEGEND_OVER, "traceorder": "normal"})


def _square(name: str) -> str:
    """Return a square in the colour of a class, beside its name in that of text."""
    return f"<span style='color:{COLOURS[name]}'>\N{BLACK SQUARE}</span>"


def _shown(outcome: BenchOutcome) -> list[int]:
    """Return the symbols that are drawn: all, or of many those that matter."""
    n = len(outcome.before)
    if n <= SHOWN:
        return list(range(n))
    likeliest = np.argsort(-np.maximum(outcome.before, outcome.after), kind="stable")
    return list(dict.fromkeys([*map(int, outcome.known.values()), *likeliest.tolist()]))[:8]


def controls(outcome: BenchOutcome, kind: str, *, dark: bool) -> go.Figure:
    """Whose answers came after what was put, and after the draws of each control: stacked bars.

    kind  what the task calls a constituent
    """
    lines = {outcome.ask.named: "what was put",
             **{name: title.format(kind=kind) for name, title in TITLES.items()}}
    drawn = {title: outcome.drawn(name) for name, title in lines.items()}
    whose = outcome.in_short()
    figure = go.Figure()
    for name in (*outcome.known, "else"):
        counts = [found[name] for found in drawn.values()]
        if not any(counts):
            continue
        shares = [n / max(sum(found.values()), 1) for n, found in zip(
            counts, drawn.values(), strict=True)]
        figure.add_bar(
            y=list(drawn), x=shares, name=whose[name], orientation="h",
            marker_color=COLOURS.get(name, grey(dark)), text=[str(n or "") for n in counts],
            textposition="inside", insidetextanchor="middle", textangle=0,
            customdata=[f"{n} of {sum(found.values())}" for n, found in zip(
                counts, drawn.values(), strict=True)],
            hovertemplate="%{customdata}<extra>" + escape(whose[name]) + "</extra>")
    figure.update_xaxes(visible=False, range=[0, 1])
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    return styled(figure, height=185, dark=dark, barmode="stack", bargap=0.35, dragmode=False)


def _numbers(outcome: BenchOutcome, *, dark: bool) -> go.Figure:
    """Before and after as points on one axis, the answers that could come as lines across it."""
    figure = go.Figure()
    for name, values, color in (("before", outcome.before, grey(dark)),
                                ("after", outcome.after, ink(dark))):
        figure.add_scatter(x=[float(values[0])], y=[name], mode="markers", name=name,
                           hovertemplate="%{x:.3f}<extra>" + name + "</extra>",
                           marker={"size": 15, "color": color})
    whose, known = outcome.in_short(), sorted(outcome.known.items(), key=lambda item: item[1])
    every = [*(answer for _, answer in known), outcome.answer_before, outcome.answer_after]
    margin = 0.12 * (max(every) - min(every)) + 0.02
    low, high = min(every) - margin, max(every) + margin
    # A name has a line of its own: those of near answers would lie upon each other.
    for row, (name, answer) in enumerate(known):
        figure.add_vline(x=answer, line={"color": COLOURS[name], "dash": "dash", "width": 1.5})
        left = answer > (low + high) / 2
        figure.add_annotation(
            x=answer, y=1.0 + LINE * (len(known) - row), yref="paper", showarrow=False,
            text=f"{_square(name)} {escape(whose[name])} {answer:.3f}", font={"size": 11},
            xanchor="right" if left else "left", yanchor="top")
    figure.update_xaxes(range=[low, high])
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return styled(figure, height=235, dark=dark, dragmode=False,
                  margin_t=24 + 17 * len(known))


def codes(outcome: BenchOutcome, *, dark: bool) -> go.Figure:
    """The code of the response to itself before and after: a row per layer, a column per head."""
    grids = {name: outcome.codes.pivot(index="layer", columns="head", values=name).to_numpy()
             for name in ("before", "after")}
    most = max(float(np.abs(grid).max()) for grid in grids.values())
    figure = make_subplots(1, 2, subplot_titles=["before", "after"], shared_yaxes=True,
                           horizontal_spacing=0.03)
    for column, grid in enumerate(grids.values(), 1):
        figure.add_heatmap(z=grid, zmin=-most, zmax=most, colorscale=DIVERGING, xgap=1, ygap=1,
                           showscale=column == 2, colorbar={"thickness": 8, "len": 1.0},
                           hovertemplate="layer %{y}, head %{x}: %{z:.3f}<extra></extra>",
                           row=1, col=column)
    figure.update_xaxes(title="head", showgrid=False)
    figure.update_yaxes(autorange="reversed", dtick=1, showgrid=False)
    figure.update_yaxes(title="layer", col=1)
    return styled(figure, height=95 + 24 * len(grids["before"]), dark=dark, dragmode=False)


@st.fragment
@guarded
def show_replication(open_: OpenBench, ask: Ask) -> None:
    """Offer to put the same into many problems, and show what comes of it, which stays while the
    patch does."""
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
    for note in outcome.caveats():
        st.caption(f":material/info: {literal(note)}")
    st.download_button("Table, CSV", outcome.table.to_csv(index=False).encode(),
                       f"{open_.name.replace('/', '-')}-replication.csv", "text/csv",
                       key="replication, table", on_click="ignore", icon=":material/download:")


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
