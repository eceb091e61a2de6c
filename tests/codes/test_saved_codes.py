"""Do latent codes survive the disk?"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow.parquet import ParquetFile
from small_codes import assert_same, make_codes

from latentcode.codes import LatentCodes
from latentcode.errors import RunError
from latentcode.files.storage import read_tensors

pytestmark = pytest.mark.usefixtures("unchecked_signatures")

property_test = settings(max_examples=25,
                         suppress_health_check=[HealthCheck.function_scoped_fixture])


@property_test
@given(st.integers(0, 20), st.integers(1, 3), st.integers(1, 5), st.booleans(),
       st.integers(0, 99))
def test_round_trip(
    tmp_path: Path, n: int, n_layers: int, heads: int, residuals: bool, seed: int
) -> None:
    codes = make_codes(n, tuple(range(n_layers)), heads, residuals, seed)
    folder = codes.save(tmp_path / "codes", overwrite=True)
    assert_same(LatentCodes.load(folder), codes)


def test_existing_codes_are_replaced_on_request_alone(tmp_path: Path) -> None:
    old = make_codes(seed=0)
    folder = old.save(tmp_path / "codes")
    with pytest.raises(RunError, match="exists already"):
        make_codes(seed=1).save(folder)
    assert_same(LatentCodes.load(folder), old)


def test_views_round_trip(tmp_path: Path) -> None:
    codes = make_codes()
    transposed = np.ascontiguousarray(codes.scores.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0)
    assert not transposed.flags.c_contiguous
    replace(codes, scores=transposed).save(tmp_path / "codes")
    assert_same(LatentCodes.load(tmp_path / "codes"), codes)


def test_a_file_is_opened_and_not_read(tmp_path: Path) -> None:
    """What `select` returns is the file itself, in one piece; writing to it stays in memory."""
    codes = make_codes()
    folder = codes.save(tmp_path / "codes")
    loaded = LatentCodes.load(folder)
    for array in (loaded.scores, loaded.residuals):
        base: Any = array
        while not isinstance(base, np.memmap):
            assert base.base is not None, "the array has memory of its own"
            base = base.base
    assert loaded.select(layer=2, pair="query->query").flags.c_contiguous
    assert loaded.select_residual(layer=2, pair="query->query").flags.c_contiguous
    loaded.scores[:] = 7.0
    assert_same(LatentCodes.load(folder), codes)


def test_loaded_codes_outlive_their_folder(tmp_path: Path) -> None:
    old = make_codes(seed=0)
    loaded = LatentCodes.load(old.save(tmp_path / "codes"))
    make_codes(seed=1).save(tmp_path / "codes", overwrite=True)
    assert_same(loaded, old)
    loaded.save(tmp_path / "codes", overwrite=True)
    assert_same(LatentCodes.load(tmp_path / "codes"), old)


def test_the_order_of_the_file_is_the_one_it_states(tmp_path: Path) -> None:
    """The file is plain safetensors: any reader finds scores [layer, pair, instance, head]."""
    codes = make_codes()
    folder = codes.save(tmp_path / "codes")
    tensors = read_tensors(folder / "codes.safetensors")
    np.testing.assert_array_equal(tensors["scores"].transpose(2, 0, 1, 3), codes.scores)
    assert json.loads((folder / "meta.json").read_text())["axes"]["scores"] == [
        "layer", "pair", "instance", "head"]


def test_an_index_of_the_labels_is_kept(tmp_path: Path) -> None:
    codes = make_codes()
    named = replace(codes, labels=codes.labels.set_index(pd.Index(range(5, 17), name="number")))
    assert_same(LatentCodes.load(named.save(tmp_path / "codes")), named)


def test_labels_of_several_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latentcode.codes.latent_codes.SHARD", 5)
    folder = make_codes().save(tmp_path / "codes")
    assert ParquetFile(folder / "labels.parquet").num_row_groups == 3
    assert_same(LatentCodes.load(folder), make_codes())


def test_codes_are_opened_without_torch(tmp_path: Path) -> None:
    """The app reads them on machines that have none."""
    folder = make_codes().save(tmp_path / "codes")
    code = ("import sys; from latentcode.codes import LatentCodes; LatentCodes.load(sys.argv[1])"
            "; sys.exit('torch' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code, str(folder)], check=False).returncode == 0
