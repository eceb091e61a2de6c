"""The charts of the bench: an answer before and after, its controls, its code."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from html import escape

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from latentcode.app.charts.theme import ACCENT, LEGEND_OVER, grey, styled
from latentcode.figures.style import DIVERGING, PALETTE
from latentcode.probes.interventions.bench.outcome import BenchOutcome

TARGET = PALETTE[3]
_ROOM = 8 * 11
"""Letters that fit side by side under the answers: eight symbols with lines of eleven."""


def answers(outcome: BenchOutcome, *, dark: bool) -> go.Figure:
    """The answer before and after, and which constituent would give which answer."""
    return _symbols(outcome, dark=dark) if outcome.symbolic else _numbers(outcome, dark=dark)


def _symbols(outcome: BenchOutcome, *, dark: bool) -> go.Figure:
    symbols = np.arange(len(outcome.before))
    figure = go.Figure()
    for name, values, color in (("before", outcome.before, grey(dark)),
                                ("after", outcome.after, ACCENT)):
        figure.add_bar(x=symbols, y=values, name=name, marker_color=color,
                       hovertemplate="symbol %{x}: %{y:.1%}<extra>" + name + "</extra>")
    names, below = [], bool(names_below(outcome))
    for symbol in symbols:
        owners = [] if below else [line for owner in outcome.owners(float(symbol))
                                   for line in _lines(owner)]
        text = "<br>".join([f"<b>{symbol}</b>", *map(escape, owners)])
        names.append(f"<span style='color:{TARGET}'>{text}</span>"
                     if symbol == outcome.target_answer else text)
    figure.update_xaxes(tickvals=symbols, ticktext=names, tickangle=0, tickfont={"size": 11},
                        showgrid=False, zeroline=False)
    figure.update_yaxes(range=[0, 1], tickformat=".0%", title="probability")
    return styled(figure, height=300, dark=dark, barmode="group", bargap=0.3, dragmode=False,
                  legend=LEGEND_OVER)


def names_below(outcome: BenchOutcome) -> str:
    """Return whose answer each symbol is, where the names are too long to stand under the bars."""
    if not outcome.symbolic:
        return ""
    owners = {symbol: outcome.owners(float(symbol)) for symbol in range(len(outcome.before))}
    widest = max((len(line) for names in owners.values() for name in names
                  for line in _lines(name)), default=0)
    if widest * len(owners) <= _ROOM:
        return ""
    return "; ".join(f"{symbol}: {', '.join(names)}" for symbol, names in owners.items() if names)


def _lines(name: str) -> list[str]:
    """Return a name in lines, broken where it has a space or a hyphen."""
    return textwrap.wrap(name, 11, break_long_words=False) or [name]


def control(outcome: BenchOutcome, name: str, *, dark: bool) -> go.Figure:
    """The mean probabilities after the draws of a control, on the axis of the answer."""
    values = outcome.control(name).mean(0)
    colors = [TARGET if symbol == outcome.target_answer else ACCENT
              for symbol in range(len(values))]
    figure = go.Figure(go.Bar(x=np.arange(len(values)), y=values, marker_color=colors,
                              opacity=0.65, hovertemplate="symbol %{x}: %{y:.1%}<extra></extra>"))
    figure.add_scatter(x=[outcome.answer_before], y=[1.0], mode="markers", hoverinfo="skip",
                       marker={"symbol": "triangle-down", "size": 9, "color": grey(dark)})
    figure.update_xaxes(dtick=1, showgrid=False, zeroline=False)
    figure.update_yaxes(range=[0, 1.06], tickvals=[0, 0.5, 1], tickformat=".0%")
    return styled(figure, height=150, dark=dark, dragmode=False, margin_t=6)


def _numbers(outcome: BenchOutcome, *, dark: bool) -> go.Figure:
    figure = _line({"before": outcome.before[None], "after": outcome.after[None]}, outcome,
                   dark=dark)
    known = outcome.answers.dropna(subset="answer")
    figure.add_scatter(
        x=known["answer"], y=["each term's answer"] * len(known), mode="markers",
        text=known["constituent"], hovertemplate="%{x:.3f} with %{text}<extra></extra>",
        marker={"symbol": "line-ns", "size": 14, "line": {"width": 2, "color": [
            {"base": grey(dark), "target": TARGET}.get(role, ACCENT)
            for role in known["role"]]}})
    return figure


def number_controls(
    outcome: BenchOutcome, titles: Mapping[str, str], *, dark: bool
) -> go.Figure:
    """The predictions of all draws of the controls, on the axis of the answer."""
    return _line({title: outcome.control(name) for name, title in titles.items()}, outcome,
                 dark=dark)


def _line(outputs: Mapping[str, np.ndarray], outcome: BenchOutcome, *, dark: bool) -> go.Figure:
    figure = go.Figure()
    for name, values in outputs.items():
        figure.add_scatter(
            x=values[:, 0], y=[name] * len(values), mode="markers", name=name,
            hovertemplate="%{x:.3f}<extra>" + escape(name) + "</extra>",
            marker={"size": 13, "opacity": 1.0 if len(values) == 1 else 0.7,
                    "color": grey(dark) if name == "before" else ACCENT})
    # The same on the left of all, so that their axes lie below each other.
    styled(figure, height=80 + 55 * len(outputs), dark=dark, dragmode=False, margin_l=150)
    marks = [(outcome.truth, grey(dark), "right")]
    if np.isfinite(outcome.target_answer) and outcome.target_answer != outcome.truth:
        marks.append((outcome.target_answer, TARGET, "the target's"))
    rightmost = max(value for value, _, _ in marks)
    for value, color, text in marks:  # the names stay within the axes
        figure.add_vline(x=value, line={"color": color, "dash": "dash", "width": 1.5},
                         annotation={"text": text, "font": {"size": 11}, "y": 1.0,
                                     "yanchor": "bottom",
                                     "xanchor": "right" if value == rightmost else "left"})
    every = [*outcome.outputs[:, 0], outcome.before[0], outcome.truth,
             *outcome.answers["answer"].dropna()]
    margin = 0.08 * (max(every) - min(every)) + 0.02
    figure.update_xaxes(range=[min(every) - margin, max(every) + margin])
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False, automargin=False)
    return figure


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
