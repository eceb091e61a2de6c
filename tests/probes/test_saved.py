"""Is every kind of result known by its file, whatever room it stands in?"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.errors import ArtifactError, UnknownNameError
from latentcode.files.migrations import CURRENT
from latentcode.probes.common.results import META_KEYS, TableResult
from latentcode.probes.saved import RESULTS, load_result


@pytest.mark.parametrize("kind", RESULTS)
def test_a_folder_is_known_by_its_file(kind: type[TableResult], tmp_path: Path) -> None:
    (tmp_path / kind.marker()).write_text("{")
    with pytest.raises(ArtifactError, match=kind.marker()):
        load_result(tmp_path)


def test_every_result_that_is_offered_can_be_opened() -> None:
    offered = {getattr(lc, name) for name in lc.__all__ if name.endswith("Result")}
    assert offered == set(RESULTS)
    assert {kind.FORMAT for kind in RESULTS} <= set(CURRENT)


def test_results_that_were_renamed_keep_their_files() -> None:
    assert lc.DASResult.marker() == "subspaces.json"
    assert lc.KNNPurityResult.marker() == "separation.json"


def test_other_folders_hold_no_result(tmp_path: Path) -> None:
    assert load_result(tmp_path) is None
    (tmp_path / "notes.json").write_text("{")
    (tmp_path / "more.json").write_text("[1]")
    assert load_result(tmp_path) is None


def test_a_result_of_an_unknown_kind_is_named(tmp_path: Path) -> None:
    described = dict.fromkeys(META_KEYS) | {"format": "latentcode.weather"}
    (tmp_path / "weather.json").write_text(json.dumps(described))
    with pytest.raises(UnknownNameError, match=r"weather.json, of format 'latentcode.weather'; "
                                               r"expected one of: .*latentcode.decoding, "):
        load_result(tmp_path)


def test_opening_a_result_imports_no_torch_and_nothing_that_fits() -> None:
    slow = ["torch", "sklearn", "scipy.stats", "scipy.cluster", "openTSNE", "umap"]
    code = f"import sys, latentcode.probes.saved; print([m for m in {slow} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
