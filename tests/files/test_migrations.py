"""Does what older versions wrote still load, and is what nobody can read refused by name?

tests/golden/format1 was written by the first version of every format, tests/golden/format2 and
format3 by later versions of those that have gone on since then.
"""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from disk import contents
from places import GOLDEN

import latentcode as lc
from latentcode.answers import CLASSES
from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError, LatentCodeError, RunError
from latentcode.experiments.paper.results import read_result
from latentcode.files.migrations import (
    CURRENT,
    FORMER,
    FORMER_CLASSES,
    FORMER_METRICS,
    FORMER_PATCHES,
    MIGRATIONS,
    upgrade,
)
from latentcode.files.storage import read_json, read_tensors
from latentcode.probes.alignment import AlignmentResult
from latentcode.probes.attribution import AttributionResult
from latentcode.probes.common.results import EXACTLY, TableResult
from latentcode.probes.das import DASResult
from latentcode.probes.decoding.result import DecodingResult
from latentcode.probes.interventions import InterventionResult
from latentcode.probes.interventions.patches import PATCHES
from latentcode.probes.knn_purity import KNNPurityResult
from latentcode.probes.saved import load_result
from latentcode.probes.similarity import SimilarityResult
from latentcode.probes.topography import TopographyResult
from latentcode.probes.value_networks import ValueNetworksResult
from latentcode.runs import Run
from latentcode.training import train

OLD = GOLDEN / "format1"
FILES = {
    "latentcode.run": "run/provenance.json",
    "latentcode.checkpoint": "run/checkpoints/step_0000002/state.json",
    "latentcode.codes": "codes/meta.json",
    "latentcode.decoding": "decoding/decoding.json",
    "latentcode.interventions": "interventions/interventions.json",
    "latentcode.attribution": "attribution/attribution.json",
    "latentcode.subspaces": "subspaces/subspaces.json",
    "latentcode.rows": "rows/rows.json",
    "latentcode.separation": "separation/separation.json",
    "latentcode.similarity": "similarity/similarity.json",
    "latentcode.topography": "topography/topography.json",
    "latentcode.alignment": "alignment/alignment.json",
    "latentcode.value_networks": "value_networks/value_networks.json",
    "latentcode.reproduction": "reproduction/result.json",
}
RESULTS: dict[str, type[TableResult]] = {kind.FORMAT: kind for kind in (
    DecodingResult, InterventionResult, KNNPurityResult, SimilarityResult, TopographyResult,
    AlignmentResult, ValueNetworksResult, AttributionResult, DASResult)}
FROZEN = GOLDEN / "frozen"
OF_FEATURES = [
    *((kind, OLD / name.removeprefix("latentcode.")) for name, kind in RESULTS.items()
      if kind not in (InterventionResult, AttributionResult, DASResult)),
    *((DecodingResult, FROZEN / name) for name in (
        "decoding", "decoding-codes", "decoding-sraven")),
    (SimilarityResult, FROZEN / "similarity"), (TopographyResult, FROZEN / "topography"),
    (AlignmentResult, FROZEN / "alignment"), (ValueNetworksResult, FROZEN / "value-networks"),
    *((kind, Path(lc.__file__).parent / "models/zoo/sraven-hyla/results" / name)
      for kind, name in ((DecodingResult, "decoding"), (SimilarityResult, "similarity")))]
