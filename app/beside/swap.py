"""Intervene on a text: the code of its minimal pair at one earlier token, and what comes next."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from latentcode.app.data import loaded
from latentcode.app.data.attention import names_of
from latentcode.app.data.catalog import Entry
from latentcode.app.data.swaps import Swap, place, swap
from latentcode.app.state.sidebar import choose_layers_and_heads
from latentcode.app.state.url import choose
from latentcode.app.words import literal

SHOWN = 10
"""Tokens of which the probabilities are shown."""


def choose_swap(entry: Entry, split: str, instance: int) -> Swap | None:
    """Let a person choose what is written where; None while something is missing."""
    config = loaded.open_run(entry.path).config.model
    where = place(entry, split, instance)
    names = names_of(entry, split, instance)[:where.query + 1]
    st.markdown("##### What is written")
    st.caption(f"The query is {literal(names[where.query])}. The source is the same text with "
               f"another token in place of {literal(names[where.key])}, the key of its induction "
               "pair. Of its codes, that of the query attending to one token is written.")
    key = names.index(choose("Key", names, key="token", default=names[where.key],
                             help="The earlier token to which the query attends."))
    layers, heads = choose_layers_and_heads(config.n_layers, config.n_heads)
    if not layers:
        return None
    return swap(entry, split, instance, key, tuple(layers), tuple(heads) or None)


def show_swap(swapped: Swap | None) -> None:
    """Show which tokens may come next, before and after."""
    if swapped is None:
        return
    from latentcode.tasks.text.render import visible

    pieces = [visible(piece) for piece in swapped.pieces]
    st.markdown(f"##### {literal(sentence(swapped, pieces))}")
    if not swapped.counts:
        st.caption(":material/info: This text does not go on with what the key says, or its token "
                   "has no other like it: it cannot show whether copying follows the code.")
    ids = swapped.likeliest(SHOWN)
    st.dataframe(pd.DataFrame({
        "next token": [pieces[i] for i in ids],
        "before": swapped.before[ids], "after": swapped.after[ids],
        "source itself": swapped.source[ids]}), hide_index=True, key="next tokens",
        column_config={name: st.column_config.NumberColumn(format="percent")
                       for name in ("before", "after", "source itself")})
    st.caption(f"The {len(ids)} tokens that are likeliest before or after. Here the key "
               f"says {literal(pieces[swapped.base_token])}, in the source "
               f"{literal(pieces[swapped.source_token])}: "
               f"{_share(swapped, swapped.base_token)} and "
               f"{_share(swapped, swapped.source_token)}.")
    st.caption("One text proves nothing: `latentcode intervene RUN` writes codes into many texts, "
               "beside its controls. Codes of other texts, means and codes by hand are not "
               "written here, where queries and keys stand at other places in every text.")
    st.caption(":material/check_circle: Its own code, written back, leaves every bit of the "
               "output as it is." if swapped.exact else
               ":material/error: Its own code, written back, changes the output: do not trust "
               "this page.")


def sentence(swapped: Swap, pieces: list[str]) -> str:
    """What became of the likeliest next token? One sentence."""
    before, after = int(swapped.before.argmax()), int(swapped.after.argmax())
    if before == after:
        return f"The likeliest next token stays {pieces[before]}."
    whose = "what the source has at its key" if after == swapped.source_token else (
        "not what the source has at its key")
    return f"The likeliest next token goes from {pieces[before]} to {pieces[after]}: {whose}."


def _share(swapped: Swap, token: int) -> str:
    return f"{swapped.before[token]:.2%} before, {swapped.after[token]:.2%} after"
