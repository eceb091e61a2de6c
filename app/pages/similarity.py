"""Similarity: which values of a label have similar codes, and what sets two of them apart?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots

from latentcode.app.charts.theme import (
    LEGEND_ABOVE,
    STACKS,
    grey,
    is_dark,
    on_click,
    palette,
    show_still,
    styled,
)
from latentcode.app.data.loaded import saved_results
from latentcode.app.data.projections import colour_labels, value_name
from latentcode.app.state.messages import guarded, say_all_the_same
from latentcode.app.state.sidebar import AT_PLACE, Chosen, choose_codes, choose_label
from latentcode.app.state.url import choose, remember, remembered
from latentcode.app.words import literal, shortened
from latentcode.codes.latent_codes import is_measurement
from latentcode.figures.colours import FEATURE_STYLES
from latentcode.probes.common.statistics import varies
from latentcode.probes.similarity import SimilarityResult, cluster_order, cosine_matrix

CENTRINGS = ("centred", "raw")
CELL, AND = "cell", "~"
"""Name of the cell in the URL, and what stands there between its two values."""
MATRIX_KEY = "cosine matrix"
MOST_NAMED = 4
"""Values that a sentence names."""
MATRIX = 480
"""Height of the cosine matrix in pixels, and of what stands beside it."""
MOST_NAMES = 28
"""Names that an axis of the matrix has space for; of more, it has every second one or fewer."""
SHUFFLES = 20
"""How often labels are shuffled among instances."""


def page() -> None:
    """Show which values of a label have similar mean codes."""
    chosen = choose_codes()
    codes, layer, pair = chosen.codes, chosen.layer, chosen.pair
    names = [name for name in colour_labels(codes, pair)
             if not is_measurement(chosen.label(name)) and chosen.label(name).nunique() > 1]
    if not names:
        st.info("No label of these codes has two values to compare.",
                icon=":material/info:")
        return
    label = choose_label(names, codes, pair)
    centring = choose("Cosine", CENTRINGS, key="centring", form="buttons", where=st.sidebar,
                      help="centred: after subtracting the mean over all values. raw: the mean "
                           "codes as they are, which are all similar where scores cannot be "
                           "negative.")
    if not varies(chosen.points):
        say_all_the_same(chosen.entry.key, [(layer, pair)])
        return
    saved = [result for result in saved_results(chosen.entry).values()
             if isinstance(result, SimilarityResult)]
    _matrix(chosen, label, centring, saved)


@st.fragment
@guarded
def _matrix(
    chosen: Chosen, label: str, centring: str, saved: Sequence[SimilarityResult]
) -> None:
    """The matrix and what a click on a cell shows; the sidebar is not run again."""
    codes, layer, pair = chosen.codes, chosen.layer, chosen.pair
    means = codes.mean_by(label, layer=layer, pair=pair)
    numbers = chosen.label(label).value_counts()
    cosines = cosine_matrix(means.to_numpy(dtype=np.float64), centring)
    if len(means) > 2 and not pd.api.types.is_numeric_dtype(means.index):
        order = cluster_order(cosines)
        means, cosines = means.iloc[order], cosines[np.ix_(order, order)]
    values = [str(value) for value in means.index]
    names = [value_name(label, value) for value in means.index]
    one, other = _cell(values, cosines)
    st.markdown(f"##### How similar are the mean codes of the values of {literal(label)}?\n"
                f"layer {layer}, {literal(pair)}, {len(codes):,} instances. Click a cell to see "
                f"its two codes.\n\n{_within(chosen, label, centring)}")
    left, right = st.container(key=f"{STACKS} similarity").columns([1.15, 1.0], gap="medium")
    with left:
        show_still(
            cosine_chart(cosines, names, cells=[f"{a}{AND}{b}" for a in values for b in values],
                         chosen=(one, other), signed=centring == "centred", dark=is_dark()),
            MATRIX_KEY, alt="Cosines of the mean codes of the values of a label.")
        on_click(MATRIX_KEY, note_cell)
    with right:
        st.markdown(
            f"**{literal(names[one])}** ({numbers[means.index[one]]:,} instances) and "
            f"**{literal(names[other])}** ({numbers[means.index[other]]:,}): {centring} cosine "
            f"**{cosines[one, other]:.2f}**" + _controls(
                saved, label, layer, pair, centring, values[one], values[other]))
        show_still(two_codes_chart(means.iloc[one].to_numpy(), means.iloc[other].to_numpy(),
                                   (names[one], names[other]), dark=is_dark()), "two codes")


def _cell(values: list[str], cosines: np.ndarray) -> tuple[int, int]:
    """Return the cell that the URL or a click chooses; at first, the two most similar values."""
    one, _, other = (remembered(CELL) or "").partition(AND)
    if one in values and other in values:
        return values.index(one), values.index(other)
    apart = np.where(np.eye(len(values), dtype=bool), -np.inf, np.nan_to_num(cosines, nan=-1.0))
    row, column = np.unravel_index(int(apart.argmax()), apart.shape)
    return int(row), int(column)


def note_cell(cell: str) -> None:
    """Put a clicked cell into the URL: by its values, since other layers order them otherwise."""
    remember(CELL, unquote(cell))


def _controls(
    saved: Sequence[SimilarityResult], label: str, layer: int, pair: str, centring: str, one: str,
    other: str,
) -> str:
    """Return the saved cosines of a cell with their controls, in words; nothing without them."""
    for result in saved:
        table = result.cosines
        rows = table[(table["label"] == label) & (table["layer"] == layer)
                     & (table["pair"] == pair) & (table["centring"] == centring)
                     & (table["row"] == one) & (table["column"] == other)]
        if len(rows):
            texts = [f"{FEATURE_STYLES[str(row.features)][2]} {row.value:.2f} "
                     f"[{row.low:.2f}, {row.high:.2f}]" for row in rows.itertuples()]
            n = result.settings["codes"]["n"]
            return (f"\n\nStored result, {n:,} instances, 95 % intervals: " + ", ".join(texts)
                    + f". {beside_controls(rows)}")
    return ""


def beside_controls(rows: pd.DataFrame) -> str:
    """Return a sentence: is the cosine of a cell above its controls, and above which is it not?

    rows  of `SimilarityResult.cosines`, one per set of features
    """
    by_features = rows.set_index("features")
    if "code" not in by_features.index:
        return ""
    others = by_features.drop(index="code").dropna(subset=["high"])
    least = float(by_features["low"]["code"])
    reaching = [FEATURE_STYLES[str(name)][2] for name in others.index[others["high"] >= least]]
    if others.empty or np.isnan(least):
        return ""
    if not reaching:
        return "**Above every control**: no interval reaches that of the latent code."
    return ("**Not above every control.** Intervals that reach that of the latent code: "
            f"{', '.join(reaching)}.")


def _within(chosen: Chosen, label: str, centring: str) -> str:
    """Return how alike codes of the same value are, and for which values shuffled ones are, too."""
    table = _same_value(chosen, label, centring)
    return "" if table.empty else within_sentence(table, label, centring)


@st.cache_data(max_entries=24, show_spinner=False, hash_funcs=AT_PLACE)
def _same_value(chosen: Chosen, label: str, centring: str) -> pd.DataFrame:
    points = chosen.points.astype(np.float64)
    unit = unit_deviations(points) if centring == "centred" else unit_vectors(points)
    return same_value_cosines(unit, chosen.label(label))


def within_sentence(table: pd.DataFrame, label: str, centring: str) -> str:
    """Return what `same_value_cosines` says, in Markdown."""
    ranked = table["cosine"].sort_values()
    ends = [f"{ranked.loc[value]:.2f} ({literal(value_name(label, value))})"
            for value in dict.fromkeys((ranked.index[0], ranked.index[-1]))]
    said = (f"Two codes of the same {literal(label)} have a mean {centring} cosine of "
            f"{' to '.join(ends)}. ")
    control = f"labels shuffled among instances (the largest of {SHUFFLES} shuffles)"
    short = table[table["cosine"] <= table["shuffled"]]
    if short.empty:
        return said + (f"**For every value** that is more than with {control}." if len(table) > 1
                       else f"That is more than with {control}.")
    named = [f"{literal(value_name(label, row.Index))} ({row.cosine:.2f}, shuffled up to "
             f"{row.shuffled:.2f})" for row in short.head(MOST_NAMED).itertuples()]
    rest = len(short) - len(named)
    more = f" and {rest} more" if rest else ""
    which = (f"**For {len(short)} of {len(table)} values** it is" if len(short) < len(table)
             else "**For every value** it is")
    return said + f"{which} no more than with {control}: {', '.join(named)}{more}."


def cosine_chart(
    cosines: np.ndarray, names: Sequence[str], *, cells: Sequence[str],
    chosen: tuple[int, int] | None, signed: bool, dark: bool,
) -> go.Figure:
    """Which values of a label have similar mean codes? A click chooses a cell.

    cosines  [n, n]; those of the diagonal, which are 1, have no colour on the scale
    cells    [n * n], what a click says of a cell, row by row: the first entry of its `customdata`,
             quoted as in a URL
    chosen   row and column of the cell that is framed
    signed   whether colours are centred on 0
    """
    n = len(names)
    row, column = (i.ravel() for i in np.indices((n, n)))
    values = cosines.ravel()
    paper = "#1B222B" if dark else "#F4F6F8"
    own = np.eye(n, dtype=bool)
    apart = np.where(own, np.nan, cosines)
    finite = apart[np.isfinite(apart)]
    scale: dict[str, Any] = {
        "zmin": -1.0, "zmax": 1.0,
        "colorscale": [[0.0, "#0072B2"], [0.5, paper], [1.0, "#D55E00"]]} if signed else {
        "zmin": float(finite.min()) if len(finite) else 0.0,
        "zmax": float(finite.max()) if len(finite) else 1.0,
        "colorscale": [[0.0, paper], [1.0, "#0072B2"]]}
    figure = go.Figure(go.Heatmap(
        z=apart, xgap=1, ygap=1, hoverinfo="skip", hoverongaps=False,
        colorbar={"thickness": 10, "outlinewidth": 0, "len": 0.6, "y": 1.0, "yanchor": "top"},
        **scale))
    figure.add_heatmap(z=np.where(own, 1.0, np.nan), xgap=1, ygap=1, hoverinfo="skip",
                       hoverongaps=False, showscale=False, colorscale=[grey(dark)] * 2)
    # A heat map cannot be clicked, but invisible points on its cells can.
    figure.add_scatter(
        x=column, y=row, mode="markers", showlegend=False,
        marker={"size": max(6.0, 0.6 * MATRIX / n), "symbol": "square", "opacity": 0.0},
        # A label may have any letters, and what looks like a tag is changed on its way.
        customdata=np.column_stack([np.array([quote(cell) for cell in cells], dtype=object),
                                    values]),
        text=[f"{one} and {other}" for one in names for other in names],
        hovertemplate="%{text}: %{customdata[1]:.2f}<extra></extra>")
    told = range(0, n, -(-n // MOST_NAMES))
    ticks = {"tickvals": [*told], "ticktext": [shortened(names[i]) for i in told],
             "tickfont": {"size": 12 if n <= MOST_NAMES // 2 else 9},
             "showgrid": False, "zeroline": False, "range": [-0.5, n - 0.5]}
    figure.update_xaxes(**ticks, tickangle=-45, ticks="")
    figure.update_yaxes(**ticks, ticks="")
    figure.update_yaxes(range=[n - 0.5, -0.5], scaleanchor="x", constrain="domain",
                        constraintoward="top")
    figure.update_xaxes(constrain="domain", constraintoward="left")
    if chosen is not None:
        i, j = chosen
        figure.add_shape(type="rect", x0=j - 0.5, x1=j + 0.5, y0=i - 0.5, y1=i + 0.5,
                         line={"width": 2.5, "color": "#FFFFFF" if dark else "#111111"})
    return styled(figure, height=MATRIX, dark=dark, dragmode=False)


def two_codes_chart(one: np.ndarray, other: np.ndarray, names: tuple[str, str], *,
                    dark: bool) -> go.Figure:
    """Two mean codes [H] as bars over the heads, and their difference below."""
    figure = make_subplots(2, 1, shared_xaxes=True, vertical_spacing=0.12, row_heights=[0.6, 0.4],
                           subplot_titles=("mean codes", "the first minus the second"))
    colors = palette(dark)
    heads = np.arange(len(one))
    for code, name, color in zip((one, other), names, colors[:2], strict=True):
        figure.add_bar(x=heads, y=code, name=shortened(name), marker_color=color, row=1, col=1)
    figure.add_bar(x=heads, y=one - other, showlegend=False, row=2, col=1,
                   marker_color=[colors[0] if d > 0 else colors[1] for d in one - other])
    figure.update_xaxes(title="head", dtick=1 if len(heads) <= 16 else None, tickangle=0, row=2,
                        col=1)
    figure.update_xaxes(showgrid=False, zeroline=False)
    figure.update_yaxes(title="score", row=1, col=1)
    return styled(figure, height=MATRIX - 40, dark=dark, bargap=0.25, dragmode="zoom",
                  margin_t=76, legend=LEGEND_ABOVE)


def unit_deviations(points: np.ndarray) -> np.ndarray:
    """Return (a - mean a) / |a - mean a| of points [N, H]; zero where a is the mean."""
    return unit_vectors(points - points.mean(axis=0))


def unit_vectors(points: np.ndarray) -> np.ndarray:
    """Return a / |a| of points [N, H]; zero where a is."""
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return np.divide(points, length, out=np.zeros_like(points), where=length > 0)


def same_value_cosines(unit: np.ndarray, values: pd.Series, seed: int = 0) -> pd.DataFrame:
    """Return the mean cosine of two different rows of each value, beside shuffled values.

    unit    [N, H], rows of length 1
    values  [N]; for a control they are shuffled among the rows

    One row per value that has at least two rows, with `cosine` and the largest of `SHUFFLES`
    controls, `shuffled`.
    """
    index, names = pd.factorize(values, sort=True)
    rng = np.random.default_rng(seed)
    true = _by_value(unit, index, len(names))
    shuffled = np.max([_by_value(unit, rng.permutation(index), len(names))
                       for _ in range(SHUFFLES)], axis=0)
    table = pd.DataFrame({"cosine": true, "shuffled": shuffled}, index=names)
    return table[table["cosine"].notna()]


def _by_value(unit: np.ndarray, index: np.ndarray, n_values: int) -> np.ndarray:
    """Return (|sum_i u_i|^2 - sum_i |u_i|^2) / (n (n - 1)) over the n rows of each value, [V].

    NaN for fewer than two rows.
    """
    sums = np.stack([np.bincount(index, weights=column, minlength=n_values)
                     for column in unit.T], axis=1)
    n = np.bincount(index, minlength=n_values).astype(float)
    own = np.bincount(index, weights=np.square(unit).sum(axis=1), minlength=n_values)
    pairs = np.where(n > 1, n * (n - 1), np.nan)
    cosines: np.ndarray = (np.square(sums).sum(axis=1) - own) / pairs
    return cosines
