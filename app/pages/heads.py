"""Heads: a scatter of all heads of a language model, and a card for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st
from matplotlib.colors import to_hex

from latentcode.app.charts.theme import is_dark, show_still, styled
from latentcode.app.data.loaded import progress_bar
from latentcode.app.language.given import given
from latentcode.app.language.page import HEAD, KNOWN_BY, show_progress, show_read
from latentcode.app.language.passes import see
from latentcode.app.language.reading import Read, texts_for
from latentcode.app.language.tokens import Shaded, shaded
from latentcode.app.language.work import Job
from latentcode.app.state.messages import answering, guarded
from latentcode.app.state.url import choose, remember
from latentcode.app.words import literal
from latentcode.probes.heads.ablate import Ablation
from latentcode.probes.heads.metrics import DIRECT, METRICS, OBSERVED, Scores
from latentcode.progress import Progress
from latentcode.prompts.texts import source_of

CHART = "heads"
NONE = "none"
SHOWN = ("largest", "tenths")
"""Which texts of a head are shown."""
ABOUT: Mapping[str, str] = {**METRICS, DIRECT: "what the head adds to the logit of the next token",
                            "largest": "mean over texts of the largest attention in it"}
"""What can be an axis, and what it is."""
N_BOOTSTRAP, SEED = 500, 0
N_ABLATED = 16
"""Texts that a head is ablated in."""
CHANGES: Mapping[str, str] = {
    "loss": "increase of the next token's loss, in nats", "kl": "KL divergence, in nats",
    "changed": "share of tokens whose likeliest next token changes"}

BEYOND: Mapping[int, str] = {1: "more", 0: "no", -1: "less"}
"""Whether a head does more than its control, surely."""
HEIGHT = 430
MAP = "viridis"


def page() -> None:
    """Show the heads of the language model."""
    show_read("Heads of {}", _body)


@guarded
def _body(job: Job) -> None:
    read = job.read
    assert read is not None
    names = list(ABOUT)
    described = "; ".join(f"{words(name)}: {text}" for name, text in ABOUT.items())
    x = choose("x axis", names, key="lm_x", where=st.sidebar, default="previous_token",
               shown=words, help=described)
    y = choose("y axis", names, key="lm_y", where=st.sidebar, default="induction", shown=words,
               help=described)
    found = table(job, read)
    left, right = st.columns([1.0, 1.0], gap="medium")
    names = [f"L{layer}H{head}" for layer in read.layers for head in range(read.n_heads)]
    name = choose("Head", [NONE, *names], key=HEAD, where=right)
    with left:
        st.markdown(f"##### {len(found)} heads of {literal(job.title)}")
        show_progress(job, read)
        show_still(heads_chart(found, x, y, name, dark=is_dark()), CHART,
                   alt=f"Heads by {words(x)} and {words(y)}.", on_select=answering(_note_click),
                   selection_mode="points")
        st.caption(f"Each point is a head. x: {ABOUT[x]}; y: {ABOUT[y]}; means over the queries of "
                   f"{read.n_texts:,} texts. **Click a point** for its card.")
        for note in read.notes:
            st.caption(f":material/info: {literal(note)}")
        with st.expander("All heads as a table"):
            st.dataframe(found[["layer", "head", *ABOUT]], hide_index=True, column_config={
                name: st.column_config.NumberColumn(format="%.3f") for name in ABOUT})
            st.download_button("Table, CSV", lambda: found.to_csv(index=False).encode(),
                               f"heads-{job.title.replace('/', '-')}.csv", key="download heads",
                               on_click="ignore")
    with right:
        if name == NONE:
            st.markdown("##### No head yet\nClick a point, or choose a head.")
        else:
            _card(job, read, found, names.index(name))


def _note_click() -> None:
    """Put the head whose point is clicked into the URL."""
    for point in st.session_state[CHART]["selection"]["points"]:
        remember(HEAD, str(point["customdata"][0]))


def _card(job: Job, read: Read, found: pd.DataFrame, row: int) -> None:
    """Show the head of a row: its metrics, what ablating it does, and texts."""
    values = found.iloc[row]
    layer, head = int(values["layer"]), int(values["head"])
    st.markdown(f"##### L{layer}H{head}: head {head} of layer {layer}")
    ranks = found[list(ABOUT)].rank(ascending=False, method="min").iloc[row]
    st.dataframe(pd.DataFrame({
        "metric": [words(name) for name in ABOUT], "value": values[list(ABOUT)].to_numpy(float),
        "95 % interval": ["–" if np.isnan(low := values[f"{name}_low"]) else
                          f"{low:.3f} to {values[f'{name}_high']:.3f}" for name in ABOUT],
        f"rank of {len(found)}": ["–" if np.isnan(rank) else f"{rank:.0f}" for rank in ranks]}),
        hide_index=True, column_config={"value": st.column_config.NumberColumn(format="%.3f")})
    _effects(job, read, layer, head)
    _texts(job, read, layer, head)


def _effects(job: Job, read: Read, layer: int, head: int) -> None:
    """Offer to ablate the head, and show what that did, beside its control."""
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
    which = choose("Texts", SHOWN, key="lm_texts", form="buttons",
                   shown=lambda name: {"largest": "largest attention",
                                       "tenths": "one per decile"}[name])
    place = read.layers.index(layer)
    some = [(name, text) for name, text in texts_of_head(read, layer, head)
            if ("decile" in name) == (which == "tenths")]
    with st.spinner("Reading its texts …"):
        shaded([Shaded(
            f"{name} · text {text} · largest attention "
            f"{read.maxima[text, place, head]:.2f}", seen.pieces, seen.pattern[place, head],
            int(read.query[text, place, head]))
            for name, text in some for seen in (see(job, read.tokens[text].tolist()),)],
            key="shaded texts")
    st.caption("Tokens are shaded by how much the outlined one attends to them. Move over a token, "
               "or use the arrow keys, to make it the query; at first it is the one with the "
               "largest attention, the first token left out.")


def words(metric: str) -> str:
    """Return a metric as people read it."""
    return metric.replace("_", " ")


@st.cache_resource(max_entries=4, show_spinner="Looking at the heads …", hash_funcs=KNOWN_BY)
def table(job: Job, read: Read) -> pd.DataFrame:
    """Return a row per layer and head: each metric, with its 95 % interval over texts in columns
    `metric_low` and `metric_high`."""
    layers, n_heads = read.layers, read.n_heads
    found = pd.DataFrame({"layer": np.repeat(layers, n_heads),
                          "head": np.tile(np.arange(n_heads), len(layers))})
    scores = {name: read.sums.scores(i, N_BOOTSTRAP, SEED) for i, name in enumerate(OBSERVED)}
    maxima = read.maxima.astype(np.float64)
    groups = np.arange(len(maxima)) % 256
    sums = np.zeros((int(groups.max()) + 1, *maxima.shape[1:]))
    np.add.at(sums, groups, maxima)
    sizes = np.bincount(groups).astype(float)[:, None, None]
    scores["largest"] = Scores.of(sums, sizes, len(maxima), N_BOOTSTRAP, SEED)
    for name, score in scores.items():
        low, high = score.interval()
        found[name] = score.value.ravel()
        found[f"{name}_low"], found[f"{name}_high"] = low.ravel(), high.ravel()
    return found


def texts_of_head(read: Read, layer: int, head: int, top: int = 5) -> list[tuple[str, int]]:
    """Return texts of a head, each with what it is: those with the largest attention, then one of
    every tenth of the texts, from the highest."""
    of = read.maxima[:, read.layers.index(layer), head]
    order = np.argsort(-of, kind="stable")
    found = [(f"{i + 1}.", int(text)) for i, text in enumerate(order[:top])]
    tenths = np.array_split(order[top:], 10)
    rng = np.random.default_rng([SEED, layer, head])
    found += [(f"decile {i + 1}", int(rng.choice(tenth))) for i, tenth in enumerate(tenths)
              if len(tenth)]
    return found


def ablated(
    job: Job, read: Read, layer: int, head: int, progress: Progress
) -> pd.DataFrame:
    """Return a row per quantity of `CHANGES`: what mean ablation of a head does in the first texts,
    after all their tokens, with its interval over texts; and its control, random output matrices of
    the head, with the interval in which one of them lies (`latentcode.probes.heads.ablate`).

    `above`: 1 where the head does more than such a one would, -1 where less, else 0; `n` tokens.
    """
    asked = given()
    assert asked is not None
    model = job.wait_for_model()
    texts = texts_for(model, source_of(asked.texts), n=N_ABLATED, longest=asked.longest)
    batches = list(texts.batches())
    with job.turns.now():
        ablation = Ablation(model, batches, kinds=("mean",), n_read=None, seed=SEED,
                            heads=[(layer, head)])
    for done, part in enumerate(ablation.parts, 1):
        with job.turns.now():
            ablation.add(part)
        progress(done, len(ablation.parts))
    effects = ablation.table(N_BOOTSTRAP).set_index("quantity").loc[list(CHANGES)]
    effects["above"] = (effects["difference_low"] > 0).astype(int) - (
        effects["difference_high"] < 0).astype(int)
    return effects.reset_index()


def layer_colours(n: int, dark: bool) -> list[str]:
    """Return a colour per layer, from the first to the last, none as dark or light as the ground.
    """
    ends = (0.25, 0.98) if dark else (0.05, 0.92)
    return [to_hex(mpl.colormaps[MAP](share)) for share in np.linspace(*ends, n)]


def heads_chart(
    table: pd.DataFrame, x: str, y: str, chosen: str, *, dark: bool
) -> go.Figure:
    """Return a scatter of heads, coloured by layer, with their names as `customdata`."""
    figure = go.Figure()
    layers = sorted(table["layer"].unique())
    for layer, colour in zip(layers, layer_colours(len(layers), dark), strict=True):
        rows = table[table["layer"] == layer]
        names = [f"L{layer}H{head}" for head in rows["head"]]
        figure.add_scatter(
            x=rows[x], y=rows[y], mode="markers", name=f"{layer}", text=names,
            customdata=[[name] for name in names],
            hovertemplate=f"%{{text}}<br>{words(x)} %{{x:.3f}}<br>{words(y)} %{{y:.3f}}"
                          "<extra></extra>",
            marker={"size": 9, "color": colour,
                    "line": {"width": 0.6, "color": "#E4E9EE" if dark else "#1B2530"}})
    row = table[[f"L{layer}H{head}" == chosen for layer, head in zip(
        table["layer"], table["head"], strict=True)]]
    figure.add_scatter(
        x=row[x], y=row[y], mode="markers+text", text=[chosen], textposition="top center",
        hoverinfo="skip", showlegend=False,
        marker={"size": 17, "color": "rgba(0,0,0,0)",
                "line": {"width": 2.5, "color": "#E4E9EE" if dark else "#1B2530"}})
    styled(figure, height=HEIGHT, dark=dark, hovermode="closest",
           legend={"title": {"text": "layer"}})
    figure.update_traces(unselected={"marker": {"opacity": 1.0}})  # a click dims no head
    figure.update_xaxes(title=words(x))
    figure.update_yaxes(title=words(y))
    return figure
