"""What selected codes have in common: labels, mean code, and what a probe predicts for them.

Drawn as HTML, which takes a browser milliseconds; the styles are in selected.css.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd
import streamlit as st
from matplotlib.ticker import MaxNLocator

from latentcode.app.charts.map import colours_of_values
from latentcode.app.charts.theme import grey, is_dark, palette
from latentcode.app.data.projections import in_order, value_name
from latentcode.app.settings import ACCENT
from latentcode.app.state.sidebar import AT_PLACE, OF_PAIR, Chosen
from latentcode.codes.latent_codes import is_measurement
from latentcode.errors import ProbeError
from latentcode.probes.common.labels import groups_of

HEIGHT = 140
"""Of bars, in pixels."""
BINS = 24
FOLDS = 4
"""Parts of the combinations: for each part, a probe that was fitted to the others predicts."""
PROBED = 2_000
"""Most instances that a probe of the panel is fitted to, so that it takes a second."""
MOST_BARS = 16
MOST_NUMBERS = 10
"""Most classes with which there is space for a number in every cell of a table."""


@dataclass(frozen=True)
class Categories:
    """The values of a label, in order, and which of them each instance has: `index` [N]."""

    name: str
    values: list[object]
    index: np.ndarray

    @classmethod
    def of(cls, label: pd.Series) -> Categories:
        values = in_order(label)
        place = {value: i for i, value in enumerate(values)}
        return cls(str(label.name), values, label.map(place).to_numpy(dtype=np.int64))

    @property
    def names(self) -> list[str]:
        return [value_name(self.name, value) for value in self.values]

    def shares(self, selected: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the share of each value among selected instances."""
        counts = np.bincount(self.index[selected], minlength=len(self.values))
        shares: np.ndarray = counts / max(counts.sum(), 1)
        return shares


@st.cache_resource(max_entries=48, show_spinner=False, hash_funcs=OF_PAIR)
def categories(chosen: Chosen, label: str) -> Categories:
    """Return the values of a label of codes, which need not be looked for at every selection."""
    return Categories.of(chosen.label(label))


def show_distribution(chosen: Chosen, colour: str, selected: np.ndarray, *, key: str) -> None:
    """Show which values of a label the selection has, beside all instances."""
    values, dark = chosen.label(colour), is_dark()
    drawn = (histogram(values, selected, dark=dark) if is_measurement(values) else
             shares(categories(chosen, colour), selected, colours_of_values(values, dark=dark)))
    show(f"<p><b>{escape(colour)}</b>, beside all instances (grey)</p>{drawn}", key)


def show(html: str, key: str) -> None:
    """Show what this module draws, in a container with a key."""
    with st.container(key=key):
        st.html(f"<div class='lc-told'>{html}</div>")


def shares(label: Categories, selected: np.ndarray, colors: Mapping[object, str]) -> str:
    """Return a table: the most frequent values of the selection, its share of each, that of all."""
    every, mine = label.shares(), label.shares(selected)
    most = max(float(every.max()), float(mine.max()))
    shown = np.sort(np.argsort(-mine, kind="stable")[:MOST_BARS])
    rows = (
        f"<tr><th scope='row' title='{escape(name)}'>{escape(name)}</th><td>"
        f"<i style='width:{every[i] / most:.2%}'></i>"
        f"<i style='width:{mine[i] / most:.2%};background:{colors[label.values[i]]}'></i></td>"
        f"<td>{mine[i]:.0%}</td><td>{every[i]:.0%}</td></tr>"
        for i in shown for name in (label.names[i],))
    return ("<table class='lc-shares'><thead><tr><th></th><td></td><th scope='col'>selection</th>"
            f"<th scope='col'>all</th></tr></thead><tbody>{''.join(rows)}</tbody></table>")


