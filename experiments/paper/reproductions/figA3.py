"""Fig. A3: fuzzy logic on held-out, training and unknown terms, and the training loss."""

from __future__ import annotations

import pandas as pd

from latentcode.experiments.evidence.claim import Claim
from latentcode.experiments.paper.measuring.drawing import Curves, curves_of_kinds
from latentcode.experiments.paper.measuring.scores import (
    for_claims,
    learning,
    no_kind_is_always_lowest,
    scores,
)
from latentcode.experiments.paper.measuring.words import of_kinds, sentences
from latentcode.experiments.paper.reproduction import (
    KIND_TITLES,
    Findings,
    Reproduction,
    Work,
    metric_evidence,
)
from latentcode.experiments.paper.reproductions.fig2c import AXES, SHOWS

PANELS = {"A held out": ("ood", "r2"), "B training": ("test", "r2"),
          "C unknown terms": ("unknown", "r2"), "D training loss": ("train", "loss")}
"""What the figure shows, as split and metric: R² on three splits, and the loss."""


def measure(work: Work) -> Findings:
    """Return R² on `ood`, `test` and `unknown`, and the loss on `train` without dropout."""
    settings = SHOWS[work.preset]
    found = learning(work, settings)
    tables = {title: scores(work, settings, split, metric, AXES)
              for title, (split, metric) in PANELS.items()}
    return Findings(
        summary=sentences(of_kinds(tables["B training"], "R² on functions of training"),
                          of_kinds(tables["C unknown terms"], "R² on unknown terms")),
        tables={"scores": pd.concat(tables.values(), ignore_index=True)},
        figures=curves_of_kinds("figA3", [
            Curves(table, title if "loss" in title else f"{title}, R²", "n_examples",
                   "ood_fraction", log="loss" in title)
            for title, table in tables.items()], found.heading),
        evidence={**metric_evidence(for_claims(work, "figA3-unknown-terms-fail"), "r2", "unknown"),
                  **{claim.id: _of_all_kinds(work, claim) for claim in work.claims
                     if claim.id == "figA3-alike-in-distribution"},
                  **{claim.id: no_kind_is_always_lowest(work, claim) for claim in work.claims
                     if claim.id == "figA3-no-consistent-order-of-training-loss"}},
        notes=(*found.notes, "The training loss is that of the finished model without dropout, on "
               "fresh instances of the functions of training."))


def _of_all_kinds(work: Work, claim: Claim) -> pd.DataFrame:
    """Return the largest difference between two kinds in R² on `test`, one value per seed."""
    from latentcode.experiments.evidence.verdicts import COMPARED, evidence

    table = scores(work, [claim.setting], "test", "r2")
    kinds = table.groupby(["split_seed", "seed", "kind"])["value"].mean().unstack("kind")
    kinds = kinds.reindex(columns=list(KIND_TITLES)).dropna()
    spread = (kinds.max(axis=1) - kinds.min(axis=1)).rename("value").reset_index()
    return evidence([
        {"member": COMPARED, **{name: row[name] for name in ("seed", "split_seed", "value")}}
        for row in spread.to_dict("records")])


REPRODUCTION = Reproduction(
    "Fuzzy logic on held-out functions, on those of training and on unknown terms; training loss",
    SHOWS, measure)
