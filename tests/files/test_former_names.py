"""Have results of older versions the names of today, with every row and every role as it was?"""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from places import GOLDEN

import latentcode as lc
from latentcode.answers import CLASSES
from latentcode.experiments.paper.results import read_result
from latentcode.files.migrations import (
    CURRENT,
    FORMER_CLASSES,
    FORMER_METRICS,
    FORMER_PATCHES,
    upgrade,
)
from latentcode.files.storage import read_json
from latentcode.probes.attribution import AttributionResult
from latentcode.probes.common.results import EXACTLY
from latentcode.probes.das import DASResult
from latentcode.probes.decoding.result import DecodingResult
from latentcode.probes.interventions import InterventionResult
from latentcode.probes.interventions.patches import PATCHES
from latentcode.probes.saved import load_result
from latentcode.probes.topography import TopographyResult

OLD = GOLDEN / "format1"
FROZEN = GOLDEN / "frozen"
ZOO = Path(lc.__file__).parent / "models/zoo/sraven-hyla/results"
OF_FEATURES = [
    *(OLD / name for name in ("decoding", "separation", "similarity", "topography", "alignment",
                              "value_networks")),
    *(FROZEN / name for name in ("decoding", "decoding-codes", "decoding-sraven", "similarity",
                                 "topography", "alignment", "value-networks")),
    ZOO / "decoding", ZOO / "similarity"]
OF_INTERVENTIONS = [
    OLD / "interventions", FROZEN / "intervention-sraven", ZOO / "interventions"]


@pytest.mark.parametrize("folder", OF_FEATURES, ids=lambda folder: folder.name)
def test_sources_of_older_probes_are_features(folder: Path) -> None:
    """Every row is the one that was written, under the names that its columns have now."""
    result, found = load_result(folder), 0
    version = read_json(folder / result.marker())["format_version"]
    assert 1 <= version < CURRENT[result.FORMAT]
    for name, table in result.tables().items():
        if not (folder / f"{name}.csv").exists():  # the format has got it since then
            assert table.empty
            continue
        head, _, rows = (folder / f"{name}.csv").read_text(encoding="utf-8").partition("\n")
        now = head.replace(",source,", ",features,")
        later = [column for column in table if column not in now.split(",")]
        assert table[later].isna().all(axis=None)
        assert set(later) <= {"width", "size", "dimensions"}
        assert table[now.split(",")].to_csv(index=False, lineterminator="\n") == f"{now}\n{rows}"
        found += len(table) if "features" in table else 0
    assert found > 0


