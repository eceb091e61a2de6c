"""Explore: a picture of codes. A click shows a problem, a lasso what codes have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from latentcode.app.charts import export, pictures, separation, track
from latentcode.app.charts import selected as panels
from latentcode.app.charts.theme import is_dark, show_still
from latentcode.app.data.preload import in_background
from latentcode.app.data.problem import neighbours, problem
from latentcode.app.data.projections import (
    METHODS,
    colour_labels,
    is_measurement,
    reduced_settings,
    value_name,
)
from latentcode.app.state.messages import answering, guarded
from latentcode.app.state.selection import Picture, Selection
from latentcode.app.state.sidebar import Chosen, choose_codes, choose_look
from latentcode.app.state.url import choose, remember, remembered, remembered_number
from latentcode.app.words import literal
from latentcode.errors import ConfigError, LatentCodeError
from latentcode.probes.common.sources import varies
from latentcode.probes.projection.alignment import AlignedPlanes
from latentcode.probes.projection.methods import Projection

SHOW = ("one picture", "all layers", "all pairs")
HEIGHT = 400
MAP_KEY = "map"
BESIDE = ("Selection", "List", "Problem")
"""What stands beside the map."""
UNTOLD = ("n_jobs", "initialization", "early_exaggeration_iter")
"""Settings of projections that the caption leaves out."""
SAME = "All codes of this layer and pair are the same: "
LISTED = 1_000
"""Most rows in the list of selected instances; the export has all of them."""


def page() -> None:
    """Show the codes that the sidebar chooses."""
    chosen = choose_codes()
    offered = colour_labels(chosen.codes, chosen.pair)
    method, colour = choose_look(
        chosen.codes, chosen.pair, lambda: separation.best_label(chosen, offered))
    bars = st.sidebar.container()
    _body(chosen, method, colour)
    with bars:
        separation.show(chosen, colour)
    in_background(chosen.entry)


@st.fragment
@guarded
def _body(chosen: Chosen, method: str, colour: str) -> None:
    """Everything that a click or a lasso changes; the sidebar is not run again."""
    left, right = st.columns([1.5, 1.0], gap="medium")
    with left:
        head, many = st.columns([3, 1], vertical_alignment="center")
    with many:
        show = choose("Show", SHOW, key="show", label_visibility="collapsed",
                      help="One picture, or one per layer or pair.")
        st.text_input("Find", key="find", label_visibility="collapsed", placeholder="Find …",
                      max_chars=80, on_change=answering(_find), args=(chosen.picture(method).name,),
                      help="The number of an instance, or a value of a label: sum, rule=sum.")
    planes = pictures.lay_out(chosen, {
        "one picture": [chosen.picture(method)],
        "all layers": [chosen.picture(method, layer=layer) for layer in chosen.codes.layers],
        "all pairs": [chosen.picture(method, pair=pair.name) for pair in chosen.codes.pairs],
    }[show])
    selection = pictures.selection_in_url("select")
    selected = pictures.selected_rows([chosen], selection)
    instance = remembered_number("instance", None, len(chosen.codes) - 1)
    with left:
        if planes:
            across = min(2, len(planes))
            layers = _aligned(chosen, method)
            turned = {} if layers is None or show != "one picture" else {
                picture: layers.coordinates[picture.layer] for picture in planes}
            pictures.show(
                planes, _titles(planes), chosen, colour, selection, selected, select,
                key=MAP_KEY, across=across, instance=instance, turned=turned,
                height=HEIGHT if len(planes) == 1 else HEIGHT // 2 if len(planes) > 2 else 300,
                alt="Codes in two dimensions; their table can be exported below.")
            if len(chosen.codes.layers) > 1:
                track.show(chosen, colour)
            _quality(planes)
    # After the map, which does not wait for what they tell.
    with head:
        _title(chosen, colour, show)
    with right:
        # An address that names an instance and no selection shows that instance.
        at_first = "Problem" if instance is not None and not selection else BESIDE[0]
        beside = choose("Beside the map", BESIDE, key="beside", form="buttons",
                        default=st.session_state.setdefault("beside at first", at_first),
                        label_visibility="collapsed")
        if beside == "Problem":
            _instance_panel(chosen, colour, instance)
        else:
            _selection_panels(chosen, colour, selection, selected, listed=beside == "List")
    export.row(chosen, method, colour, planes, selected, _kept_here(chosen))


def _aligned(chosen: Chosen, method: str) -> AlignedPlanes | None:
    """Return the pictures of all layers turned to each other; None where that would take long."""
    pictures = [chosen.picture(method, layer=layer) for layer in chosen.codes.layers]
    return track.aligned(chosen, method) if all(map(chosen.is_quick, pictures)) else None


def select(selection: Selection) -> None:
    """Put a click into the URL as the current instance, an outline as the selection."""
    if selection.instances:
        remember("instance", str(selection.instances[0]))
        st.session_state["beside"] = "Problem"
        return
    remember("select", selection.to_text() if selection else None)
    if st.session_state.get("beside") == "Problem":
        st.session_state["beside"] = "Selection"




def _title(chosen: Chosen, colour: str, show: str) -> None:
    where = {"one picture": f"layer {chosen.layer}, {chosen.pair}",
             "all layers": f"every layer, {chosen.pair}",
             "all pairs": f"layer {chosen.layer}, every pair"}[show]
    # It is the rule of this pair's response in the pictures of other pairs, too.
    column = str(chosen.label(colour).name)
    whose = "" if column == colour else literal(f" ({column})") if show != "all pairs" else literal(
        f" of {chosen.pair} ({column})")
    st.markdown(f"##### {len(chosen.codes):,} codes of {literal(chosen.entry.key)}\n"
                f"{literal(where)}, coloured by **{literal(colour)}**{whose}. "
                + separation.sentence(chosen, colour))


def _quality(planes: Mapping[Picture, Projection]) -> None:
    """Say how the pictures were made, and how far to trust them."""
    plane = next(iter(planes.values()))
    values = [p.quality.get("trustworthiness") for p in planes.values()]
    known = [v for v in values if v is not None]
    spread = "" if not known else f"{min(known):.2f}" + (
        f" to {max(known):.2f}" if len(known) > 1 else "")
    name = {v: k for k, v in METHODS.items()}.get(plane.method, plane.method)
    settings = ", ".join(f"{k.replace('_', ' ')} {_of_each(planes, k)}" for k in plane.settings
                         if k not in UNTOLD)
    few = "".join(f" · {setting.replace('_', ' ')} is the largest that {len(plane):,} codes allow"
                  for setting in reduced_settings(plane.method, len(plane)))
    trust = "" if not spread else (f" · trustworthiness {spread} (1: neighbours in the picture "
                                   "are neighbours among the codes)")
    st.caption(literal(f"{name}{trust} · {settings}{few}"))


def _of_each(planes: Mapping[Picture, Projection], setting: str) -> str:
    """Return a setting of all pictures, or that of each where they differ, as variances do."""
    values = [_short(plane.settings.get(setting)) for plane in planes.values()]
    if len(set(values)) == 1:
        return values[0]
    return "(" + "; ".join(f"{title} {value}" for title, value in zip(
        _titles(planes), values, strict=True)) + ")"


def _find(plane: str) -> None:
    """Go to the instance, or select the instances, that were asked for in words."""
    asked = st.session_state["find"].strip()
    if asked.isdecimal():
        select(Selection(instances=(int(asked),)))
    else:
        select(Selection(found=asked, plane=plane))


def _titles(planes: Iterable[Picture]) -> list[str]:
    """Return the title of each picture: what it does not share with the others."""
    pictures = list(planes)
    one_pair = len({picture.pair for picture in pictures}) == 1
    return [f"layer {p.layer}" if one_pair else p.pair for p in pictures]


def _short(value: object) -> str:
    if isinstance(value, list | tuple):
        return " and ".join(_short(v) for v in value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _instance_panel(chosen: Chosen, colour: str, instance: int | None) -> None:
    """Show the instance that was clicked: its problem, its code, its neighbours."""
    if instance is None:
        st.markdown("##### No instance chosen")
        st.markdown("Click a point to see its problem and the model's answer, its code beside the "
                    "mean code of its label, and the instances with the nearest codes.")
        return
    codes = chosen.codes
    head, close = st.columns([4, 1], vertical_alignment="center")
    head.markdown(f"##### Instance {instance}")
    close.button("Close", key="close", type="tertiary", on_click=answering(remember),
                 args=("instance", None))
    try:
        shown = problem(chosen.entry, codes, instance)
        st.html(f"<div class='answer'>{shown.answer}</div><div class='problem'>{shown.html}</div>")
    except LatentCodeError as error:
        st.info(literal(error), icon=":material/info:")
        st.dataframe(codes.labels.iloc[[instance]].T.astype(str), height=180)
    show_still(_code_bars(chosen, colour, instance), "bars")
    if not varies(chosen.points):
        st.caption(SAME + "none is nearer than another.")
        return
    st.markdown("**Nearest neighbours** among the codes, not in the picture; select a row to go "
                "to that instance.")
    table = neighbours(chosen.points, codes.labels, instance)
    names = ["instance", "distance", *_telling(chosen, colour)]
    _choosable(table[names], key=f"near {instance}", height=200)
    if "pages" in st.session_state:
        st.page_link(st.session_state["pages"]["intervene"],
                     label="Write another code into this problem", icon=":material/edit:")


def _choosable(table: pd.DataFrame, *, key: str, height: int) -> None:
    """Show a table of instances; the one whose row is selected becomes the current instance."""

    def note() -> None:
        rows = st.session_state[key]["selection"]["rows"]
        if rows:
            remember("instance", str(table["instance"].iloc[rows[0]]))

    st.dataframe(table, hide_index=True, height=height, key=key, on_select=answering(note),
                 selection_mode="single-row",
                 column_config={"distance": st.column_config.NumberColumn(format="%.3f")})


def _telling(chosen: Chosen, colour: str) -> list[str]:
    """Return the columns of tables: the colour, correctness, and the combination."""
    column = str(chosen.label(colour).name)
    names = dict.fromkeys((column, "accuracy", "r2", "combination", "function", "target"))
    return [name for name in names if name in chosen.codes.labels]


def _code_bars(chosen: Chosen, colour: str, instance: int) -> go.Figure:
    """Return the code of an instance beside the mean of its label and the mean of all."""
    points, values = chosen.points, chosen.label(colour)
    bars = {f"instance {instance}": points[instance]}
    if not is_measurement(values):
        mine = values.iloc[instance]
        same = (values == mine).to_numpy()
        bars[f"mean of {colour} {value_name(values.name, mine)}"] = points[same].mean(0)
    bars["mean of all"] = points.mean(0)
    return panels.heads(bars, dark=is_dark(), height=230)


def _selection_panels(
    chosen: Chosen, colour: str, selection: Selection, selected: np.ndarray | None, *,
    listed: bool,
) -> None:
    """Show what the selected instances have in common, or list them."""
    if selected is None:
        st.markdown("##### No selection")
        st.markdown("Each point is one problem: click one to see it, or draw around several to "
                    "see what they share. Double-click the map to clear the selection.")
        if selection.found:
            st.info(literal(f"No instance has a label like {selection.found!r}."),
                    icon=":material/search_off:")
        _kept_names()
        return
    head, keep = st.columns([2.4, 1], vertical_alignment="center")
    head.markdown(f"##### Selection: {int(selected.sum()):,} of {len(selected):,} instances")
    with keep:
        _keep(selection)
    _kept_names()
    if listed:
        _list(chosen, colour, selection, selected)
        return
    values = chosen.label(colour)
    panels.show_distribution(chosen, colour, selected, key="distribution")
    st.markdown("**Mean code**")
    bars = {name: chosen.points[rows].mean(0) for name, rows in (
        ("selection", selected), ("others", ~selected)) if rows.any()}
    show_still(panels.heads(bars, dark=is_dark(), height=140), "mean code")
    guesses = panels.guesses(chosen, colour) if varies(chosen.points) else None
    if guesses is None:
        st.markdown("**Probe**")
        st.caption(literal(
            f"No probe can predict {colour} for combinations that it was not fitted to."
            if varies(chosen.points) else SAME + "no probe can tell them apart."))
        return
    right = guesses.right(values)
    shares = values.value_counts(normalize=True)
    most = literal(value_name(values.name, shares.index[0]))
    st.markdown(
        f"**Probe**: right in {right[selected].mean():.0%} of these, {right.mean():.0%} of all; "
        f"always guessing {most} would be right in {shares.iloc[0]:.0%} of all",
        help="A logistic probe on the codes of this layer and pair, scored on combinations that "
             "it was not fitted to. This is a first look: the page Decode has scores with "
             "intervals and controls.")
    show_still(panels.confusion(guesses, values, selected, dark=is_dark()), "confusion")


def _list(
    chosen: Chosen, colour: str, selection: Selection, selected: np.ndarray
) -> None:
    rows = np.flatnonzero(selected)
    if len(rows) > LISTED:
        st.caption(f"The first {LISTED:,}; the export has all.")
    table = chosen.codes.labels.iloc[rows[:LISTED]][_telling(chosen, colour)]
    table.insert(0, "instance", rows[:LISTED])
    _choosable(table, key=f"list {selection.to_text()}", height=HEIGHT)


def _kept_texts() -> dict[str, str]:
    """Return the selections that were kept, by name, as the URL has them."""
    parts = (remembered("kept") or "").split("|")
    return dict(part.split("=", 1) for part in parts if "=" in part)


def _kept_here(chosen: Chosen) -> dict[str, tuple[Selection, np.ndarray]]:
    """Return the kept selections that were drawn in a picture of these codes, with its points."""
    found = {}
    for name, text in _kept_texts().items():
        with suppress(ConfigError):  # whoever goes back to it gets the message
            selection = Selection.from_text(text)
            plane = pictures.drawn_in([chosen], selection)
            if plane is not None:
                found[name] = selection, plane.coordinates
    return found


def _kept_names() -> None:
    """Offer to go back to a selection that was kept."""
    kept = _kept_texts()

    def go_back() -> None:
        name = st.session_state["kept selection"]
        if name in kept:
            remember("select", kept[name])

    if kept:
        st.pills("Kept selections", list(kept), key="kept selection", format_func=literal,
                 on_change=answering(go_back))


def _keep(selection: Selection) -> None:
    """Offer to keep the selection under a name."""
    kept = _kept_texts()

    def keep() -> None:
        name = " ".join(re.split(r"[|=\s]+", st.session_state["name of selection"])).strip()
        st.session_state["kept without a name"] = not name
        if name:
            remember("kept", "|".join(f"{k}={v}" for k, v in {
                **kept, name: selection.to_text()}.items()))

    if selection:
        with st.popover("Keep", icon=":material/bookmark:", help="Keep this selection by a name"):
            st.text_input("Name", key="name of selection", max_chars=40)
            st.button("Keep it", on_click=answering(keep))
            if st.session_state.pop("kept without a name", False):
                st.warning("Type a name, by which you will find the selection again.",
                           icon=":material/edit:")


__all__ = ["page", "select"]
