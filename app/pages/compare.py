"""Compare: the codes of several models for the same instances, with one selection in all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from latentcode.app.charts import selected as panels
from latentcode.app.charts.scatter import Panel, scatter
from latentcode.app.charts.theme import CHART, is_dark
from latentcode.app.data import loaded as data
from latentcode.app.data.sources import Source
from latentcode.app.state.clicks import on_click
from latentcode.app.state.messages import guarded
from latentcode.app.state.picture import Picture
from latentcode.app.state.selection import Selection
from latentcode.app.state.sidebar import choose_split
from latentcode.app.state.url import choose, choose_several, remember, remembered
from latentcode.app.words import literal
from latentcode.codes import LatentCodes
from latentcode.errors import ConfigError, LatentCodeError
from latentcode.probes.common.sources import varies

MOST = 4
"""Models that stand side by side."""
SELECTED = "shared"
"""Name of the selection in the URL."""
CHART_KEY = "compare chart"
HEIGHTS = {1: 520, 2: 480, 3: 400, 4: 340}
"""Height of the pictures in pixels, by their number."""
SCORES = {"accuracy": "right", "r2": "R²"}
"""The score of an instance that is quoted first, and what the table calls it."""


@dataclass(frozen=True)
class View:
    """What all pictures have in common.

    codes  of each model by its key; all of the same instances in the same order
    """

    sources: Mapping[str, Source]
    codes: Mapping[str, LatentCodes]
    split: str
    layer: int
    pair: str
    method: str
    colour: str

    @property
    def n(self) -> int:
        """Number of instances."""
        return min(map(len, self.codes.values()))

    def name(self, key: str) -> str:
        """Return the name of a model's picture, which a selection keeps."""
        return Picture(self.split, self.n, self.method, self.layer, self.pair, key).name

    def coordinates(self, name: str) -> np.ndarray | None:
        """Return the points of a picture by name; None for a picture of other instances."""
        picture = Picture.named(name)
        codes = None if picture is None else self.codes.get(picture.key)
        if picture is None or codes is None or not picture.shows(codes, self.split):
            return None
        plane = data.plane(self.sources[picture.key], codes, self.split, picture.layer,
                           picture.pair, picture.method)
        return plane.projection.coordinates


def page() -> None:
    """Show the models that the sidebar chooses side by side."""
    view = _choose()
    if view is None:
        return
    st.markdown(f"##### The same {view.n:,} instances in {len(view.codes)} "
                f"model{'s' if len(view.codes) > 1 else ''}\n"
                f"layer {view.layer}, {literal(view.pair)}, coloured by "
                f"**{literal(view.colour)}**. Draw around "
                "points in one picture to see where the same instances are in the others.")
    _body(view)


def _choose() -> View | None:
    keys = [source.key for source in data.sources()]
    # Paths in the URL are options, too.
    keys += [key for key in st.query_params.get_all("models") if key not in keys]
    with st.sidebar:
        wanted = choose_several(
            "Models", keys, key="models", default=_default(), most=MOST,
            help=f"Up to {MOST} models, runs or seeds of one task.")
    if not wanted:
        st.info("Choose a model in the sidebar, and another to compare it with.",
                icon=":material/compare:")
        return None
    sources = _opened(wanted)
    if not sources:
        return None
    offered = [data.splits(source) for source in sources.values()]
    splits = [s for s in offered[0] if all(s in others for others in offered)]
    if not splits:
        st.error(literal("These models have no split in common: " + "; ".join(
            f"{key} has {', '.join(of)}" for key, of in zip(sources, offered, strict=True))),
            icon=":material/error:")
        return None
    split = choose_split(splits)
    with st.sidebar:
        n = choose("Instances", data.POINTS, key="n", shown=lambda n: f"{n:,}",
                   help="How many problems are shown, the same ones of every model.")
    codes = _same({key: data.codes(source, split, n) for key, source in sources.items()})
    first = next(iter(codes.values()))
    layers = [layer for layer in first.layers if all(layer in c.layers for c in codes.values())]
    pairs = [p.name for p in first.pairs
             if all(p.name in [q.name for q in c.pairs] for c in codes.values())]
    if not layers or not pairs:
        st.error("These models have no layer and pair in common.", icon=":material/error:")
        return None
    with st.sidebar:
        layer = choose("Layer", layers, key="layer", default=layers[-1], form="buttons",
                       help="Layers count from 0, the one nearest to the input.")
        pair = choose("Pair (query → key)", pairs, key="pair", help="Which token attends to "
                      "which: the code is the attention of all heads for this query and key.")
        st.caption(literal(first.pair(pair).description))
        method = choose("Projection", list(data.METHODS), key="projection", form="buttons",
                        help="How codes of many heads are laid out in two dimensions.")
        colour = choose("Colour by", data.colour_labels(first, pair), key="colour",
                        help="A label of the instances, or how well a model does on them.")
    return View(sources, codes, split, layer, pair, data.METHODS[method], colour)


