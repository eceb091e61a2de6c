"""Model: what its codes tell (probes, cosines), how it was trained, and what else was found."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from latentcode.app.charts import knn_purity
from latentcode.app.charts.theme import (
    is_dark,
    palette,
    panel_grid,
    show_still,
    show_whole,
    styled,
    styled_grid,
)
from latentcode.app.data.loaded import computed_results, open_run, progress_bar, saved_results
from latentcode.app.data.projections import colour_labels, value_name
from latentcode.app.state.messages import guarded
from latentcode.app.state.sidebar import AT_PLACE, Chosen, choose_codes
from latentcode.app.state.url import choose
from latentcode.app.words import literal, shortened
from latentcode.codes.latent_codes import is_measurement
from latentcode.figures.colours import FEATURE_STYLES, GREY
from latentcode.metrics import is_by_constituent, is_loss
from latentcode.probes.common.results import TableResult
from latentcode.probes.common.statistics import varies
from latentcode.probes.decoding import HEADLINE, DecodingResult, decode
from latentcode.probes.knn_purity import response_labels
from latentcode.probes.similarity import cluster_order, cosine_matrix

SPREAD = 0.09
"""How far features of a layer stand apart, in layers, so that their intervals do not overlap."""
CENTRINGS = ("centred", "raw")
MATRIX = 480
"""Height of the cosine matrix in pixels."""
MOST_NAMES = 28
"""Names that an axis of the matrix has space for; of more, it has every second one or fewer."""
MOST_NAMED = 4
"""Values that a sentence names."""
SHUFFLES = 20
"""How often labels are shuffled among instances."""
FIRST_METRICS = ("perplexity", "accuracy", "r2")
"""The metrics that tasks quote first."""
MOST_TICKS = 7
"""Ticks of a logarithmic axis."""

_SYMBOLS = {"code": "circle", "residual": "square", "untrained": "triangle-up", "shuffled": "x",
            "bag": "triangle-down", "chance": "diamond"}
_CHANCE = ("#56B4E9", "D", "best constant answer")


def page() -> None:
    """Show what is known of the model that the sidebar chooses."""
    chosen = choose_codes(knn_purity.best_place)
    results = saved_results(chosen.entry)
    decodings = {name: result for name, result in results.items()
                 if isinstance(result, DecodingResult) and result.is_of_codes}
    # What goes wrong in a part is said there, and the others are shown.
    guarded(lambda: _probes(chosen, decodings))()
    guarded(lambda: _cosines(chosen))()
    if chosen.entry.kind != "codes":
        guarded(lambda: _training(chosen))()
    others = {name: result for name, result in results.items() if name not in decodings}
    if others:
        guarded(lambda: _results(others))()


def _probes(chosen: Chosen, decodings: dict[str, DecodingResult]) -> None:
    """Show what probes decode from the codes, layer by layer, beside all controls."""
    if not decodings:
        _offer_to_decode(chosen)
        return
    names = list(decodings)
    result = decodings[choose("Result", names, key="result", where=st.sidebar)
                       if len(names) > 1 else names[0]]
    pairs = [str(pair) for pair in result.table["pair"].unique()]
    pair = chosen.pair if chosen.pair in pairs else pairs[0]
    table = result.table[result.table["pair"] == pair]
    first = table[table["metric"].isin(HEADLINE)]
    st.markdown(f"##### What can be decoded from the codes?\n{literal(pair)}\n\n"
                + best_layers(first))
    show_still(scores_chart(first, dark=is_dark()), "decoding",
               alt="Scores of probes per layer beside their controls.")
    st.caption("Logistic probes, fitted on training combinations and scored on held-out ones. Bars "
               "are 95 % intervals; the dashed line is chance. Controls: an untrained model, "
               "shuffled labels, and the residual stream that enters the layer.")
    contrasts = result.contrasts.table
    contrasts = contrasts[(contrasts["pair"] == pair) & contrasts["quantity"].isin(HEADLINE)
                          & contrasts["against"].isin(list(_SYMBOLS))]
    if len(contrasts):
        st.markdown("**The code minus each control**")
        as_scores = contrasts.drop(columns="features").rename(columns={
            "quantity": "metric", "against": "features", "n": "n_heldout",
            "n_clusters": "n_heldout_combinations"}).assign(chance=0.0)
        show_still(scores_chart(as_scores, dark=is_dark(), less="less "), "differences",
                   alt="Scores of the code less those of its controls, per layer.")
        st.caption("Differences over the same problems, with 95 % intervals over combinations: "
                   "above the dashed line the code tells more than the control.")
    for note in result.caveats:
        st.caption(f":material/warning: {literal(note)}")
    with st.expander("All scores"):
        summary = result.summary([str(metric) for metric in table["metric"].unique()])
        show_whole(summary[summary["pair"] == pair].drop(columns="pair").rename(
            columns={features: words for features, (_, _, words) in FEATURE_STYLES.items()}),
            key="decoding-table")


def best_layers(table: pd.DataFrame) -> str:
    """Return a line of Markdown per label: the layer whose code says most, beside its controls.

    table  rows of `DecodingResult.table` of one pair and one metric per label

    The best of several layers is chosen by the very score that is quoted, and the line says so.
    """
    lines = []
    for (label, metric), block in table.groupby(["label", "metric"], sort=False):
        codes = block[block["features"] == "code"]
        best = codes.iloc[int(codes["value"].argmax())]
        beside = [f"{FEATURE_STYLES[str(row.features)][2]} {row.value:.2f}" for row in block[
            (block["layer"] == best["layer"]) & (block["features"] != "code")].itertuples()]
        among = f", the best of {len(codes)}" if len(codes) > 1 else ""
        beside.append(f"chance {best['chance']:.2f}")
        lines.append(f"**{literal(label)}**: {literal(metric).replace('_', ' ')} "
                     f"{best['value']:.2f} [{best['low']:.2f}, {best['high']:.2f}] from the code "
                     f"of layer {best['layer']}{among}; " + ", ".join(beside))
    return "\n\n".join(lines)


def _offer_to_decode(chosen: Chosen) -> None:
    entry = chosen.entry
    st.markdown("##### No probes yet")
    if entry.kind == "codes":
        st.info("No probe results are stored with these codes. Fitting probes with all controls "
                "needs the model that the codes come from.", icon=":material/info:")
        return
    st.markdown("Fit logistic probes with all controls: an untrained model, shuffled labels and "
                "the residual stream. This takes a minute or two. The result is kept in your "
                "cache; the run's folder is not changed.")
    if st.button("Run the probes now", type="primary", icon=":material/play_arrow:", key="probe"):
        with progress_bar("Extracting codes and fitting probes …") as report:
            result = decode(open_run(entry.path), progress=report)
        result.save(computed_results(entry) / "decoding", overwrite=True, figures=False)
        st.rerun()


def scores_chart(table: pd.DataFrame, *, dark: bool, less: str = "") -> go.Figure:
    """Which labels can be decoded from which layer, beside all controls?

    A panel per label and metric, a trace per features, dashed what chance is.

    table  rows of `DecodingResult.table` of one pair, or differences in the same columns
    less   what stands before the names of features, of differences
    """
    panels = list(table[["label", "metric"]].drop_duplicates().itertuples(index=False))
    blocks = [table[(table["label"] == label) & (table["metric"] == metric)]
              for label, metric in panels]
    # Where chance is stands in the title, which no point hides.
    figure, places = panel_grid([
        f"{shortened(label)}<br>{metric.replace('_', ' ')}"
        + ("" if less else f", chance {block['chance'].iloc[0]:.2f}")
        for (label, metric), block in zip(panels, blocks, strict=True)])
    styles = FEATURE_STYLES | {"chance": _CHANCE}
    feature_sets = [s for s in styles if s in set(table["features"])]
    layers = sorted(table["layer"].unique())
    for i, (block, place) in enumerate(zip(blocks, places, strict=True)):
        for number, features in enumerate(feature_sets):
            color, _, words = styles[features]
            rows = block[block["features"] == features].sort_values("layer")
            shift = SPREAD * (number - (len(feature_sets) - 1) / 2)
            figure.add_scatter(
                x=[layers.index(layer) + shift for layer in rows["layer"]], y=rows["value"],
                mode="markers" if less else "lines+markers", name=f"{less}{words}",
                legendgroup=features, showlegend=i == 0,
                marker={"size": 8, "symbol": _SYMBOLS[features], "color": color},
                line={"width": 1.5, "color": color},
                customdata=rows[["layer", "low", "high", "n_heldout", "n_heldout_combinations"]],
                error_y={"array": rows["high"] - rows["value"], "thickness": 1.2, "width": 3,
                         "arrayminus": rows["value"] - rows["low"], "symmetric": False},
                hovertemplate=f"{less}{words}, layer %{{customdata[0]}}<br>"
                              "%{y:.3f} [%{customdata[1]:.3f}, %{customdata[2]:.3f}]<br>"
                              "%{customdata[3]:,} instances of %{customdata[4]} combinations"
                              "<extra></extra>", **place)
        # After the points: plotly draws no line in an empty panel.
        figure.add_hline(y=float(block["chance"].iloc[0]),
                         line={"color": GREY, "dash": "dash", "width": 1}, **place)
    figure.update_xaxes(title="layer", tickvals=list(range(len(layers))),
                        ticktext=[str(layer) for layer in layers], showgrid=False, zeroline=False,
                        range=[-0.4, len(layers) - 0.6])
    figure.update_yaxes(tickformat=".1f", zeroline=False, **(
        {} if less else {"range": [-0.02, 1.05]}))
    return styled_grid(figure, places, dark=dark)


def _cosines(chosen: Chosen) -> None:
    """Show which values of a label have similar mean codes."""
    codes, layer, pair = chosen.codes, chosen.layer, chosen.pair
    names = [name for name in colour_labels(codes, pair)
             if not is_measurement(chosen.label(name)) and chosen.label(name).nunique() > 1]
    if not names or not varies(chosen.points):
        return
    st.markdown("##### Which values of a label have similar codes?")
    drawn, chosen_here = st.columns([1.3, 1.0], gap="medium")
    # `rule_2` is what `rule` is with this pair, and the list has it once.
    label = choose("Label", names, key="label", where=chosen_here,
                   also=response_labels(codes.labels, codes.pair(pair)),
                   help="There is a mean code for each value.")
    centring = choose("Cosine", CENTRINGS, key="centring", form="buttons", where=chosen_here,
                      help="centred: after subtracting the mean over all values. raw: the mean "
                           "codes as they are, which are all similar where scores cannot be "
                           "negative.")
    means = codes.mean_by(label, layer=layer, pair=pair)
    cosines = cosine_matrix(means.to_numpy(dtype=np.float64), centring)
    if len(means) > 2 and not pd.api.types.is_numeric_dtype(means.index):
        order = cluster_order(cosines)
        means, cosines = means.iloc[order], cosines[np.ix_(order, order)]
    table = _same_value(chosen, label, centring)
    chosen_here.markdown(f"layer {layer}, {literal(pair)}, {len(codes):,} instances. " + (
        "" if table.empty else within_sentence(table, label, centring)))
    with drawn:
        show_still(cosine_chart(cosines, [value_name(label, value) for value in means.index],
                                signed=centring == "centred", dark=is_dark()), "cosines",
                   alt="Cosines of the mean codes of the values of a label.")


@st.cache_data(max_entries=24, show_spinner=False, hash_funcs=AT_PLACE)
def _same_value(chosen: Chosen, label: str, centring: str) -> pd.DataFrame:
    points = chosen.points.astype(np.float64)
    if centring == "centred":
        points = points - points.mean(axis=0)
    return same_value_cosines(unit_vectors(points), chosen.label(label))


def within_sentence(table: pd.DataFrame, label: str, centring: str) -> str:
    """Return what `same_value_cosines` says, in Markdown."""
    ranked = table["cosine"].sort_values()
    ends = [f"{ranked.loc[value]:.2f} ({literal(value_name(label, value))})"
            for value in dict.fromkeys((ranked.index[0], ranked.index[-1]))]
    text = (f"Two codes of the same {literal(label)} have a mean {centring} cosine of "
            f"{' to '.join(ends)}. ")
    control = f"labels shuffled among instances (the largest of {SHUFFLES} shuffles)"
    short = table[table["cosine"] <= table["shuffled"]]
    if short.empty:
        return text + (f"**For every value** that is more than with {control}." if len(table) > 1
                       else f"That is more than with {control}.")
    named = [f"{literal(value_name(label, row.Index))} ({row.cosine:.2f}, shuffled up to "
             f"{row.shuffled:.2f})" for row in short.head(MOST_NAMED).itertuples()]
    rest = len(short) - len(named)
    more = f" and {rest} more" if rest else ""
    which = (f"**For {len(short)} of {len(table)} values** it is" if len(short) < len(table)
             else "**For every value** it is")
    return text + f"{which} no more than with {control}: {', '.join(named)}{more}."


def cosine_chart(
    cosines: np.ndarray, names: list[str], *, signed: bool, dark: bool
) -> go.Figure:
    """Which values of a label have similar mean codes?

    cosines  [n, n]; those of the diagonal, which are 1, have no colour
    signed   whether colours are centred on 0
    """
    n, paper = len(names), "#1B222B" if dark else "#F4F6F8"
    apart = np.where(np.eye(n, dtype=bool), np.nan, cosines)
    finite = apart[np.isfinite(apart)]
    scale: dict[str, Any] = {
        "zmin": -1.0, "zmax": 1.0,
        "colorscale": [[0.0, "#0072B2"], [0.5, paper], [1.0, "#D55E00"]]} if signed else {
        "zmin": float(finite.min()) if len(finite) else 0.0,
        "zmax": float(finite.max()) if len(finite) else 1.0,
        "colorscale": [[0.0, paper], [1.0, "#0072B2"]]}
    figure = go.Figure(go.Heatmap(
        z=apart, xgap=1, ygap=1, hoverongaps=False,
        text=[[f"{one} and {other}" for other in names] for one in names],
        hovertemplate="%{text}: %{z:.2f}<extra></extra>",
        colorbar={"thickness": 10, "outlinewidth": 0, "len": 0.6, "y": 1.0, "yanchor": "top"},
        **scale))
    named = range(0, n, -(-n // MOST_NAMES))
    ticks = {"tickvals": [*named], "ticktext": [shortened(names[i]) for i in named],
             "tickfont": {"size": 12 if n <= MOST_NAMES // 2 else 9}, "ticks": "",
             "showgrid": False, "zeroline": False, "constrain": "domain"}
    figure.update_xaxes(**ticks, tickangle=-45, range=[-0.5, n - 0.5], constraintoward="left")
    figure.update_yaxes(**ticks, range=[n - 0.5, -0.5], scaleanchor="x", constraintoward="top")
    return styled(figure, height=MATRIX, dark=dark)


def unit_vectors(points: np.ndarray) -> np.ndarray:
    """Return a / |a| of points [N, H]; zero where a is."""
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return np.divide(points, length, out=np.zeros_like(points), where=length > 0)


def same_value_cosines(unit: np.ndarray, values: pd.Series, seed: int = 0) -> pd.DataFrame:
    """Return the mean cosine of two different rows of each value, beside shuffled values.

    (|sum_i u_i|^2 - sum_i |u_i|^2) / (n (n - 1)) over the n rows of a value.

    unit    [N, H], rows of length 1
    values  [N]; for a control they are shuffled among the rows

    One row per value that has at least two rows, with `cosine` and the largest of `SHUFFLES`
    controls, `shuffled`.
    """
    index, names = pd.factorize(values, sort=True)
    n = np.bincount(index, minlength=len(names)).astype(float)
    pairs = np.where(n > 1, n * (n - 1), np.nan)
    lengths = np.square(unit).sum(axis=1)

    def cosines(index: np.ndarray) -> np.ndarray:
        sums = np.stack([np.bincount(index, weights=column, minlength=len(names))
                         for column in unit.T], axis=1)
        squares = np.bincount(index, weights=lengths, minlength=len(names))
        mean: np.ndarray = (np.square(sums).sum(axis=1) - squares) / pairs
        return mean

    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"cosine": cosines(index), "shuffled": np.max([
        cosines(rng.permutation(index)) for _ in range(SHUFFLES)], axis=0)}, index=names)
    return table[table["cosine"].notna()]


def _training(chosen: Chosen) -> None:
    """Show the metrics of every split over the steps, and the newest ones."""
    run = open_run(chosen.entry.path)
    metrics = run.metrics()
    metrics = metrics[~metrics["metric"].map(is_by_constituent).astype(bool)]
    if len(metrics) == 0:
        return
    first = [name for name in FIRST_METRICS if name in set(metrics["metric"])]
    order = {name: i for i, name in enumerate(dict.fromkeys(
        [*first, *sorted((m for m in metrics["metric"].unique() if m != "training_loss"),
                         key=is_loss)]))}
    metrics = metrics.sort_values("metric", key=lambda names: names.map(order), kind="stable",
                                  na_position="last")
    latest = run.latest()
    newest = "" if not first else f"{first[0]}: " + ", ".join(
        f"**{value:.3f}** on {split}" for split, value in latest.loc[first[0]].dropna().items())
    st.markdown(f"##### How the model was trained\n{newest}")
    log_steps = choose("Steps", ("linear", "log"), key="steps", form="buttons") == "log"
    show_still(training_chart(metrics, log_steps=log_steps, dark=is_dark()), "training",
               alt="Metrics of every split over the steps.")
    with st.expander("Final metrics"):
        for table in (latest.reindex([m for m in order if m in latest.index]),
                      run.latest(by_constituent=True)):
            if len(table):
                st.dataframe(table, column_config={
                    str(split): st.column_config.NumberColumn(format="%.4f") for split in table})


def training_chart(metrics: pd.DataFrame, *, log_steps: bool, dark: bool) -> go.Figure:
    """How did the metrics of each split change over the steps?

    metrics  rows of `Run.metrics`; a panel per metric in their order, bands of +- 2 standard
             errors, the training loss with the loss

    Losses and perplexity have a logarithmic axis, what is at most 1 one from 0 to 1.
    """
    names = [str(m) for m in metrics["metric"].unique() if m != "training_loss"]
    names = names or ["training_loss"]
    splits = list(dict.fromkeys(metrics.loc[metrics["metric"] != "training_loss", "split"]))
    figure, places = panel_grid([name.replace("_", " ") for name in names])
    for i, (name, place) in enumerate(zip(names, places, strict=True)):
        if name in ("loss", "training_loss"):
            training = metrics[metrics["metric"] == "training_loss"]
            figure.add_scatter(x=training["step"], y=training["mean"], mode="lines",
                               name="training batches", line={"width": 1, "color": GREY}, **place)
        for split, color in zip(splits, palette(dark), strict=False):
            block = metrics[(metrics["metric"] == name) & (metrics["split"] == split)]
            figure.add_scatter(
                x=block["step"], y=block["mean"], mode="lines+markers", name=split,
                legendgroup=split, showlegend=i == 0, marker={"size": 5},
                line={"width": 1.8, "color": color}, error_y={
                    "array": 2 * block["se"], "thickness": 1, "width": 0},
                hovertemplate=f"{split}, step %{{x:,}}<br>%{{y:.4f}}<extra></extra>", **place)
        means = metrics.loc[metrics["metric"].isin(
            [name, *(["training_loss"] if name == "loss" else [])]), "mean"]
        means = means[np.isfinite(means)]
        if is_loss(name):
            if (means > 0).all():
                figure.update_yaxes(type="log", **log_ticks(means), **place)
        elif (means <= 1).all() and (means >= 0).any():
            # A share, or R2, of which what is far below 0 matters little.
            figure.update_yaxes(range=[-0.03, 1.03], **place)
    steps = log_ticks(metrics["step"]) if log_steps else {"nticks": 5, "tickformat": "~s"}
    figure.update_xaxes(title="step", zeroline=False, type="log" if log_steps else "linear",
                        **steps)
    return styled_grid(figure, places, dark=dark)


def log_ticks(values: pd.Series) -> dict[str, Any]:
    """Return the ticks of a logarithmic axis: some six, each a power of ten or 2 or 5 times one.

    Plotly's own are the bare digits 2 and 5 between two powers, or one power and nothing else.
    """
    positive = values[values > 0]
    if len(positive) == 0:
        return {}
    low, high = (math.floor(math.log10(v)) for v in (positive.min(), positive.max()))
    within = [(digit, power) for power in range(low, high + 2) for digit in (1, 2, 5)
              if 0.5 * positive.min() <= digit * 10.0 ** power <= 2.0 * positive.max()]
    if len(within) > MOST_TICKS:
        every = -(-(high - low + 1) // MOST_TICKS)
        within = [(digit, power) for digit, power in within
                  if digit == 1 and (power - low) % every == 0]
    return {"tickvals": [digit * 10.0 ** power for digit, power in within],
            "ticktext": [f"{digit}e{power}" if power >= 6 or power < -3 else
                         f"{digit * 10 ** power:,.0f}" if power >= 0 else
                         f"{digit * 10.0 ** power:g}" for digit, power in within]}


def _results(results: dict[str, TableResult]) -> None:
    """Show one of the other results that were saved with the model."""
    st.markdown("##### Other results")
    result = results[choose("Saved result", list(results), key="saved")]
    # The name of the class is for those who write Python.
    title = result.title.removeprefix(f"{type(result).__name__}: ")
    st.markdown(f"**{literal(title[:1].upper() + title[1:])}**")
    st.markdown("\n\n".join(map(literal, result.said())))
    for note in result.caveats:
        st.caption(f":material/warning: {literal(note)}")
    show_whole(result.summary(), key="result")
    st.pyplot(result.figure(), width="content")
