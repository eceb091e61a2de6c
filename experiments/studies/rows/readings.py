"""Sentences that carry their numbers: computed from the tables, so that they cannot differ."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from latentcode.experiments.studies.rows.tables import headline, ranged
from latentcode.probes.common.results import where
from latentcode.probes.decoding.naming import parted


def readings(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return what the tables show in sentences, a list item each, as far as there are results."""
    scores, given = parted(headline(tables["scores"])), parted(tables["given"])
    sraven = where(scores, part="sraven", width=128)
    last = where(sraven, layer="3")
    found = []
    for features in ("code", "row", "residual"):
        rows = where(last, features=features)
        if len(rows):
            found.append(
                f"- SRAVEN, {features}, last layer: rule {span(rows, 'rule')}, first operand "
                f"{span(rows, 'operand_1')}, answer {span(rows, 'answer')}; untrained "
                f"{span(rows, 'rule', 'untrained')}, {span(rows, 'operand_1', 'untrained')} and "
                f"{span(rows, 'answer', 'untrained')}.")
    for condition in ("answer", "answer and operands"):
        rows = where(given, part="sraven", width=128, layer="3", given=condition)
        if len(rows):
            gains = "; ".join(
                f"{features} {span(block, 'rule', value='gain')}, {above(block)} (features of "
                f"another instance: {span(block, 'rule', 'shuffled', value='gain')})"
                for features in ("code", "row", "residual")
                if len(block := where(rows, features=features)))
            found.append(f"- The rule beyond {condition}, last layer, nats gained of "
                         f"{ranged(rows['known'])}: {gains}.")
    for inputs in ("fixed_context", "fixed_query"):
        rows = where(scores, part="logic", width=128, inputs=inputs, layer="1", label="terms")
        if len(rows):
            by_features = "; ".join(
                f"{features} {span(block, 'terms')} (untrained {span(block, 'terms', 'untrained')})"
                for features, block in rows.groupby("features", sort=False))
            found.append(f"- Fuzzy logic, `{inputs}`, F1 of the terms in the last layer: "
                         f"{by_features}; best constant answer {rows['chance'].min():.2f}.")
    return found


def span(
    table: pd.DataFrame, label: str, model: str = "trained", value: str = "value"
) -> str:
    """Return the smallest and the largest value over kinds and seeds."""
    return ranged(where(table, label=label, model=model)[value].dropna())


def above(given: pd.DataFrame) -> str:
    """Say in how many models the interval of a gain lies above 0."""
    trained = where(given, model="trained")
    return f"above 0 in {int((trained['low'] > 0).sum())} of {len(trained)} models"