def _default() -> list[str]:
    """Return the models of the zoo that have the task of the model looked at last."""
    found = {source.key: source for source in data.sources() if source.kind != "codes"}
    asked = st.session_state.get("model")
    zoo = [key for key, source in found.items() if source.kind == "zoo"] or list(found)
    if not zoo:
        return []
    first = asked if asked in zoo else zoo[0]
    task = data.open_run(found[first].path).config.task.name
    same = [key for key in zoo if data.open_run(found[key].path).config.task.name == task]
    return [first, *(key for key in same if key != first)][:MOST]


def _opened(keys: Sequence[str]) -> dict[str, Source]:
    """Return the sources of the keys; those that may or can not be opened with a message."""
    opened = {}
    for key in keys:
        try:
            opened[key] = data.source(key)
            data.splits(opened[key])
        except LatentCodeError as error:
            opened.pop(key, None)
            st.error(literal(error), icon=":material/error:")
    return opened


def _same(codes: Mapping[str, LatentCodes]) -> dict[str, LatentCodes]:
    """Return the codes that are of the first model's instances, as many as all have."""
    n = min(map(len, codes.values()))
    cut = {key: data.first(of, n) for key, of in codes.items()}
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
def _body(view: View) -> None:
    """Everything that a selection changes; the sidebar is not run again."""
    selection = _selection()
    drawn_in = view.coordinates(selection.plane) if selection else None
    selected = None if drawn_in is None else selection.rows(drawn_in)
    if selected is not None and not selected.any():
        selected = None
    shown = [key for key, codes in view.codes.items()
             if varies(codes.select(layer=view.layer, pair=view.pair))]
    for key in view.codes:
        if key not in shown:
            st.info(literal(f"All instances have the same code in {key}, layer {view.layer}, "
                            f"{view.pair}: this early, the model cannot know the problem yet."),
                    icon=":material/info:")
    if not shown:
        return
    figure = _figure(view, shown, selection, selected)
    axes = {f"x{i + 1 if i else ''}": view.name(key) for i, key in enumerate(shown)}
    st.plotly_chart(figure, key=CHART_KEY, theme=None, config=CHART, on_select=_noted(axes),
                    selection_mode=("points", "box", "lasso"),
                    alt="Codes of several models in two dimensions, the same instances in each.")
    # One of the pictures: the instance is the same in all.
    on_click(CHART_KEY, lambda clicked: remember(SELECTED, Selection(
        instances=(clicked,), plane=view.name(shown[0])).to_text()))
    if selected is None:
        st.caption("Nothing is selected. Draw with the lasso or the box of the tool bar; a click "
                   "chooses one point.")
        _table(closeness_table(view, np.ones(view.n, dtype=bool)), everything=True)
        return
    n = int(selected.sum())
    head, clear = st.columns([6, 1], vertical_alignment="center")
    head.markdown(f"##### Selection: {n:,} of {view.n:,} instances")
    clear.button("Clear", key="clear selection", width="stretch", on_click=remember,
                 args=(SELECTED, None))
    left, right = st.columns([1.0, 1.6], gap="large")
    with left:
        st.markdown(f"**{literal(view.colour)}**, beside all instances (grey)")
        values = next(iter(view.codes.values())).label(view.colour, view.pair)
        st.plotly_chart(panels.distribution(values, selected, dark=is_dark()), theme=None,
                        config={"displayModeBar": False}, key="compare distribution")
    with right:
        st.markdown("**What each model makes of them**")
        _table(closeness_table(view, selected), everything=False)


def _selection() -> Selection:
    """Return what the URL says is selected; nothing, and a message, where it cannot be read."""
    try:
        return Selection.from_text(remembered(SELECTED) or "")
    except ConfigError as error:
        remember(SELECTED, None)
        st.warning(literal(error), icon=":material/link_off:")
        return Selection()


