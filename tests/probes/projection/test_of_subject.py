"""Is a run projected as its codes would be?"""

from __future__ import annotations

from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

import latentcode as lc
from latentcode.probes.projection import project_codes, projection


def test_a_run_is_projected_as_its_codes(runs: list[lc.Run], tmp_path: Path) -> None:
    run = runs[0]
    found = lc.project(run.path, method="pca", splits=("ood", "test"), n=60, layers=[1], seed=2,
                       cache=tmp_path / "run")
    task = lc.make_task(run.config.task).probe_config
    codes, others = (lc.extract(run, split=split, n=60, layers=[1], problems=task, seed=2)
                     for split in ("ood", "test"))
    wanted = project_codes(codes, ["rule"], method="pca", others=[others], seed=2,
                              cache=tmp_path / "codes")
    assert found.settings["labels"] == ["rule"]
    assert_frame_equal(found.coordinates, wanted.coordinates)
    assert_frame_equal(found.labels, wanted.labels)


def test_of_many_codes_a_sample_is_projected_and_that_is_said(
    runs: list[lc.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection, "MOST_POINTS", 20)
    train, heldout = (lc.extract(runs[0], split=split, n=n, layers=[1])
                      for split, n in (("train", 30), ("ood", 12)))
    found = project_codes(train, ["rule"], method="pca", others=[heldout], cache=tmp_path)
    points = found.coordinates.groupby("split")["instance"]
    assert points.nunique().to_dict() == {"train": 20, "ood": 12}
    assert points.get_group("train").isin(range(30)).all()
    assert points.get_group("train").max() > 20
    assert "train: a sample of 20 codes, drawn from 30." in found.caveats
    assert not any(note.startswith("ood:") for note in found.caveats)
