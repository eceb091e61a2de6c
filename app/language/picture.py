"""The map of pairs of tokens, of one model or two: what the pages of texts show it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from latentcode.app.charts.map.addresses import card_address
from latentcode.app.charts.map.colours import colours
from latentcode.app.charts.map.component import Plane as Drawn
from latentcode.app.charts.map.component import show_map
from latentcode.app.charts.theme import is_dark
from latentcode.app.language import planes
from latentcode.app.language.pair import card
from latentcode.app.language.reading import Read
from latentcode.app.language.work import Job
from latentcode.app.state.selection import Selection
from latentcode.app.state.view import note_view, view_in_url

ZOOM = "lm_zoom"
"""Name in the address of where one looks, which the pages share as they share the plane."""


def show_pairs(
    jobs: Sequence[Job], read: Read, laid: Sequence[planes.Plane], layer: int | None,
    method: str, colour: str, note: Callable[[Selection], None], *,
    selection: Selection | None = None, selected: Any = None, **settings: Any,
) -> None:
    """Show the pairs that were read of the first model, as each model lays them out.

    laid      the plane of each model
    note      called with what is clicked or outlined
    settings  of `show_map`
    """
    shades = colours(planes.label(jobs[0], read, colour, layer), title=colour, dark=is_dark())
    names = [planes.name(job, read, layer, method) for job in jobs]
    cards = card_address(("language", jobs[0].number, read.stamp),
                         lambda row: card(jobs[0], read, row))
    show_map(
        [Drawn(name, job.title if len(jobs) > 1 else "", plane.at, cards=cards)
         for job, name, plane in zip(jobs, names, laid, strict=True)],
        shades, note, key="map", dark=is_dark(), label=colour, across=len(jobs),
        selection=selection or Selection(), selected=selected,
        view=view_in_url(ZOOM, names, colour, shades.names),
        note_view=lambda view: note_view(ZOOM, view, colour), **settings)
