"""Compare: the codes of several models for the same instances, with one selection in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.charts import pictures
from latentcode.app.charts import selected as panels
from latentcode.app.data import loaded
from latentcode.app.data.catalog import Entry
from latentcode.app.state.messages import answering, guarded
from latentcode.app.state.selection import Selection
from latentcode.app.state.sidebar import (
    Chosen,
    at_place,
    choose_instances,
    choose_look,
    choose_place,
    offered_pairs,
    say_if_damaged,
)
from latentcode.app.state.url import choose, choose_several, remember
from latentcode.app.state.url import chosen as chosen_before
from latentcode.app.words import literal, path_end
from latentcode.codes import LatentCodes
from latentcode.errors import LatentCodeError

MOST = 4
"""Models that stand side by side."""
SELECTED = "shared"
"""Name of the selection in the URL."""
CHART_KEY = "compare chart"
HEIGHTS = {1: 520, 2: 480, 3: 400, 4: 340}
"""Height of the pictures in pixels, by their number."""
NO_OTHER = (-1, "")
"""Stands for no second layer and pair: a list shows nothing for None."""


def page() -> None:
    """Show the models that the sidebar chooses side by side."""
    shown = _choose()
    if not shown:
        return
    first = shown[0]
    method, colour = choose_look(shown)
    n, places = len({chosen.entry.key for chosen in shown}), dict.fromkeys(
        place_name((chosen.layer, chosen.pair)) for chosen in shown)
    st.markdown(f"##### The same {len(first.codes):,} instances in {n} "
                f"model{'s' if n > 1 else ''}{' at two places' if len(places) > 1 else ''}\n"
                f"{literal(' and '.join(places))}, coloured by "
                f"**{literal(colour)}**. Draw around points in one picture to see where the same "
                "instances are in the others.")
    _body(shown, method, colour)


def _choose() -> list[Chosen]:
    """Return the codes of each model, all of the same instances in the same order."""
    keys = [entry.key for entry in loaded.entries()]
    # Paths in the URL are options, too.
    keys += [key for key in dict.fromkeys([*st.query_params.get_all("models"), *(
        chosen_before("models") or ())]) if key and key not in keys]
    with st.sidebar:
        wanted = choose_several(
            "Models", keys, key="models", default=_default(), most=MOST,
            help=f"Up to {MOST} models, runs or seeds of one task.")
    if not wanted:
        st.info("Choose a model in the sidebar, and another to compare it with.",
                icon=":material/compare:")
        return []
    entries = _opened(wanted)
    if not entries:
        return []
    offered = [loaded.splits(entry) for entry in entries]
    splits = [s for s in offered[0] if all(s in others for others in offered)]
    if not splits:
        st.error(literal("These models have no split in common: " + "; ".join(
            f"{entry.key} has {', '.join(of)}" for entry, of in zip(
                entries, offered, strict=True))), icon=":material/error:")
        return []
    split, n = choose_instances(splits)
    for entry in entries:
        say_if_damaged(entry)
    codes = _same({entry.key: loaded.codes(entry, split, n) for entry in entries})
    first = next(iter(codes.values()))
    layers = [layer for layer in first.layers if all(layer in c.layers for c in codes.values())]
    shared = [p for p in first.pairs
              if all(p.name in [q.name for q in c.pairs] for c in codes.values())]
    if not layers or not shared:
        st.error("These models have no layer and pair in common.", icon=":material/error:")
        return []
    kept = [entry for entry in entries if entry.key in codes]
    pairs = [pair for pair in offered_pairs(kept[0], first) if all(
        pair in offered_pairs(entry, codes[entry.key]) for entry in kept)] or shared
    layer, pair = choose_place(layers, pairs)
    places = [(layer, pair)]
    others = [(other, p.name) for p in pairs for other in layers]
    second = choose(
        "And at", [NO_OTHER, *others], key="second", where=st.sidebar, shown=place_name,
        help="A second layer and pair of the same models, beside the first.")
    places += [] if second in (NO_OTHER, places[0]) else [second]
    return [at_place(Chosen(entry, split, layers[-1], first.pairs[0].name, codes[entry.key]),
                     *place) for entry in kept for place in places]


def place_name(place: tuple[int, str]) -> str:
    """Return what the list and the address call a layer and pair."""
    return "no other place" if place == NO_OTHER else f"layer {place[0]}, {place[1]}"


def _default() -> list[str]:
    """Return the models of the zoo that solve the same problems as the model looked at last."""
    found = {entry.key: entry for entry in loaded.entries() if entry.kind != "codes"}
    asked = chosen_before("model")
    zoo = [key for key, entry in found.items() if entry.kind == "zoo"] or list(found)
    if not zoo:
        return []
    first = asked if asked in zoo else zoo[0]
    task = loaded.open_run(found[first].path).config.task
    same = [key for key in zoo if loaded.open_run(found[key].path).config.task == task]
    return [first, *(key for key in same if key != first)][:MOST]


def _opened(keys: Sequence[str]) -> list[Entry]:
    """Return the entries of the keys; one that may or can not be opened becomes a message."""
    opened = []
    for key in keys:
        try:
            entry = loaded.entry(key)
            loaded.splits(entry)
            opened.append(entry)
        except LatentCodeError as error:
            st.error(literal(error), icon=":material/error:")
    return opened


def _same(codes: Mapping[str, LatentCodes]) -> dict[str, LatentCodes]:
    """Return the codes that are of the first model's instances, as many as all have."""
    n = min(map(len, codes.values()))
    cut = {key: loaded.first(of, n) for key, of in codes.items()}
    first, *others = cut
    for key in others:
        if difference := differing_labels(cut[first], cut[key]):
            st.warning(literal(
                f"{key} is left out: its instances are not those of {first}, as the labels "
                f"{', '.join(difference)} differ. Models can be compared on a split that was "
                "drawn from the same task with the same seed."), icon=":material/difference:")
            del cut[key]
    return cut


