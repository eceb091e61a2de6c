"""The page of the study: the tables of all searches, the verdicts, and a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.answers import CLASSES
from latentcode.experiments.evidence.rules import everywhere
from latentcode.experiments.evidence.writing import write_study
from latentcode.experiments.studies.operation.criteria import CRITERIA, answer_entering
from latentcode.experiments.studies.subspaces.plan import RANK, Job, jobs
from latentcode.figures.markdown import markdown_table
from latentcode.figures.style import GREY, PALETTE, Figure, style
from latentcode.files.storage import write_text
from latentcode.probes.common.results import blocks, where
from latentcode.probes.das import DASResult
from latentcode.probes.das.result import SOURCE

PLACE = ("task", "kind", "site", "layer")
CONTROLS = ("shuffled", "untrained", "whole")
"""What a trained subspace has to exceed."""
WITHOUT = {"operation": "operands", "operands": "interchange"}
"""Objective -> a source that has not what it asks for: no other operation, no other operands."""
LEAST: float = CRITERIA["subspace_least"]
"""By how much the rate has to be higher, as written down before the searches."""
LIMIT: float = CRITERIA["answer_not_there_yet"]
"""How well the answer may be read from what enters a layer for an operation to be met there."""
_MARKERS = {"trained": (PALETTE[0], "o"), "shuffled": (PALETTE[1], "s"),
            "untrained": (PALETTE[2], "^"), "whole": (GREY, "D")}


def write_page(out: Path, rows: Path) -> None:
    """Write the page, its tables and its figure from the results that are there.

    rows  folder of the study of rows, which has read answers from residual streams
    """
    found = [(job, DASResult.load(out / job.folder)) for job in jobs()
             if (out / job.folder / DASResult.marker()).is_file()]
    table = pd.concat([_of_job(job, result.table) for job, result in found], ignore_index=True)
    curves = pd.concat([_of_job(job, result.curves) for job, result in found], ignore_index=True)
    decided = verdicts(table)
    for name, numbers in (("table", table), ("curves", curves), ("verdicts", decided)):
        write_text(out / f"{name}.csv", numbers.to_csv(index=False, float_format="%.4g"))
    entering = answer_entering(pd.read_csv(rows / "tables" / "scores.csv"))
    write_text(out / "README.md", page(table, decided, entering, len(found)))
    write_study(out, "study", {
        "command": "python -m latentcode.experiments.studies.subspaces", "subspace_least": LEAST,
        "results": {job.folder: dict(result.settings) for job, result in found}},
        {"figure.png": figure(decided)} if len(decided) else {})


def _of_job(job: Job, table: pd.DataFrame) -> pd.DataFrame:
    named: dict[str, Any] = {"task": job.task, "kind": job.kind, "seed": job.seed, "site": job.site,
             "layer": job.layer, "part": job.part or "main"}
    return table.assign(**named)[[*named, *table.columns]]


def verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rate of the objective's class per model, place and objective, beside its controls.

    margin  the least difference from a control
    without, minimal_pair, unrelated  the rate of that class where the source has not what the
            objective asks for, is the minimal pair's, or shares nothing
    """
    main = where(table, part="main", source=SOURCE)
    rows = []
    for named, _ in blocks(main[main["search"] == "trained"], (*PLACE, "seed", "objective")):
        here = where(main, **{name: named[name] for name in (*PLACE, "seed")},
                     **{"class": named["objective"]})
        trained = where(here, search="trained", objective=named["objective"])
        rates = {name: float(_one(here, name, named["objective"])["value"]) for name in CONTROLS}
        rate = float(trained["value"].iloc[0])
        rows.append({**named, "trained": rate, "low": float(trained["low"].iloc[0]),
                     "high": float(trained["high"].iloc[0]), **rates,
                     "margin": rate - max(rates.values()),
                     "without": _from(table, named, WITHOUT[str(named["objective"])]),
                     "minimal_pair": _from(table, named, "interchange"),
                     "unrelated": _from(table, named, "unrelated"), "n": int(trained["n"].iloc[0])})
    return pd.DataFrame(rows)


def _from(table: pd.DataFrame, named: dict[str, object], source: str) -> float:
    """Return the rate of the objective's class through its trained subspace, by source."""
    rows = where(table, **named, part="main", search="trained", source=source,
                 **{"class": named["objective"]})
    return float(rows["value"].iloc[0])


