"""Rates of classes, and differences between two sources' patches over the instances of both."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hand_built import operation_model
from selector import Selector

from latentcode.metrics import CLASSES
from latentcode.probes.interventions import InterventionResult, Patch, intervene_model
from latentcode.probes.interventions.intervention import tables

ASKED = [Patch(patch, "row", layers) for patch, layers in (
    ("operation+operands", (0,)), ("operands", (0,)), ("unrelated", (1,)), ("zero_ablation", (0,)))]
"""Two sources at one place, one at another, and what comes from no source."""
CONSTITUENTS = ("sum", "difference")


def outcomes(number: int, found: dict[int, str]) -> pd.DataFrame:
    """Return the outcomes of an intervention: instance -> class. Combinations are 0, 0, 1, 1, 2;
    instances 0 and 1 have another rule than the others."""
    return pd.DataFrame([
        {"intervention": number, "number": instance, "combination": instance // 2,
         "base_label": int(instance > 1),
         "source_label": int(instance <= 1), "flip": 0.0, "unchanged": 0.0,
         **{name: float(name == which) for name in CLASSES}}
        for instance, which in found.items()])


INSTANCES = pd.concat([
    outcomes(0, {0: "operation", 1: "operation", 2: "operation", 3: "answer"}),
    outcomes(1, {1: "else", 2: "operation", 3: "else", 4: "answer"}),
    outcomes(2, {0: "answer", 1: "answer", 2: "answer", 3: "answer"}),
    outcomes(3, {0: "else", 1: "else", 2: "else", 3: "else"})], ignore_index=True)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return tables(INSTANCES, ASKED, CONSTITUENTS, 200, 0)


def test_differences_are_those_over_the_instances_of_both(found: dict[str, Any]) -> None:
    contrasts = found["contrasts"].table
    # Of neither another place nor what comes from no source.
    assert set(zip(contrasts["patch"], contrasts["against"], strict=True)) == {
        ("operation+operands", "operands"), ("operands", "operation+operands")}
    mine = contrasts[contrasts["patch"] == "operation+operands"].set_index("class")
    assert list(mine.index) == list(CLASSES)
    assert mine["n"].eq(3).all()  # instances 1, 2 and 3
    assert mine["n_clusters"].eq(2).all()
    expected = {"base": 0, "operation": 1 / 3, "operands": 0, "answer": 1 / 3, "else": -2 / 3}
    assert mine["value"].to_dict() == pytest.approx(expected)
    assert mine[["low", "high"]].isna().all(axis=None)  # two combinations have no interval
    other = contrasts[contrasts["patch"] == "operands"].set_index("class")
    assert other["value"].to_dict() == pytest.approx(
        {name: -value for name, value in expected.items()})


def test_classes_are_rates_by_both_constituents(found: dict[str, Any]) -> None:
    classes = found["classes"]
    assert classes.groupby(["patch", "base_label"])["rate"].sum().eq(1.0).all()
    mine = classes[classes["patch"] == "operation+operands"].set_index(
        ["base_label", "source_label", "class"])
    assert mine.loc[("sum", "difference", "operation"), ["n", "rate"]].tolist() == [2, 1.0]
    assert mine.loc[("difference", "sum", "operation"), ["n", "rate"]].tolist() == [2, 0.5]
    assert mine.loc[("difference", "sum", "answer"), "rate"] == 0.5


def test_without_a_factorial_there_are_no_classes() -> None:
    plain = tables(INSTANCES.drop(columns=list(CLASSES)), ASKED, CONSTITUENTS, 200, 0)
    assert plain["classes"].empty
    assert plain["contrasts"].empty
    assert list(plain["contrasts"].table) == list(InterventionResult.COLUMNS["contrasts"])


def test_flips_of_minimal_pairs_are_compared_with_controls_alone() -> None:
    patches = {"interchange": [1.0, 1.0, 0.0, 1.0], "control": [0.0, 1.0, 0.0, 0.0],
               "identity": [0.0] * 4}
    plain = pd.concat([outcomes(number, dict.fromkeys(range(4), "base")).assign(flip=flips)
                       for number, flips in enumerate(patches.values())])
    found = InterventionResult(
        **tables(plain.drop(columns=list(CLASSES)), [Patch(p, "row", 0) for p in patches],
                 CONSTITUENTS, 200, 0),
        settings={"n": 4, "n_counted": 4, "n_known": 4, "chance": None})
    row, = found.contrasts.table.to_dict("records")
    assert (row["patch"], row["against"], row["quantity"]) == ("interchange", "control", "flip")
    assert row["value"] == 0.5
    assert list(found.summary().columns[4:6]) == ["flip", "unchanged"]
    assert "flip to the source's" in found.title
    assert repr(found).startswith(
        "InterventionResult: interchange not surely above control by 0.50 (too few combinations")


def test_differences_are_of_the_same_instances_where_the_last_batch_is_short() -> None:
    found = intervene_model(operation_model(), Selector(), [
        Patch(patch, "row", (0,)) for patch in ("operation+operands", "operands")],
        n=130, batch_size=100, n_bootstrap=100)
    known = found.settings["n_known"]
    assert known > 100  # so that more count of the first batch than the last one has
    assert found.contrasts.table["n"].eq(known).all()
    rates = found.table.set_index(["patch", "metric"])["value"]
    for row in found.contrasts.table.to_dict("records"):
        assert row["value"] == pytest.approx(
            rates[row["patch"], row["class"]] - rates[row["against"], row["class"]])
