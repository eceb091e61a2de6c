"""The map of pairs of tokens, of one model or two: what the pages of texts show it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from latentcode.app.charts.map.addresses import card_address
from latentcode.app.charts.map.colours import colours
from latentcode.app.charts.map.component import Pin, show_map
from latentcode.app.charts.map.component import Plane as Drawn
from latentcode.app.charts.theme import is_dark
from latentcode.app.language import planes
from latentcode.app.language.pair import card
from latentcode.app.language.reading import Read
from latentcode.app.language.work import Job
from latentcode.app.state.selection import Selection


def show_pairs(
    jobs: Sequence[Job], read: Read, laid: Sequence[planes.Plane], layer: int | None,
    method: str, colour: str, note: Callable[[Selection], None], *,
    height: int, alt: str, selection: Selection | None = None, selected: np.ndarray | None = None,
    instance: int | None = None, pins: Sequence[Pin] = (),
) -> None:
    """Show the pairs that were read of the first model, as each model lays them out.

    laid  the plane of each model
    note  called with what is clicked or outlined; the rest is as of `show_map`
    """
    shades = colours(planes.label(jobs[0], read, colour, layer), title=colour, dark=is_dark())
    cards = card_address(("language", jobs[0].number, read.stamp),
                         lambda row: card(jobs[0], read, row))
    show_map(
        [Drawn(planes.name(job, read, layer, method), job.title if len(jobs) > 1 else "", plane.at,
               cards=cards) for job, plane in zip(jobs, laid, strict=True)],
        shades, note, key="map", dark=is_dark(), label=colour, across=len(jobs),
        selection=selection or Selection(), selected=selected, instance=instance, height=height,
        alt=alt, pins=pins)