def _one(rows: pd.DataFrame, search: str, objective: str) -> pd.Series:
    found = where(rows, search=search)
    return found[found["objective"].isin([objective, "none"])].iloc[0]


def page(
    table: pd.DataFrame, decided: pd.DataFrame, entering: Mapping[tuple[str, str, int], float],
    n_results: int,
) -> str:
    """Return the page as Markdown.

    entering  `answer_entering`
    """
    parts = [
        "# Does a subspace carry the operation alone, or the operands alone?",
        "Written by `python -m latentcode.experiments.studies.subspaces` (distributed alignment "
        f"search, rank {RANK}): the coordinates of the response's activation in a trained subspace "
        "are those of a source with another operation B and other operands x'. Subspaces are "
        "trained on training combinations so that the answer becomes B(x) (objective *operation*) "
        "or A(x') (*operands*), and scored on held-out ones. `trained [low, high]` is the rate of "
        "that answer with its 95 % interval, clustered by combination. *shuffled*: the same search "
        "with the targets of other training pairs; *untrained*: the same in the initial weights; "
        "*whole*: all dimensions are the source's.",
        f"{n_results} of {len(jobs())} results are in. `table.csv` has every rate, `curves.csv` "
        "the losses, and the folders each search as it was saved.",
        "## The criterion", _criterion(decided, entering), "![Rates](figure.png)",
        "## Every model", "The same subspace and the same answer, but another source: *minimal "
        "pair*, which differs in the operation and not in the operands; *unrelated*, another "
        "problem. For the operation the minimal pair's source has what is asked for: where it does "
        "no better than an unrelated problem, the subspace does not bring an operation from any "
        f"source that has it.{_no_better(decided)}", _rates(decided),
        "## What else comes through the trained subspace",
        "Means over the seeds of the rates of each class of answers, by source: the one that was "
        "trained with, the minimal pair's (`interchange`, whose B(x) is counted as operation), one "
        "with other operands alone, one with nothing else of interest (`control`), and an "
        "unrelated problem.", _side_effects(table)]
    ranks = where(table, part="ranks", source=SOURCE, search="trained")
    if len(ranks):
        parts += ["## Other ranks", "SRAVEN, HYLA, seed 0, row of layer 3, objective operation.",
                  _classes(ranks, ("rank",))]
    whole = where(table, part="whole", source=SOURCE, search="whole")
    if len(whole):
        parts += ["## Whole activations, layer by layer", "Training combinations, seed 0: the "
                  "layer that does most was chosen, but of HYLA's residual streams that entering "
                  "layer 2, where a first search of seed 0 had been seen. In fuzzy logic, where "
                  "rows of layer 0 do more than those of layer 1, this was looked at beforehand "
                  "and is not in the table.", _classes(whole, PLACE)]
    return "\n\n".join(parts) + "\n"


def _no_better(decided: pd.DataFrame) -> str:
    """Say where the criterion is met in a seed, and yet a minimal pair's source adds nothing."""
    met = decided[(decided["objective"] == "operation") & (decided["margin"] >= LEAST)]
    met = met[met["minimal_pair"] <= met["unrelated"]]
    found = [f"{r.task} {r.kind}, {r.site} {r.layer}, seed {r.seed} ({r.minimal_pair:.2f} and "
             f"{r.unrelated:.2f})" for r in met.itertuples()]
    return (" So it is, though the three controls are exceeded by enough, in "
            f"{'; '.join(found)}." if found else "")


