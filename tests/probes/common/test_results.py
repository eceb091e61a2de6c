"""Is every kind of result known by its file, whatever room it stands in?"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import latentcode as lc
from latentcode.errors import ArtifactError, UnknownNameError
from latentcode.probes.common.results import (
    META_KEYS,
    RESULTS,
    TableResult,
    load_result,
    result_class,
    result_kind,
)
from latentcode.probes.common.statistics import MEASURED, MOST_SAID, OF, Contrasts

CLASSES = [result_class(kind) for kind in RESULTS]


@pytest.mark.parametrize("kind", CLASSES)
def test_a_folder_is_known_by_its_file(kind: type[TableResult], tmp_path: Path) -> None:
    (tmp_path / kind.marker()).write_text("{")
    with pytest.raises(ArtifactError, match=kind.marker()):
        load_result(tmp_path)


def test_every_result_can_be_opened() -> None:
    assert [kind.marker() for kind in CLASSES] == [f"{kind}.json" for kind in RESULTS]
    assert set(CLASSES) == {kind for kind in TableResult.__subclasses__()
                            if kind.__module__.startswith("latentcode.")}


HOSTILE = ("", "01", "NA", "None", "nan", "a\rb", "\r\n", "1e5", "True", "1", "1.0", "2024-01-31",
           " ", " a", "a ", 'a,"b')
"""Classes, labels and names of pairs that look like something else."""


@pytest.mark.parametrize("kind", CLASSES)
def test_every_text_and_number_of_a_result_comes_back_as_it_was(
    kind: type[TableResult], tmp_path: Path
) -> None:
    """Each column of each table holds hostile text in turn, beside whole numbers and others."""
    for mixed in (False, True):
        tables = {name: hostile_table([*columns, *(("", "01") if name in kind.OPEN else ())], mixed)
                  for name, columns in kind.COLUMNS.items()}
        fields = {name: Contrasts(table) if name == "contrasts" else table
                  for name, table in tables.items()}
        saved = kind(**fields, settings={"label": "\r"}).save(  # type: ignore[call-arg]
            tmp_path / str(mixed), figures=False)
        assert {f"{name}.{ending}" for name in tables for ending in ("csv", "parquet")} | {
            kind.marker()} == {path.name for path in saved.iterdir()}
        loaded = load_result(saved)
        assert type(loaded) is kind
        assert loaded.settings == {"label": "\r"}
        for name, table in loaded.tables().items():
            assert table.to_dict("list") == tables[name].to_dict("list")
            assert table.map(type).equals(tables[name].map(type))


def hostile_table(columns: list[str], mixed: bool) -> pd.DataFrame:
    """Return a table of text; `mixed`: every second row of every second column is a number."""
    table = pd.DataFrame({name: HOSTILE[i % 5:] + HOSTILE[:i % 5]
                          for i, name in enumerate(columns)}, dtype=object)
    if mixed:
        for i, name in enumerate(columns[::2]):
            table.loc[::2, name] = [(j, j / 3, j % 2 == 0)[i % 3] for j in range(len(table[::2]))]
    return table


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if "contrasts" in kind.COLUMNS])
def test_the_headline_has_the_largest_effects_of_the_table(kind: type[TableResult]) -> None:
    """The controls choose the place; what tells something of the label by itself does not."""
    columns = kind.COLUMNS["contrasts"]
    place, of = (next(name for name in names if name in columns) for names in (kind.BEST_PER, OF))
    other = next((name for name in columns if name not in (
        *MEASURED, *kind.BEST_PER, *kind.HEADLINE_ROWS, of)), "quantity")
    same = dict.fromkeys(columns, "x") | {"n": 80, "n_clusters": 20} | {
        name: told[0] for name, told in kind.HEADLINE_ROWS.items()}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        rows = pd.DataFrame([
            {**same, other: what, place: where, "against": against, "value": value,
             "low": value - width, "high": value + width}
            for what, where, against in product("abcde", range(3),
                                                ("shuffled", "untrained", "residual"))
            for value, width in [rng.uniform([-0.5, 0.0], [1.0, 0.4])]])
        controls = rows[rows["against"] != "residual"].groupby([other, place])
        effects = pd.DataFrame({"sure": controls["low"].min() > 0, "by": controls["value"].min()})
        best = effects.sort_values(["sure", "by"], ascending=False).groupby(
            level=0, sort=False).head(1)
        said = Contrasts(rows).sentences(kind.BEST_PER, kind.HEADLINE_ROWS)
        for (what, where), sentence in zip(best.index[:MOST_SAID], said, strict=False):
            quoted = rows[(rows[other] == what) & (rows[place] == where)]["value"]
            assert all(f"by {value:.2f} [" in sentence or f"by {-value:.2f} [" in sentence
                       for value in quoted), (seed, sentence)
        assert said[-1].startswith(f"{best['sure'].sum()} of 5 surely above")


def test_other_folders_hold_no_result(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("{")
    (tmp_path / "more.json").write_text("[1]")
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert result_kind(folder) is None
        with pytest.raises(ArtifactError, match="holds no result"):
            lc.load_result(folder)


def test_a_result_of_an_unknown_kind_is_named(tmp_path: Path) -> None:
    described = dict.fromkeys(META_KEYS) | {"format": "latentcode.weather"}
    (tmp_path / "weather.json").write_text(json.dumps(described))
    with pytest.raises(UnknownNameError, match=r"weather.json, of format 'latentcode.weather'; "
                                               r"expected one of: .*latentcode.decoding, "):
        load_result(tmp_path)


def test_opening_codes_maps_and_neighbours_imports_no_torch_and_nothing_that_fits() -> None:
    """What the explorer draws first is there before torch is."""
    slow = ["torch", "sklearn", "scipy.stats", "scipy.cluster", "openTSNE", "umap"]
    code = ("import sys; from latentcode.probes import common, knn_purity, projection, similarity; "
            f"print([m for m in {slow} if m in sys.modules])")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
