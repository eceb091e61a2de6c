"""Tables come back with the types and values that they had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from latentcode.errors import ArtifactError
from latentcode.files.storage import read_table, write_table

HOSTILE = ("", "01", "NA", "nan", "None", "null", "a\rb", "\r\n", "\n", "1e5", "True", "1", "1.0",
           "2024-01-31", " ", " a", "a ", 'a,"b', "'", "\t", "\0", "inf", "[1]", "{}", "é")
"""Classes, labels and names of pairs that a CSV gives back as something else, or may."""


@pytest.mark.parametrize("values", [
    list(HOSTILE), [0, 1, "all", None], [True, "True"], [1, 1.0, "1"], [10**20, 2], [0.1, None],
    [np.int64(3), "a"], [np.float32(0.5), "b"], [None, None], [], [1, 2], [True, False],
    [0.1 + 0.2, np.nan, np.inf, 5e-324], ["a", None, ""]], ids=str)
def test_a_column_comes_back_as_it_was(values: list[Any], tmp_path: Path) -> None:
    table = pd.DataFrame({"column": values, " other ": range(len(values))})
    write_table(tmp_path / "table.parquet", table)
    found = read_table(tmp_path / "table.parquet")
    assert list(found) == list(table)
    for name in table:
        mine, theirs = (plain(each[name]) for each in (found, table))
        assert mine == theirs
        assert list(map(type, mine)) == list(map(type, theirs))
    if table["column"].dtype.kind in "iufb":
        assert found["column"].dtype == table["column"].dtype


def plain(column: pd.Series) -> list[Any]:
    """Return the values of a column as Python has them, with None for what is missing."""
    return [None if pd.isna(value) else value.item() if isinstance(value, np.generic) else value
            for value in column]


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"\0" * 100])
def test_a_damaged_table_is_refused(damage: bytes, tmp_path: Path) -> None:
    write_table(tmp_path / "table.parquet", pd.DataFrame({"a": ["b"]}))
    content = (tmp_path / "table.parquet").read_bytes()
    (tmp_path / "table.parquet").write_bytes(content[:20] + damage)
    with pytest.raises(ArtifactError, match=r"table\.parquet is not a readable table"):
        read_table(tmp_path / "table.parquet")
    with pytest.raises(ArtifactError, match="nowhere"):
        read_table(tmp_path / "nowhere.parquet")
