"""Does what one takes along hold what was seen?"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_app import PAIR, drawn_codes, open_folders

from latentcode.app.data import loaded as data
from latentcode.app.pages import explore
from latentcode.app.state.selection import Picture
from latentcode.app.state.sidebar import Chosen
from latentcode.probes.projection import Projection


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chosen:
    drawn_codes().save(tmp_path / "runs" / "a")
    open_folders(monkeypatch, [tmp_path / "runs"])
    entry_ = data.entry("runs/a")
    return Chosen(entry_, "ood", 1, PAIR, data.codes(entry_, "ood", 2_000))


def planes(chosen: Chosen, *pairs: str) -> dict[Picture, Projection]:
    pictures = [chosen.picture("pca", pair=pair) for pair in pairs]
    return {picture: chosen.projection(picture) for picture in pictures}


def test_a_row_per_instance_and_picture(chosen: Chosen) -> None:
    both = planes(chosen, PAIR, "response->row3")
    selected = np.arange(90) < 7
    table = explore.export_table(chosen, both, selected)
    assert len(table) == 180
    assert list(table.columns[:6]) == ["instance", "layer", "pair", "projection_x", "projection_y",
                                       "selected"]
    second = table[table["pair"] == "response->row3"].reset_index(drop=True)
    np.testing.assert_array_equal(
        second[["projection_x", "projection_y"]],
        both[chosen.picture("pca", pair="response->row3")].coordinates)
    np.testing.assert_array_equal(second[[f"head_{h}" for h in range(6)]].to_numpy(),
                                  chosen.codes.select(layer=1, pair="response->row3"))
    assert second["selected"].tolist() == selected.tolist()
    assert second["rule_0"].tolist() == chosen.codes.labels["rule_0"].tolist()


def test_files_hold_what_was_seen(chosen: Chosen) -> None:
    both = planes(chosen, PAIR)
    table = explore.export_table(chosen, both, None)
    assert not table["selected"].any()
    from_csv = pd.read_csv(io.BytesIO(explore.file_of("csv", chosen, both, None)))
    from_parquet = pd.read_parquet(io.BytesIO(explore.file_of("parquet", chosen, both, None)))
    assert list(from_csv) == list(from_parquet) == list(table)
    pd.testing.assert_frame_equal(from_parquet, table, check_dtype=False)
    np.testing.assert_allclose(from_csv["projection_x"], table["projection_x"])
