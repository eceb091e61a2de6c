"""Similarity: which values of a label have similar codes, and what sets two of them apart?"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.charts.clicks import on_click
from latentcode.app.charts.similarity import cosine_chart, two_codes_chart
from latentcode.app.charts.theme import STACKS, is_dark, show_still
from latentcode.app.data.cosines import (
    SHUFFLES,
    same_value_cosines,
    unit_deviations,
    unit_vectors,
)
from latentcode.app.data.projections import colour_labels, value_name
from latentcode.app.data.results import saved_results
from latentcode.app.state.messages import guarded, say_all_the_same
from latentcode.app.state.sidebar import AT_PLACE, Chosen, choose_codes, choose_label
from latentcode.app.state.url import choose, remember, remembered
from latentcode.app.words import literal
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
