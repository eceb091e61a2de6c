"""The page of the study: what the tables say, and their figures."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from latentcode.answers import CLASSES
from latentcode.experiments.studies.operation.criteria import CRITERIA, WHERE
from latentcode.figures.markdown import markdown_table
from latentcode.figures.style import Figure, style
from latentcode.probes.common.results import distinct, where
from latentcode.probes.interventions.class_figure import COLOURS

COMMAND = """python -m latentcode.experiments.studies.operation factorial \\
    --runs experiments/results/runs/sraven_known/*kind=* logic-hyla logic-linear logic-softmax \\
    --along RUNS/sraven_known/seed=0* --work WORK --out experiments/results/operation"""
"""RUNS: the folder of the long trainings, which has more checkpoints than what is published."""
LIMIT = CRITERIA["answer_not_there_yet"]
BOTH = "operation+operands"
"""The source whose own answer is neither the base's operation's nor its operands'."""


def page(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the page as Markdown."""
    statements, over = tables["statements"], tables["over_seeds"]
    parts = [f"""# Operation, operands or answer: what do codes carry?

    {COMMAND.replace(chr(10), chr(10) + "    ")}

(RUNS is the folder of the long trainings, which has more checkpoints than the published runs.)

A base applies operation A to operands x. What is written comes from a source with another
operation B and other operands x'; the four answers A(x), B(x), A(x') and B(x') all differ. Numbers
are the shares of answers that are each of these (`base`, `operation`, `operands`, `answer`) or
something `else`, on held-out combinations that the model solves: means over the runs of a kind,
with the smallest and the largest. In brackets the same from a source that is unrelated to the
base. All numbers, with intervals: `tables/`. [Criteria](../../evidence/claims/operation.yaml)
were written before the runs of this study; rates of other models, measured outside this project,
were known.

## Runs

{_markdown(tables["runs"])}"""]
    for (task,) in distinct(over, "task"):
        parts.append(f"""## {task}: from a source with another operation and other operands

![classes of answers](figures/{task}.png)

{_classes(where(over, task=task))}

### Where the criteria are met

{_explained(where(statements, task=task))}

{_met(where(statements, task=task))}

### Other sources, at the main places

{_sources(where(over, task=task), tables)}""")
    if len(tables["by_rules"]):
        parts.append(f"""## SRAVEN: by the rules of base and source

Pooled over the runs of a kind; source with another rule and other operands. Sum is one of the two
in every pair, mostly the source's: distribute-three is left out, as it depends on the other rows,
and of the others no two share rows whose four answers differ. Whether more arrives than "sum or
not" is told by the rows from sum to the six others, which are few.
`tables/by_rules.csv` and, over runs, `tables/directions.csv` have all places.

{_by_rules(tables["by_rules"])}""")
    if len(tables["windows"]):
        parts.append(f"""## Fuzzy logic: other windows

An answer is of a class where it is nearer than the window to its answer.

{_windows(tables["windows"])}""")
    if len(tables["along"]):
        parts.append(f"""## Along a training

Checkpoints at which fewer than two instances count are left out.

![classes along the training](figures/along.png)

{_along(tables["along"])}""")
    return "\n\n".join(parts) + "\n"


def drawn(tables: Mapping[str, pd.DataFrame]) -> dict[str, Figure]:
    """Return the figures, by name."""
    figures = {str(task): _bars(where(tables["over_seeds"], task=task))
               for (task,) in distinct(tables["over_seeds"], "task")}
    if len(tables["along"]):
        figures["along"] = _curves(tables["along"])
    return figures


def _place(row: Mapping[str, object]) -> str:
    return f"{row['site']}, {row['scope']}, layers {row['layers']}"


def _classes(over: pd.DataFrame) -> str:
    """Return a row per kind and place, with the unrelated source's rates in brackets."""
    def cell(block: pd.DataFrame, name: str) -> str:
        both, null = (block[(block["patch"] == patch) & (block["class"] == name)]
                      for patch in (BOTH, "unrelated"))
        if not len(both):
            return ""
        found = both.iloc[0]
        spread = f" {found['min']:.2f}-{found['max']:.2f}" if found["count"] > 1 else ""
        return f"{found['mean']:.2f}{spread} ({null.iloc[0]['mean']:.2f})"

    rows = []
    for kind, *key in distinct(over, "kind", *WHERE):
        block = where(over, kind=kind, **dict(zip(WHERE, key, strict=True)))
        rows.append([kind, _place(dict(zip(WHERE, key, strict=True))),
                     *(cell(block, name) for name in CLASSES)])
    return markdown_table(["kind", "written", *CLASSES], rows)


def _explained(statements: pd.DataFrame) -> str:
    """Say what it takes to meet a criterion, and to meet it in these layers."""
    single = ("There is one model of each kind here: what is met, one model meets. "
              if statements["runs"].max() == 1 else "")
    return f"""The criterion of a statement (the file calls it a *word* that is *earned*) is met
where the paired difference from each source that lacks what is stated has an interval above 0 in
every run, and a mean of at least {CRITERIA["least"]:.2f}. {single}
`carries the answer` means that what is written brings the source's own answer, which its operation
and its operands together do, too. `answer entering` is how well a probe reads the
source's answer from the residual streams that enter the first and the last of the layers written
(balanced accuracy on held-out combinations above that of the initial weights, the better of the
response's stream and all tokens', [rows](../rows/README.md)). Where either is above {LIMIT:.2f} or
not known, the criterion of an operation is not met *in these layers*: the answer may be there
already. Left out are all that the answer depends on written at once, and the examples
themselves."""


def _met(statements: pd.DataFrame) -> str:
    """Return a row per place where a criterion is met, and which are not met anywhere."""
    passed = statements[statements["met"]]
    rows = []
    for record in passed.to_dict("records"):
        row = {str(name): value for name, value in record.items()}
        differences = "; ".join(
            f"{row[name]:.2f} from {name.removeprefix('mean against ')}" for name in row
            if name.startswith("mean against ") and not pd.isna(row[name]))
        if "+" in row["site"] or (row["site"], row["scope"]) == ("residual", "examples"):
            continue
        entering = ", ".join("not known" if pd.isna(row[name]) else f"{row[name]:.2f}"
                             for name in ("answer entering first", "answer entering last"))
        rows.append([row["kind"], _place(row), row["statement"], differences, row["runs"], entering,
                     "yes" if row["met in these layers"] else "no"])
    table = markdown_table(["kind", "written", "statement", "mean difference", "runs",
                            "answer entering", "met in these layers"], rows)
    missing = [f"{kind}: {statement}" for (kind,) in distinct(statements, "kind")
               for statement in CRITERIA["statements"]
               if not len(where(passed, kind=kind, statement=statement))]
    never = f"\n\nMet nowhere: {'; '.join(missing)}." if missing else ""
    return table + never


def _sources(over: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> str:
    contexts = over[over["patch"].str.contains("rest")]
    main = distinct(contexts, *WHERE)
    rows = []
    for (kind,) in distinct(over, "kind"):
        for key in main:
            block = where(over, kind=kind, **dict(zip(WHERE, key, strict=True)))
            for (patch,) in distinct(block, "patch"):
                means = where(block, patch=patch).set_index("class")["mean"]
                rows.append([kind, _place(dict(zip(WHERE, key, strict=True))), patch,
                             *(f"{means[name]:.2f}" for name in CLASSES)])
    return markdown_table(["kind", "written", "source", *CLASSES], rows)


def _by_rules(by_rules: pd.DataFrame) -> str:
    rows = []
    for site, layers in (("code", "0,1,2,3"), ("value", "2,3")):
        whole = where(by_rules, site=site, scope="everything", layers=layers)
        for kind, base, source in distinct(whole, "kind", "base_label", "source_label"):
            block = where(whole, kind=kind, base_label=base, source_label=source).set_index("class")
            rows.append([kind, f"{site}, layers {layers}", base, source,
                         int(block["n"].iloc[0]),
                         *(f"{block['rate'][name]:.2f}" for name in CLASSES)])
    return markdown_table(
        ["kind", "written", "base's rule", "source's rule", "n", *CLASSES], rows)


def _windows(windows: pd.DataFrame) -> str:
    both = windows[windows["patch"] == BOTH]
    rows = []
    for kind, *key, window in distinct(both, "kind", *WHERE, "window"):
        block = where(both, kind=kind, window=window, **dict(zip(WHERE, key, strict=True)))
        means = block.groupby("class")["value"].mean()
        rows.append([kind, _place(dict(zip(WHERE, key, strict=True))), window,
                     *(f"{means[name]:.2f}" for name in CLASSES)])
    return markdown_table(["kind", "written", "window", *CLASSES], rows)


def _along(along: pd.DataFrame) -> str:
    both = along[along["patch"] == BOTH]
    rows = []
    for run, kind, step, known, *key in distinct(both, "run", "kind", "step", "known", *WHERE):
        block = where(both, run=run, step=step, **dict(zip(WHERE, key, strict=True)))
        means = block.set_index("class")["value"]
        rows.append([kind, step, known, _place(dict(zip(WHERE, key, strict=True))),
                     *(f"{means[name]:.2f}" for name in CLASSES)])
    return markdown_table(["kind", "updates", "n", "written", *CLASSES], rows)


def _markdown(table: pd.DataFrame) -> str:
    return markdown_table(list(table.columns), table.itertuples(index=False, name=None))


def _bars(over: pd.DataFrame) -> Figure:
    """Draw the classes of the telling source as stacked bars, a panel per kind."""
    both = over[over["patch"] == BOTH]
    kinds = [kind for (kind,) in distinct(both, "kind")]
    places = [dict(zip(WHERE, key, strict=True)) for key in distinct(both, *WHERE)]
    with style():
        figure = Figure(figsize=(3.0 * len(kinds) + 2.4, 0.2 * len(places) + 1.2),
                        layout="constrained")
        panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
        for axes, kind in zip(panels, kinds, strict=True):
            left = [0.0] * len(places)
            for name in CLASSES:
                widths = [where(both, kind=kind, **place, **{"class": name})["mean"].sum()
                          for place in places]
                axes.barh(range(len(places)), widths, left=left, color=COLOURS[name], label=name,
                          height=0.8)
                left = [a + b for a, b in zip(left, widths, strict=True)]
            axes.set(title=kind, xlim=(0, 1), xlabel="share of answers")
            axes.grid(visible=False)
        panels[0].set_yticks(range(len(places)), [_place(place) for place in places])
        panels[0].invert_yaxis()
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center",
                      ncols=len(CLASSES))
    return figure


def _curves(along: pd.DataFrame) -> Figure:
    """Draw the classes of the telling source over updates, a row per place and a column per
    kind."""
    both = along[along["patch"] == BOTH]
    kinds = [kind for (kind,) in distinct(both, "kind")]
    places = [dict(zip(WHERE, key, strict=True)) for key in distinct(both, *WHERE)]
    with style():
        figure = Figure(figsize=(2.6 * len(kinds), 1.8 * len(places) + 0.4), layout="constrained")
        grid = figure.subplots(len(places), len(kinds), sharex=True, sharey=True, squeeze=False)
        for place, row in zip(places, grid, strict=True):
            for kind, axes in zip(kinds, row, strict=True):
                for name in CLASSES:
                    line = where(both, kind=kind, **place, **{"class": name})
                    axes.plot(line["step"], line["value"], color=COLOURS[name], label=name,
                              marker="o", markersize=3)
                axes.set_title(f"{kind}: {_place(place)}", fontsize=7)
                axes.set_ylim(-0.03, 1.03)
        for axes in grid[-1]:
            axes.set_xlabel("updates")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center",
                      ncols=len(CLASSES))
    return figure