def _noted(axes: Mapping[str, str]) -> Callable[[], None]:
    """Return what puts a selection into the URL; axes: axis -> name of the picture."""
    first = next(iter(axes.values()))

    def note() -> None:
        event = st.session_state.get(CHART_KEY)
        selection = Selection.from_event(event, plane=first, planes=axes)
        remember(SELECTED, selection.to_text() if selection else None)

    return note


def _figure(
    view: View, shown: Sequence[str], selection: Selection, selected: np.ndarray | None
) -> go.Figure:
    pictures = []
    for key in shown:
        coordinates = view.coordinates(view.name(key))
        assert coordinates is not None
        pictures.append(Panel(key, coordinates))
    first = view.codes[shown[0]]
    figure = scatter(pictures, first.label(view.colour, view.pair).rename(view.colour),
                     first.labels, dark=is_dark(), columns=len(shown), selected=selected,
                     height=HEIGHTS[len(shown)])
    # The tool bar stands above the names of the models, not on them.
    figure.update_layout(margin_t=64)
    outlined = [i for i, key in enumerate(shown) if view.name(key) == selection.plane]
    for i in outlined:
        number = str(i + 1) if i else ""
        figure.update_layout(shapes=selection.shapes(
            color="#9AA5B1", x=f"x{number}", y=f"y{number}"))
    return figure


def closeness_table(view: View, selected: np.ndarray) -> pd.DataFrame:
    """What does each model make of the selected instances?

    One row per model: its mean score `within` the selection and on the `others` (NaN without
    any), and how `alike` the codes of the selection are beside `any two` codes.
    """
    rows = []
    for key, codes in view.codes.items():
        score = next((name for name in SCORES if name in codes.labels), None)
        values = (np.full(len(codes), np.nan) if score is None
                  else codes.labels[score].to_numpy(dtype=np.float64))
        points = np.asarray(codes.select(layer=view.layer, pair=view.pair), dtype=np.float64)
        unit = unit_deviations(points)
        rows.append({
            "model": key, "score": score, "within": _mean(values[selected]),
            "others": _mean(values[~selected]), "alike": mean_cosine(unit[selected]),
            "any two": mean_cosine(unit)})
    return pd.DataFrame(rows)


def unit_deviations(points: np.ndarray) -> np.ndarray:
    """Return (a - mean a) / |a - mean a| of points [N, H]; zero where a is the mean."""
    deviations = points - points.mean(axis=0)
    length = np.linalg.norm(deviations, axis=1, keepdims=True)
    return np.divide(deviations, length, out=np.zeros_like(deviations), where=length > 0)


def mean_cosine(unit: np.ndarray) -> float:
    """Return (|sum_i u_i|^2 - sum_i |u_i|^2) / (n (n - 1)), the mean cosine of two different rows.

    It is also what a random selection of rows has on average. NaN for fewer than two rows.
    """
    n = len(unit)
    if n < 2:
        return float("nan")
    total = float(np.square(unit.sum(axis=0)).sum())
    return (total - float(np.square(unit).sum())) / (n * (n - 1))


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _table(table: pd.DataFrame, *, everything: bool) -> None:
    """Show the table of `closeness_table` with its columns in words."""
    scores = [score for score in table["score"].unique() if score is not None]
    word = SCORES[scores[0]] if scores else "right"
    number = "%.3f"
    if scores == ["accuracy"]:
        table, number = table.assign(within=100 * table["within"],
                                     others=100 * table["others"]), "%.1f %%"
    column = st.column_config.NumberColumn
    columns = {
        "model": st.column_config.TextColumn("model"),
        "within": column(word if everything else f"{word}, selection", format=number,
                         help="Mean score of the model on these instances."),
        "others": column(f"{word}, others", format=number,
                         help="Mean score of the model on the instances outside the selection."),
        "alike": column("alike, selection", format="%.2f",
                        help="Mean cosine of two codes of the selection, once the mean of all "
                             "codes is taken away: 1 when all point the same way."),
        "any two": column("alike, any two", format="%.2f",
                          help="The same for two codes drawn at random, which is what a random "
                               "selection of this size has on average.")}
    if everything:
        columns = {name: columns[name] for name in ("model", "within", "any two")}
    if not scores:
        columns = {name: c for name, c in columns.items() if name not in ("within", "others")}
    st.dataframe(table[list(columns)], hide_index=True, column_config=columns,
                 width="content" if everything else "stretch")


__all__ = ["View", "closeness_table", "differing_labels", "mean_cosine", "page",
           "unit_deviations"]
