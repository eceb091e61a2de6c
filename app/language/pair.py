"""What stands beside the map: a pair in its text, with arcs, its heads and nearest codes."""

from __future__ import annotations

from html import escape

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.charts.theme import is_dark
from latentcode.app.components.problems import attention
from latentcode.app.language.page import (
    HEAD,
    MOST_CHARACTERS,
    PAIR,
    PROMPT,
    SOURCE,
    Pair,
    go_to,
    rows_choose,
    take,
)
from latentcode.app.language.passes import see
from latentcode.app.language.reading import Read
from latentcode.app.language.tokens import (
    LEGEND,
    marked,
    pieces_of,
    shown,
    text_of,
    tokens_html,
)
from latentcode.app.language.work import Job
from latentcode.app.state.url import choose
from latentcode.app.words import literal
from latentcode.probes.heads.clusters import nearest_codes

HEADS, NEIGHBOURS = 6, 8
"""Rows of the tables."""
IN_TEXT = "in the text"


def card(job: Job, read: Read, row: int) -> str:
    """Return what the mouse shows of a pair, as HTML; `LookupError` where there is none."""
    if not 0 <= row < len(read.codes):
        raise IndexError(row)
    labels = read.codes.labels.iloc[row]
    query, key = int(labels["query_position"]), int(labels["key_position"])
    if job.model is None:
        return f"<div>{escape(shown(labels['context']))}</div>"
    pieces = pieces_of(job.model, read.tokens[int(read.rows[row])].tolist())
    return tokens_html(pieces, marked(query, key), (query, key),
                       size=11) + LEGEND


def pair_of(read: Read, row: int) -> Pair:
    """Return the pair of a row of the codes."""
    labels = read.codes.labels
    return Pair(int(read.rows[row]), int(labels["query_position"].iloc[row]),
                int(labels["key_position"].iloc[row]))


def row_of(read: Read, pair: Pair) -> int | None:
    """Return the row of a pair; None where it was not sampled."""
    labels = read.codes.labels
    found = np.flatnonzero((read.rows == pair.text)
                           & (labels["query_position"] == pair.query).to_numpy()
                           & (labels["key_position"] == pair.key).to_numpy())
    return int(found[0]) if len(found) else None


def show_pair(job: Job, read: Read, pair: Pair, layer: int | None) -> None:
    """Show a pair: its text with the attention of its query, its heads, and nearest codes."""
    tokens = read.tokens[pair.text]
    with st.spinner("Reading the text …"):
        seen = see(job, tokens.tolist())
    names = [shown(piece) for piece in seen.pieces]
    st.markdown(f"##### \u201c{literal(names[pair.query])}\u201d → "
                f"\u201c{literal(names[pair.key])}\u201d\n"
                f"Text {pair.text}: the query is token {pair.query}, the key "
                + (f"{pair.query - pair.key} before it." if pair.key < pair.query
                   else "the same token."))
    codes = seen.codes(pair.query)  # [K, L, H]
    own = codes[pair.key]
    layers = list(read.layers)
    largest = layers[int(np.abs(own).max(1).argmax())]
    of = choose("Attention of layer", layers, key="lm_of_layer",
                default=largest if layer is None else layer)
    attention(tokens_html(seen.pieces, marked(pair.query, pair.key)) + LEGEND,
              codes[:, layers.index(of)].T, names[:pair.query + 1], pair.query, dark=is_dark())
    _show_heads(read, own)
    text = text_of(job.wait_for_model(), tokens[:pair.query + 1].tolist())
    with st.container(horizontal=True):
        _take(PROMPT, text, "Take it as the prompt", ":material/edit:")
        _take(SOURCE, text, "Take it as the source", ":material/move_down:")


def _take(key: str, text: str, label: str, icon: str) -> None:
    """Offer a text up to its query to the page of prompts."""
    if st.button(label, icon=icon, key=f"take as {key}",
                 help="The text up to the query, on the page Prompt."):
        take(key, text[-MOST_CHARACTERS:])
        go_to("prompt")


def _show_heads(read: Read, own: np.ndarray) -> None:
    """List the heads that attend to the key most, by its code of all layers [L, H]."""
    st.markdown("**Heads that attend to this key most**; click a row to open its card.")
    scores = own.ravel()
    best = np.argsort(-np.abs(scores), kind="stable")[:HEADS].tolist()
    names = [f"L{read.layers[i // read.n_heads]}H{i % read.n_heads}" for i in best]
    rows_choose(pd.DataFrame({"head": names, "attention": scores[best]}), names,
                key="heads of pair", into=HEAD, to="heads",
                attention=st.column_config.ProgressColumn(
                    format="%.3f", min_value=0.0, max_value=max(1.0, float(np.abs(own).max()))))


def neighbour_table(
    read: Read, code: np.ndarray, layer: int | None, text: int | None = None
) -> pd.DataFrame:
    """Return the nearest codes to a code [L, H], nearest first, with their row as `number`.

    text  whose codes are left out, and those of its copies
    """
    of = code if layer is None else code[read.layers.index(layer)]
    copies = [] if text is None else [
        i for i, tokens in enumerate(read.tokens) if np.array_equal(tokens, read.tokens[text])]
    left = np.flatnonzero(~np.isin(read.rows, copies))
    table = nearest_codes(read.codes.subset(left), of.ravel(), layer=layer,
                          n=min(NEIGHBOURS, len(left)), metric="cosine")
    table["number"] = left[table["number"]]
    return table


def show_near_pair(job: Job, read: Read, pair: Pair, layer: int | None) -> None:
    """List the codes of other texts that are nearest to that of a pair; a row leads to its pair."""
    own = see(job, read.tokens[pair.text].tolist()).codes(pair.query)[pair.key]
    table = neighbour_table(read, own, layer, pair.text)
    st.markdown("**Nearest codes** of other texts; click a row to open its pair.")
    rows_choose(
        pd.DataFrame({
            "distance": table["distance"], "query": table["query_token"].map(shown),
            "key": table["key_token"].map(shown), IN_TEXT: table["context"].map(shown)}),
        [pair_of(read, row).name for row in table["number"].tolist()], key="near pair", into=PAIR,
        distance=st.column_config.NumberColumn(format="%.3f"))
    st.caption("<<query>>, [[key]]; distance: 1 - cosine. With each head permuted over the pairs "
               f"of a text, the nearest would be at {table['permuted'].iloc[0]:.3f}.")
