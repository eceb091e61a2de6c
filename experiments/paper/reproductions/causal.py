"""Operation or answer: what do codes and values carry, when a source's are written back? (Ours.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from latentcode.answers import CLASSES
from latentcode.errors import ProbeError
from latentcode.experiments.evidence.claim import Claim, Setting
from latentcode.experiments.paper.measuring.known_rules import LEAST, knows_rules
from latentcode.experiments.paper.measuring.over_runs import controls_of, judged, nothing
from latentcode.experiments.paper.measuring.words import count
from latentcode.experiments.paper.reproduction import (
    KIND_TITLES,
    KINDS,
    Findings,
    Reproduction,
    Work,
    about,
)
from latentcode.figures.style import Figure
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import distinct, where
from latentcode.probes.interventions import InterventionResult, Patch, intervene
from latentcode.probes.interventions.class_figure import COLOURS
from latentcode.runs import Run

KNOWN = Setting("small", "sraven", (KINDS, "training.steps=9000"))
LOGIC = Setting("paper", "logic", (KINDS,))
SHOWS = {"paper": (KNOWN, LOGIC, Setting("paper", "sraven", (KINDS,))), "small": (KNOWN, LOGIC),
         "smoke": (Setting("smoke", "sraven", (KINDS,)), Setting("smoke", "logic", (KINDS,)))}
N = {"paper": 800, "small": 200, "smoke": 100}
"""Instances drawn; those count that the model answers rightly."""
BOTH = "operation+operands"
"""The source whose own answer is neither the base's operation's nor its operands'."""
SOURCES = {BOTH: "another operation and operands", "operands": "same operation, other operands",
           "interchange": "another operation, same operands", "unrelated": "shares nothing"}
"""Patch -> what its source shares with the base."""
CONTROLS = {
    "source with the same rule and other operands": "operands",
    "source with another rule and the same operands": "interchange",
    "source with the same function and another query": "operands",
    "source with another function and the same query": "interchange",
    "source that shares nothing": "unrelated"}
"""What the claims call a control -> patch."""
PLACES = {"row": ("code", "row"), "codes": ("code", "everything"),
          "values": ("value", "everything")}
"""Word of a claim -> site and scope."""
ANSWERS = {"operation": "operation", "operand": "operands", "answer": "answer"}
"""Word of a claim -> class of answers."""
SUBSPACE = "causal-subspace-operation"


def measure(work: Work) -> Findings:
    """Return whose answers come out when a source's codes or values are written."""
    found, silent = [], []
    for member, run in work.runs_of(SHOWS[work.preset]):
        try:
            found.append((member, run, work.measured(
                run, written, InterventionResult, n=N[work.preset])))
        except ProbeError as error:  # of models that give none of these answers
            silent.append(f"{run.name}: {error}.")
    if not found:
        return replace(nothing("models that answer rightly"), notes=tuple(silent))
    classes = pd.concat([_named(member, run, result.table[result.table["metric"].isin(CLASSES)])
                         for member, run, result in found], ignore_index=True)
    paired = pd.concat([_named(member, run, where(result.contrasts.table, patch=BOTH))
                        for member, run, result in found], ignore_index=True)
    ignorant = [run.name for _, run, _ in found if not _is_judged(run)]
    return Findings(
        summary=_said(classes),
        tables={"classes": classes, "differences": paired},
        figures={"causal": _drawn(classes)},
        evidence=judged({claim.id: _evidence(work, claim, paired) for claim in work.claims
                         if claim.id != SUBSPACE}),
        notes=("B is the operation of a source and x' are its operands (fuzzy logic: function and "
               "query), A and x those of the base; rates are of held-out combinations that the "
               "model answers rightly.",
               f"{SUBSPACE} has no evidence here: a search for a subspace takes hours, and the "
               "study of subspaces (experiments/results/subspaces) did others than the claim asks "
               "for. It searched rows of codes at rank 16 in HYLA (ranks 1, 4 and 64 for one seed, "
               "without controls), none in linear attention, chose no rank on `test`, and has no "
               "interval of differences from the controls.",
               *([f"Not judged, as they know some rule in less than {LEAST:.0%}: "
                  f"{', '.join(ignorant)}."] if ignorant else []),
               *silent))