@pytest.mark.parametrize("version", [1, 2])
def test_results_of_rows_are_decodings(tmp_path: Path, version: int) -> None:
    """Every row is there, with the right value in the right column, also where nothing was read."""
    folder = Path(shutil.copytree(OLD / "rows", tmp_path / "rows"))
    written = {name: pd.read_csv(folder / f"{name}.csv", dtype={"layer": str}, **EXACTLY).rename(
        columns={"source": "features", "with_source": "with_features"}) for name in (
        "table", "given")}
    first = written["table"].index[0]
    written["table"].loc[first, ["value", "low", "high", "penalty"]] = np.nan
    written["table"].loc[first, "dimensions"] = 0
    written["table"].loc[first, "status"] = "the source does not vary: nothing to read"
    written["table"].loc[written["table"].index[-1], "layer"] = "all"
    meta = read_json(folder / "rows.json")
    meta["format_version"] = version
    for name, table in written.items():
        head = {"features": "source", "with_features": "with_source"} if version == 1 else {}
        table.rename(columns=head).to_csv(folder / f"{name}.csv", index=False)
        meta["sha256"][f"{name}.csv"] = sha256((folder / f"{name}.csv").read_bytes()).hexdigest()
    (folder / "rows.json").write_text(json.dumps(meta))
    result = load_result(folder)
    assert isinstance(result, DecodingResult)
    for name, old in written.items():
        new = getattr(result, name)
        assert len(new) == len(old) > 0
        called = {"trained": "{}", "untrained": "untrained {}", "shuffled": "shuffled {}"}
        assert new["features"].tolist() == [
            called[model].format(features) if features != "pair" else
            "code" if model == "trained" else model
            for features, model in zip(old["features"], old["model"], strict=True)]
        assert new["layer"].map(str).tolist() == old["layer"].tolist()
        assert {type(layer) for layer in new["layer"][:-1]} == {int}
        same = old.columns.intersection(new.columns).difference(["features", "layer"])
        pd.testing.assert_frame_equal(new[same], old[same], check_exact=True)
        gone = {"features", "layer", "model", "status", "size", "dimensions", "penalty", "prior",
                "best_constant"}
        assert set(old.columns) - set(same) <= gone
    table, old = result.table, written["table"]
    np.testing.assert_array_equal(table["chance"], old["best_constant"])
    n_train, n_heldout = (meta["settings"][name] for name in ("n_train", "n_heldout"))
    np.testing.assert_allclose(1.0 / (table["C"] * n_train), old["penalty"])
    assert set(table["n_train"]) == {n_train}
    assert set(table["n_heldout"]) == {n_heldout}
    assert {"size", "dimensions", "width"} <= set(old.columns.intersection(table.columns))
    assert result.per_class.empty
    assert result.settings["train"] == {
        "n": n_train, "split": "train", "seed": meta["settings"]["seed"],
        **{name: meta["settings"][name] for name in ("run", "run_id", "kind", "step", "task")}}
    assert result.settings["widths"] == meta["settings"]["widths"]
    assert "No score for code, layer 1, query->query: the features do not vary." in result.caveats
    assert set(result.figures()) == {"figure.png", "given.png"}
    again = DecodingResult.load(result.save(tmp_path / "again"))
    for name, table in again.tables().items():
        pd.testing.assert_frame_equal(table, result.tables()[name], check_dtype=False)


def test_zeros_of_an_older_topography_are_told() -> None:
    result = TopographyResult.load(OLD / "topography")
    assert "The code of kind=hyla,seed=1, layer 0, query->query is zero in 5 of 200 instances" in (
        " ".join(result.caveats))
    assert all("source" not in zero for zero in result.settings["zero"])


def test_tables_of_an_older_reproduction_have_features_and_its_claims_a_source() -> None:
    written, result = read_json(OLD / "reproduction" / "result.json"), read_result(
        OLD / "reproduction")
    assert result["claims"] == written["claims"]
    for name, rows in written["tables"].items():
        assert result["tables"][name] == [
            {"features" if key == "source" else key: value for key, value in row.items()}
            for row in rows]
    assert {row["features"] for row in result["tables"]["cosines"]} == {"code", "residual"}


@pytest.mark.parametrize("folder", OF_INTERVENTIONS)
def test_every_row_of_an_older_result_is_there_under_its_present_name(folder: Path) -> None:
    """Versions 1 and 2 called the constituent of the base `source`, and the source's `target`."""
    result, meta = InterventionResult.load(folder), read_json(folder / "interventions.json")
    assert meta["format_version"] < 3
    written = meta["settings"]["interventions"]
    assert set(FORMER_PATCHES.values()) <= set(PATCHES)
    assert FORMER_PATCHES["operation+context"] == "operation+rest"  # no old example has it
    assert result.settings["interventions"] == [
        {"patch": FORMER_PATCHES.get(one["write"], one["write"]),
         **{name: value for name, value in one.items() if name != "write"}} for one in written]
    for name, table in result.tables().items():
        file = folder / f"{'comparisons' if name == 'contrasts' else name}.csv"
        if not file.exists():
            continue
        old = pd.read_csv(file, keep_default_na=False, na_values=[""], **EXACTLY)
        assert table["patch"].tolist() == [FORMER_PATCHES.get(one, one) for one in old["write"]]
        if "metric" in old:
            assert table["metric"].tolist() == [
                FORMER_METRICS.get(one, one) for one in old["metric"]]
        if "class" in old:
            assert table["class"].tolist() == [
                FORMER_CLASSES.get(one, one) for one in old["class"]]
            assert set(table["class"]) == set(CLASSES)
        if name in ("by_constituent", "classes"):
            assert table["base_label"].tolist() == old["source"].tolist() != []
            assert table["source_label"].tolist() == old["target"].tolist()
        for column in ("value", "low", "high", "n", "rate"):
            if column in old:
                np.testing.assert_array_equal(table[column], old[column])
        if name == "by_constituent":
            np.testing.assert_array_equal(table[["flip", "unchanged"]], old[["switch", "stay"]])


