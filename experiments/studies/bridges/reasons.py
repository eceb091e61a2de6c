"""What fails, and for which reason, as docs/architectures.md has it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from latentcode.probes.common.results import where
from latentcode.probes.model_checks.questions import QUESTIONS, VERBS

FEW = 60
"""Letters of a note in a table."""


def shown(tables: Mapping[str, pd.DataFrame]) -> dict[str, object]:
    """Return the tables of the page: what fails where, and architectures by their reason.

    Hybrids stand apart, whatever became of them.
    """
    found, precisions = tables["architectures"].fillna(""), tables["precisions"].fillna("")
    exact, rough = (where(precisions, dtype=name).set_index("architecture")
                    for name in ("float64", "float32"))
    whole = where(found, others="")
    hybrids = found[found["others"] != ""].set_index("architecture")

    def verbs(name: str) -> dict[str, str]:
        return {**{verb: "yes" if rough.loc[name, verb] else "-" for verb in VERBS},
                "what fails": failing(where(tables["worst"], architecture=name,
                                            dtype="float32"))}

    return {
        "supported": list(where(whole, outcome="supported")["architecture"]),
        "gated": found[found["gate"] != ""].set_index("architecture")["gate"],
        "hybrids": pd.DataFrame([
            {"architecture": f"`{name}`", "other layers": f"`{row['others']}`", **verbs(str(name))}
            for name, row in hybrids.iterrows()]),
        "partly": pd.DataFrame([
            {"architecture": f"`{name}`", **verbs(name)}
            for name in where(whole, outcome="partly")["architecture"]]),
        **{outcome.replace(" ", "_"): by_reason(
            where(found, outcome=outcome).set_index("architecture")["reason"])
           for outcome in ("refused", "not built")},
        "otherwise": by_reason(pd.Series({
            name: reason for name, row in exact.iterrows()
            if (reason := _otherwise(row, rough.loc[str(name)]))}, dtype=object))}


def failing(worst: pd.DataFrame) -> str:
    """Return the checks that fail, in the order of the questions, each with its number or note."""
    told = []
    rows: list[dict[Any, Any]] = worst.fillna({"note": ""}).to_dict("records")
    of = {row["check"]: row for row in rows}
    for name in QUESTIONS:
        if name in of and of[name]["outcome"] == "fails":
            value, note = of[name]["value"], of[name]["note"]
            short = re.split(r"[:(] ?(?=Multi)|\. ", note)[0][:FEW].strip()
            told.append(f"{name} ({short if math.isnan(value) else f'{value:.2g}'})")
    return ", ".join(told)


def _otherwise(exact: Any, rough: Any) -> str:
    """Return what else is true of an architecture in float64."""
    if exact["reason"]:
        return re.sub(r"a \w+ with", "the model with", exact["reason"])
    before = rough["failed"].split(", ")
    new = [check for check in exact["failed"].split(", ") if check and check not in before]
    return f"fails: {', '.join(new)}" if new else ""


def by_reason(reasons: pd.Series) -> pd.DataFrame:
    """Return a table of reasons, each with the architectures that it is given for.

    reasons  by architecture
    """
    found: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        kind = str(name).split(",")[0]
        text = reason.replace(f"model is a {kind}, ", "").replace(f"model ({kind}) ", "")
        text = text.replace("which TransformerLens cannot open", "TransformerLens cannot open it")
        found.setdefault(text.replace("|", "\\|"), []).append(f"`{name}`")
    return pd.DataFrame([(reason, ", ".join(of)) for reason, of in sorted(
        found.items(), key=lambda item: -len(item[1]))], columns=["why", "architectures"])