def differing_labels(one: LatentCodes, other: LatentCodes) -> list[str]:
    """Which labels say that two sets of codes are not of the same instances?

    Measurements are not compared: some, such as the loss, are the model's.
    """
    names = [name for name in dict.fromkeys([*one.labels.columns, *other.labels.columns])
             if not any(name in c.labels and pd.api.types.is_float_dtype(c.labels[name])
                        for c in (one, other))]
    return [str(name) for name in names
            if name not in one.labels or name not in other.labels
            or not np.array_equal(one.labels[name].to_numpy(dtype=object),
                                  other.labels[name].to_numpy(dtype=object))]


@st.fragment
@guarded
def _body(shown: list[Chosen], method: str, colour: str) -> None:
    """Everything that a selection changes; the sidebar is not run again."""
    selection = pictures.selection_in_url(SELECTED)
    selected = pictures.selected_rows(shown, selection)
    planes = {picture: plane for chosen in shown
              for picture, plane in pictures.lay_out(chosen, [chosen.picture(method)]).items()}
    if not planes:
        return
    first, models = shown[0], {chosen.picture(method): chosen for chosen in shown}
    titles = [title(models[picture], shown) for picture in planes]
    pictures.show(planes, titles, first, colour, selection, selected,
                  select, key=CHART_KEY, across=min(MOST, len(planes)),
                  height=HEIGHTS[min(MOST, len(planes))],
                  models=[models[picture] for picture in planes],
                  alt="Codes of several models in two dimensions, the same instances in each.")
    if selected is None:
        st.caption("Nothing is selected. Draw with the lasso or the box of the tool bar; a click "
                   "selects a single point.")
        return
    head, clear = st.columns([6, 1], vertical_alignment="center")
    head.markdown(f"##### Selection: {int(selected.sum()):,} of {len(selected):,} instances")
    clear.button("Clear", key="clear selection", width="stretch", on_click=answering(remember),
                 args=(SELECTED, None))
    if selection.hidden:
        st.caption(pictures.hidden_words(first, colour, selection))
    panels.show_distribution(first, colour, selected, key="compare distribution")


def title(chosen: Chosen, shown: Sequence[Chosen]) -> str:
    """Return what tells a picture from the others: its model, its place, or both."""
    place = place_name((chosen.layer, chosen.pair))
    models = {other.entry for other in shown}
    places = {(other.layer, other.pair) for other in shown}
    name = path_end(chosen.entry.key)
    return name if len(places) == 1 else place if len(models) == 1 else f"{name}: {place}"


def select(selection: Selection) -> None:
    """Put a click or an outline into the URL."""
    remember(SELECTED, selection.to_text() if selection else None)
