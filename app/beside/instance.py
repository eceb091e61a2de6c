"""One instance: its problem, its code, and the instances with the nearest codes."""

from __future__ import annotations

import streamlit as st

from latentcode.app.arcs.component import arcs
from latentcode.app.beside.tables import SAME, choosable, telling
from latentcode.app.charts import selected as panels
from latentcode.app.charts.theme import is_dark
from latentcode.app.data.attention import row_of, sketch
from latentcode.app.data.preload import until_ready
from latentcode.app.data.problem import AWAY, neighbours, problem
from latentcode.app.data.projections import value_name
from latentcode.app.state.messages import answering
from latentcode.app.state.sidebar import Chosen
from latentcode.app.state.url import choose, remember
from latentcode.app.words import literal, shortened
from latentcode.codes.latent_codes import is_measurement
from latentcode.errors import LatentCodeError
from latentcode.probes.common.statistics import varies

LOOKS = ("labels", "attention")
"""How the problem is drawn: with its labels (rules, terms, the marks of a text), or with the scores
of the pair's query."""


def show_instance(chosen: Chosen, colour: str, instance: int | None) -> None:
    """Show the instance that was clicked: its problem, its code, its neighbours."""
    if instance is None:
        st.markdown("##### No instance chosen")
        st.markdown("Click a point to see its problem and the model's answer, its code beside the "
                    "mean code of its label, and the instances with the nearest codes.")
        return
    codes = chosen.codes
    head, close = st.columns([4, 1], vertical_alignment="center")
    head.markdown(f"##### Instance {instance}")
    close.button("Close", key="close", type="tertiary", on_click=answering(_close))
    place = st.empty()
    try:
        with place.container():
            st.caption(":material/hourglass_empty: Drawing the problem …")
            moment = st.empty()
            for _ in until_ready():
                moment.empty()  # lets a click go first
            shown = problem(chosen.entry, codes, instance)
        place.html(f"<div class='answer'>{shown.answer}</div>")
        look = "labels" if chosen.entry.kind == "codes" else choose(
            "Problem with", LOOKS, key="look", form="buttons", label_visibility="collapsed")
        if look == "attention":
            number = int(codes.instances()[instance])
            scores, names, query = row_of(
                chosen.entry, chosen.split, number, chosen.layer, chosen.pair)
            arcs(sketch(chosen.entry, chosen.split, number), scores, names, query, dark=is_dark())
        else:
            st.html(f"<div class='problem'>{shown.html}</div>")
    except LatentCodeError as error:
        place.empty()
        st.info(literal(error), icon=":material/info:")
        st.dataframe(codes.labels.iloc[[instance]].T.astype(str), height=180)
    panels.show(_code_bars(chosen, colour, instance), "bars")
    if not varies(chosen.points):
        st.caption(SAME + "none is nearer than another.")
        return
    st.markdown("**Nearest neighbours** among the codes, not in the picture; select a row to go "
                "to that instance.")
    table = neighbours(chosen.points, codes.labels, instance)
    names = ["instance", AWAY, *telling(chosen, colour)]
    choosable(table[names], key=f"near {instance}", height=200)
    if "pages" in st.session_state:
        st.page_link(st.session_state["pages"]["intervene"],
                     label="Patch this problem", icon=":material/edit:")


def _close() -> None:
    remember("instance", None)
    st.session_state["beside"] = "Selection"


def _code_bars(chosen: Chosen, colour: str, instance: int) -> str:
    """Return the code of an instance beside the mean of its label and the mean of all."""
    points, values = chosen.points, chosen.label(colour)
    bars = {f"instance {instance}": points[instance]}
    if not is_measurement(values):
        mine = values.iloc[instance]
        same = (values == mine).to_numpy()
        name = shortened(value_name(values.name, mine))
        bars[f"mean of {colour} {name}"] = points[same].mean(0)
    bars["mean of all"] = points.mean(0)
    return panels.heads(bars, dark=is_dark(), height=230)