"""Results of every version that called what a probe reads its source."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def load(old: Path, name: str) -> object:
    """Read the example of a format to the last tensor."""
    if name == "latentcode.codes":
        return LatentCodes.load(old / "codes")
    if name == "latentcode.decoding":
        return DecodingResult.load(old / "decoding")
    if name == "latentcode.interventions":
        return InterventionResult.load(old / "interventions")
    if name == "latentcode.rows":
        return DecodingResult.load(old / "rows")
    if name in RESULTS:
        return RESULTS[name].load((old / FILES[name]).parent)
    if name == "latentcode.reproduction":
        return read_result(old / "reproduction")
    return Run.open(old / "run").load_model(2)


def test_the_examples_are_of_the_first_version() -> None:
    for name, file in FILES.items():
        data = read_json(OLD / file)
        assert (data["format"], data["format_version"]) == (name, 1)
    assert sum(len(content) for content in contents(OLD).values()) < 220_000


def test_every_version_leads_to_the_present_one() -> None:
    # A format that never changed has no older version that must still load.
    changed = {name for name, version in CURRENT.items() if version > 1}
    assert changed | set(FORMER) <= set(FILES) <= set(CURRENT) | set(FORMER)
    # The last version of a format that is not written any more leads to another format.
    assert set(MIGRATIONS) == {
        (name, old) for name, current in CURRENT.items() for old in range(1, current)} | {
        (name, old) for name, last in FORMER.items() for old in range(1, last + 1)}


@pytest.mark.parametrize("folder", [
    OLD / "interventions", GOLDEN / "frozen" / "intervention-sraven",
    Path(lc.__file__).parent / "models/zoo/sraven-hyla/results/interventions"])
def test_bases_and_sources_of_older_results_keep_their_roles(folder: Path) -> None:
    """Versions 1 and 2 called the constituent of the instance, the base, `source`."""
    assert read_json(folder / "interventions.json")["format_version"] < 3
    result = InterventionResult.load(folder)
    for name in ("by_constituent", "classes"):
        if not (folder / f"{name}.csv").exists():
            continue
        written = pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False)
        table = getattr(result, name)
        assert table["base_label"].tolist() == written["source"].tolist() != []
        assert table["source_label"].tolist() == written["target"].tolist()
        assert (table["base_label"] != table["source_label"]).all()


@pytest.mark.parametrize(("kind", "folder"), OF_FEATURES, ids=lambda of: of.name if isinstance(
    of, Path) else of.__name__)
def test_sources_of_older_probes_are_features(kind: type[TableResult], folder: Path) -> None:
    """Every row is the one that was written, under the names that its columns have now."""
    version = read_json(folder / kind.marker())["format_version"]
    assert 1 <= version < CURRENT[kind.FORMAT]
    result, found = kind.load(folder), 0
    for name, columns in kind.COLUMNS.items():
        table = getattr(result, name)
        if not (folder / f"{name}.csv").exists():  # the format has got it since then
            assert table.empty
            continue
        head, _, rows = (folder / f"{name}.csv").read_text(encoding="utf-8").partition("\n")
        now = head.replace(",source,", ",features,")
        later = [column for column in table if column not in now.split(",")]
        assert table[later].isna().all(axis=None)
        assert set(later) <= {"width", "size", "dimensions"}
        assert table[now.split(",")].to_csv(index=False, lineterminator="\n") == f"{now}\n{rows}"
        found += len(table) if "features" in columns else 0
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
    for name in result.COLUMNS:
        pd.testing.assert_frame_equal(getattr(again, name), getattr(result, name),
                                      check_dtype=False)


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


def test_sources_of_older_results_have_the_names_of_today(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "frozen" / "intervention-sraven", tmp_path / "result"))
    table = pd.read_csv(folder / "table.csv", dtype=str, keep_default_na=False)
    table.loc[table.index[0], "write"] = "operation+context"
    table.to_csv(folder / "table.csv", index=False)
    meta = read_json(folder / "interventions.json")
    meta["sha256"]["table.csv"] = sha256((folder / "table.csv").read_bytes()).hexdigest()
    (folder / "interventions.json").write_text(json.dumps(meta))
    assert InterventionResult.load(folder).table["patch"].iloc[0] == "operation+rest"
    assert set(FORMER_PATCHES.values()) <= set(PATCHES)


@pytest.mark.parametrize("folder", [
    OLD / "interventions", GOLDEN / "frozen" / "intervention-sraven",
    Path(lc.__file__).parent / "models/zoo/sraven-hyla/results/interventions"])
def test_every_row_of_an_older_result_is_there_under_its_present_name(folder: Path) -> None:
    result = InterventionResult.load(folder)
    written = read_json(folder / "interventions.json")["settings"]["interventions"]
    assert result.settings["interventions"] == [
        {"patch": FORMER_PATCHES.get(one["write"], one["write"]),
         **{name: value for name, value in one.items() if name != "write"}} for one in written]
    for name in result.COLUMNS:
        if not (folder / f"{name}.csv").exists():
            continue
        old = pd.read_csv(folder / f"{name}.csv", keep_default_na=False, na_values=[""],
                          **EXACTLY)
        table = getattr(result, name)
        assert table["patch"].tolist() == [FORMER_PATCHES.get(one, one) for one in old["write"]]
        if "metric" in old:
            assert table["metric"].tolist() == [
                FORMER_METRICS.get(one, one) for one in old["metric"]]
        if "class" in old:
            assert table["class"].tolist() == [
                FORMER_CLASSES.get(one, one) for one in old["class"]]
            assert set(table["class"]) == set(CLASSES)
        for column in ("value", "low", "high", "n", "rate"):
            if column in old:
                np.testing.assert_array_equal(table[column], old[column])
        if name == "by_constituent":
            np.testing.assert_array_equal(table[["flip", "unchanged"]], old[["switch", "stay"]])


@pytest.mark.parametrize("name", FILES)
def test_an_old_example_loads_and_is_left_as_it_is(old: Path, name: str) -> None:
    before = contents(old)
    load(old, name)
    assert contents(old) == before


def test_an_old_run_has_its_numbers(old: Path) -> None:
    run = Run.open(old / "run")
    assert run.checkpoints() == [2, 4]
    assert run.is_complete
    assert run.metrics().query("step == 4 and split == 'ood' and metric == 'loss'")[
        "mean"].tolist() == [1.0135169178247452]
    assert run.latest().loc["loss", "ood"] == 1.0135169178247452
    assert run.latest(by_constituent=True).empty
    with torch.no_grad():
        logits = run.load_model()(torch.ones(1, 4, 3))
    wanted = [-0.4800430238246918, -0.45056480169296265, -0.47042420506477356,
              -0.4538668692111969]
    torch.testing.assert_close(logits[0, :, 0], torch.tensor(wanted), rtol=1e-5, atol=1e-6)


def test_an_old_run_can_be_resumed(old: Path) -> None:
    """Its last checkpoint is thrown away and computed anew, now in the present version.

    The instances of the updates are others than they were: up to checkpoints of version 2, the
    batch of a step depended on those before.
    """
    shutil.rmtree(old / "run/checkpoints/step_0000004")
    before = read_tensors(old / "run/checkpoints/step_0000002/model.safetensors")
    run = train(Run.open(old / "run").config, old / "run", resume=True, progress=False)
    assert run.checkpoints() == [2, 4]
    state = read_json(run.checkpoint_path(4) / "state.json")
    assert state["format_version"] == CURRENT["latentcode.checkpoint"] > 1
    found = read_tensors(run.checkpoint_path(4) / "model.safetensors")
    assert found.keys() == before.keys()
    # Two updates of AdamW move no weight by much more than twice the learning rate.
    most = 2.5 * run.config.training.learning_rate
    moved = [float(np.abs(found[name] - before[name]).max()) for name in found]
    assert max(moved) <= most
    assert sum(distance > 0.0 for distance in moved) > len(moved) / 2
    moments = read_tensors(run.checkpoint_path(4) / "optimizer.safetensors")
    assert {float(value) for name, value in moments.items() if name.endswith(".step")} == {4.0}


def test_a_checkpoint_of_the_third_version_goes_on_as_it_would_have(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD.with_name("format3") / "run", tmp_path / "run"))
    wanted = read_tensors(folder / "checkpoints/step_0000004/model.safetensors")
    state = read_json(folder / "checkpoints/step_0000002/state.json")
    assert state["format_version"] == 3
    assert not Run.open(folder).load_checkpoint(2).is_published
    shutil.rmtree(folder / "checkpoints/step_0000004")
    run = train(Run.open(folder).config, folder, resume=True, progress=False)
    assert read_json(run.checkpoint_path(4) / "state.json")["format_version"] == 4
    found = read_tensors(run.checkpoint_path(4) / "model.safetensors")
    for name, array in wanted.items():  # another machine rounds otherwise
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


def test_old_codes_are_saved_in_the_present_version(old: Path) -> None:
    codes = LatentCodes.load(old / "codes")
    assert codes.scores.shape == (8, 1, 1, 2)
    assert codes.residuals is not None
    assert codes.meta["config_hash"] == Run.open(old / "run").provenance["config_hash"]
    codes.save(old / "again")
    meta = read_json(old / "again" / "meta.json")
    assert meta["format_version"] == CURRENT["latentcode.codes"] > 1
    again = LatentCodes.load(old / "again")
    np.testing.assert_array_equal(again.scores, codes.scores)
    assert again.labels.equals(codes.labels)


def test_codes_of_the_second_version_have_their_numbers(tmp_path: Path) -> None:
    """Their arrays begin with the instances; today's with the layers."""
    folder = Path(shutil.copytree(OLD.with_name("format2") / "codes", tmp_path / "codes"))
    assert read_json(folder / "meta.json")["format_version"] == 2
    stored = read_tensors(folder / "codes.safetensors")
    codes = LatentCodes.load(folder)
    assert codes.scores.shape == stored["scores"].shape == (8, 1, 2, 2)
    np.testing.assert_array_equal(codes.scores, stored["scores"])
    np.testing.assert_array_equal(codes.residuals, stored["residuals"])
    np.testing.assert_array_equal(
        codes.select(layer=0, pair="query->example.1"), stored["scores"][:, 0, 1])
    again = LatentCodes.load(codes.save(tmp_path / "again"))
    assert read_json(tmp_path / "again" / "meta.json")["format_version"] == 3
    np.testing.assert_array_equal(again.scores, codes.scores)
    np.testing.assert_array_equal(again.residuals, codes.residuals)
    assert again.labels.equals(codes.labels)
    content = bytearray((folder / "codes.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "codes.safetensors").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"codes\.safetensors was damaged or changed"):
        LatentCodes.load(folder)


def test_old_decodings_are_saved_in_the_present_version(old: Path) -> None:
    decoding = DecodingResult.load(old / "decoding")
    decoding.save(old / "again")
    assert read_json(old / "again" / "decoding.json")["sha256"].keys() == {
        "table.csv", "per_class.csv", "given.csv"}
    assert DecodingResult.load(old / "again").table.equals(decoding.table)


@pytest.mark.parametrize("version", [99, 0, -1, 1.0, True, "1", None, [1], {}])
@pytest.mark.parametrize("name", FILES)
def test_another_version_is_refused_by_name_and_version(
    old: Path, name: str, version: Any
) -> None:
    file = old / FILES[name]
    file.write_text(json.dumps({**read_json(file), "format_version": version}))
    with pytest.raises((ArtifactError, RunError)) as raised:
        load(old, name)
    message = str(raised.value)
    assert f"is of format and version ({name!r}, {version!r})" in message
    wanted = name if name in CURRENT else "latentcode.decoding"
    assert f"expected ({wanted!r}, {CURRENT[wanted]})" in message
    assert ("a newer latentcode wrote it" in message) == (version == 99)


@pytest.mark.parametrize("name", FILES)
def test_another_format_is_refused_by_name(old: Path, name: str) -> None:
    file = old / FILES[name]
    file.write_text(json.dumps({**read_json(file), "format": "somebody.else"}))
    with pytest.raises(LatentCodeError, match=r"somebody\.else"):
        load(old, name)


def test_versions_are_climbed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CURRENT, "latentcode.run", 3)
    start = {"format": "latentcode.run", "format_version": 1, "trail": []}
    with pytest.raises(ArtifactError, match="or a version that leads to it"):
        upgrade(start, "latentcode.run", "here")
    for version in (1, 2):
        def climb(data: dict[str, Any], version: int = version) -> dict[str, Any]:
            return {**data, "trail": [*data["trail"], version]}

        monkeypatch.setitem(MIGRATIONS, ("latentcode.run", version), climb)
    assert upgrade(start, "latentcode.run", "here") == {
        "format": "latentcode.run", "format_version": 3, "trail": [1, 2]}
    assert start == {"format": "latentcode.run", "format_version": 1, "trail": []}


def test_every_format_says_what_wrote_it(old: Path) -> None:
    shutil.rmtree(old / "run/checkpoints/step_0000004")
    run = train(Run.open(old / "run").config, old / "run", resume=True, progress=False)
    LatentCodes.load(old / "codes").save(old / "new_codes")
    DecodingResult.load(old / "decoding").save(old / "new_decoding")
    told = [run.provenance, *(read_json(file)["provenance"] for file in (
        run.checkpoint_path(4) / "state.json", old / "new_codes" / "meta.json",
        old / "new_decoding" / "decoding.json"))]
    for facts in told:
        assert {"latentcode", "numpy", "python", "torch"} <= set(facts)
    for facts in told[1:]:  # the run may have been begun with another torch
        assert facts["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    hashes = {run.provenance["config_hash"],
              read_json(run.checkpoint_path(4) / "state.json")["config_hash"],
              read_json(old / "new_codes" / "meta.json")["meta"]["config_hash"]}
    assert len(hashes) == 1


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
    zoo = Path(lc.__file__).parent / "models/zoo/sraven-hyla/results/interventions"
    before = InterventionResult.load(zoo)
    folder = before.save(tmp_path / "result", figures=False)
    to_old = {new: old for old, new in FORMER_CLASSES.items()}
    meta = read_json(folder / "interventions.json")
    for name, column, ending in (("table", "metric", window), ("classes", "class", ""),
                                 ("comparisons", "class", "")):
        table = pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False)
        of_class = table[column].isin(CLASSES)
        assert of_class.any()
        table.loc[of_class, column] = table.loc[of_class, column].replace(to_old) + ending
        assert {f"instance{ending}", f"copied{ending}"} <= set(table[column])
        table.to_csv(folder / f"{name}.csv", index=False)
        meta["sha256"][f"{name}.csv"] = sha256((folder / f"{name}.csv").read_bytes()).hexdigest()
    (folder / "interventions.json").write_text(json.dumps({**meta, "format_version": 4}))
    again = InterventionResult.load(folder)
    for name in InterventionResult.COLUMNS:
        table, wanted = getattr(again, name), getattr(before, name)
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
