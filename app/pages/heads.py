"""Heads: a scatter of all heads of a language model, and a card for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from latentcode.app.language.page import HEAD, show_progress, show_read
from latentcode.app.state.messages import answering, guarded
from latentcode.app.state.url import choose, remember, remembered
from latentcode.app.words import literal

if TYPE_CHECKING:
    import pandas as pd

    from latentcode.app.language.reading import Read
    from latentcode.app.language.work import Job

CHART = "heads"
SHOWN = ("largest", "tenths")
"""Which texts of a head are shown."""


def page() -> None:
    """Show the heads of the language model."""
    show_read("Heads of {}", _body)


@guarded
def _body(job: Job) -> None:
    from latentcode.app.charts.clicks import on_click
    from latentcode.app.charts.theme import is_dark, show_still
    from latentcode.app.language.charts import heads_chart
    from latentcode.app.language.heads import ABOUT, table, words

    read = job.read
    assert read is not None
    names = list(ABOUT)
    described = "; ".join(f"{words(name)}: {text}" for name, text in ABOUT.items())
    x = choose("x axis", names, key="lm_x", where=st.sidebar, default="previous_token",
               shown=words, help=described)
    y = choose("y axis", names, key="lm_y", where=st.sidebar, default="induction", shown=words,
               help=described)
    found = table(job, read)
    head = _head_here(read)
    left, right = st.columns([1.0, 1.0], gap="medium")
    with left:
        st.markdown(f"##### {len(found)} heads of {literal(job.title)}")
        show_progress(job, read)
        show_still(heads_chart(found, x, y, head, dark=is_dark()), CHART,
                   alt=f"Heads by {words(x)} and {words(y)}.")
        on_click(CHART, lambda name: remember(HEAD, str(name)))
        st.caption(f"Each point is a head. x: {ABOUT[x]}; y: {ABOUT[y]}; means over the queries of "
                   f"{read.n_texts:,} texts. **Click a point** for its card.")
        for note in read.notes:
            st.caption(f":material/info: {literal(note)}")
        with st.expander("All heads as a table"):
            _show_table(job, found)
    with right:
        if head is None:
            st.markdown("##### No head yet\nClick a point, or choose a head:")
        _choose_head(read, head)
        if head is not None:
            _card(job, read, found, *head)


def _head_here(read: Read) -> tuple[int, int] | None:
    """Return the head of the address; None where it names none of the model's."""
    layer, _, head = (remembered(HEAD) or "").partition(".")
    if not (layer.isdecimal() and head.isdecimal() and len(layer) < 5 and len(head) < 5):
        return None
    found = int(layer), int(head)
    return found if found[0] in read.layers and found[1] < read.n_heads else None


def _choose_head(read: Read, head: tuple[int, int] | None) -> None:
    """Let a head be chosen without a mouse."""
    first, second = st.columns(2)
    layers, heads = list(read.layers), list(range(read.n_heads))
    for key, value in (("lm card layer", None if head is None else head[0]),
                       ("lm card head", None if head is None else head[1])):
        if value is not None and st.session_state.get(key) != value:
            st.session_state[key] = value

    def note() -> None:
        remember(HEAD, f"{st.session_state['lm card layer'] or 0}."
                       f"{st.session_state['lm card head'] or 0}")

    for where, label, options in ((first, "Layer", layers), (second, "Head", heads)):
        where.selectbox(label, options, index=None if head is None else 0,
                        key=f"lm card {label.lower()}", on_change=answering(note))


def _show_table(job: Job, found: pd.DataFrame) -> None:
    from latentcode.app.language.heads import ABOUT

    st.dataframe(found[["layer", "head", *ABOUT]], hide_index=True, column_config={
        name: st.column_config.NumberColumn(format="%.3f") for name in ABOUT})
    st.download_button("Table, CSV", lambda: found.to_csv(index=False).encode(),
                       f"heads-{job.title.replace('/', '-')}.csv", key="download heads",
                       on_click="ignore")


