"""Pictures of codes that share one selection: laid out, drawn, and outlined by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.charts.addresses import card_address
from latentcode.app.charts.map import Plane, colours, show_map
from latentcode.app.charts.theme import is_dark
from latentcode.app.data.problem import card
from latentcode.app.state.selection import Picture, Selection
from latentcode.app.state.sidebar import Chosen
from latentcode.app.state.url import remember, remembered
from latentcode.app.words import literal
from latentcode.errors import ConfigError
from latentcode.probes.common.statistics import varies
from latentcode.probes.projection import Projection


def lay_out(chosen: Chosen, asked: Sequence[Picture]) -> dict[Picture, Projection]:
    """Return the points of each picture; codes that are all the same have none, with a message."""
    varied = [p for p in asked if varies(chosen.codes.select(layer=p.layer, pair=p.pair))]
    same = "; ".join(f"layer {p.layer}, {p.pair}" for p in asked if p not in varied)
    if same:
        st.info(literal(f"All instances of {chosen.entry.key} have the same code at {same}: this "
                        "early, the model cannot know the problem yet. There is nothing to lay "
                        "out or to compare."), icon=":material/info:")
    return {picture: chosen.projection(picture) for picture in varied}


def selection_in_url(key: str) -> Selection:
    """Return what the URL says is selected; nothing, with a message, if it cannot be read."""
    try:
        return Selection.from_text(remembered(key) or "")
    except ConfigError as error:
        remember(key, None)
        st.warning(literal(error), icon=":material/link_off:")
        return Selection()


def selected_rows(shown: Sequence[Chosen], selection: Selection) -> np.ndarray | None:
    """Return which instances are selected, bool [N], or None if there are none.

    An outline belongs to the picture it was drawn in; its instances are the same in every picture.
    """
    if not selection:
        return None
    picture = Picture.named(selection.plane)
    for chosen in shown:
        if (picture is not None and picture.key == chosen.entry.key
                and picture.shows(chosen.codes, chosen.split)):
            return inside(selection, chosen.projection(picture).coordinates,
                          chosen.codes.labels.get(selection.label))
    st.info("The selection was drawn in a picture that these codes do not have: one of another "
            "model, split or number of instances. It is kept until you draw another one.",
            icon=":material/info:")
    return None


def inside(
    selection: Selection, points: np.ndarray, label: pd.Series | None
) -> np.ndarray | None:
    """Return which points [N, 2] are selected, bool [N], or None if there are none.

    label  with lines of the legend that may have been hidden when the outline was drawn
    """
    rows = selection.rows(points)
    if selection.hidden and label is not None and label.name == selection.label:
        legend = colours(label, title="", dark=False)
        off = [i for i, name in enumerate(legend.names) if name in selection.hidden]
        rows &= ~np.isin(legend.values, off)
    return rows if rows.any() else None


def hidden_words(chosen: Chosen, colour: str, selection: Selection) -> str:
    """Return a caption: how many lines of the legend were hidden when a selection was drawn."""
    n = len(selection.hidden)
    name = colour if chosen.label(colour).name == selection.label else selection.label
    return literal(f"hidden: {n} value{'s' if n > 1 else ''} of {name} "
                   f"({', '.join(selection.hidden)})")


def show(
    planes: Mapping[Picture, Projection], titles: Iterable[str], chosen: Chosen, colour: str,
    selection: Selection, selected: np.ndarray | None, note: Callable[[Selection], None], *,
    key: str, across: int, height: int, alt: str, models: Sequence[Chosen],
    instance: int | None = None,
) -> None:
    """Show pictures of the same instances, and call `note` with what a person does in them.

    titles  one per picture
    chosen  whose labels the points have
    models  whose codes each picture has, and whose answers the mouse shows
    """
    dark, label = is_dark(), chosen.label(colour)
    show_map(
        [Plane(picture.name, title, plane.coordinates, card_address(
            model.key, partial(card, model.entry, model.codes)))
         for (picture, plane), title, model in zip(planes.items(), titles, models, strict=True)],
        colours(label, title=colour, dark=dark), note, key=key, dark=dark, label=str(label.name),
        selection=selection, selected=selected, instance=instance, across=across, height=height,
        alt=alt)