def written(
    run: Run, *, n: int, seed: int = 0, device: str = "cpu"
) -> InterventionResult:
    """Write a factorial of sources at the places that claims are about."""
    model, is_logic = run.config.model, run.config.task.name == "logic"
    every = tuple(range(model.n_layers))
    # The row of the response: in SRAVEN that of the upper half, layers 2 and 3 of 4.
    layers = {"row": every if is_logic else every[model.n_layers // 2:]}
    return intervene(run, interventions=[
        Patch(source, scope, layers.get(scope, every), site)
        for site, scope in PLACES.values() for source in SOURCES],
        n=n, seed=seed, device=device, batch_size=125)


def _named(member: str, run: Run, table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of a run under its name; SRAVEN of several sizes is told by its features."""
    config = run.config
    kept = table.drop(columns=["alpha", "heads", "renormalized"])
    return kept.assign(task=config.task.name, features=getattr(config.task, "n_features", None),
                       id=run.id, **about(member, run))


def _is_judged(run: Run) -> bool:
    return run.config.task.name != "sraven" or knows_rules(run)


def _evidence(work: Work, claim: Claim, paired: pd.DataFrame) -> list[dict[Any, Any]]:
    """Return the paired differences that a claim such as `causal-logic-row-operand` is about."""
    *_, place, answer = claim.id.split("-")
    site, scope = PLACES[place]
    rows = where(paired, site=site, scope=scope, **{"class": ANSWERS[answer]})
    members = {run.id: member for member, run in work.runs_of(claim.setting) if _is_judged(run)}
    return [row | {"control": control, "member": members[row["id"]]}
            for control in controls_of(claim)
            for row in where(rows, against=CONTROLS[control]).to_dict("records")
            if row["id"] in members]


def _said(classes: pd.DataFrame) -> str:
    """Say, for every task, kind and place, the class that comes most."""
    both = where(classes, patch=BOTH)
    sentences = []
    for task, features in distinct(both, "task", "features"):
        of_task = both[(both["task"] == task) & both["features"].eq(features)] if pd.notna(
            features) else where(both, task=task)
        parts = []
        for word, (site, scope) in PLACES.items():
            here = where(of_task, site=site, scope=scope)
            means = here.groupby(["kind", "metric"])["value"].mean().unstack()
            parts.append(f"{_place(word, task)}: " + ", ".join(
                f"{title} {MEANING[str(means.loc[kind].idxmax())]} {means.loc[kind].max():.2f}"
                for kind, title in KIND_TITLES.items() if kind in means.index))
        sentences.append(f"{_title(task, features)}, commonest answer when a source's are written, "
                         f"{'; '.join(parts)}.")
    return " ".join(sentences)


MEANING = {"base": "its own", "operation": "the source's operation on its operands",
           "operands": "its operation on the source's operands", "answer": "the source's own",
           "else": "none of these"}


def _place(word: str, task: str) -> str:
    """Return a place in words; the row is that of the token which answers."""
    names = {"row": f"the {'query' if task == 'logic' else 'response'}'s row of codes",
             "codes": "all codes", "values": "all values"}
    return names[word]


def _title(task: str, features: object) -> str:
    return "Fuzzy logic" if task == "logic" else f"SRAVEN, {features:.0f} features"


def _drawn(classes: pd.DataFrame) -> Figure:
    """Draw the classes as stacked bars: a row of panels per task, a column per kind."""
    tasks = distinct(classes, "task", "features")
    kinds: Sequence[str] = [kind for kind in KIND_TITLES if kind in set(classes["kind"])]
    bars = [(word, source) for word in PLACES for source in SOURCES]
    with panels(len(tasks), len(kinds), 2.3 * len(kinds) + 3.2, 2.4 * len(tasks) + 0.6,
                sharex=True, sharey="row") as (figure, grid):
        for line, (task, features) in zip(grid, tasks, strict=True):
            for axes, kind in zip(line, kinds, strict=True):
                block = where(classes, task=task, kind=kind)
                block = block[block["features"].eq(features)] if pd.notna(features) else block
                _stack(axes, task, block, bars)
                axes.set_title(f"{_title(task, features)}\n{KIND_TITLES[kind]}, "
                               f"{count(block['id'].nunique(), 'run')}", fontsize=8)
        for axes in grid[-1]:
            axes.set_xlabel("share of answers")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center",
                      ncols=len(CLASSES))
    return figure


def _stack(
    axes: Axes, task: str, block: pd.DataFrame, bars: Sequence[tuple[str, str]]
) -> None:
    means = block.groupby(["site", "scope", "patch", "metric"])["value"].mean()
    # A gap between places.
    y = [number + 0.7 * (number // len(SOURCES)) for number in range(len(bars))]
    left = [0.0] * len(bars)
    for name in CLASSES:
        widths = [float(means.get((*PLACES[word], source, name), 0.0)) for word, source in bars]
        axes.barh(y, widths, 0.85, left=left, color=COLOURS[name],
                  label=f"{name}: {CLASSES[name].partition(',')[0]}")
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_yticks(y, [
        f"{_place(word, task)}: {SOURCES[source]}" if source == BOTH else SOURCES[source]
        for word, source in bars], fontsize=6.5)
    axes.set(xlim=(0.0, 1.0), ylim=(max(y) + 0.7, -0.7))
    axes.grid(axis="y", visible=False)


REPRODUCTIONS = (Reproduction(
    "causal",
    "Whose answer comes out when a source's codes or values are written: operation or answer",
    SHOWS, measure),)
