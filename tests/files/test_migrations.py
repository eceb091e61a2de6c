"""Does what older versions wrote still load, and is what nobody can read refused by name?

tests/golden/format1 was written by the first version of every format, tests/golden/format2 and
format3 by later versions of those that have gone on since then.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from disk import contents, flip
from places import GOLDEN

from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError, LatentCodeError
from latentcode.experiments.paper.results import read_result
from latentcode.files.migrations import (
    CURRENT,
    FORMER,
    MIGRATIONS,
    upgrade,
)
from latentcode.files.storage import read_json, read_tensors
from latentcode.probes.saved import load_result
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


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def load(old: Path, name: str) -> object:
    """Read the example of a format to the last tensor."""
    folder = (old / FILES[name]).parent
    if name in ("latentcode.run", "latentcode.checkpoint"):
        return Run.open(old / "run").load_model(2)
    if name == "latentcode.codes":
        return LatentCodes.load(folder)
    return read_result(folder) if name == "latentcode.reproduction" else load_result(folder)


def test_every_version_leads_to_the_present_one() -> None:
    # A format that never changed has no older version that must still load.
    changed = {name for name, version in CURRENT.items() if version > 1}
    assert changed | set(FORMER) <= set(FILES) <= set(CURRENT) | set(FORMER)
    # The last version of a format that is not written any more leads to another format.
    assert set(MIGRATIONS) == {
        (name, old) for name, current in CURRENT.items() for old in range(1, current)} | {
        (name, old) for name, last in FORMER.items() for old in range(1, last + 1)}


@pytest.mark.parametrize("name", FILES)
def test_an_old_example_loads_and_is_left_as_it_is(old: Path, name: str) -> None:
    data, before = read_json(OLD / FILES[name]), contents(old)
    assert (data["format"], data["format_version"]) == (name, 1)
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
    assert {"latentcode", "numpy", "python", "torch"} <= set(meta["provenance"])
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
    flip(folder / "codes.safetensors")
    with pytest.raises(ArtifactError, match=r"codes\.safetensors was damaged or changed"):
        LatentCodes.load(folder)


def refused(old: Path, name: str, **change: Any) -> str:
    """Return what is said of an example whose file says something else of its format."""
    file = old / FILES[name]
    file.write_text(json.dumps({**read_json(file), **change}))
    with pytest.raises(LatentCodeError) as raised:
        load(old, name)
    return str(raised.value)


@pytest.mark.parametrize("name", FILES)
def test_what_is_of_another_format_or_newer_is_refused_by_name(old: Path, name: str) -> None:
    message = refused(old, name, format_version=99)
    assert repr((name, 99)) in message
    assert "newer" in message
    assert "somebody.else" in refused(old, name, format="somebody.else")


@pytest.mark.parametrize("version", [0, -1, 1.0, True, "1", None, [1], {}])
def test_a_version_is_a_number_that_was_written(old: Path, version: Any) -> None:
    message = refused(old, "latentcode.codes", format_version=version)
    assert f"('latentcode.codes', {version!r})" in message
    assert "newer" not in message


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
