"""Does what one takes along hold what was seen?"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_app import PAIR, drawn_codes, open_folders

import latentcode as lc
from latentcode.app.data import loaded as data
from latentcode.app.data.catalog import Entry
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
    table = explore.export_table(chosen, planes(chosen, PAIR), None)
    assert not table["selected"].any()
    from_csv = pd.read_csv(io.BytesIO(explore.file_of(table, "csv")))
    from_parquet = pd.read_parquet(io.BytesIO(explore.file_of(table, "parquet")))
    assert list(from_csv) == list(from_parquet) == list(table)
    pd.testing.assert_frame_equal(from_parquet, table, check_dtype=False)
    np.testing.assert_allclose(from_csv["projection_x"], table["projection_x"])


def run_snippet(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(text, "snippet", "exec"), names)
    return names


@pytest.mark.parametrize(("n", "pairs"), [(90, [PAIR]), (40, [PAIR, "response->row3"])])
def test_the_snippet_of_codes_makes_the_view(chosen: Chosen, n: int, pairs: list[str]) -> None:
    some = replace(chosen, codes=data.first(chosen.codes, n))
    shown = planes(some, *pairs)
    coordinates = run_snippet(explore.snippet(some, "pca", "rule", shown))["view"].coordinates
    assert coordinates["pair"].unique().tolist() == pairs
    for place, plane in shown.items():
        np.testing.assert_allclose(
            coordinates.loc[coordinates["pair"] == place.pair, ["projection_x", "projection_y"]],
            plane.coordinates, atol=1e-9)


def test_the_snippet_is_python_whatever_a_label_is_called(chosen: Chosen) -> None:
    few = replace(chosen, codes=data.first(chosen.codes, 40))
    text = explore.snippet(few, "tsne", 'a "label"', planes(few, PAIR))
    assert '["a \\"label\\""]' in text
    assert "perplexity=13.0" in text  # t-SNE as it was set
    compile(text, "snippet", "exec")


@pytest.mark.slow
def test_the_snippet_of_a_run_reads_its_codes_again(
    smoke_run: Callable[[str, str], lc.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = smoke_run("sraven", "hyla").publish(tmp_path / "runs" / "tiny")
    open_folders(monkeypatch, [tmp_path / "runs"])
    entry_ = data.entry("runs/tiny")
    codes = data.codes(entry_, "ood", 40)
    chosen = Chosen(entry_, "ood", codes.layers[-1], PAIR, codes)
    shown = planes(chosen, PAIR)
    names = run_snippet(explore.snippet(chosen, "pca", "rule", shown))
    read = names["codes"]
    assert isinstance(read, lc.LatentCodes)
    np.testing.assert_allclose(read.select(layer=codes.layers[-1], pair=PAIR),
                               codes.select(layer=codes.layers[-1], pair=PAIR), atol=1e-6)
    # A model of the zoo is called by its name.
    entry = run.publish(tmp_path / "zoo" / "tiny")
    lc.extract(entry, split="ood", n=40, pairs=[PAIR]).save(entry.path / "results" / "codes-ood")
    stored = Chosen(Entry("tiny", entry.path, "zoo"), "ood", codes.layers[-1], PAIR, codes)
    assert 'codes = lc.load_codes("tiny", "ood")' in explore.snippet(stored, "pca", "rule", shown)
