"""Explore: a picture of codes. A click shows a problem, a lasso what codes have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import streamlit as st

from latentcode.app.beside.instance import show_instance
from latentcode.app.beside.kept import kept_here
from latentcode.app.beside.selection import show_selection
from latentcode.app.charts import export, knn_purity, pictures, track
from latentcode.app.data.preload import in_background
from latentcode.app.data.projections import FEWEST, METHODS, colour_labels, reduced_settings
from latentcode.app.state.messages import answering, guarded
from latentcode.app.state.selection import Picture, Selection
from latentcode.app.state.sidebar import Chosen, choose_codes, choose_look
from latentcode.app.state.url import choose, remember, remembered_number
from latentcode.app.words import literal
from latentcode.probes.common.features import varies
from latentcode.probes.projection.alignment import AlignedPlanes
from latentcode.probes.projection.methods import Projection

SHOW = ("one picture", "all layers", "all pairs")
HEIGHT = 400
MAP_KEY = "map"
BESIDE = ("Selection", "List", "Problem")
"""What stands beside the map."""
UNTOLD = ("n_jobs", "initialization", "early_exaggeration_iter")
"""Settings of projections that the caption leaves out."""


def page() -> None:
    """Show the codes that the sidebar chooses."""
    chosen = choose_codes()
    offered = colour_labels(chosen.codes, chosen.pair)
    method, colour = choose_look(
        chosen.codes, chosen.pair, lambda: knn_purity.best_label(chosen, offered))
    bars = st.sidebar.container()
    _body(chosen, method, colour)
    with bars:
        knn_purity.show(chosen, colour)
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
    with left:  # where it says so if there is nothing to lay out
        planes = pictures.lay_out(chosen, {
            "one picture": [chosen.picture(method)],
            "all layers": [chosen.picture(method, layer=layer) for layer in chosen.codes.layers],
            "all pairs": [chosen.picture(method, pair=pair.name) for pair in chosen.codes.pairs],
        }[show])
    with right:  # likewise of a selection that cannot be shown
        selection = pictures.selection_in_url("select")
        selected = pictures.selected_rows([chosen], selection)
    instance = remembered_number("instance", None, len(chosen.codes) - 1)
    with left:
        layers = _aligned(chosen, method) if planes else None
        if planes:
            across = min(2, len(planes))
            turned = {} if layers is None or show != "one picture" else {
                picture: layers.coordinates[picture.layer] for picture in planes}
            pictures.show(
                planes, _titles(planes), chosen, colour, selection, selected, select,
                key=MAP_KEY, across=across, instance=instance, turned=turned,
                height=HEIGHT if len(planes) == 1 else HEIGHT // 2 if len(planes) > 2 else 300,
                alt="Codes in two dimensions; their table can be exported below.")
        if len(chosen.codes.layers) > 1:
            track.show(chosen, colour)
        if planes:
            _quality(planes, layers, chosen.layer)
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
            show_instance(chosen, colour, instance)
        else:
            show_selection(chosen, colour, selection, selected,
                           listed=HEIGHT if beside == "List" else None)
    export.row(chosen, method, colour, planes, selected, kept_here(chosen))


def _aligned(chosen: Chosen, method: str) -> AlignedPlanes | None:
    """Return the pictures of all layers turned to each other; None where that would take long."""
    quick = all(chosen.is_quick(chosen.picture(method, layer=layer))
                for layer in chosen.codes.layers
                if varies(chosen.codes.select(layer=layer, pair=chosen.pair)))
    return track.aligned(chosen, method) if quick and len(chosen.codes) >= FEWEST else None


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
                + knn_purity.sentence(chosen, colour))


def _quality(
    planes: Mapping[Picture, Projection], layers: AlignedPlanes | None, layer: int
) -> None:
    """Say how the pictures were made, and how far to trust them and the way between layers."""
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
    before = [] if layers is None else [other for other in layers.coordinates if other < layer]
    kept = "" if layers is None or not before else track.kept_sentence(layers, before[-1], layer)
    st.caption(literal(f"{name}{trust} · {settings}{few}" + (f" · {kept}" if kept else "")))


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
