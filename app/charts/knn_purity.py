"""What do these codes separate? A table of labels, a sentence, and the place to open on."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.data import loaded
from latentcode.app.data.projections import offered
from latentcode.app.state.messages import answering
from latentcode.app.state.sidebar import AT_PLACE, Chosen
from latentcode.app.words import literal
from latentcode.codes import LatentCodes
from latentcode.codes.latent_codes import is_measurement
from latentcode.probes.common.statistics import varies
from latentcode.probes.knn_purity import ALL, K, judged_labels, purity, separates

MOST_JUDGED = 1_000
"""Codes by which the place that a page opens on is chosen."""
OPERATION = re.compile(r"(rule|function|term)(_\d+)?")
"""Labels that say what a problem asks to be done."""
SAME = "All codes of this layer and pair are the same: nothing can be separated."
TABLE = "knn purity"
"""Key of the table."""


def _purity(
    codes: LatentCodes, layer: int, pair: str, *, operation: bool = False
) -> pd.DataFrame:
    """Return the `purity` of the labels that can colour points, one row each; empty without any.

    operation  of those that say what a problem asks to be done alone, where there are some
    """
    labels = {name: values for name, values in judged_labels(
        codes.labels, codes.pair(pair)).items() if offered(pd.Series(values))}
    if operation:
        labels = {name: labels[name] for name in labels if OPERATION.fullmatch(name)} or labels
    points = np.asarray(codes.select(layer=layer, pair=pair))
    if len(codes) < 4 or not labels or not varies(points):
        return pd.DataFrame()
    known = codes.labels
    table = purity(points, labels, combinations=(
        known["combination"].to_numpy() if "combination" in known else None))
    return table[(table["among"] == ALL) & table["excess"].notna()].reset_index(drop=True)


@st.cache_resource(max_entries=96, show_spinner="Looking at neighbours …", hash_funcs=AT_PLACE)
def knn_purity(chosen: Chosen) -> pd.DataFrame:
    """Return the purity of each label, the largest excess over shuffled labels first.

    Labels whose shuffles are no null are left out. Empty for codes that are all the same, fewer
    than 4, or without labels.
    """
    table = _purity(chosen.codes, chosen.layer, chosen.pair)
    return table.sort_values("excess", ascending=False, kind="stable", ignore_index=True
                             ) if len(table) else table


def best_label(chosen: Chosen, options: Sequence[str] | None = None) -> str | None:
    """Return the label that a page opens on, among some; None where the codes separate none.

    That is the operation, or else the label that the codes separate best.
    """
    table = knn_purity(chosen)
    if not len(table):
        return None
    labels = [str(label) for label in table["label"][separates(table)]
              if options is None or label in options]
    return next(filter(OPERATION.fullmatch, labels), labels[0] if labels else None)


@st.cache_resource(max_entries=48, show_spinner="Looking at neighbours …", hash_funcs={
    Chosen: lambda chosen: chosen.key})
def separation(chosen: Chosen) -> pd.DataFrame:
    """Return `layer`, `pair` and `excess` of the places whose codes separate the operation, the
    largest excess first; of all labels where none says the operation."""
    codes = loaded.first(chosen.codes, MOST_JUDGED)
    tables = []
    for pair in codes.pairs:
        for layer in codes.layers:
            table = _purity(codes, layer, pair.name, operation=True)
            if len(table):
                tables.append(table[separates(table)].assign(layer=layer, pair=pair.name))
    if not tables:
        return pd.DataFrame(columns=["layer", "pair", "excess"])
    return pd.concat(tables).sort_values(
        "excess", ascending=False, kind="stable", ignore_index=True)


def best_place(chosen: Chosen, pair: str | None = None) -> tuple[int, str]:
    """Return the layer and pair whose codes separate the operation best, of one pair or of all.

    The last layer and the first pair where none does.
    """
    table = separation(chosen)
    table = table if pair is None else table[table["pair"] == pair]
    if not len(table):
        return chosen.codes.layers[-1], pair or chosen.codes.pairs[0].name
    return int(table["layer"].iloc[0]), str(table["pair"].iloc[0])


def sentence(chosen: Chosen, colour: str) -> str:
    """Return one line of Markdown: the label that is separated best, and the current colour."""
    table = knn_purity(chosen)
    if not len(table):
        return SAME if not varies(chosen.points) else ""
    rows = table.set_index("label")
    best = str(rows.index[0])

    def numbers(label: str) -> tuple[str, str]:
        cut = ", cut at the median" if is_measurement(chosen.label(label)) else ""
        return f"{rows['purity'][label]:.2f}", f"{rows['shuffled'][label]:.2f}{cut}"

    share, shuffled = numbers(best)
    what = (f"{share} of a code's {K} nearest neighbours share it (mean over its values; shuffled "
            f"labels {shuffled})")
    if not separates(table).iloc[0]:
        return f"These codes separate no label: at best **{literal(best)}**, {what}."
    # A label may have two names, such as rule and rule_0.
    mine = next((name for name in rows.index
                 if chosen.label(name).name == chosen.label(colour).name), best)
    also = "" if mine == best else "; {} {} ({})".format(literal(colour), *numbers(mine))
    return f"These codes separate **{literal(best)}** best: {what}{also}."


def show_purity(chosen: Chosen) -> None:
    """Show the purity of all labels; the one whose row is selected colours the page.

    Needs a list with the key "colour".
    """
    table = knn_purity(chosen)
    if not len(table):
        return

    def note() -> None:
        rows = st.session_state[TABLE]["selection"]["rows"]
        if rows:
            st.session_state["colour"] = str(table["label"].iloc[rows[0]])

    st.dataframe(pd.DataFrame({"label": table["label"], "purity (shuffled)": [
        f"{row.purity:.2f} ({row.shuffled:.2f})" for row in table.itertuples()]}),
        key=TABLE, hide_index=True, height=180, selection_mode="single-row",
        on_select=answering(note))
    st.caption(f"Share of the {K} nearest neighbours with the same value (kNN purity), and with "
               "shuffled labels. Select a row to colour by it.")
