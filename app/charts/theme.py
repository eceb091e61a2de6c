"""How charts and tables look, and clicks on them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots

from latentcode.app.settings import ACCENT, FONT, STREAMLIT_THEME
from latentcode.app.words import literal, without_tags
from latentcode.figures.colours import PALETTE

_INTERVAL = re.compile(r"\[[^\]]*\]")


def is_dark() -> bool:
    """Whether the browser shows the dark theme."""
    return st.context.theme.type == "dark"


def palette(dark: bool) -> tuple[str, ...]:
    """Return the colours of categories: those of the figures, but black is light on dark."""
    return tuple("#D8DEE4" if dark and color == "#000000" else color for color in PALETTE)


def grey(dark: bool) -> str:
    """Return the colour of what was before."""
    return "#5B6672" if dark else "#B4BDC6"


def ink(dark: bool) -> str:
    """Return the colour of what is there now: that of text, which stands for no class."""
    return "#C9D1D9" if dark else "#3B4754"


def reach(scores: Sequence[float] | np.ndarray) -> float:
    """Return how far a slider of scores goes to either side: 1, or well beyond the largest."""
    largest = float(np.abs(scores).max())
    return 1.0 if largest <= 1.0 else float(np.ceil(1.5 * largest))


def styled(
    figure: go.Figure, *, height: int, dark: bool, legend: Mapping[str, Any] | None = None,
    **layout: Any,
) -> go.Figure:
    """Give a figure the look of the page: no frame, quiet grid, the page's colours.

    legend  what is particular to its legend; without it there is none
    layout  what else its layout has
    """
    text, line = ink(dark), "#323C47" if dark else "#E6EAEE"
    figure.update_layout(
        height=height, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 13, "color": text}, colorway=list(palette(dark)),
        margin={"l": 8, "r": 8, "t": 28, "b": 8}, showlegend=legend is not None,
        legend={"itemsizing": "constant", "bgcolor": "rgba(0,0,0,0)", **(legend or {})},
        hoverlabel={"font": {"family": FONT, "size": 13}}, dragmode=False,
        modebar={"orientation": "h", "bgcolor": "rgba(0,0,0,0)", "color": text,
                 "activecolor": ACCENT})
    figure.update_layout(**layout)
    figure.update_xaxes(gridcolor=line, zerolinecolor=line, linecolor=line, automargin=True)
    figure.update_yaxes(gridcolor=line, zerolinecolor=line, linecolor=line, automargin=True)
    return figure


LEGEND_OVER: dict[str, Any] = {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"}
"""A legend in one line over the axes."""
LEGEND_BELOW: dict[str, Any] = {**LEGEND_OVER, "y": 0.0, "yref": "container"}
"""One at the bottom of a figure."""
_ACROSS = 3
_PANEL = 300


def panel_grid(titles: Sequence[str]) -> tuple[go.Figure, list[dict[str, int]]]:
    """Return a figure of panels, three to a row, and the place of each for `add_trace`."""
    across = min(_ACROSS, len(titles))
    rows = -(-len(titles) // across)
    figure = make_subplots(rows, across, horizontal_spacing=0.06, vertical_spacing=0.2 / rows,
                           subplot_titles=list(titles))
    return figure, [{"row": i // across + 1, "col": i % across + 1} for i in range(len(titles))]


def styled_grid(
    figure: go.Figure, places: Sequence[Mapping[str, int]], *, dark: bool
) -> go.Figure:
    """Give a figure of `panel_grid` the look of the page, with a legend below all panels.

    There it has three lines, which it needs where the window is narrow.
    """
    figure.update_annotations(font_size=13)
    return styled(figure, height=_PANEL * places[-1]["row"] + 86, dark=dark, dragmode="zoom",
                  margin_t=46, margin_b=110, legend=LEGEND_BELOW)


STACKS = "stacks"
"""How the key of a container begins, the columns of which stand below each other where the window
is narrow."""
STYLE = """<style>
@media (max-width: 1100px) {
  [class*="st-key-stacks"] [data-testid="stColumn"] {min-width: 100% !important;}}
.stMainBlockContainer {padding: 3.6rem 2.2rem 2rem 2.2rem;}
.stMainBlockContainer h5 {padding: 0 0 .2rem 0;}
.stMainBlockContainer :is(h5, p, figcaption), [data-testid="stSidebar"] p {
  overflow-wrap: anywhere;}
[data-testid="stSidebarUserContent"] {padding-top: .4rem;}
[data-testid="stSelectboxVirtualDropdown"], [data-testid="stMultiSelectDropdown"] {
  width: max-content !important; min-width: var(--trigger-width); max-width: 94vw;}
