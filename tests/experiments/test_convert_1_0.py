"""What latentcode 1.0 wrote, tests/golden/from_1_0, is converted and goes on as it would have."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from disk import contents, flip
from places import GOLDEN

import latentcode as lc
from latentcode.errors import ArtifactError, LatentCodeError, RunError
from latentcode.experiments.convert_1_0 import LOCK, convert
from latentcode.files.storage import exclusive, read_json, read_tensors, write_json
from latentcode.probes.common.results import load_result

WRITTEN = GOLDEN / "from_1_0"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WRITTEN, tmp_path / "old"))


def test_all_of_it_opens_afterwards_with_the_same_numbers(old: Path) -> None:
    for load in (lc.Run.open, lc.LatentCodes.load, load_result):
        folder = {lc.Run.open: "run", lc.LatentCodes.load: "codes", load_result: "decoding"}[load]
        with pytest.raises(LatentCodeError, match=rf"convert it with `python experiments/"
                                                  rf"convert_1_0\.py {old / folder}`"):
            load(old / folder)
    assert convert(old).converted == 4
    for file in old.rglob("*.safetensors"):
        assert file.read_bytes() == (WRITTEN / file.relative_to(old)).read_bytes()
    run = lc.Run.open(old / "run")
    assert run.checkpoints() == [2, 4]
    again = lc.extract(run, split="train", n=40)
    codes = lc.LatentCodes.load(old / "codes")
    np.testing.assert_allclose(codes.scores, again.scores, rtol=0, atol=1e-6)
    for folder, table in (("decoding", "table"), ("decoding", "contrasts"),
                          ("projection", "quality"), ("run/results/similarity", "cosines")):
        result = load_result(old / folder)
        assert result is not None
        wanted = pd.read_csv(WRITTEN / folder / f"{table}.csv", dtype={"row": str, "column": str})
        pd.testing.assert_frame_equal(result.tables()[table], wanted, check_dtype=False)
    assert result.tables()["means"]["class"].map(type).eq(str).all()
    assert convert(old).current == 4


def test_a_training_that_was_stopped_goes_on(old: Path) -> None:
    """From the checkpoint of step 2 to the weights that 1.0 had after step 4."""
    shutil.rmtree(old / "run" / "checkpoints" / "step_0000004")
    convert(old / "run")
    run = lc.train(lc.Run.open(old / "run").config, old / "run", resume=True, progress=False)
    wanted = read_tensors(WRITTEN / "run/checkpoints/step_0000004/model.safetensors")
    found = read_tensors(run.checkpoint_path(4) / "model.safetensors")
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-6)


def test_a_copy_leaves_the_original_alone(old: Path, tmp_path: Path) -> None:
    before = contents(old)
    convert(old, tmp_path / "new")
    assert contents(old) == before
    convert(old)
    assert contents(old).keys() == contents(tmp_path / "new").keys()
    with pytest.raises(RunError, match="exists already"):
        convert(old, tmp_path / "new")


def outdate(old: Path) -> None:
    path = old / "run/checkpoints/step_0000002/state.json"
    write_json(path, {**read_json(path), "format_version": 3})


@pytest.mark.parametrize(("damage", "message"), [
    (outdate, r"state\.json is of format latentcode\.checkpoint, version 3; expected version 4"),
    (lambda old: flip(old / "run/checkpoints/step_0000004/model.safetensors"), "was damaged"),
    (lambda old: flip(old / "run/results/similarity/means.csv"), r"means\.csv was damaged"),
    (lambda old: (old / "run/results/similarity/means.csv").unlink(), r"means\.csv is missing")])
def test_what_is_older_or_damaged_is_refused_and_left_as_it_is(
    old: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(old)
    before = contents(old)
    for out in (None, old.with_name("new")):
        with pytest.raises(ArtifactError, match=message):
            convert(old / "run", out)
        assert contents(old) == before
        assert [path.name for path in old.parent.iterdir()] == ["old"]


def test_a_run_that_is_being_trained_is_refused(old: Path) -> None:
    with exclusive(old / "run" / LOCK), pytest.raises(RunError, match="is being written by"):
        convert(old / "run")
