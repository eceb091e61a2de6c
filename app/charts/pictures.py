"""Pictures of codes that share one selection: laid out, drawn, and outlined by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from latentcode.app.charts.clicks import on_click
from latentcode.app.charts.scatter import scatter
from latentcode.app.charts.theme import CHART, is_dark, show_chart
from latentcode.app.state.messages import answering, say_all_the_same
from latentcode.app.state.selection import Picture, Selection
from latentcode.app.state.sidebar import Chosen
from latentcode.app.state.url import remember, remembered
from latentcode.app.words import literal
from latentcode.errors import ConfigError
from latentcode.probes.common.sources import varies
from latentcode.probes.projection.methods import Projection


def lay_out(chosen: Chosen, asked: Sequence[Picture]) -> dict[Picture, Projection]:
    """Return the points of each picture; codes that are all the same have none, with a message."""
    varied = [p for p in asked if varies(chosen.codes.select(layer=p.layer, pair=p.pair))]
    same = [(p.layer, p.pair) for p in asked if p not in varied]
    if same:
        say_all_the_same(chosen.entry.key, same)
    return {picture: chosen.projection(picture) for picture in varied}


def selection_in_url(key: str) -> Selection:
    """Return what the URL says is selected; nothing, with a message, if it cannot be read."""
    try:
        return Selection.from_text(remembered(key) or "")
    except ConfigError as error:
        remember(key, None)
        st.warning(literal(error), icon=":material/link_off:")
        return Selection()


def drawn_in(shown: Iterable[Chosen], selection: Selection) -> Projection | None:
    """Return the points of the picture a selection was drawn in; None for one of other codes."""
    picture = Picture.named(selection.plane)
    for chosen in shown:
        if (picture is not None and picture.key == chosen.entry.key
                and picture.shows(chosen.codes, chosen.split)):
            return chosen.projection(picture)
    return None


def selected_rows(shown: Iterable[Chosen], selection: Selection) -> np.ndarray | None:
    """Return which instances are selected, bool [N], or None if there are none.

    An outline belongs to the picture it was drawn in; its instances are the same in every picture.
    """
    if not selection:
        return None
    points = drawn_in(shown, selection)
    if points is None:
        st.info("The selection was drawn in a picture that these codes do not have: one of another "
                "model, split or number of instances. It is kept until you draw another one.",
                icon=":material/info:")
        return None
    rows = selection.rows(points.coordinates)
    return rows if rows.any() else None


def draw(
    planes: Mapping[Picture, Projection], titles: Iterable[str], chosen: Chosen, colour: str,
    selection: Selection, selected: np.ndarray | None, *, columns: int, height: int,
    instance: int | None = None,
) -> go.Figure:
    """Return the pictures of the same instances, with the outlines where they were drawn.

    titles  one per picture
    chosen  whose labels the points have
    """
    figure = scatter(
        {title: plane.coordinates
         for title, plane in zip(titles, planes.values(), strict=True)},
        chosen.label(colour).rename(colour), chosen.codes.labels,
        dark=is_dark(), columns=columns, height=height, instance=instance, selected=selected)
    for axis, name in _axes(planes).items():
        if name == selection.plane:
            figure.update_layout(shapes=selection.shapes(
                color="#9AA5B1", x=axis, y=axis.replace("x", "y")))
    return figure


def show(
    figure: go.Figure, pictures: Iterable[Picture], note: Callable[[Selection], None], *,
    key: str, alt: str,
) -> None:
    """Show a figure of `draw`, and call `note` with what is clicked, outlined or cleared in it."""
    axes = _axes(pictures)
    show_chart(figure, key, CHART, on_select=answering(noted(key, axes, note)),
               selection_mode=("points", "box", "lasso"), alt=alt)
    on_click(key, lambda instance: note(Selection(instances=(instance,), plane=axes["x"])))


def noted(
    key: str, axes: Mapping[str, str], note: Callable[[Selection], None]
) -> Callable[[], None]:
    """Return what calls `note` with the selection of a chart; axes: axis -> name of the picture."""
    def call() -> None:
        note(Selection.from_event(st.session_state.get(key), planes=axes))

    return call


def _axes(pictures: Iterable[Picture]) -> dict[str, str]:
    """Return the name of the picture on each x axis of a chart."""
    return {"x" if i == 1 else f"x{i}": picture.name for i, picture in enumerate(pictures, 1)}


__all__ = ["draw", "drawn_in", "lay_out", "noted", "selected_rows", "selection_in_url", "show"]
