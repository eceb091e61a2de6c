"""Tables on disk as parquet, whose columns come back with the types and values that they had."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from latentcode.errors import ArtifactError
from latentcode.files.storage import parse_json, replace_file

JSON_COLUMNS = b"latentcode.json_columns"
"""Metadata of a file: columns of mixed types, such as layers 0, 1 and "all", one JSON a cell."""


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table without its index, all or nothing."""
    from pyarrow import Table
    from pyarrow.parquet import write_table as write_parquet

    mixed = [name for name, column in table.items() if column.dtype == object
             and not column.dropna().map(lambda value: isinstance(value, str)).all()]
    cells = table.copy()
    for name in mixed:
        cells[name] = [json.dumps(value, default=lambda number: number.item())
                       for value in table[name]]
    stored = Table.from_pandas(cells, preserve_index=False)
    metadata = {**(stored.schema.metadata or {}), JSON_COLUMNS: json.dumps(mixed)}
    with replace_file(path) as temporary:
        write_parquet(stored.replace_schema_metadata(metadata), temporary)


def read_table(path: Path) -> pd.DataFrame:
    """Read a table that `write_table` wrote; `ArtifactError` says why it is damaged."""
    from pyarrow.parquet import read_table as read_parquet

    try:
        stored = read_parquet(path)
        mixed = parse_json((stored.schema.metadata or {}).get(JSON_COLUMNS, b"[]").decode())
        table: pd.DataFrame = stored.to_pandas()
        for name in mixed:
            table[name] = pd.Series(list(map(parse_json, table[name])), table.index, dtype=object)
        return table
    except (OSError, ValueError, TypeError, LookupError, NotImplementedError) as error:
        raise ArtifactError(f"{path} is not a readable table: {error}") from None
