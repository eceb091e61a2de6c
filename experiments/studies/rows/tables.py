"""The numbers of all models in two tables, and the cells that a reader sees of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from latentcode.experiments.evidence.found import Found, Tables, naming
from latentcode.experiments.evidence.tables import fixed, span
from latentcode.probes.common.results import where
from latentcode.probes.decoding.naming import MODELS, parted
from latentcode.tasks import make_task

ORDER = ("code", "row", "row.last_row", "row.examples", "codes", "values", "residual", "tokens")
"""The order in which features are listed."""
FIRST = ("part", "kind", "seed", "step", "inputs")
"""Columns that name a model, and what it is asked about."""
LEFT_OUT = ("task", "run", "pair", "n_train", "n_heldout", "n_train_combinations",
            "n_heldout_combinations", "n_classes", "C")
"""Columns that are the same for all, or that only results of single models need."""
N = 4_096
"""Instances that are scored."""
PLACE = ("kind", "features", "layer")


def joined(found: Found) -> dict[str, pd.DataFrame]:
    """Return `scores` and `given` of all that was asked, and the models, `runs`."""
    tables = {"runs": _runs(found)}
    for name, field in (("scores", "table"), ("given", "given")):
        parts = []
        for asked, results in found.results.items():
            logic = asked not in ("sraven", "later", "milestones")
            about = {"part": "logic" if logic else "milestones" if asked == "milestones" else
                     "sraven", "inputs": asked if logic else ""}
            parts += [getattr(result, field).assign(
                **about, **naming(run), step=result.settings["train"]["step"])
                for (run,), result in results]
        table = pd.concat(parts, ignore_index=True)
        table["layer"] = table["layer"].astype(str)  # of codes of all layers it is none
        rank = parted(table)["features"].map(ORDER.index)
        order = table.assign(features=rank).sort_values(
            ["kind", "features", "layer"], kind="stable")
        tables[name] = table.loc[order.index, [
            *FIRST, *(column for column in table if column not in (*FIRST, *LEFT_OUT))]]
    return tables


def _runs(found: Found) -> pd.DataFrame:
    """Return a row per run: its checkpoint, and its score on held-out combinations."""
    rows = []
    for run in (run for of in found.runs.values() for run in of):
        metric = make_task(run.config.task).headline
        score = run.newest("ood", metric)
        rows.append({**naming(run), "step": max(run.checkpoints()), "metric": metric,
                     "held-out": None if score is None else round(score.mean, 3)})
    return pd.DataFrame(rows)


def shown(tables: Tables) -> dict[str, Any]:
    """Return what the template is given: headline `scores` (accuracies, and the F1 of groups) and
    gains (`rules`), with column `model`, and what makes cells of them."""
    scores, given = (table.assign(layer=table["layer"].astype(str)) for table in (
        headline(tables["scores"]), tables["given"]))
    # They hold four digits, which tell how many of n were right: the page rounds that share, and
    # not a number that is rounded already.
    share = scores["metric"] == "accuracy"
    scores = scores.assign(value=scores["value"].where(~share, (scores["value"] * N).round() / N))
    return {"scores": parted(scores), "rules": parted(given), "cells": cells, "over": over,
            "moments": along(scores), "over_steps": _over_steps, "PLACE": PLACE}


def over(table: pd.DataFrame, column: str = "value", /, **entries: object) -> str:
    """Return the smallest and the largest number of a column, in the rows with some entries."""
    return span(where(table, **entries)[column].dropna().tolist())


def cells(table: pd.DataFrame, index: Sequence[str], column: str, value: str) -> pd.DataFrame:
    """Return a row per place and a column per label: trained / untrained / shuffled.

    Over several seeds a value is their mean, and for the trained model (smallest to largest).
    """
    rows = []
    for place, block in table.groupby(list(index), sort=False):
        row: dict[str, object] = dict(zip(index, place, strict=True))
        for name, asked in block.groupby(column, sort=False):
            row[str(name)] = " / ".join(
                _cell(where(asked, model=model), value, spread=model == "trained")
                for model in MODELS)
            trained = where(asked, model="trained")
            if trained[value].isna().all():
                same = "chance" in trained and (trained["chance"] == 1.0).all()
                row[str(name)] = "the same for all" if same else "nothing to read"
        rows.append(row)
    return pd.DataFrame(rows)


def _cell(block: pd.DataFrame, value: str, *, spread: bool) -> str:
    values = block[value].dropna()
    if values.empty:
        return "–"
    mean = fixed(values.mean())
    if not spread:
        return mean
    unread = f", {len(values)} of {len(block)} seeds" if len(values) < len(block) else ""
    several = f" ({span(values.tolist())})" if len(values) > 1 else ""
    return f"{mean}{several}{unread}"


def headline(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracies, and the F1 of groups."""
    return scores[scores["metric"].isin(["accuracy", "f1"])]


def along(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of first seeds over updates, those of the ends included; empty without."""
    scores = parted(scores)
    milestones = where(scores, part="milestones", model="trained")
    ends = where(scores, part="sraven", seed=0, width=128)
    ends = ends[ends["features"].isin(milestones["features"].unique())]
    start = where(ends, model="untrained").assign(step=0)
    return pd.concat([start, milestones, where(ends, model="trained")]) if len(
        milestones) else milestones


def _over_steps(moments: pd.DataFrame) -> pd.DataFrame:
    """Return the last layer's accuracies: a row per kind, features and label, a column per step."""
    return where(moments, layer=max(moments["layer"])).pivot_table(
        index=["kind", "features", "label"], columns="step", values="value",
        sort=False).sort_index(axis=1).reset_index()
