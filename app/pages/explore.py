"""Explore: a map of codes. A click shows a problem, a lasso what codes have in common."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.charts import knn_purity, pictures
from latentcode.app.data import loaded
from latentcode.app.data.projections import METHODS, colour_labels
from latentcode.app.panels.instances import show_instance, show_selection
from latentcode.app.state.messages import answering, guarded
from latentcode.app.state.selection import Picture, Selection
from latentcode.app.state.sidebar import (
    Chosen,
    at_place,
    choose_codes,
    choose_look,
    offered_pairs,
    say_if_damaged,
)
from latentcode.app.state.url import choose, remember, remembered_number
from latentcode.app.words import literal
from latentcode.codes import LatentCodes
from latentcode.errors import LatentCodeError
from latentcode.probes.projection import Projection, reduced_settings

ONE, TWO, LAYERS, PAIRS = SHOW = ("one map", "two maps", "all layers", "all pairs")
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
    method, colour = choose_look(
        chosen, lambda: knn_purity.best_label(chosen, offered))
    with st.sidebar:
        knn_purity.show_purity(chosen)
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
        show = choose("Show", SHOW, key="show", label_visibility="collapsed", where=many,
                      help="One map, two places or models, or a map per layer or pair.")
        models = _models(chosen, show)
        # Where it says so if there is nothing to lay out.
        planes = {picture: plane for each, asked in zip(models, _asked(models, method, show),
                                                        strict=True)
                  for picture, plane in pictures.lay_out(each, asked).items()}
    with right:  # likewise of a selection that cannot be shown
        selection = pictures.selection_in_url("select")
        selected = pictures.selected_rows(models, selection)
    # At first one problem stands beside the map: what a point is.
    instance = remembered_number(
        "instance", None if chosen.entry.kind == "codes" else 0, len(chosen.codes) - 1)
    with left:
        if planes:
            by_key = {each.entry.key: each for each in models}
            pictures.show(
                planes, titles(list(planes)), chosen, colour, selection, selected, select,
                key=MAP_KEY, across=min(2, len(planes)), instance=instance,
                height=HEIGHT if len(planes) == 1 else HEIGHT // 2 if len(planes) > 2 else 300,
                models=[by_key[picture.key] for picture in planes],
                alt="Codes in two dimensions; their table can be exported below.")
            _quality(planes)
            _offer_table(chosen, method, planes, selected)
    # After the map, which does not wait for what they tell.
    with head:
        _title(chosen, colour, show)
        _places(chosen)
    with right:  # last: a problem takes its time where torch is not loaded yet
        # Without a selection there is a problem to show.
        at_first = "Problem" if instance is not None and not selection else BESIDE[0]
        beside = choose("Beside the map", BESIDE, key="beside", form="buttons",
                        default=st.session_state.setdefault("beside at first", at_first),
                        label_visibility="collapsed")
        if beside == "Problem":
            show_instance(chosen, colour, instance)
        else:
            show_selection(chosen, colour, selection, selected,
                           listed=HEIGHT if beside == "List" else None)


def _models(chosen: Chosen, show: str) -> list[Chosen]:
    """Return the codes whose maps are shown: those of the sidebar, and of two maps the second."""
    if show != TWO:
        return [chosen]
    one, two = st.columns(2)
    keys = [chosen.entry.key, *(entry.key for entry in loaded.entries()
                                if entry.key != chosen.entry.key)]
    key = choose("Second map: model", keys, key="second_model", where=one)
    try:
        entry = loaded.entry(key)
        codes = (chosen.codes if key == chosen.entry.key
                 else loaded.codes(entry, chosen.split, len(chosen.codes)))
        say_if_damaged(entry)
    except LatentCodeError as error:
        st.error(literal(error), icon=":material/error:")
        return [chosen]
    if different := differing_labels(chosen.codes, codes):
        st.warning(literal(
            f"{key} is left out: its instances are not those of {chosen.entry.key}, as the labels "
            f"{', '.join(different)} differ. Models can be compared on a split that was drawn from "
            "the same task with the same seed."), icon=":material/difference:")
        return [chosen]
    second = Chosen(entry, chosen.split, codes.layers[-1], codes.pairs[0].name, codes)
    places = [(layer, pair.name) for pair in offered_pairs(entry, codes) for layer in codes.layers]
    here = chosen.layer, chosen.pair
    default = here if key != chosen.entry.key and here in places else next(
        (place for place in (*_further(second).values(), *reversed(places))
         if place[1] != chosen.pair), places[0])
    layer, pair = choose("at", places, key="second_place", default=default, where=two,
                         shown=lambda place: f"layer {place[0]}, {place[1]}")
    return [chosen, at_place(second, layer, pair)]


def _asked(models: list[Chosen], method: str, show: str) -> list[list[Picture]]:
    """Return the pictures of each of some codes."""
    first, *others = models
    return [{LAYERS: [first.picture(method, layer=layer) for layer in first.codes.layers],
             PAIRS: [first.picture(method, pair=pair.name) for pair in first.codes.pairs],
             }.get(show, [first.picture(method)]),
            *([each.picture(method)] for each in others)]


def differing_labels(one: LatentCodes, other: LatentCodes) -> list[str]:
    """Return the labels that say that two sets of codes are not of the same instances.

    Measurements are not compared: some, such as the loss, are the model's.
    """
    names = [name for name in dict.fromkeys([*one.labels.columns, *other.labels.columns])
             if not any(name in c.labels and pd.api.types.is_float_dtype(c.labels[name])
                        for c in (one, other))]
    return [str(name) for name in names
            if name not in one.labels or name not in other.labels
            or not np.array_equal(one.labels[name].to_numpy(dtype=object),
                                  other.labels[name].to_numpy(dtype=object))]


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
    where = {LAYERS: f"every layer, {chosen.pair}", PAIRS: f"layer {chosen.layer}, every pair"
             }.get(show, f"layer {chosen.layer}, {chosen.pair}")
    # It is the rule of this pair's response in the pictures of other pairs, too.
    column = str(chosen.label(colour).name)
    label = "" if column == colour else literal(f" ({column})") if show != PAIRS else literal(
        f" of {chosen.pair} ({column})")
    st.markdown(f"##### {len(chosen.codes):,} codes of {literal(chosen.entry.key)}\n"
                f"Each point is the code of one problem: the scores of all {chosen.codes.n_heads} "
                f"heads for one query and one key, here {literal(where)}, coloured by "
                f"**{literal(colour)}**{label}. "
                + knn_purity.sentence(chosen, colour))


def _further(chosen: Chosen) -> dict[str, tuple[int, str]]:
    """Return the paper's pair, and the place that says most or a code of the context."""
    best = knn_purity.best_place(chosen)
    further = loaded.further_pairs(chosen.entry)
    # Those are read out of the model when asked for; in the layer where the response says most.
    return {"The paper's pair": knn_purity.best_place(chosen, chosen.codes.pairs[0].name),
            **({"A code of the context": (best[0], further[0].name)} if further
               else {"The best place": best})}


