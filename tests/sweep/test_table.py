"""The table and the summary against numbers worked by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import latentcode as lc
from latentcode.metrics import Metric
from latentcode.runs import Run
from latentcode.sweep.grid import Grid
from latentcode.sweep.run import (
    RESULTS,
    member_table,
    render,
    summarize,
    write_tables,
)

AXES = ["kind", "training.learning_rate", "training.seed"]


def table(scores: dict[tuple[Any, ...], tuple[float, float]], *incomplete: tuple[Any, ...],
          axes: list[str] = AXES) -> pd.DataFrame:
    """Return a table with the r2 on test and ood of each point of the axes."""
    rows: list[dict[str, Any]] = []
    for point, values in scores.items():
        for split, value in zip(("test", "ood"), values, strict=True):
            rows += [{"member": str(point), **dict(zip(axes, point, strict=True)), "split": split,
                      "metric": metric, "mean": mean, "se": 0.1, "n": 100, "step": 10,
                      "complete": point not in incomplete, "error": None}
                     for metric, mean in (("r2", value), ("loss", 1 - value))]
    return pd.DataFrame(rows, columns=["member", *axes, *RESULTS])


SCORES = {
    ("softmax", 0.001, 0): (0.5, 0.9), ("softmax", 0.001, 1): (0.7, 0.7),  # test 0.6, ood 0.8
    ("softmax", 0.003, 0): (0.8, 0.1), ("softmax", 0.003, 1): (0.6, 0.3),  # test 0.7, ood 0.2
    ("hyla", 0.001, 0): (0.9, 0.4), ("hyla", 0.001, 1): (0.5, 0.6),        # test 0.7, ood 0.5
    ("hyla", 0.003, 0): (0.2, 1.0), ("hyla", 0.003, 1): (0.2, 1.0),        # test 0.2, ood 1.0
}


def cells(summary: pd.DataFrame, kind: str, split: str, metric: str = "r2") -> dict[str, Any]:
    rows = summary[(summary["kind"] == kind) & (summary["split"] == split)
                   & (summary["metric"] == metric)]
    assert len(rows) == 1
    return {str(key): value for key, value in rows.iloc[0].items()}


def test_the_best_setting_is_chosen_on_test_by_the_mean_over_seeds() -> None:
    summary = summarize(table(SCORES), "r2")
    assert list(summary["kind"].drop_duplicates()) == ["softmax", "hyla"]
    found = cells(summary, "softmax", "test")
    assert (found["training.learning_rate"], found["selected_on"]) == (0.003, "test")
    assert (found["settings"], found["settings_complete"], found["n"]) == (2, 2, 2)
    assert found["mean"] == pytest.approx(0.7)
    assert found["se"] == pytest.approx(0.1)  # sd of (0.8, 0.6) is 0.1414, over sqrt 2
    assert cells(summary, "softmax", "ood")["mean"] == pytest.approx(0.2)
    assert cells(summary, "softmax", "ood", "loss")["mean"] == pytest.approx(0.8)
    assert cells(summary, "hyla", "ood")["mean"] == pytest.approx(0.5)
    assert cells(summary, "hyla", "test")["se"] == pytest.approx(0.2)


def test_of_losses_the_lowest_is_chosen() -> None:
    summary = summarize(table(SCORES), "r2", lower_is_better=True)
    assert cells(summary, "softmax", "test")["training.learning_rate"] == 0.001
    assert cells(summary, "hyla", "test")["training.learning_rate"] == 0.003


def test_the_papers_choice_on_ood() -> None:
    summary = summarize(table(SCORES), "r2", "ood")
    assert set(summary["selected_on"]) == {"ood"}
    assert cells(summary, "softmax", "ood")["mean"] == pytest.approx(0.8)
    assert cells(summary, "hyla", "ood")["training.learning_rate"] == 0.003
    assert "the best on `ood` (as the paper does)" in render(summary, "r2")


def test_a_setting_with_an_unfinished_member_takes_no_part() -> None:
    summary = summarize(table(SCORES, ("softmax", 0.003, 1)), "r2")
    found = cells(summary, "softmax", "test")
    assert (found["training.learning_rate"], found["settings_complete"]) == (0.001, 1)
    summary = summarize(table(SCORES, ("softmax", 0.003, 1), ("softmax", 0.001, 0)), "r2")
    rows = summary[summary["kind"] == "softmax"]
    assert len(rows) == 1
    assert math.isnan(rows["mean"].iloc[0])
    assert rows["settings_complete"].iloc[0] == 0
    assert cells(summary, "hyla", "test")["mean"] == pytest.approx(0.7)
    assert "0 of 2" in render(summary, "r2")


def test_a_setting_without_the_score_takes_no_part_and_the_first_of_equals_is_taken() -> None:
    scores = {**SCORES, ("hyla", 0.001, 0): (math.nan, 0.4)}
    assert cells(summarize(table(scores), "r2"), "hyla", "test")["mean"] == pytest.approx(0.2)
    equal = {(kind, rate, seed): (0.5, 0.5)
             for kind in ("softmax", "hyla") for rate in (0.003, 0.001) for seed in (0, 1)}
    summary = summarize(table(equal), "r2")
    assert set(summary["training.learning_rate"]) == {0.003}


def test_one_seed_has_no_standard_error_and_one_condition_is_enough() -> None:
    one = table({(0.001,): (0.5, 0.6), (0.003,): (0.7, 0.2)}, axes=["training.learning_rate"])
    summary = summarize(one, "r2")
    row = summary[(summary["split"] == "ood") & (summary["metric"] == "r2")].iloc[0]
    assert (row["training.learning_rate"], row["mean"], row["n"]) == (0.003, 0.2, 1)
    assert math.isnan(row["se"])
    shown = render(summary, "r2")
    assert "0.2000" in shown
    assert "nan" not in shown


def test_other_axes_are_conditions() -> None:
    axes = ["task.ood_fraction", "training.seed", "task.split_seed"]
    summary = summarize(table({(f, s, s): (f, s) for f in (0.3, 0.5) for s in (0, 1)}, axes=axes),
                        "r2")
    rows = summary[(summary["split"] == "ood") & (summary["metric"] == "r2")]
    assert rows["task.ood_fraction"].tolist() == [0.3, 0.5]
    assert rows["mean"].tolist() == [0.5, 0.5]


def test_a_member_is_in_the_table_with_its_newest_values(tmp_path: Path) -> None:
    grid = Grid(lc.preset("smoke", "logic"), {
        "training.grad_clip": (None, 1.0), "training.seed": (0, 1)})
    names = list(grid.members())
    for name in names[:2]:
        run = Run.create(tmp_path / name, grid.members()[name])
        run.append_metrics(0, "ood", {"r2": Metric(0.1, 0.01, 9)})
        run.append_metrics(15, "ood", {"r2": Metric(0.4, 0.02, 9)})
        run.append_metrics(15, "train", {"training_loss": Metric(float("nan"), 0.02, 5)})
    found = member_table(tmp_path, grid.points(), {names[1]: "the loss is nan"})
    assert list(found.columns) == ["member", "training.grad_clip", "training.seed", *RESULTS]
    assert found["member"].tolist() == [names[0]] * 2 + [names[1]] * 2 + names[2:]
    assert found["split"].tolist()[:2] == ["train", "ood"]
    assert found.loc[1, ["mean", "se", "n", "step"]].tolist() == [0.4, 0.02, 9, 15]
    assert not found["complete"].any()
    assert found["error"].notna().tolist() == [False, False, True, True, False, False]
    assert found.loc[4:, "split"].isna().all()
    assert found["training.grad_clip"].isna().tolist() == [True] * 4 + [False] * 2
    write_tables(tmp_path, found, summarize(found, "r2"))
    first = {path.name: path.read_bytes() for path in tmp_path.glob("*.*") if path.is_file()}
    assert set(first) == {"table.parquet", "table.csv", "summary.csv"}
    again = member_table(tmp_path, grid.points(), {names[1]: "the loss is nan"})
    write_tables(tmp_path, again, summarize(again, "r2"))
    assert first == {name: (tmp_path / name).read_bytes() for name in first}
    kept = pd.read_parquet(tmp_path / "table.parquet")
    assert kept["training.seed"].tolist() == found["training.seed"].tolist()
    assert kept["mean"].tolist()[:2] == pytest.approx([math.nan, 0.4], nan_ok=True)
