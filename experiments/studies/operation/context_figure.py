"""Three places, three roles: whose answer comes, by where the source's activations are put."""

from __future__ import annotations

import pandas as pd

from latentcode.experiments.paper.reproduction import KIND_TITLES
from latentcode.figures.style import Figure, style
from latentcode.probes.common.results import distinct, where
from latentcode.probes.interventions.class_figure import COLOURS

SHOWN: dict[str, tuple[tuple[str, dict[str, str]], ...]] = {
    "sraven": (
        ("codes at the context, layers 0 and 1",
         {"source": "operation+operands", "site": "code", "scope": "context", "layers": "0,1"}),
        ("the same, from another problem with the rule",
         {"source": "operation+operands+rest", "site": "code", "scope": "context",
          "layers": "0,1"}),
        ("the same, from a problem with a third rule",
         {"source": "unrelated", "site": "code", "scope": "context", "layers": "0,1"}),
        ("mean code of the rule at the context, all layers",
         {"source": "class_mean", "site": "code", "scope": "context", "layers": "0,1,2,3"}),
        ("mean code of a third rule",
         {"source": "class_mean_third", "site": "code", "scope": "context", "layers": "0,1,2,3"}),
        ("context's inputs exchanged, all codes held",
         {"source": "frozen", "site": "residual", "scope": "context", "layers": "0"}),
        ("codes at the operands, layer 0",
         {"source": "operation+operands", "site": "code", "scope": "operands", "layers": "0"}),
        ("codes at the response, all layers",
         {"source": "operation+operands", "site": "code", "scope": "response",
          "layers": "0,1,2,3"}),
        ("values at the context, layers 2 and 3",
         {"source": "operation+operands", "site": "value", "scope": "within context",
          "layers": "2,3"})),
    "logic": (
        ("codes at the context, layer 0",
         {"source": "operation+operands", "site": "code", "scope": "context", "layers": "0"}),
        ("the same, from other examples of the function",
         {"source": "operation+operands+rest", "site": "code", "scope": "context",
          "layers": "0"}),
        ("the same, from an unrelated function",
         {"source": "unrelated", "site": "code", "scope": "context", "layers": "0"}),
        ("context's inputs exchanged, all codes held",
         {"source": "frozen", "site": "residual", "scope": "context", "layers": "0"}),
        ("codes at the response, layer 0",
         {"source": "operation+operands", "site": "code", "scope": "response", "layers": "0"}),
        ("values at the context, layer 1",
         {"source": "operation+operands", "site": "value", "scope": "within context",
          "layers": "1"})),
}
"""Task -> the patches that are drawn, with their names for people."""
LABELS = {"base": "the base's own answer", "operation": "source's operation, base's operands",
          "operands": "base's operation, source's operands", "answer": "the source's answer",
          "else": "none of these"}
"""The classes in the words of the criteria."""
KINDS = ("hyla", "linear", "softmax")


def places_figure(over: pd.DataFrame, task: str, direction: str = "each") -> Figure:
    """Draw the classes as stacked bars, a panel per kind and a bar per patch.

    over  `contrasts.over_runs` of one role; whiskers reach from the run in which the commonest
          class is rarest to that in which it is commonest, where it is one of the four answers
    """
    rows = where(over, task=task, direction=direction)
    rows = rows[rows["alpha"].isna()]
    kinds = [kind for kind in KINDS if (kind,) in distinct(rows, "kind")]
    names = [name for name, _ in SHOWN[task]]
    with style():
        figure = Figure(figsize=(2.5 * len(kinds) + 3.0, 0.33 * len(names) + 1.3),
                        layout="constrained")
        panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
        for axes, kind in zip(panels, kinds, strict=True):
            for at, (_, place) in enumerate(SHOWN[task]):
                found = where(rows, kind=kind, **place)
                if not len(found):
                    continue
                one, left = found.iloc[0], 0.0
                commonest = max(COLOURS, key=lambda name: float(one[name]))
                for name, colour in COLOURS.items():
                    width = float(one[name])
                    axes.barh(at, width, 0.78, left=left, color=colour,
                              label=LABELS[name] if at == 0 else None)
                    if name == commonest != "else" and one["runs"] > 1:
                        axes.plot([left + one[f"{name} {end}"] for end in ("min", "max")],
                                  [at, at], color="black", linewidth=0.9, marker="|", markersize=4)
                    left += width
            axes.set(title=KIND_TITLES[kind], xlim=(0, 1), xlabel="share of answers")
            axes.grid(visible=False)
        panels[0].set_yticks(range(len(names)), names)
        panels[0].invert_yaxis()
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center",
                      ncols=3)
    return figure
