"""Explore: a picture of codes. A click shows a problem, a lasso what codes have in common."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.charts import knn_purity, pictures
from latentcode.app.data import loaded
from latentcode.app.data.loaded import saved_codes, stored_codes
from latentcode.app.data.preload import in_background
from latentcode.app.data.projections import METHODS, colour_labels
from latentcode.app.panels.instances import show_instance, show_selection
from latentcode.app.state.messages import answering, guarded
from latentcode.app.state.selection import Picture, Selection
from latentcode.app.state.sidebar import Chosen, choose_codes, choose_look
from latentcode.app.state.url import choose, remember, remembered_number, take
from latentcode.app.words import literal
from latentcode.probes.projection import Projection, reduced_settings

SHOW = ("one picture", "all layers", "all pairs")
HEIGHT = 400
MAP_KEY = "map"
BESIDE = ("Selection", "List", "Problem")
"""What stands beside the map."""
MOVED = "went to another place"
"""Name in the session."""
UNTOLD = ("n_jobs", "initialization", "early_exaggeration_iter")
"""Settings of projections that the caption leaves out."""


def page() -> None:
    """Show the codes that the sidebar chooses."""
    chosen = choose_codes(best=knn_purity.best_place)
    offered = colour_labels(chosen.codes, chosen.pair)
    method, colour = choose_look([chosen], lambda: knn_purity.best_label(chosen, offered))
    with st.sidebar:
        knn_purity.show_purity(chosen, colour)
    _body(chosen, method, colour)


@st.fragment
@guarded
def _body(chosen: Chosen, method: str, colour: str) -> None:
    """Everything that a click or a lasso changes; the sidebar is not run again."""
    if st.session_state.pop(MOVED, False):
        st.rerun()  # what is clicked here is chosen in the sidebar
    left, right = st.columns([1.5, 1.0], gap="medium")
    with left:
        head, many = st.columns([3, 1], vertical_alignment="center")
    with many:
        show = choose("Show", SHOW, key="show", label_visibility="collapsed",
                      help="One picture, or one per layer or pair.")
        st.text_input("Find", key="find", label_visibility="collapsed", placeholder="Find …",
                      max_chars=80, on_change=answering(_find), args=(chosen.picture(method).name,),
                      help="The number of an instance, or a value of a label: sum, rule=sum.")
    with left:  # where it says so if there is nothing to lay out
        planes = pictures.lay_out(chosen, {
            "one picture": [chosen.picture(method)],
            "all layers": [chosen.picture(method, layer=layer) for layer in chosen.codes.layers],
            "all pairs": [chosen.picture(method, pair=pair.name) for pair in chosen.codes.pairs],
        }[show])
    with right:  # likewise of a selection that cannot be shown
        selection = pictures.selection_in_url("select")
        selected = pictures.selected_rows([chosen], selection)
    # At first one problem stands beside the map: what a point is.
    instance = remembered_number(
        "instance", None if chosen.entry.kind == "codes" else 0, len(chosen.codes) - 1)
    with left:
        if planes:
            across = min(2, len(planes))
            pictures.show(
                planes, _titles(planes), chosen, colour, selection, selected, select,
                key=MAP_KEY, across=across, instance=instance,
                height=HEIGHT if len(planes) == 1 else HEIGHT // 2 if len(planes) > 2 else 300,
                alt="Codes in two dimensions; their table can be exported below.")
        if len(chosen.codes.layers) > 1:
            knn_purity.show_track(chosen, colour)
        if planes:
            _quality(planes)
    # After the map, which does not wait for what they tell.
    with head:
        _title(chosen, colour, show)
        _places(chosen)
    offer_downloads(chosen, method, colour, planes, selected)
    with right:  # last: a problem takes its time where nothing is loaded yet
        # Without a selection there is a problem to show.
        at_first = "Problem" if instance is not None and not selection else BESIDE[0]
        beside = choose("Beside the map", BESIDE, key="beside", form="buttons",
                        default=st.session_state.setdefault("beside at first", at_first),
                        label_visibility="collapsed")
        in_background(chosen.entry, chosen.split)
        if beside == "Problem":
            show_instance(chosen, colour, instance)
        else:
            show_selection(chosen, colour, selection, selected, instance=instance or 0,
                           listed=HEIGHT if beside == "List" else None)


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
                f"Each point is the code of one problem: the scores of all {chosen.codes.n_heads} "
                f"heads for one query and one key, here {literal(where)}, coloured by "
                f"**{literal(colour)}**{whose}. "
                + knn_purity.sentence(chosen, colour))


def _places(chosen: Chosen) -> None:
    """Offer the paper's pair, the place that says most, and both side by side."""
    paper = chosen.codes.pairs[0].name
    own = (chosen.layer, chosen.pair)
    offered = {"The paper's pair": (knn_purity.best_layer(chosen, paper), paper)}
    best = knn_purity.best_place(chosen)
    if further := loaded.further_pairs(chosen.entry):
        # Read out of the model when it is asked for; in the layer where the response says most.
        best = best[0], further[0].name
    offered["A code of the context" if further else "The best place"] = best
    other = next((place for place in offered.values() if place[1] != own[1]), None)
    with st.container(horizontal=True, gap="small"):
        for name, place in offered.items():
            if place[1] != own[1]:
                st.button(name, key=f"go to {name}", type="tertiary", icon=":material/place:",
                          on_click=answering(_go_to), args=place,
                          help=literal(f"Layer {place[0]}, {place[1]}."))
        if other is not None and "pages" in st.session_state and st.button(
                "Both side by side", key="side by side", type="tertiary",
                icon=":material/compare:", help=literal(
                    f"This place beside layer {other[0]}, {other[1]}, in Compare.")):
            take("models", [chosen.entry.key])
            take("layer", own[0])
            take("pair", own[1])
            take("second", other)
            st.switch_page(st.session_state["pages"]["compare"])