def _criterion(decided: pd.DataFrame, entering: Mapping[tuple[str, str, int], float]) -> str:
    rows = []
    for named, block in blocks(decided, (*PLACE, "objective")):
        met = _exceeds(block)
        read = entering.get(_entered(named))
        rows.append((*named.values(), len(block), f"{block['trained'].mean():.2f}",
                     *(f"{block[name].mean():.2f}" for name in CONTROLS),
                     f"{block['margin'].min():+.2f}", "yes" if met else "no",
                     *(f"{block[name].mean():.2f}"
                       for name in ("without", "minimal_pair", "unrelated")),
                     "" if read is None else f"{read:.2f}"))
    return ("Written down before the searches: in every seed the rate has to be at least "
            f"{LEAST:.2f} above each of the three controls. Rates are means over the seeds that "
            "are in; the margin is the smallest of any seed and control. One seed says nothing "
            "about others.\n\n"
            + markdown_table((*PLACE, "objective", "seeds", "trained", *CONTROLS, "least margin",
                              "exceeds its three controls", "without", "minimal pair",
                              "unrelated", "answer entering"), rows)
            + "\n\nTo exceed the three controls is not yet to carry an operation: what follows is "
            "no part of the criterion. *without*: how often the same subspace brings the same "
            "answer from a source that has not what is asked for (for the operation, one with "
            "other operands alone; for the operands, the minimal pair's). Where that is as often, "
            "the subspace does not say which operation it is. In SRAVEN that can be: of the rules "
            "with natural pairs, sum goes with each of the others and the others only with sum, "
            "so that A tells B for all rules but sum. *minimal pair* and *unrelated*: see the "
            "next table. Where the whole activation brings the answer by itself, the criterion "
            "cannot be met.\n\n*answer entering*: how well a probe reads the answer from the "
            "residual streams that enter the layer (balanced accuracy less that of the initial "
            "weights, mean over the runs of the [study of rows](../rows/README.md)). By "
            "`answer_not_there_yet` of the same [criteria](../../evidence/claims/operation.yaml) "
            f"it may be {LIMIT:.2f} at most where the criterion of an operation is to be met "
            f"in these layers{_reached(decided, entering)}.")


def _reached(decided: pd.DataFrame, entering: Mapping[tuple[str, str, int], float]) -> str:
    """Say where it is not met by that rule though the controls are exceeded."""
    above = ["{task} {kind}, {site} {layer}".format(**named) for named, block
             in blocks(decided[decided["objective"] == "operation"], PLACE)
             if _exceeds(block)
             and not entering.get(_entered(named), 1.0) <= LIMIT]
    return f", so that none is met in {'; '.join(above)}" if above else ""


def _exceeds(block: pd.DataFrame) -> bool:
    """Whether the rate exceeds its three controls by enough in every seed."""
    return everywhere("margin", block["margin"], "above", LEAST, fewest=1).verdict == "agrees"


def _entered(named: Mapping[str, object]) -> tuple[str, str, int]:
    """Return the task, kind and layer of a place."""
    return str(named["task"]), str(named["kind"]), int(str(named["layer"]))


def _rates(decided: pd.DataFrame) -> str:
    return markdown_table(
        (*PLACE, "seed", "objective", "trained", *CONTROLS, "margin", "without", "minimal pair",
         "unrelated", "n"),
        [(*(getattr(r, name) for name in (*PLACE, "seed", "objective")),
          f"{r.trained:.2f} [{r.low:.2f}, {r.high:.2f}]",
          *(f"{getattr(r, name):.2f}" for name in CONTROLS), f"{r.margin:+.2f}",
          f"{r.without:.2f}", f"{r.minimal_pair:.2f}", f"{r.unrelated:.2f}", r.n)
         for r in decided.itertuples()])


def _side_effects(table: pd.DataFrame) -> str:
    rows = where(table, part="main", search="trained")
    return _classes(rows, (*PLACE, "objective", "source"))


def _classes(rows: pd.DataFrame, columns: tuple[str, ...]) -> str:
    """Return the mean rates of all classes, a row per combination of values of some columns."""
    return markdown_table((*columns, *CLASSES), list(_mean_rates(rows, columns)))


def _mean_rates(rows: pd.DataFrame, columns: tuple[str, ...]) -> Iterator[tuple[object, ...]]:
    for key, block in rows.groupby(list(columns), sort=False):
        means = block.groupby("class")["value"].mean()
        yield (*key, *(f"{means[name]:.2f}" for name in CLASSES))


def figure(decided: pd.DataFrame) -> Figure:
    """Return the rates of every seed, a line per place and objective."""
    lines = list(blocks(decided, (*PLACE, "objective")))
    with style():
        drawn = Figure(figsize=(7.0, 0.42 * len(lines) + 1.2), layout="constrained")
        axes = drawn.subplots()
        for y, (_, block) in enumerate(lines):
            for name, (color, marker) in _MARKERS.items():
                axes.plot(block[name], [y] * len(block), linestyle="", color=color, marker=marker,
                          markersize=4, alpha=0.8, label=name if y == 0 else None)
        axes.set_yticks(range(len(lines)), [
            f"{n['task']} {n['kind']}, {n['site']} {n['layer']}: {n['objective']}"
            for n, _ in lines])
        axes.set_ylim(len(lines) - 0.5, -0.5)
        axes.set(xlim=(-0.03, 1.03), xlabel="rate of the objective's answer, held-out combinations")
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4)
    return drawn
