"""The idea: an attention layer computed the usual way, and as networks that codes generate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from latentcode.app.arcs.component import arcs
from latentcode.app.beside.answer import show_changed
from latentcode.app.beside.number import number_input
from latentcode.app.charts import idea as charts
from latentcode.app.charts.clicks import on_click
from latentcode.app.charts.theme import is_dark, reach, show_still
from latentcode.app.data import loaded
from latentcode.app.data.attention import names_of, sketch, two_ways
from latentcode.app.data.benches import MOST
from latentcode.app.data.catalog import Entry
from latentcode.app.handles.bars import STEP, bars
from latentcode.app.state.messages import answering, guarded
from latentcode.app.state.sidebar import choose_entry, choose_layer, choose_split
from latentcode.app.state.url import choose, remember, remembered, remembered_number
from latentcode.app.words import literal

if TYPE_CHECKING:
    from latentcode.models.config import ModelConfig
    from latentcode.models.hypernetwork import TwoWays

MAP_KEY = "map of codes"


def page() -> None:
    """Show one layer of the model that the sidebar chooses, for one query and key."""
    entry = choose_entry(models_only=True)
    split = choose_split(loaded.splits(entry))
    layers = range(loaded.open_run(entry.path).config.model.n_layers)
    _body(entry, split, choose_layer(layers))


@st.fragment
@guarded
def _body(entry: Entry, split: str, layer: int) -> None:
    config = loaded.open_run(entry.path).config.model
    instance = remembered_number("instance", 0, MOST - 1)
    names = names_of(entry, split, instance)
    last = len(names) - 1  # where the answer is given
    query = remembered_number("query", last, last)
    seen = two_ways(entry, split, instance, layer, query)
    # Not every network does something: with a ReLU, all of its hidden units may be off.
    key = remembered_number("key", int(seen.outputs.norm(dim=1).argmax()), last)
    st.markdown("##### The scores of all heads are a code, and the code generates a network\n"
                "For a query *q* and a key *k*, each head has one score. Together these scores mix "
                "the heads' matrices into a small network for this pair, its **value network**. "
                "The layer's output is the sum of these networks, each applied to its key: the "
                "same output, computed in another order.")
    left, right = st.columns(2, gap="large")
    usual, generated = equations(config)
    with left:
        st.markdown("**Head by head**, as usual")
        st.latex(usual)
    with right:
        st.markdown("**Key by key**, as value networks")
        st.latex(generated)
    _outputs(seen, names[query])
    left, right = st.columns(2, gap="large")
    with left:
        _map(seen, names, query, key)
    with right:
        told, number = st.columns([2, 1], vertical_alignment="center")
        told.markdown("**On problem**")
        with number:
            number_input("Problem", "instance", instance, MOST, labelled=False)
        arcs(sketch(entry, split, instance), seen.pattern[:, query].numpy(), names, query,
             dark=is_dark())
    _code(entry, split, layer, seen, names, instance, query, key)


def equations(config: ModelConfig) -> tuple[str, str]:
    """Return a layer's output for query q in LaTeX: head by head, and key by key."""
    if config.value_network == "linear" and config.nonlinearity == "identity":
        return (r"\sum_h \Big(\sum_k a_{hqk}\, x_k W_V^h\Big) W_O^h",
                r"\sum_k x_k \underbrace{\Big(\sum_h a_{hqk}\, W_V^h W_O^h\Big)}_{W_{qk}}")
    if config.value_network == "linear":
        return (r"\sum_h \Big(\sum_k a_{hqk}\, \phi(x_k W_V^h)\Big) W_O^h",
                r"\sum_k \sum_h \phi(x_k W_V^h)\, \underbrace{a_{hqk} W_O^h}_{\text{layer 2}}")
    first = r"x_k \underbrace{\sum_g a_{gqk} W_V^g}_{\text{layer 1}}"
    value, network = r"\sum_g a_{gqk}\, x_k W_V^g", first
    if config.value_network == "deep":
        value = rf"\sum_f a_{{fqk}}\, \phi\big({value}\big) W'_f"
        network = (rf"\phi\big({first}\big) "
                   r"\underbrace{\sum_f a_{fqk} W'_f}_{\text{layer 2}}")
    last = "3" if config.value_network == "deep" else "2"
    if config.value_network != "hyla_linear":
        value, network = rf"\phi\Big({value}\Big)", rf"\phi\Big({network}\Big)"
    return (rf"\sum_h \Big(\sum_k a_{{hqk}}\, {value}\Big) W_O^h",
            rf"\sum_k {network} \underbrace{{\sum_h a_{{hqk}} W_O^h}}_{{\text{{layer {last}}}}}")


def _outputs(seen: TwoWays, query: str) -> None:
    """Show the output both ways, and how far apart they are."""
    chart, number = st.columns([2.6, 1], vertical_alignment="center", gap="large")
    with chart:
        show_still(charts.outputs(seen.usual.numpy(), seen.generated.numpy(), dark=is_dark()),
                   "outputs")
        st.caption(f"The layer's output for the query at {literal(query)}, all "
                   f"{len(seen.usual)} dimensions, in float64.")
    with number:
        st.metric("Largest difference", f"{seen.difference:.1e}",
                  help="Between the two, over all dimensions of the output. What is left is "
                       "rounding.")


