"""The picture of what was measured: bars of contestants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from latentcode.experiments.benchmarks.harness import Spread
from latentcode.figures.style import PALETTE, Figure, style


def bars(
    groups: Sequence[str], measured: Sequence[Mapping[str, Spread]], label: str,
    notes: Sequence[Mapping[str, str]] | None = None,
) -> Figure:
    """Return grouped horizontal bars of medians with whiskers from quartile to quartile.

    groups    the name of each group of bars, from the top
    measured  for each group: contestant -> spread
    notes     for each group: contestant -> text at the end of the bar
    """
    names = list(dict.fromkeys(name for group in measured for name in group))
    thickness = 0.8 / len(names)
    with style():
        drawn = Figure(figsize=(7.2, 0.9 + 0.22 * len(groups) * len(names) + 0.12 * len(groups)),
                       layout="constrained")
        axes = drawn.subplots()
        for i, name in enumerate(names):
            places = [g for g, group in enumerate(measured) if name in group]
            spreads = [measured[g][name] for g in places]
            medians = np.array([s.median for s in spreads])
            whiskers = np.abs(np.array([[s.median - s.lower for s in spreads],
                                        [s.upper - s.median for s in spreads]]))
            heights = np.array(places) + (i - (len(names) - 1) / 2) * thickness
            axes.barh(heights, medians, height=0.92 * thickness, label=name,
                      color=PALETTE[i % len(PALETTE)])
            # Not as xerr of barh, which makes a list of them: a single bar made numpy 1.26 warn.
            axes.errorbar(medians, heights, xerr=whiskers, fmt="none", ecolor="black",
                          elinewidth=0.8, capsize=1.5)
            for g, height, spread in zip(places, heights, spreads, strict=True):
                note = "" if notes is None else notes[g].get(name, "")
                axes.annotate(note, (max(spread.upper, spread.median), height), (4, 0),
                              textcoords="offset points", va="center", fontsize=7.5)
        axes.set_yticks(range(len(groups)), groups)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.12)
        axes.set_xlim(left=0.0)
        axes.set_xlabel(label)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=min(3, len(names)))
    return drawn