[data-tag] > span {direction: rtl;}
[data-testid="stSkillsNudge"] {display: none;}  /* Streamlit's offer to those who write an app */
.problem {max-height: 70vh; overflow: auto; font-size: .8rem; line-height: 1.35;}
.problem > div {font-size: .8rem !important;}
.problem :is(td, th) {padding: 2px 3px !important; white-space: normal !important;}
.problem td:has(span) {white-space: nowrap !important;}
.problem span {margin: 0 1px !important; min-width: 1.35em !important;}
[data-testid="stTopNavLinkContainer"] a, [data-testid="stTopNavLink"] {
  padding-left: .35rem; padding-right: .35rem;}
[data-testid="stToolbar"] > div > div:has([data-testid="stMainMenu"]) {min-width: 8rem;}
@media (max-width: 1420px) {
  [data-testid="stTopNav"] {padding: 0 .2rem;}
  [data-testid="stTopNavLink"] {padding-left: .25rem; padding-right: .25rem;
    > span:has([data-testid="stIconMaterial"]) {display: none;}
    :is(span, p), span::after {font-size: clamp(.72rem, 1.2vw, .8rem); font-weight: 500;}}
}
[class*="st-key-whole"] :is(td, th) {padding: .25rem clamp(.15rem, .5vw, .5rem);
  font-size: clamp(.71rem, 1.1vw, .86rem);}
[class*="st-key-whole"] [data-testid="stTable"] > div {
  &::-webkit-scrollbar {height: 8px; width: 8px;}
  &::-webkit-scrollbar-thumb {background: rgba(128, 138, 148, .5); border-radius: 4px;}}
.stApp:is([data-test-script-state="notRunning"], [data-test-script-state="stopRequested"])
  .stProgress:not(:is(.st-key-replicate, [class*="st-key-reading"]) *) {display: none;}
.answer {margin-bottom: .5rem;}
:is(.st-key-beside, .st-key-lm_beside) {margin-top: .5rem;}
@media (max-width: 1000px) {
  .stMainBlockContainer [data-testid="stHorizontalBlock"]:not([data-testid="stColumn"] *) {
    flex-wrap: wrap;
    > [data-testid="stColumn"] {min-width: min(18rem, 100%);}
  }
}
</style>"""
"""What Streamlit has no option for: less empty space, a problem that fits into a column, and names
of models that are as long as their paths: whole, or with the end that tells them apart.

A problem brings its own style, for notebooks, in which it has the whole width."""

_BARS = "".join(f'<rect x="{x}" y="{30 - height}" width="5" height="{height}" rx="1.5"/>'
                for x, height in ((1, 16), (9, 25), (17, 11), (25, 20)))
"""Scores of four heads."""


def logo(dark: bool) -> str:
    """Return scores of four heads and the name, as SVG."""
    color = STREAMLIT_THEME[f"theme.{'dark' if dark else 'light'}.primaryColor"]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 190 34" height="34">'
            f'<g fill="{color}">{_BARS}<text x="40" y="26" font-family="{FONT}" font-size="23" '
            f'font-weight="600">latentcode</text></g></svg>')


def tab_icon() -> str:
    """Return the icon of the browser's tab, as SVG; Streamlit's own come from a network."""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 2 33 30"><g fill="{ACCENT}">'
            f'{_BARS}</g></svg>')


def show_still(figure: go.Figure, key: str, **settings: Any) -> None:
    """Show a chart in which names and labels are no HTML, and which can be saved as SVG."""
    st.plotly_chart(without_tags(figure.to_dict()), theme=None, key=key, config={
        "modeBarButtons": [["toImage"]], "displaylogo": False,
        "toImageButtonOptions": {"format": "svg", "filename": key.replace(" ", "-")}}, **settings)


def show_whole(table: pd.DataFrame, *, key: str) -> None:
    """Show a table, the cells of which have as many lines as they need; of many rows, in a box.

    A word that is the same in every row is said once, above.
    """
    same = [name for name in table if len(table) > 1 and table[name].nunique() == 1
            and not pd.api.types.is_numeric_dtype(table[name])
            and not _INTERVAL.search(str(table[name].iloc[0]))]
    if same:
        st.caption("In every row: " + ", ".join(
            literal(f"{str(name).replace('_', ' ')} {table[name].iloc[0]}") for name in same) + ".")
    shown = table.drop(columns=same)
    with st.container(key=f"whole-{key}"):
        st.table(shown.map(_cell).rename(columns=lambda name: literal(str(name).replace("_", " "))),
                 hide_index=True, border="horizontal",
                 height="content" if len(table) <= 16 else 560)


def _cell(value: object) -> str:
    """Return a cell as Markdown that shows its text as it is."""
    if value is None or value != value:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}"
    # An interval stands in one line.
    return literal(_INTERVAL.sub(lambda found: found[0].replace(" ", "\u00a0"), str(value)))
