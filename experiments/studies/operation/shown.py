"""The tables that the page shows: a row per place, classes of answers across."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from latentcode.answers import CLASSES
from latentcode.experiments.evidence.found import Tables
from latentcode.experiments.evidence.tables import fixed
from latentcode.experiments.studies.operation.criteria import BOTH, CRITERIA, WHERE, place_of
from latentcode.probes.common.results import blocks, where


def shown(tables: Tables) -> dict[str, Any]:
    """Return what the template is given."""
    return {"criteria": CRITERIA, "classes": _classes, "met": _met, "sources": _sources,
            "by_rules": _by_rules(tables["by_rules"]), "windows": _windows(tables["windows"]),
            "along": _along(tables["along"])}


def _table(rows: Sequence[Sequence[object]], *columns: str) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(columns))


def _of_classes(block: pd.DataFrame, value: str) -> list[str]:
    means = block.groupby("class")[value].mean()
    return [fixed(means[name]) for name in CLASSES]


def _classes(over: pd.DataFrame) -> pd.DataFrame:
    """Return a row per kind and place, with the unrelated source's rates in brackets."""
    def cell(block: pd.DataFrame, name: str) -> str:
        both, null = (where(block, patch=patch, **{"class": name})
                      for patch in (BOTH, "unrelated"))
        if not len(both):
            return ""
        found = both.iloc[0]
        spread = f" {fixed(found['min'])}-{fixed(found['max'])}" if found["count"] > 1 else ""
        return f"{fixed(found['mean'])}{spread} ({fixed(null.iloc[0]['mean'])})"

    return _table([[key["kind"], place_of(key), *(cell(block, name) for name in CLASSES)]
                   for key, block in blocks(over, ("kind", *WHERE))], "kind", "written", *CLASSES)


def _met(statements: pd.DataFrame) -> pd.DataFrame:
    """Return a row per place where a criterion is met, but for those that hold all that the answer
    depends on, and for the examples themselves."""
    rows = []
    for row in where(statements, met=True).to_dict("records"):
        if "+" in row["site"] or (row["site"], row["scope"]) == ("residual", "examples"):
            continue
        differences = "; ".join(
            f"{fixed(value)} from {name.removeprefix('mean against ')}"
            for name, value in ((str(key), value) for key, value in row.items())
            if name.startswith("mean against ") and not pd.isna(value))
        entering = ", ".join("not known" if pd.isna(row[name]) else fixed(row[name])
                             for name in ("answer entering first", "answer entering last"))
        rows.append([row["kind"], place_of(row), row["statement"], differences, row["runs"],
                     entering, "yes" if row["met in these layers"] else "no"])
    return _table(rows, "kind", "written", "statement", "mean difference", "runs",
                  "answer entering", "met in these layers")


def _sources(over: pd.DataFrame) -> pd.DataFrame:
    """Return a row per kind, main place and source."""
    main = over.loc[over["patch"].str.contains("rest"), list(WHERE)].drop_duplicates()
    return _table([[key["kind"], place_of(key), key["patch"], *_of_classes(block, "mean")]
                   for kind in over["kind"].unique()
                   for key, block in blocks(main.merge(where(over, kind=kind), on=list(WHERE)),
                                            ("kind", *WHERE, "patch"))],
                  "kind", "written", "source", *CLASSES)


def _by_rules(by_rules: pd.DataFrame) -> pd.DataFrame:
    """Return a row per kind and pair of rules, of all codes and of the upper layers' values."""
    return _table([[key["kind"], f"{site}, layers {layers}", key["base_label"],
                    key["source_label"], int(block["n"].iloc[0]), *_of_classes(block, "rate")]
                   for site, layers in (("code", "0,1,2,3"), ("value", "2,3"))
                   for key, block in blocks(
                       where(by_rules, site=site, scope="everything", layers=layers),
                       ("kind", "base_label", "source_label"))],
                  "kind", "written", "base's rule", "source's rule", "n", *CLASSES)


def _windows(windows: pd.DataFrame) -> pd.DataFrame:
    """Return a row per kind, place and window."""
    return _table([[key["kind"], place_of(key), f"{key['window']:g}",
                    *_of_classes(block, "value")]
                   for key, block in blocks(where(windows, patch=BOTH),
                                            ("kind", *WHERE, "window"))],
                  "kind", "written", "window", *CLASSES)


def _along(along: pd.DataFrame) -> pd.DataFrame:
    """Return a row per run, checkpoint and place."""
    return _table([[key["kind"], key["step"], key["known"], place_of(key),
                    *_of_classes(block, "value")]
                   for key, block in blocks(where(along, patch=BOTH),
                                            ("run", "kind", "step", "known", *WHERE))],
                  "kind", "updates", "n", "written", *CLASSES)
