"""The figure of one instance on the bench: its answer, the controls beside it, its codes."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from latentcode.figures.heat_maps import heat_map, signed_norm
from latentcode.figures.style import GREY, PALETTE, Figure, style
from latentcode.probes.interventions.bench.outcome import CONTROLS

if TYPE_CHECKING:
    from latentcode.probes.interventions.bench.outcome import BenchOutcome

BEFORE, AFTER, TARGET = GREY, PALETTE[0], PALETTE[3]
_CONTROLS = ("control", "unrelated", "random")


def bench_figure(outcome: BenchOutcome) -> Figure:
    """Return the picture of an outcome.

    Above, for symbols: the probability of each before and after, under it the constituents that
    would answer it, and the means of three controls on the same axis. For numbers: one line per
    patch, a mark per draw, beside the answers of base and target. Below: the response's code
    before and after, a row per layer and a column per head.
    """
    with style():
        figure = Figure(figsize=(10.0, 4.6), layout="constrained")
        halves: Any = figure.subfigures(2, 1, height_ratios=(2.2, 1.0))
        above, below = halves
        if outcome.symbolic:
            axes = above.subplots(1, 4, sharey=True, width_ratios=(2.6, 1, 1, 1))
            _draw_symbols(axes[0], outcome)
            for ax, name in zip(axes[1:], _CONTROLS, strict=True):
                _draw_control(ax, outcome, name)
        else:
            _draw_numbers(above.subplots(), outcome)
        above.suptitle(outcome.sentence(), fontsize=9.5, x=0.01, ha="left")
        _draw_codes(below.subplots(1, 2, sharey=True), outcome)
    return figure


def _draw_symbols(axes: Axes, outcome: BenchOutcome) -> None:
    symbols = np.arange(len(outcome.before))
    axes.bar(symbols - 0.2, outcome.before, 0.4, color=BEFORE, label="before")
    axes.bar(symbols + 0.2, outcome.after, 0.4, color=AFTER, label="after")
    names = ["\n".join([str(s), *outcome.owners(float(s))]) for s in symbols]
    axes.set_xticks(symbols, names, fontsize=7.5)
    for label, symbol in zip(axes.get_xticklabels(), symbols, strict=True):
        if symbol == outcome.target_answer:
            label.set_color(TARGET)
        if symbol == outcome.truth:
            label.set_fontweight("bold")
    axes.set(ylabel="probability", ylim=(0.0, 1.0), title="the answer, and who would give it")
    axes.legend()


def _draw_control(axes: Axes, outcome: BenchOutcome, name: str) -> None:
    outputs = outcome.control(name)
    symbols = np.arange(outputs.shape[1])
    axes.bar(symbols, outputs.mean(0), 0.8, color=AFTER, alpha=0.6)
    axes.set_xticks(symbols)
    kept = outcome.table.loc[outcome.table["patch"] == name, "kept"]
    axes.set(title=f"{_wrapped(CONTROLS[name])}\n{int(kept.sum())} of {len(kept)} keep it")


def _draw_numbers(axes: Axes, outcome: BenchOutcome) -> None:
    lines = {"before": outcome.before[None], outcome.patch.what: outcome.after[None],
             **{name: outcome.control(name) for name in _CONTROLS}}
    for row, (name, outputs) in enumerate(lines.items()):
        color = BEFORE if name == "before" else AFTER
        axes.plot(outputs[:, 0], [row] * len(outputs), "o", color=color, markersize=7,
                  alpha=1.0 if len(outputs) == 1 else 0.45)
    axes.set_yticks(range(len(lines)), [_wrapped(CONTROLS.get(name, name)) for name in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    marks = [(outcome.truth, BEFORE, f"right: {outcome.base_label}")]
    if np.isfinite(outcome.target_answer):
        marks.append((outcome.target_answer, TARGET, f"with {outcome.patch.target}"))
    for value, color, _ in marks:
        axes.axvline(value, color=color, linestyle="--")
    for value in outcome.answers["answer"].dropna():
        axes.plot([value], [0.0], "|", color=GREY, markersize=6, clip_on=False,
                  transform=axes.get_xaxis_transform())
    axes.legend(handles=[Line2D([], [], color=color, linestyle="--", label=label)
                         for _, color, label in marks],
                loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    axes.set_xlabel("prediction at the query; ticks: the answer with each term in its place")


def _draw_codes(axes: np.ndarray, outcome: BenchOutcome) -> None:
    key = "itself" if outcome.patch.key is None else f"token {outcome.patch.key}"
    norm = signed_norm(outcome.codes[["before", "after"]].to_numpy())
    for ax, name in zip(axes, ("before", "after"), strict=True):
        heat_map(ax, outcome.codes.pivot(index="layer", columns="head", values=name), norm)
        ax.set(xlabel="head", title=f"code of the response to {key}, {name}")
    axes[0].set_ylabel("layer")


def _wrapped(text: str, width: int = 24) -> str:
    return textwrap.fill(text, width)