def _map(seen: TwoWays, names: Sequence[str], query: int, key: int) -> None:
    """Let a person choose a head, a query and a key."""
    n_heads = len(seen.pattern)
    head = choose("Head", range(n_heads), key="head", help="The head whose scores the map shows.",
                  default=int(seen.codes[key].abs().argmax()))
    show_still(charts.attention(seen.pattern[head].numpy(), names, query, key, dark=is_dark()),
               MAP_KEY)
    st.caption(f"Scores of head {head}: queries by keys. A pair's code is its square in the maps "
               f"of all {n_heads} heads. **Click a square** to choose the pair.")
    on_click(MAP_KEY, lambda square: note_place(*divmod(square, len(names))))


def note_place(query: int, key: int) -> None:
    """Put a query and a key into the URL; a changed score was that of another code."""
    remember("query", str(query))
    remember("key", str(key))
    remember("score", None)


@st.fragment
@guarded
def _code(
    entry: Entry, split: str, layer: int, seen: TwoWays, names: Sequence[str], instance: int,
    query: int, key: int,
) -> None:
    """Show the code of a pair and the network it generates; let a person change it, and see what
    the model answers then."""
    dark, own = is_dark(), seen.codes[key].numpy()
    most = reach(own)
    code = changed_scores(remembered("score"), own, most)
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown(f"**{literal(names[query])} → {literal(names[key])}**: the code")
        handles = st.container()
        st.markdown(f"**What the model answers to problem {instance}**")
        show_changed(entry, split, instance, layer, query, key, code,
                     changed=bool((code != own).any()))
    weights, before, after = generated(entry, layer, seen, key, code)
    with right:
        _network(weights, before, after, len(own), dark=dark)
    with handles:  # last: a drag goes on when what it has changed is there
        _scores(own, code, most)


def _network(
    weights: Sequence[np.ndarray], before: np.ndarray, after: np.ndarray, n_heads: int, *,
    dark: bool,
) -> None:
    """Show the network that a code generates, and what it makes of its key."""
    st.markdown("The value network it generates" + (
        ", two layers" if len(weights) > 1 else f", W<sub>qk</sub>, {n_heads} heads mixed"),
        unsafe_allow_html=True)
    show_still(charts.weights(weights, dark=dark), "weights")
    size, moved = float(np.linalg.norm(before)), float(np.linalg.norm(after - before))
    st.markdown("Its output for this key" + (
        f": moved by **{moved / size:.0%}** of its length" if moved and size else
        ": something now" if moved else "" if size else
        ": nothing, all of its hidden units are off"))
    show_still(charts.moved(before, after, dark=dark), "moved")


def _scores(own: np.ndarray, code: np.ndarray, most: float) -> None:
    """Let a person change the scores of a pair, which start at its own."""
    bars("scores", code, lambda moved: _note_scores(own, moved), ghost=own, most=most, live=True)
    words, back = st.columns([4, 1], vertical_alignment="center")
    with words:
        st.caption("One score per head: **drag** a bar, or move it with the arrow keys, and see "
                   "how the network and the answer change.")
    with back:
        st.button("Its own", on_click=answering(remember), args=("score", None), width="stretch")


def _note_scores(own: np.ndarray, moved: Sequence[float]) -> None:
    """Put the scores that are no longer the pair's own into the URL: 3_0.5_7_-1, say."""
    changed = [f"{head}_{value:g}" for head, (value, was) in enumerate(
        zip(moved, own, strict=True)) if abs(value - was) > STEP / 2]
    remember("score", "_".join(changed) or None)


def changed_scores(text: str | None, own: np.ndarray, most: float) -> np.ndarray:
    """Return a code [H] with the scores that a URL changes; its own where the URL means nothing."""
    code, parts = own.copy(), (text or "").split("_")
    try:
        for head, value in zip(parts[::2], parts[1::2], strict=True):
            if not abs(float(value)) <= most:
                return own.copy()
            code[range(len(own)).index(int(head))] = float(value)
    except ValueError:
        return own.copy()
    return code


def generated(
    entry: Entry, layer: int, seen: TwoWays, key: int, code: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Return the weights that a code generates, and what its own network and this one put out.

    Weights are [D, D] of a linear value network, otherwise [D, n] and [n, D] and what is between.
    """
    import torch

    from latentcode.models.hypernetwork import value_network

    model = loaded.open_model(entry)
    # In the precision of the model, which is enough to show what a changed score does.
    like = model.layer(layer).attn.W_O
    x = seen.x[key].to(like)
    with torch.no_grad():
        mine = value_network(model, layer, torch.from_numpy(code).to(like))
        own = value_network(model, layer, seen.codes[key].to(like))
        weights = [mine.matrix] if mine.is_linear else list(mine.weights)
        return ([w.numpy() for w in weights], own(x).numpy(), mine(x).numpy())