def _places(chosen: Chosen) -> None:
    """Offer the other places, and both side by side."""
    with st.container(horizontal=True, gap="small"):
        for name, place in _further(chosen).items():
            if place[1] != chosen.pair:
                st.button(name, key=f"go to {name}", type="tertiary", icon=":material/place:",
                          on_click=answering(_go_to), args=place,
                          help=literal(f"Layer {place[0]}, {place[1]}."))


def _go_to(layer: int, pair: str) -> None:
    remember("layer", str(layer), step=True)
    remember("pair", pair, step=True)
    st.session_state[MOVED] = True


def _quality(planes: Mapping[Picture, Projection]) -> None:
    """Say how the pictures were made, and how far to trust them."""
    plane = next(iter(planes.values()))
    known = [shown.quality["trustworthiness"] for shown in planes.values()
             if "trustworthiness" in shown.quality]
    spread = " to ".join(dict.fromkeys(f"{v:.2f}" for v in (min(known), max(known)))
                         ) if known else ""
    name = {v: k for k, v in METHODS.items()}.get(plane.method, plane.method)
    settings = ", ".join(f"{k.replace('_', ' ')} {value}" for k, value in plane.settings.items()
                         if k not in UNTOLD
                         and all(shown.settings.get(k) == value for shown in planes.values()))
    few = "".join(f" · {setting.replace('_', ' ')} is the largest that {len(plane):,} codes allow"
                  for setting in reduced_settings(plane.method, len(plane)))
    trust = f" · trustworthiness {spread}" if spread else ""
    told = ("Trustworthiness 1: neighbours in the picture are neighbours among the codes. "
            if spread else "") + f"Settings: {settings}."
    st.caption(literal(f"{name}{trust}{few}"), help=literal(told))


def titles(pictures: list[Picture]) -> list[str]:
    """Return the title of each picture: what it does not share with all others."""
    parts = [(picture.key, f"layer {picture.layer}", picture.pair) for picture in pictures]
    varying = [i for i in range(3) if len({part[i] for part in parts}) > 1]
    return [", ".join(part[i] for i in varying) for part in parts]


def _offer_table(
    chosen: Chosen, method: str, planes: Mapping[Picture, Projection], selected: np.ndarray | None
) -> None:
    """Offer what is shown as a table; a file is made when it is asked for."""
    name = f"{chosen.entry.key.replace('/', '-')}-{chosen.split}-{method}"
    with st.expander("The table behind the map", icon=":material/download:"):
        st.caption("A row per instance and map, with labels, code and position (`projection_x`, "
                   "`projection_y`, which Embedding Atlas opens); `selected` marks the selection.")
        with st.container(horizontal=True):
            for form in ("csv", "parquet"):
                st.download_button(
                    f"Table, {form}", partial(file_of, form, chosen, planes, selected),
                    f"{name}.{form}", key=f"download {form}", on_click="ignore")


def export_table(
    chosen: Chosen, planes: Mapping[Picture, Projection], selected: np.ndarray | None
) -> pd.DataFrame:
    """Return a row per instance and map of codes: labels, code, `projection_x`, `projection_y`.

    `selected` marks the current selection.
    """
    blocks = []
    for picture, plane in planes.items():
        if picture.key != chosen.entry.key:
            continue
        codes = at_place(chosen, picture.layer, picture.pair)
        place = pd.DataFrame({
            "instance": np.arange(len(codes.points)), "layer": picture.layer, "pair": picture.pair,
            "projection_x": plane.coordinates[:, 0],
            "projection_y": plane.coordinates[:, 1],
            "selected": False if selected is None else selected})
        heads = pd.DataFrame(codes.points, columns=[
            f"head_{h}" for h in range(codes.codes.n_heads)])
        labels = chosen.codes.labels.reset_index(drop=True)
        labels = labels.drop(columns=[c for c in labels if c in place or c in heads])
        blocks.append(pd.concat([place, labels, heads], axis=1))
    return pd.concat(blocks, ignore_index=True)


def file_of(
    form: str, chosen: Chosen, planes: Mapping[Picture, Projection], selected: np.ndarray | None
) -> bytes:
    """Return the table as a file, `csv` or `parquet`."""
    table = export_table(chosen, planes, selected)
    return table.to_csv(index=False).encode() if form == "csv" else table.to_parquet(index=False)
