"""Table A1: the 14 ablations, on fuzzy logic and SRAVEN."""

from __future__ import annotations

import pandas as pd

from latentcode.experiments.evidence.claim import Claim, Setting
from latentcode.experiments.paper.measuring.drawing import Numbers, beside_published
from latentcode.experiments.paper.measuring.published import beside, printed
from latentcode.experiments.paper.measuring.scores import METRIC, learning, scores
from latentcode.experiments.paper.measuring.words import (
    NOTHING,
    beside_ceiling,
    of_kinds,
    sentences,
)
from latentcode.experiments.paper.reproduction import (
    KIND_TITLES,
    Findings,
    Reproduction,
    Work,
    metric_evidence,
)

ROWS = {
    "softmax": "Softmax attention",
    "linear": "Linear attention",
    "hyla": "HYLA",
    "linear_rms_head": "Linear + RMSHead",
    "linear_rms_head_relu": "Linear + RMSHead + nonlinear value ?",
    "hyla_no_rms_head": "HYLA − RMSHead",
    "hyla_linear": "HYLA − nonlinearity",
    "hyla_linear_no_rms_head": "HYLA − nonlinearity − RMSHead",
    "hyla_softmax": "HYLA − RMSHead + softmax ?",
    "hyla_deep": "HYLA + deep value network",
    "hyla_softmax_rms_head": "HYLA + softmax ?",
    "softmax_moe": "Softmax attention + MoE",
    "linear_moe": "Linear attention + MoE",
    "hyla_moe": "HYLA + MoE",
}
"""The rows as they are printed; `?`: another reading is possible, and the table says ours."""
KINDS = f"kind={','.join(ROWS)}"
SHOWS = {
    "paper": (Setting("paper", "logic", (KINDS,)), Setting("paper", "sraven", (KINDS,))),
    "small": (Setting("small", "logic", (KINDS, "training.steps=500")),
              Setting("small", "sraven", (KINDS, "task.n_features=2", "training.steps=750"))),
    "smoke": (Setting("smoke", "logic", ("kind=softmax,linear,hyla,hyla_deep",)),
              Setting("smoke", "sraven", ("kind=softmax,linear,hyla",))),
}
COLUMNS = {"logic": "Fuzzy logic, 100 × R² on held-out functions",
           "sraven": "SRAVEN, 100 × OOD accuracy"}


def measure(work: Work) -> Findings:
    """Return R² and accuracy on `ood` of every row, beside the published ones."""
    settings = SHOWS[work.preset]
    found = learning(work, settings)
    runs = {setting.task: scores(work, [setting], "ood", METRIC[setting.task])
            for setting in settings}
    rows = beside(((ROWS[kind], claim, table[table["kind"] == kind])
                   for task, table in runs.items() for kind, claim in _printed(task).items()),
                  comparable=work.preset == "paper")
    return Findings(
        summary=_summary(runs),
        tables={"rows": rows, "runs": pd.concat(runs.values(), ignore_index=True)},
        figures=beside_published("tabA1", [
            Numbers(rows[rows["task"] == task], title) for task, title in COLUMNS.items()],
            found.heading),
        evidence={claim.id: metric_evidence(work, claim, METRIC[claim.setting.task], "ood")
                  for claim in work.claims},
        notes=(*found.notes, "Rows marked ? leave room for another reading; the column `reading` "
               "says which one was run."))


def _printed(task: str) -> dict[str, Claim]:
    """Return kind -> the claim about its printed number on a task."""
    members = {claim: claim.setting.grid.points() for claim in printed("tabA1")
               if claim.setting.task == task}
    return {point["kind"]: claim for claim, points in members.items() for point in points.values()}


def _summary(runs: dict[str, pd.DataFrame]) -> str:
    if all(table.empty for table in runs.values()):
        return NOTHING
    fuzzy, sraven = runs["logic"], runs["sraven"]
    return sentences(
        f"Of the {len(ROWS)} rows {fuzzy['kind'].nunique()} have runs on fuzzy logic and "
        f"{sraven['kind'].nunique()} on SRAVEN.",
        *(of_kinds(table, what) for table, what in (
            (fuzzy, "R² on held-out functions"), (sraven, "OOD accuracy on SRAVEN"))
          if table["kind"].isin(list(KIND_TITLES)).any()),
        beside_ceiling(sraven))


REPRODUCTIONS = (Reproduction(
    "tabA1", "The ablations of Table A1 on held-out functions and rule combinations",
    SHOWS, measure),)
