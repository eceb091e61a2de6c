"""What do these codes separate? Bars per label and a line over layers; a click chooses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.assets import own_component
from latentcode.app.data import loaded
from latentcode.app.data.projections import offered
from latentcode.app.state.messages import answering
from latentcode.app.state.sidebar import AT_PLACE, Chosen
from latentcode.app.words import literal
from latentcode.codes.latent_codes import is_measurement
from latentcode.probes.common.statistics import varies
from latentcode.probes.knn_purity import (
    ALL,
    MOST_QUERIES,
    OTHER,
    K,
    judged_labels,
    purity,
    separates,
)

MOST_JUDGED = 1_000
"""Codes by which the place that a page opens on is chosen."""
OPERATION = re.compile(r"(rule|function|term)(_\d+)?")
"""Labels that say what a problem asks to be done."""
SAME = "All codes of this layer and pair are the same: nothing can be separated."
Option = TypeVar("Option", str, int)


@st.cache_resource(max_entries=96, show_spinner="Looking at neighbours …", hash_funcs=AT_PLACE)
def knn_purity(chosen: Chosen) -> pd.DataFrame | None:
    """Return the `purity` of all labels that can colour the points, the largest excess first.

    Labels whose shuffles are no null are left out. None where there is nothing to tell: codes that
    are all the same, fewer than 4, or no label.
    """
    labels = {name: values for name, values in judged_labels(
        chosen.codes.labels, chosen.codes.pair(chosen.pair)).items()
              if offered(pd.Series(values))}
    if len(chosen.codes) < 4 or not labels or not varies(chosen.points):
        return None
    known = chosen.codes.labels
    table = purity(chosen.points, labels, combinations=(
        known["combination"].to_numpy() if "combination" in known else None))
    told = table[(table["among"] == ALL) & table["excess"].notna()]
    table = table[table["label"].isin(told["label"])]
    if not len(table):
        return None
    best = table[table["among"] == ALL].sort_values("excess", ascending=False, kind="stable")
    order = {label: place for place, label in enumerate(best["label"])}
    return table.sort_values("label", key=lambda names: names.map(order), kind="stable",
                             ignore_index=True)


def best_label(chosen: Chosen, options: Sequence[str] | None = None) -> str | None:
    """Return the label that a page opens on, among some; None where the codes separate none.

    Of the labels in question, or else of all, the one that the codes separate best.
    """
    table = knn_purity(chosen)
    if table is None:
        return None
    rows = table[(table["among"] == ALL) & separates(table)]
    found = [str(label) for label in rows["label"] if options is None or label in options]
    return next((label for label in found if OPERATION.fullmatch(label)), found[0]
                ) if found else None


@st.cache_resource(max_entries=48, show_spinner="Looking at neighbours …", hash_funcs={
    Chosen: lambda chosen: chosen.key})
def separation(chosen: Chosen) -> pd.DataFrame:
    """Return `layer`, `pair`, `label`, `excess`, and whether the codes separate it, of all places.

    Of the labels in question: the operation (a rule, a function, its terms); without such, all.
    """
    codes = loaded.first(chosen.codes, MOST_JUDGED)
    tables = []
    for pair in codes.pairs:
        labels = {name: values for name, values in judged_labels(codes.labels, pair).items()
                  if offered(pd.Series(values))}
        labels = {name: values for name, values in labels.items()
                  if OPERATION.fullmatch(name)} or labels
        for layer in codes.layers:
            points = np.asarray(codes.select(layer=layer, pair=pair.name))
            if len(codes) < 4 or not labels or not varies(points):
                continue
            table = purity(points, labels, combinations=(
                codes.labels["combination"].to_numpy() if "combination" in codes.labels else None))
            tables.append(table.assign(layer=layer, pair=pair.name, separates=separates(table))[
                table["among"] == ALL])
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def best_place(chosen: Chosen) -> tuple[int, str]:
    """Return the layer and pair where the label in question is separated best above shuffled ones.

    The last layer and the first pair where it is nowhere.
    """
    table = separation(chosen)
    known = table[table["separates"]] if len(table) else table
    if not len(known):
        return chosen.codes.layers[-1], chosen.codes.pairs[0].name
    best = known.iloc[int(known["excess"].to_numpy().argmax())]
    return int(best["layer"]), str(best["pair"])


def best_layer(chosen: Chosen, pair: str) -> int:
    """Return the layer where a pair's codes separate the label in question best."""
    table = separation(chosen)
    known = table[table["separates"] & (table["pair"] == pair)] if len(table) else table
    if not len(known):
        return chosen.codes.layers[-1]
    return int(known["layer"].to_numpy()[known["excess"].to_numpy().argmax()])