def _go_to(layer: int, pair: str) -> None:
    st.session_state["layer"], st.session_state["pair"] = layer, pair
    st.session_state[MOVED] = True


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
    trust = "" if not spread else f" · trustworthiness {spread}"
    told = ("Trustworthiness 1: neighbours in the picture are neighbours among the codes. "
            if spread else "") + f"Settings: {settings}."
    st.caption(literal(f"{name}{trust}{few}"), help=literal(told))


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


def offer_downloads(
    chosen: Chosen, method: str, colour: str, planes: Mapping[Picture, Projection],
    selected: np.ndarray | None,
) -> None:
    """Offer the downloads of a view; each file is made when it is asked for."""
    if not planes:
        return
    with st.expander("The data, and the lines of Python", icon=":material/download:"):
        st.caption("A row per instance and picture, with labels, code and position "
                   "(`projection_x`, `projection_y`); `selected` marks the selection.")
        name = f"{chosen.entry.key.replace('/', '-')}-{chosen.split}-{method}"
        with st.container(horizontal=True):
            for label, form in (("Table, CSV", "csv"), ("Table, parquet", "parquet")):
                st.download_button(
                    label, partial(_file, form, chosen, planes, selected), f"{name}.{form}",
                    key=f"download {form}", on_click="ignore")
        st.code(snippet(chosen, method, colour, planes), language="python")


def export_table(
    chosen: Chosen, planes: Mapping[Picture, Projection], selected: np.ndarray | None
) -> pd.DataFrame:
    """Return a row per instance and picture: labels, code, `projection_x`, `projection_y`.

    `selected` marks the current selection.
    """
    blocks = []
    for picture, plane in planes.items():
        layer, pair = picture.layer, picture.pair
        codes = chosen.codes.select(layer=layer, pair=pair)
        heads = pd.DataFrame(np.asarray(codes), columns=[
            f"head_{h}" for h in range(chosen.codes.n_heads)])
        place = pd.DataFrame({
            "instance": np.arange(len(codes)), "layer": layer, "pair": pair,
            "projection_x": plane.coordinates[:, 0],
            "projection_y": plane.coordinates[:, 1],
            "selected": False if selected is None else selected})
        labels = chosen.codes.labels.reset_index(drop=True)
        labels = labels.drop(columns=[c for c in labels if c in place or c in heads])
        blocks.append(pd.concat([place, labels, heads], axis=1))
    return pd.concat(blocks, ignore_index=True)


def _file(
    form: str, chosen: Chosen, planes: Mapping[Picture, Projection], selected: np.ndarray | None
) -> bytes:
    return file_of(export_table(chosen, planes, selected), form)


def file_of(frame: pd.DataFrame, form: str) -> bytes:
    """Return a table as a file, `csv` or `parquet`."""
    return frame.to_csv(index=False).encode() if form == "csv" else frame.to_parquet(index=False)


def snippet(
    chosen: Chosen, method: str, colour: str, planes: Mapping[Picture, Projection]
) -> str:
    """Return the Python that makes the pictures of this view in a notebook."""
    entry, n = chosen.entry, len(chosen.codes)
    layers = [*dict.fromkeys(picture.layer for picture in planes)]
    pairs = _quoted(dict.fromkeys(picture.pair for picture in planes))
    path = json.dumps(entry.path.as_posix(), ensure_ascii=False)
    stored = (saved_codes(entry.path) if entry.kind == "codes"
              else stored_codes(entry, chosen.split) if entry.kind == "zoo" else None)
    if entry.kind == "codes":
        opened = f"codes = lc.LatentCodes.load({path})"
    elif entry.kind == "zoo":
        opened = f'codes = lc.load_codes("{entry.key}", "{chosen.split}")'
    if stored is None or len(stored) < n:
        run = (f'lc.load_run("{entry.key}")' if entry.kind == "zoo"
               else f"lc.Run.open({path})")
        opened = (f"run = {run}\ntask = lc.make_task(run.config.task).probe_config\n"
                  f'codes = lc.extract(run, split="{chosen.split}", n={n}, problems=task,\n'
                  f"                   pairs={pairs})")
    elif len(stored) > n:
        opened += f"\ncodes = codes.subset(range({n}))"
    settings = "".join(f", {name}={value}"
                       for name, value in reduced_settings(method, n).items())
    return (
        "import latentcode as lc\n\n"
        f"{opened}\n"
        f'view = lc.project(codes, labels={_quoted([colour])}, method="{method}",\n'
        f"                  layers={layers}, pairs={pairs}{settings})\n"
        "view")


def _quoted(names: Iterable[str]) -> str:
    """Return names as a Python list, whatever characters they have."""
    return json.dumps([*names], ensure_ascii=False)