def histogram(values: pd.Series, selected: np.ndarray, *, dark: bool) -> str:
    """Return bars: the share of the instances in each bin of a measurement."""
    edges = np.histogram_bin_edges(values.dropna(), BINS)
    middle = [f"{value:.3g}" for value in (edges[1:] + edges[:-1]) / 2]
    counts = {"all": np.histogram(values, edges)[0],
              "selection": np.histogram(values[selected], edges)[0]}
    return _bars({name: count / max(count.sum(), 1) for name, count in counts.items()}, middle,
                 (grey(dark), ACCENT), what=f"{values.name} around", height=150, every=6,
                 beside=False)


def heads(codes: Mapping[str, np.ndarray], *, dark: bool, height: int = HEIGHT) -> str:
    """Return bars side by side: the scores of all heads of a few codes, name -> [H]."""
    n = len(next(iter(codes.values())))
    return _bars(codes, list(map(str, range(n))), (ACCENT, palette(dark)[1], grey(dark)),
                 what="head", height=height, every=-(-n // 16), beside=True)


def _bars(
    series: Mapping[str, np.ndarray], names: Sequence[str], colors: Sequence[str], *, what: str,
    height: int, every: int, beside: bool,
) -> str:
    """Return columns of bars, with the numbers of a column as text when the mouse is over it.

    series  name -> a number per column
    what    what the columns are; every which of them has its name below
    beside  whether the bars of a column stand beside each other, or before each other
    """
    numbers = np.stack([np.asarray(values, dtype=float) for values in series.values()])
    numbers = np.nan_to_num(numbers)
    ticks = MaxNLocator(4, steps=[1, 2, 4, 5, 10]).tick_values(
        min(0.0, float(numbers.min())), max(0.0, float(numbers.max())))
    low, size = float(ticks[0]), float(ticks[-1] - ticks[0]) or 1.0
    digits = max(0, int(np.ceil(-np.log10(ticks[1] - ticks[0]) - 1e-9)))
    lines = "".join(
        f"<span style='bottom:{(tick - low) / size:.2%}'{zero}><b>{tick:.{digits}f}</b></span>"
        for tick in ticks for zero in (" class='lc-zero'" if abs(tick) < 1e-12 else "",))
    n, wide = len(names), 0.76 / len(series) if beside else 1.0
    columns = []
    for i, (name, column) in enumerate(zip(names, numbers.T, strict=True)):
        told = ", ".join(f"{escape(of)} {value:.3g}" for of, value in zip(
            series, column, strict=True))
        bars = "".join(
            f"<i style='left:{(i + (0.12 + j * wide) * beside) / n:.2%};width:{wide / n:.2%};"
            f"bottom:{(min(value, 0.0) - low) / size:.2%};height:{abs(value) / size:.2%};"
            f"background:{color}'></i>"
            for j, (value, color) in enumerate(zip(column, colors, strict=False)))
        below = f"<small>{escape(name)}</small>" if i % every == 0 else ""
        told = f"{escape(what)} {escape(name)}: {told}"
        columns.append(f"<div data-told='{told}'>{bars}{below}</div>")
    legend = "".join(f"<span><i style='background:{color}'></i>{escape(name)}</span>"
                     for name, color in zip(series, colors, strict=False))
    said = "; ".join(f"{name}: {', '.join(f'{value:.3g}' for value in values)}"
                     for name, values in zip(series, numbers, strict=True))
    return (f"<figure class='lc-bars{'' if beside else ' lc-over'}' role='img' "
            f"aria-label='{escape(what)}; {escape(said)}'>"
            f"<figcaption>{legend}</figcaption><div style='height:{height - 42}px'>"
            f"{lines}{''.join(columns)}</div></figure>")


@dataclass(frozen=True)
class Guesses:
    """What probes predict for every instance, each fitted to other combinations than its own.

    guess  the class of each instance, by its place in `truth.values`
    truth  the class that it has
    """

    guess: np.ndarray
    truth: Categories

    @property
    def right(self) -> np.ndarray:
        """Where the guess is right, bool [N]."""
        return self.guess == self.truth.index


@st.cache_resource(max_entries=24, show_spinner="Fitting a probe …", hash_funcs=AT_PLACE)
def guesses(chosen: Chosen, label: str) -> Guesses | None:
    """Fit logistic probes, each to some of the combinations, and let them predict the others.

    None where there is nothing to predict: a measurement, a single class, a single combination, or
    classes that each belong to one combination, which nobody could predict for another one. This
    is a first look; results, with their controls, are those of `lc.decode`.
    """
    from latentcode.probes.common.logistic import fit_probe

    codes, values = chosen.codes, chosen.label(label)
    if is_measurement(values) or values.nunique() < 2 or "combination" not in codes.labels:
        return None
    truth = categories(chosen, label)
    target = np.zeros((len(values), len(truth.values)), dtype=bool)
    target[np.arange(len(values)), truth.index] = True
    clusters = groups_of(codes.labels)
    if pd.Series(clusters).groupby(values.to_numpy()).nunique().max() < 2:
        return None
    x = chosen.points.astype(np.float64)
    guess = np.empty(len(values), dtype=np.int64)
    rng = np.random.default_rng(0)
    part = rng.permutation(clusters.max() + 1)[clusters] % FOLDS
    for fold in np.unique(part):
        fit, ask = np.flatnonzero(part != fold), np.flatnonzero(part == fold)
        if len(fit) > PROBED:
            fit = np.sort(rng.choice(fit, PROBED, replace=False))
        try:
            probe = fit_probe(x[fit], target[fit], clusters[fit], multilabel=False,
                              penalties=(1e-3,))
        except ProbeError:
            return None
        guess[ask] = probe.predict(x[ask]).argmax(1)
    return Guesses(guess, truth)


def confusion_counts(guesses: Guesses, selected: np.ndarray) -> np.ndarray:
    """Return how many selected instances of each class are predicted to be of each, [C, C]."""
    n = len(guesses.truth.values)
    cells = guesses.truth.index[selected] * n + guesses.guess[selected]
    return np.bincount(cells, minlength=n * n).reshape(n, n)


def confusion(guesses: Guesses, selected: np.ndarray) -> str:
    """Return a table: in rows the true class of the selected instances, in columns the predicted.

    Cells without an instance are left out, so that hundreds of classes are no matter.
    """
    counts, names = confusion_counts(guesses, selected), list(map(escape, guesses.truth.names))
    of_row = counts.sum(1)
    columns = len(names) + 2
    marks = [f"<b style='grid-area:{i + 1}/1' title='{name}'>{name}</b>"
             for i, name in enumerate(names)]
    marks += [f"<s style='grid-area:{i + 1}/2/{i + 2}/{columns}'></s>"
              for i in np.flatnonzero(of_row)]
    for i, j in np.argwhere(counts):
        share = counts[i, j] / of_row[i]
        marks.append(
            f"<i style='grid-area:{i + 1}/{j + 2};--share:{share:.0%}' data-told='is {names[i]}, "
            f"predicted {names[j]}: {counts[i, j]:,} instances, {share:.0%}'>"
            + (f"{100 * share:.0f}" if len(names) <= MOST_NUMBERS else "") + "</i>")
    marks += [f"<em style='grid-area:{len(names) + 1}/{j + 2}' title='{name}'>{name}</em>"
              for j, name in enumerate(names)]
    said = "; ".join(f"{names[i]} {counts[i, i] / of_row[i]:.0%}" for i in np.flatnonzero(of_row))
    return (f"<figure class='lc-confusion' role='img' aria-label='Predicted right: {said}' "
            f"style='--accent:{ACCENT}'><figcaption>"
            "rows: what it is; columns: what is predicted; in % of the row</figcaption>"
            f"<div style='grid-template:repeat({len(names)},16px) auto/minmax(0,max-content) "
            f"repeat({len(names)},minmax(0,1fr))'>{''.join(marks)}</div></figure>")
