"""Is a run projected as its codes would be?"""

from __future__ import annotations

from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

import latentcode as lc
from latentcode.codes.reader import Reader
from latentcode.errors import ProbeError, UnknownNameError
from latentcode.probes.projection import project_codes


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


def test_wrong_names_are_told_before_anything_is_extracted(
    runs: list[lc.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reader, "read", lambda *_, **__: pytest.fail("codes are extracted"))
    with pytest.raises(UnknownNameError, match="setting of pca 'perplexity'"):
        lc.project(runs[0], method="pca", perplexity=5.0)
    with pytest.raises(ProbeError, match="splits is empty"):
        lc.project(runs[0], splits=())