def test_what_was_a_donor_is_a_source() -> None:
    attribution = AttributionResult.load(OLD / "attribution")
    before = read_json(OLD / "attribution" / "attribution.json")["settings"]
    assert attribution.settings["source"] == before["donor"]
    assert (before["rate"], attribution.settings["rate"]) == ("copied", "answer")
    assert "donor" not in attribution.settings
    subspaces = DASResult.load(OLD / "subspaces").table
    old = pd.read_csv(OLD / "subspaces" / "table.csv", **EXACTLY)
    assert subspaces["source"].tolist() == [FORMER_PATCHES.get(one, one) for one in old["donor"]]
    assert subspaces["class"].tolist() == [FORMER_CLASSES.get(one, one) for one in old["class"]]
    assert set(subspaces["class"]) == set(CLASSES)
    pd.testing.assert_frame_equal(
        subspaces.drop(columns=["source", "class"]), old.drop(columns=["donor", "class"]))


@pytest.mark.parametrize("window", ["", "@0.025", "@0.1"])
def test_classes_of_the_fourth_version_have_the_names_of_today(
    window: str, tmp_path: Path
) -> None:
    """Version 4 spoke of `instance` and `copied`, in every window of fuzzy logic."""
    before = InterventionResult.load(ZOO / "interventions")
    folder = before.save(tmp_path / "result", figures=False)
    to_old = {new: old for old, new in FORMER_CLASSES.items()}
    meta = read_json(folder / "interventions.json")
    (folder / "contrasts.csv").rename(folder / "comparisons.csv")
    del meta["sha256"]["contrasts.csv"]
    for name, column, ending in (("table", "metric", window), ("classes", "class", ""),
                                 ("comparisons", "class", "")):
        table = pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False)
        if name == "comparisons":
            table = table.drop(columns="quantity").rename(columns={"n_clusters": "n_combinations"})
        of_class = table[column].isin(CLASSES)
        assert of_class.any()
        table.loc[of_class, column] = table.loc[of_class, column].replace(to_old) + ending
        assert {f"instance{ending}", f"copied{ending}"} <= set(table[column])
        table.to_csv(folder / f"{name}.csv", index=False)
        meta["sha256"][f"{name}.csv"] = sha256((folder / f"{name}.csv").read_bytes()).hexdigest()
    (folder / "interventions.json").write_text(json.dumps({**meta, "format_version": 4}))
    again = InterventionResult.load(folder)
    for name, table in again.tables().items():
        wanted = before.tables()[name]
        if name == "table":
            of_class = wanted["metric"].isin(CLASSES)
            wanted = wanted.assign(metric=wanted["metric"].where(
                ~of_class, wanted["metric"] + window))
        pd.testing.assert_frame_equal(table, wanted)


def test_classes_of_an_older_reproduction_have_the_names_of_today() -> None:
    row = {"patch": "operands", "value": 0.25}
    data = {"format": "latentcode.reproduction", "format_version": 2, "tables": {
        "classes": [{**row, "metric": old} for old in ("instance", "operation", "copied")],
        "differences": [{**row, "class": "copied", "against": "unrelated"}]}}
    found = upgrade({**data, "name": "causal"}, "latentcode.reproduction", "here")["tables"]
    assert found == {
        "classes": [{**row, "metric": now} for now in ("base", "operation", "answer")],
        "differences": [{**row, "class": "answer", "against": "unrelated"}]}
    # Others have columns of these names that are about something else.
    other = upgrade({**data, "name": "figA8"}, "latentcode.reproduction", "here")
    assert other["tables"] == data["tables"]
