"""The page of the study, and its figure."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from pandas.api.types import is_float_dtype

from latentcode.experiments.paper.measuring.drawing import KIND_STYLES
from latentcode.experiments.paper.reproduction import KIND_TITLES
from latentcode.experiments.studies.text.measuring import CRITERIA
from latentcode.experiments.studies.text.verdicts import sentences
from latentcode.figures.markdown import markdown_of, markdown_table
from latentcode.figures.style import GREY, Figure
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import where
from latentcode.tasks.text.patterns import INDUCTION

HOW = """\
Written by `python -m latentcode.experiments.studies.text`; see its module for the command. [The
criteria](../../evidence/claims/text.yaml) say what was known when they were written.
`tables/` has every number with its interval."""
COPYING = """\
How much less tokens cost, in nats, that repeat an earlier pair of their excerpt than the same pairs
where they are new, each as often. Over seeds: mean, smallest, largest."""
TELLING = """\
Accuracy on held-out documents, mean over seeds. `chance` is the best constant answer. A code that
tells whether the text copies need not have it from copying: which tokens are often copied can be
known of themselves."""
MOVING = """\
Minimal pairs: the source has another token after the earlier occurrence, and of the two answers the
likelier counts. `control` is a source with the same answer and two other tokens changed. The
residual stream of the query is a positive control: it holds all that later layers know of there."""
STATEMENTS = """\
Statements of the [study of operations](../operation/README.md). Bases count where the model itself
says both answers that can be copied, and neither where none can: `known`, of `n`. `pairs` is how
many minimal pairs count. The criterion of an operation is not met *in these layers* where the
answers of a text have fewer than three classes, or where the class of the answer has reached the
stream. A source has what can be copied at the same place as the base, so that a code which says
*copy* and one which says *copy what stands there* are not told apart. The next table does."""
PLACES = """\
Bases copy from one place, sources from another, with other tokens at both. What the base has at the
source's place says that the place arrived; what the source has at the base's place, that what
stands there arrived; the source's own answer, both. A code that says *copy*, from wherever, would
leave the base's answer, and so would one that does nothing. Bases count where the model copies
rightly in all four texts: `known elsewhere`, of `n`."""
PARTS = {"operation": "place", "operands": "token"}
"""What a class says that arrived from a source which copies from elsewhere."""
NOT_ASKED = "Not asked: too few instances count (the table of models)."


def page(tables: Mapping[str, pd.DataFrame], text: str) -> str:
    """Return what a reader wants first of the models of a text, as Markdown."""
    telling, moving = tables["telling"], tables["moving"]
    parts = [
        f"# Do codes of models of `{text}` tell of copying, and do they cause it?", HOW,
        "![what codes tell and bring](figures/text.png)", "## Verdicts",
        markdown_table(["kind", "question", "answer"], sentences(tables)),
        "## The models", _table(tables["runs"]),
        "## Copying", COPYING, _table(tables["copying"]),
        "## What codes tell", TELLING, _table(telling[telling["pair"] == INDUCTION]),
        "Does one kind's code of the induction pair gain more by training? Accuracy above that of "
        "the initial weights, mean over layers. With three seeds each, at most one in ten "
        "comparisons of kinds that are alike comes out by chance, with fewer seeds none; here are "
        f"{len(tables['kinds'])}.", _table(tables["kinds"]),
        "## What writing brings", MOVING, _table(moving),
        "## Operation or answer?", STATEMENTS,
        _table(tables["statements"]) if len(tables["statements"]) else NOT_ASKED,
        "## From where, or what?", PLACES,
        _table(tables["places"]) if len(tables["places"]) else NOT_ASKED,
    ]
    return "\n\n".join(parts) + "\n"


def drawn(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Return what the induction pair's code tells of copying, by layer (A), and how often writing
    it brings the source's answer, where enough minimal pairs count (B): a colour per kind, controls
    in grey. Where sources that copy from elsewhere could be asked, which part of their answer
    arrived (C), a mark per seed."""
    telling = where(tables["telling"], pair=INDUCTION, label="copied")
    moving = where(tables["moving"], site="code", scope="pair")
    moving = moving[~moving["layers"].str.contains(",")
                    & (moving["least n"] >= CRITERIA["instances"])]
    arrived = _arrived(tables["elsewhere_classes"])
    with panels(1, 2 + bool(len(arrived)), 7.0 + 3.0 * bool(len(arrived)), 2.7) as (figure, grid):
        for kind, title in KIND_TITLES.items():
            color, marker = KIND_STYLES[kind]
            for axes, table, layer, value, control in (
                    (grid[0, 0], telling, "layer", "code", "untrained"),
                    (grid[0, 1], moving, "layers", "flip", "control")):
                own = where(table, kind=kind)
                if own.empty:
                    continue
                at = own[layer].astype(int)
                axes.fill_between(at, own["min"], own["max"], color=color, alpha=0.15, linewidth=0)
                axes.plot(at, own[value], color=color, marker=marker, markersize=4, label=title)
                axes.plot(at, own[control], color=GREY, marker=marker, markersize=3,
                          linestyle=":")
        grid[0, 0].set(xlabel="layer", ylabel="accuracy for `copied`",
                       title="A  probe (grey: untrained)")
        grid[0, 1].set(xlabel="layer", ylabel="answers that flip",
                       title="B  pair's code written (grey: control)")
        for axes in (grid[0, 0], grid[0, 1]):
            axes.xaxis.get_major_locator().set_params(integer=True)
        if moving.empty:
            grid[0, 1].text(0.5, 0.5, "too few minimal pairs count", ha="center", color=GREY,
                            transform=grid[0, 1].transAxes)
            grid[0, 1].set(xticks=[], yticks=[])
        if len(arrived):
            _draw_arrived(grid[0, 2], arrived)
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def _arrived(classes: pd.DataFrame) -> pd.DataFrame:
    """Return how often the source's place (`operation`) and its tokens (`operands`) arrived, where
    all codes or all values of the upper layers were written and enough instances count."""
    if classes.empty:
        return classes
    chosen = classes[(classes["patch"] == "operation+operands")
                     & (classes["scope"] == "everything") & classes["site"].isin(["code", "value"])
                     & ~classes["layers"].str.startswith("0")
                     & classes["class"].isin(PARTS)]
    return chosen[chosen["n"] >= CRITERIA["instances"]]


def _draw_arrived(axes: Axes, arrived: pd.DataFrame) -> None:
    columns = [(site, name) for site in ("code", "value") for name in PARTS]
    kinds = list(KIND_TITLES)
    for index, kind in enumerate(kinds):
        color, marker = KIND_STYLES[kind]
        offset = 0.22 * (index - (len(kinds) - 1) / 2)
        for column, (site, name) in enumerate(columns):
            rates = where(arrived, kind=kind, site=site, **{"class": name})["rate"]
            axes.scatter([column + offset] * len(rates), rates, s=14, color=color, marker=marker,
                         alpha=0.8)
    layers = arrived["layers"].iloc[0]
    axes.set_xticks(range(len(columns)), [
        f"{site}s:\n{PARTS[name]}"
        for site, name in columns])
    axes.set(ylabel="answers", ylim=(-0.03, 1.03),
             title=f"C  from elsewhere (layer {layers})")


def _table(table: pd.DataFrame) -> str:
    numbers = {str(name): values.map("{:.2f}".format, na_action="ignore")
               for name, values in table.items() if is_float_dtype(values)}
    return markdown_of(table.assign(**numbers).astype(object).fillna(""))
