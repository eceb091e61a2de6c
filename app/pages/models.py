"""Two models: the codes of the same pairs in both, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from latentcode.app.language.page import PAIR, Pair, begun, show_progress
from latentcode.app.state.messages import guarded
from latentcode.app.state.url import choose, remember, remembered
from latentcode.app.words import literal
from latentcode.errors import check

if TYPE_CHECKING:
    from latentcode.app.language.reading import Read
    from latentcode.app.language.work import Job

HEIGHT = 360


def page() -> None:
    """Show the two models that the explorer was started with."""
    jobs = begun().jobs
    reads = [job.read for job in jobs]
    for job, read in zip(jobs, reads, strict=True):
        if read is None or not job.is_over:
            show_progress(job, read)
    if all(read is not None and read.whole for read in reads):
        _body()
    else:
        st.markdown("##### " + literal(" and ".join(job.title for job in jobs))
                    + "\nBoth are read before they are compared.")


@guarded
def _body() -> None:
    import numpy as np
    import pandas as pd

    from latentcode.app.charts.theme import is_dark, show_still
    from latentcode.app.language import planes
    from latentcode.app.language.charts import both_chart
    from latentcode.app.language.choosing import choose_plane
    from latentcode.app.language.heads import ABOUT, table, words
    from latentcode.app.language.map import show_pairs
    from latentcode.app.language.pair import pair_of, row_of
    from latentcode.app.state.selection import Selection

    one, other = begun().jobs
    reads = [job.read for job in (one, other)]
    first, second = reads
    assert first is not None
    assert second is not None
    longest = min(max(map(len, read.tokens)) for read in (first, second))
    check(len(first.codes) == len(second.codes), f"{one.title} and {other.title} do not see the "
          f"same pairs, since one of them reads {longest} tokens at most; expected --longest "
          f"{longest}")
    layers = [layer for layer in first.layers if layer in second.layers]
    layer, method, colour = choose_plane(layers)
    st.markdown(f"##### The same {len(first.codes):,} pairs in {literal(one.title)} and "
                f"{literal(other.title)}, " + ("all layers" if layer is None else f"layer {layer}"))
    laid = [planes.plane(job, job.read, layer, method) for job in (one, other) if job.read]
    share = _shared(one, other, layer)
    pair = Pair.named(remembered(PAIR))

    def noted(found: Selection) -> None:
        if found.instances:
            remember(PAIR, pair_of(first, found.instances[0]).name)

    show_pairs((one, other), first, laid, layer, method, colour, noted, height=HEIGHT,
               instance=None if pair is None else row_of(first, pair),
               alt="The codes of the same pairs in two models.")
    st.caption(literal(
        f"{method} of each model. Of the 10 nearest codes of a pair in {one.title}, {share:.1%} "
        f"are also among its 10 nearest in {other.title}; of random ones "
        f"{10 / (len(first.codes) - 1):.1%} would be. The pairs are those drawn for {one.title}."))
    if pair is not None:
        _show_pair(one, other, first, second, pair)
    names = list(ABOUT)
    metric = choose("Metric", names, key="lm_metric", default="induction", shown=words)
    tables = [table(one, first), table(other, second)]
    both = tables[0].merge(tables[1], on=["layer", "head"], suffixes=("", " other"))
    assert isinstance(both, pd.DataFrame)
    show_still(both_chart(both, metric, (one.title, other.title), dark=is_dark()), "both",
               alt=f"{words(metric)} of each head in both models.")
    moved = np.abs(both[metric] - both[f"{metric} other"])
    most = both.iloc[int(np.nan_to_num(moved).argmax())]
    st.caption(literal(
        f"Each point is a head, {ABOUT[metric]}; on the line both models have the same. "
        f"Most moved: L{int(most['layer'])}H{int(most['head'])}, {most[metric]:.3f} to "
        f"{most[f'{metric} other']:.3f}. Heads of models that were not trained from the same start "
        "have nothing in common but their numbers."))
    st.download_button("Table, CSV", lambda: both.to_csv(index=False).encode(), "two-models.csv",
                       key="download both", on_click="ignore")


def _show_pair(one: Job, other: Job, first: Read, second: Read, pair: Pair) -> None:
    """Show a pair in its text, and the heads of both models that attend to its key most."""
    import pandas as pd

    from latentcode.app.language.pair import most_attending, row_of
    from latentcode.app.language.tokens import LEGEND, marked, pieces_of, tokens_html

    row = row_of(first, pair)
    if row is None or one.model is None:
        return
    pieces = pieces_of(one.model, first.tokens[pair.text].tolist())
    st.html(tokens_html(pieces, marked(pair.query, pair.key), (pair.query, pair.key)) + LEGEND)
    st.markdown("**Heads that attend to this key most**, in each model:")
    columns: dict[str, Any] = {}
    for job, read in ((one, first), (other, second)):
        most = most_attending(read, read.codes.scores[row])
        columns[f"head of {job.title}"] = [f"L{layer}H{head}" for layer, head, _ in most]
        columns[f"attention, {job.title}"] = [score for *_, score in most]
    same = min(len(column) for column in columns.values())
    st.dataframe(pd.DataFrame({name: column[:same] for name, column in columns.items()}),
                 hide_index=True, key="heads of the pair", column_config={
                     name: st.column_config.NumberColumn(format="%.3f") for name in columns
                     if name.startswith("attention")})


def _shared(one: Job, other: Job, layer: int | None) -> float:
    """Return the share of nearest codes that two models have in common, of a layer or all."""
    from latentcode.app.charts.overlap import shared_neighbours
    from latentcode.probes.heads.sampling import flat_codes

    kept: dict[object, float] = st.session_state.setdefault("lm shared", {})
    assert one.read is not None
    assert other.read is not None
    key = one.read.stamp, other.read.stamp, layer
    if key not in kept:
        with st.spinner("Looking at neighbours …"):
            kept[key] = float(shared_neighbours([
                flat_codes(read.codes, layer) for read in (one.read, other.read)]).mean())
    return kept[key]