def _card(job: Job, read: Read, found: pd.DataFrame, layer: int, head: int) -> None:
    """Show a head: its metrics, what ablating it does, and texts."""
    import pandas as pd

    from latentcode.app.language.heads import ABOUT, words

    row = found[(found["layer"] == layer) & (found["head"] == head)].iloc[0]
    st.markdown(f"##### L{layer}H{head}: head {head} of layer {layer}")
    n = len(found)
    st.dataframe(pd.DataFrame({
        "metric": [words(name) for name in ABOUT], "value": [row[name] for name in ABOUT],
        "95 % interval": [_interval(row, name) for name in ABOUT],
        f"rank of {n}": [_rank(found[name], row[name]) for name in ABOUT]}),
        hide_index=True, column_config={
            "value": st.column_config.NumberColumn(format="%.3f")})
    _effects(job, read, layer, head)
    _texts(job, read, layer, head)


def _interval(row: Any, name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "–" if low != low else f"{low:.3f} to {high:.3f}"


def _rank(values: pd.Series, value: float) -> str:
    return "–" if value != value else str(int((values > value).sum()) + 1)


def _effects(job: Job, read: Read, layer: int, head: int) -> None:
    """Offer to ablate the head, and show what that did, beside its control."""
    import pandas as pd

    from latentcode.app.data.loaded import progress_bar
    from latentcode.app.language.heads import BEYOND, CHANGES, N_ABLATED, ablated

    kept: dict[tuple[int, int], Any] = st.session_state.setdefault("lm effects", {})
    place = layer, head
    if place not in kept:
        if not st.button("What does it cause? Ablate it", icon=":material/cut:", key="ablate",
                         help="Its output becomes its mean over texts (mean ablation), in "
                              f"{N_ABLATED} texts; beside it the same head with a random output "
                              "matrix."):
            return
        with progress_bar(f"Ablating L{layer}H{head} in {N_ABLATED} texts …") as report:
            kept[place] = ablated(job, read, layer, head, report)
    found = kept[place]
    n = int(found["n"].iloc[0])
    st.markdown(f"**Mean ablation**, after {n:,} tokens of {min(N_ABLATED, read.n_texts)} texts")

    def ranged(row: Any, value: str, low: str, high: str) -> str:
        return f"{row[value]:.3g} [{row[low]:.3g}, {row[high]:.3g}]"

    st.dataframe(pd.DataFrame({
        "what changes": [CHANGES[name] for name in found["quantity"]],
        "this head": [ranged(row, "value", "low", "high") for _, row in found.iterrows()],
        "control": [ranged(row, "control", "control_low", "control_high")
                    for _, row in found.iterrows()],
        "beyond the control": [BEYOND[above] for above in found["above"]]}), hide_index=True)
    st.caption("Control: the same head with a random output matrix, eight of which are drawn; its "
               "interval is where another such matrix would lie. The head's own is over texts.")


def _texts(job: Job, read: Read, layer: int, head: int) -> None:
    """Show texts of a head, shaded by its attention."""
    from latentcode.app.language.components import Shaded, shaded
    from latentcode.app.language.heads import texts_of_head
    from latentcode.app.language.passes import see

    which = choose("Texts", SHOWN, key="lm_texts", form="buttons",
                   shown=lambda name: {"largest": "largest attention",
                                       "tenths": "one per decile"}[name])
    place = read.layers.index(layer)
    some = [(name, text) for name, text in texts_of_head(read, layer, head)
            if name.startswith("largest") == (which == "largest")]
    with st.spinner("Reading its texts …"):
        shaded([Shaded(
            f"{_said(name)} · text {text} · largest attention "
            f"{read.maxima[text, place, head]:.2f}", seen.pieces, seen.pattern[place, head],
            int(read.query[text, place, head]))
            for name, text in some for seen in (see(job, read.tokens[text].tolist()),)],
            key="shaded texts")
    st.caption("Tokens are shaded by how much the outlined one attends to them. Move over a token, "
               "or use the arrow keys, to make it the query; at first it is the one with the "
               "largest attention, the first token left out.")


def _said(name: str) -> str:
    kind, number = name.split()
    return f"{number}." if kind == "largest" else f"decile {number}"