def sentence(chosen: Chosen, colour: str) -> str:
    """Return one line of Markdown: the label that is separated best, and the current colour."""
    table = knn_purity(chosen)
    if table is None:
        return SAME if not varies(chosen.points) else ""
    rows = table[table["among"] == ALL].set_index("label")
    best = str(rows.index[0])

    def numbers(label: str) -> tuple[str, str]:
        share, shuffled, _ = numbers_of(rows, label)
        cut = ", cut at the median" if is_measurement(chosen.label(label)) else ""
        return f"{share:.2f}", f"{shuffled:.2f}{cut}"

    share, shuffled = numbers(best)
    what = (f"{share} of a code's {K} nearest neighbours share it (mean over its values; shuffled "
            f"labels {shuffled})")
    if not separates(rows).iloc[0]:
        return f"These codes separate no label: at best **{literal(best)}**, {what}."
    mine = name_of(chosen, colour, rows.index)
    also = "" if mine in (None, best) else "; {} {} ({})".format(
        literal(colour), *numbers(str(mine)))
    return f"These codes separate **{literal(best)}** best: {what}{also}."


def show_purity(chosen: Chosen, colour: str) -> None:
    """Show the bars of all labels, and recolour the page by the one that is clicked.

    Needs a list of the sidebar with the key "colour", as `choose_look` shows it.
    """
    table = knn_purity(chosen)
    if table is None:
        return
    of_all, of_others = (table[table["among"] == among].set_index("label")
                         for among in (ALL, OTHER))
    bars = []
    for name in map(str, of_all.index):
        share, shuffled, spread = numbers_of(of_all, name)
        told = (f"{name}: {share:.2f} of the {K} nearest neighbours agree, as a mean over its "
                f"values; with shuffled labels {shuffled:.2f}")
        if len(of_others) and np.isfinite((other := numbers_of(of_others, name))[0]):
            told += f"; of those from other combinations {other[0]:.2f}, shuffled {other[1]:.2f}"
        if is_measurement(chosen.label(name)):
            told += ". A measurement, cut at its median"
        if len(chosen.codes) > MOST_QUERIES:
            told += f". Asked of {MOST_QUERIES:,} codes"
        bars.append({"label": name, "purity": share, "shuffled": shuffled, "spread": spread,
                     "told": f"{told}."})
    names = list(map(str, of_all.index))
    pick("knn_purity", {"bars": bars, "current": name_of(chosen, colour, names)}, names,
         key="colour", shown=colour)


def numbers_of(rows: pd.DataFrame, label: str) -> tuple[float, float, float]:
    """Return purity, shuffled and spread of a label, which is the index."""
    share, shuffled, spread = rows.loc[[label], ["purity", "shuffled", "spread"]].to_numpy()[0]
    return float(share), float(shuffled), float(spread)


def name_of(chosen: Chosen, colour: str, names: Iterable[str]) -> str | None:
    """Return which of some names stands for a label: `rule` for `rule_2` of the pair's token 2."""
    column = chosen.label(colour).name
    return next((name for name in names if chosen.label(name).name == column), None)


def show_track(chosen: Chosen, colour: str) -> None:
    """Show how far the layers' codes separate the current colour; a click chooses a layer.

    Needs the sidebar's row of layers, of the key "layer", as `choose_layer` shows it.
    """
    places = []
    for layer, share, shuffled in over_layers(chosen, colour).to_numpy().tolist():
        known = np.isfinite(share)
        told = (f"layer {layer:.0f}: {share:.2f} of the nearest neighbours agree on {colour}, a "
                f"mean over its values; with shuffled labels {shuffled:.2f}" if known
                else f"layer {layer:.0f}: nothing to separate")
        places.append({"layer": int(layer), "value": share if known else None,
                       "shuffled": shuffled if known else None, "told": told})
    measured = f"Share of nearest neighbours that agree on {colour}; dashed: shuffled labels"
    pick("track", {"places": places, "current": chosen.layer, "measured": measured},
         chosen.codes.layers, key="layer", shown=chosen.layer)


def over_layers(chosen: Chosen, colour: str) -> pd.DataFrame:
    """Return `layer`, `purity` and `shuffled` of a label, a row per layer.

    NaN where a layer's codes are all the same, and for a label that is not judged.
    """
    rows: list[tuple[int, float, float]] = []
    for layer in chosen.codes.layers:
        table = knn_purity(replace(chosen, layer=layer))
        share = shuffled = np.nan
        if table is not None:
            of_all = table[table["among"] == ALL].set_index("label")
            name = name_of(chosen, colour, of_all.index)
            if name is not None:
                share, shuffled, _ = numbers_of(of_all, name)
        rows.append((layer, share, shuffled))
    return pd.DataFrame(rows, columns=["layer", "purity", "shuffled"])


def pick(
    name: str, data: Mapping[str, Any], options: Sequence[Option], *, key: str, shown: Option
) -> None:
    """Show a chart; an option that is clicked becomes the value of the widget `key`.

    name     of the script beside this module, which draws `data` and reports `picked`
    options  what can be clicked
    key      of the widget, anywhere on the page
    shown    what the page shows now

    In a fragment, too, the whole page is run again, the widget with it.
    """
    own, clicked = f"{name} chart", f"{key} was clicked"

    def noted() -> None:
        value = st.session_state[own]["picked"]
        if value in options:
            st.session_state[key] = value
            st.session_state[clicked] = True

    if st.session_state.pop(clicked, False) and st.session_state[key] != shown:
        st.rerun()  # a click in a fragment has run that alone, with what was shown before
    own_component(__name__, name)(
        key=own, data=dict(data), on_picked_change=answering(noted))
