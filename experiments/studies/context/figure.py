"""The figures: whose answer comes, by where the source's activations are put; heads and keys."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from latentcode.experiments.evidence.found import Found, Tables
from latentcode.experiments.paper.reproduction import KIND_TITLES
from latentcode.experiments.studies.context.inside import planes_figure
from latentcode.experiments.studies.context.patches import BOTH
from latentcode.figures.style import Figure
from latentcode.models.config import kind_of
from latentcode.probes.attribution.smallest import doublings
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import distinct, where
from latentcode.probes.interventions.class_figure import COLOURS
from latentcode.runs import Run

SHOWN: dict[str, tuple[tuple[str, str, str, str, str], ...]] = {
    "sraven": (
        ("codes at the context, layers 0 and 1", BOTH, "code", "context", "0,1"),
        ("the same, from another problem with the rule", f"{BOTH}+rest", "code", "context", "0,1"),
        ("the same, from a problem with a third rule", "unrelated", "code", "context", "0,1"),
        ("mean code of the rule at the context, all layers", "class_mean", "code", "context",
         "0,1,2,3"),
        ("mean code of a third rule", "class_mean_third", "code", "context", "0,1,2,3"),
        ("context's inputs exchanged, all codes held", "frozen", "residual", "context", "0"),
        ("codes at the operands, layer 0", BOTH, "code", "operands", "0"),
        ("codes at the response, all layers", BOTH, "code", "response", "0,1,2,3"),
        ("values at the context, layers 2 and 3", BOTH, "value", "within context", "2,3")),
    "logic": (
        ("codes at the context, layer 0", BOTH, "code", "context", "0"),
        ("the same, from other examples of the function", f"{BOTH}+rest", "code", "context", "0"),
        ("the same, from an unrelated function", "unrelated", "code", "context", "0"),
        ("context's inputs exchanged, all codes held", "frozen", "residual", "context", "0"),
        ("codes at the response, layer 0", BOTH, "code", "response", "0"),
        ("values at the context, layer 1", BOTH, "value", "within context", "1")),
}
"""Task -> the patches that are drawn: a name for people, and source, site, scope and layers."""
BEYOND = {"published": (
    ("codes at all other queries, all layers", BOTH, "code", "outside context", "0,1,2,3"),
    ("the same, from another problem with the rule", f"{BOTH}+rest", "code", "outside context",
     "0,1,2,3"),
    ("the same, from a problem with a third rule", "unrelated", "code", "outside context",
     "0,1,2,3"),
    ("values at the context, layer 0", BOTH, "value", "within context", "0"))}
"""Role -> what is drawn for its runs, too."""
LABELS = {"base": "the base's own answer", "operation": "source's operation, base's operands",
          "operands": "base's operation, source's operands", "answer": "the source's answer",
          "else": "none of these"}
"""The classes in the words of the criteria."""
KINDS = ("hyla", "linear", "softmax")
ORDERS = {"attribution": ("largest attribution first", "C0"), "random": ("at random", "0.5"),
          "least": ("smallest first", "C1")}
"""Orders in which heads and keys are added, with their names for people, and colours."""
CARRIED = {"hyla": "codes (0, 1)", "linear": "codes (0, 1)", "softmax": "values (2, 3)"}


def drawn(tables: Tables, found: Found) -> dict[str, Figure]:
    """Return the figures, by file name."""
    figures = {f"{role}_{task}.png": places_figure(
                   where(tables["over_runs"], role=role, task=task),
                   (*SHOWN[task], *BEYOND.get(role, ())))
               for role, task in distinct(tables["over_runs"], "role", "task")}
    if "sets" in tables:
        figures["heads_and_keys.png"] = sets_figure(tables["sets"])
    kinds: dict[str, Run] = {}
    for (run,), _ in found.results.get("looked", ()):
        kinds.setdefault(kind_of(run.config.model), run)
    seed = found.plan.ask["looked"].settings["seed"] if kinds else 0
    return figures | {
        f"planes_{kind}.png": planes_figure(run, where(tables["separation"], run=run.name), seed)
        for kind, run in kinds.items()}


def places_figure(
    over: pd.DataFrame, shown: Sequence[tuple[str, str, str, str, str]]
) -> Figure:
    """Draw the classes as stacked bars, a panel per kind and a bar per patch.

    over  `contrasts.over_runs` of one role and task; whiskers reach from the run in which the
          commonest class is rarest to that in which it is commonest, where it is one of the four
          answers
    shown  the patches, as in `SHOWN`
    """
    rows = where(over, direction="each")
    rows = rows[rows["alpha"].isna()]
    kinds = [kind for kind in KINDS if (kind,) in distinct(rows, "kind")]
    names = [name for name, *_ in shown]
    with panels(1, len(kinds), 2.5 * len(kinds) + 3.0, 0.33 * len(names) + 1.3,
                sharey=True) as (figure, (row,)):
        for axes, kind in zip(row, kinds, strict=True):
            for at, (_, source, site, scope, layers) in enumerate(shown):
                found = where(rows, kind=kind, source=source, site=site, scope=scope, layers=layers)
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
        row[0].set_yticks(range(len(names)), names)
        row[0].invert_yaxis()
        figure.legend(*row[0].get_legend_handles_labels(), loc="outside upper center",
                      ncols=3)
    return figure


def sets_figure(sets: pd.DataFrame) -> Figure:
    """Draw what growing sets of heads and keys bring: a row of panels each, a column per kind."""
    kinds = [kind for kind in KINDS if (kind,) in distinct(sets, "kind")]
    with panels(2, len(kinds), 2.9 * len(kinds) + 0.6, 4.6, sharey=True) as (figure, grid):
        for row, of in zip(grid, ("heads", "keys"), strict=True):
            for axes, kind in zip(row, kinds, strict=True):
                rows = where(sets, kind=kind, of=of)
                for order, (label, colour) in ORDERS.items():
                    by = where(rows, order=order).groupby(["run", "size"])["operation"].mean()
                    for _, one in by.groupby("run"):
                        axes.plot(one.index.get_level_values("size"), one, color=colour,
                                  linewidth=0.6, alpha=0.6)
                    mean = by.groupby("size").mean()
                    axes.plot(mean.index, mean, color=colour, marker="o", markersize=3,
                              label=label)
                axes.set_xscale("log", base=2)
                axes.set(ylim=(0, 1.02), xlabel=f"{of} patched")
                last = int(rows["size"].max())
                sizes = [size for size in doublings(last) if size == last or 1.3 * size < last]
                axes.set_xticks(sizes, map(str, sizes), minor=False)
                axes.minorticks_off()
                axes.set_title(f"{KIND_TITLES[kind]}: {CARRIED[kind]}" if of == "heads" else "",
                               fontsize=9)
            row[0].set_ylabel("the operation arrives")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure
