"""The folder of codes: `codes.safetensors`, `labels.parquet` and `meta.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from latentcode.config import convert
from latentcode.errors import ArtifactError, check
from latentcode.files.provenance import git_commit, header, read_checked, software
from latentcode.files.storage import checksums, map_tensors, replace_file, write_json
from latentcode.hub import origin
from latentcode.tasks.pairs import Pair

if TYPE_CHECKING:
    import pyarrow

FORMAT = "latentcode.codes"
META, TENSORS, LABELS = "meta.json", "codes.safetensors", "labels.parquet"
META_KEYS = {"format", "format_version", "provenance", "sha256", "axes", "pairs", "layers",
             "query_of_pair", "meta"}
AXES = {"scores": ["layer", "pair", "instance", "head"],
        "residuals": ["layer", "query", "instance", "d_model"]}
"""The axes on disk, where what `select` and `select_residual` read lies in one piece."""
SHARD = 16_384
"""Instances whose labels make a row group, and that an interrupted extraction keeps together."""


def read_codes(folder: Path, *, verify: bool) -> dict[str, Any]:
    """Return the fields of the `LatentCodes` in a folder; see `LatentCodes.load`."""
    check(folder.is_dir(), f"codes folder {folder} does not exist", ArtifactError)
    meta = read_checked(folder / META, FORMAT, META_KEYS, "meta", (TENSORS, LABELS),
                        verify=verify)
    tensors = map_tensors(folder / TENSORS)
    check("scores" in tensors and set(tensors) <= {"scores", "residuals"},
          f"{folder / TENSORS} holds {sorted(tensors)}; expected scores and possibly residuals",
          ArtifactError)
    try:
        arrays: dict[str, Any] = {}
        for name, array in tensors.items():
            layer, place, instance, component = map(meta["axes"][name].index, AXES[name])
            arrays[name] = array.transpose(instance, layer, place, component)
        from_hub = origin(folder)
        known = meta["meta"] | ({} if from_hub is None else {"loaded_from": str(from_hub)})
        return {
            **arrays, "labels": _read_labels(folder / LABELS, len(arrays["scores"])),
            "pairs": convert(tuple[Pair, ...], meta["pairs"], "pairs"),
            **{name: convert(tuple[int, ...], meta[name], name)
               for name in ("layers", "query_of_pair")},
            "meta": known}
    except (OSError, ValueError, TypeError, LookupError, AttributeError,
            NotImplementedError) as error:
        raise ArtifactError(f"codes folder {folder} is damaged: {error}") from None


def _read_labels(path: Path, n: int) -> pd.DataFrame:
    """Read labels; `ConfigError` unless they are of n instances, before any of them is unpacked."""
    from pyarrow.parquet import read_metadata

    rows = read_metadata(path).num_rows
    check(rows == n, f"{path.name} holds {rows:,} rows; expected {n:,}, one per instance")
    return pd.read_parquet(path)


def write_labels(path: Path, groups: Iterable[pyarrow.Table]) -> None:
    """Write tables one after the other as the row groups of a parquet file, all or nothing."""
    from pyarrow.parquet import ParquetWriter

    groups = iter(groups)
    first = next(groups)
    with replace_file(path) as temporary, ParquetWriter(temporary, first.schema) as writer:
        for group in chain([first], groups):
            writer.write_table(group.combine_chunks(), row_group_size=SHARD)


def as_table(labels: pd.DataFrame) -> pyarrow.Table:
    """Return labels as what `write_labels` writes; an index that counts from 0 is left out."""
    from pyarrow import Table

    numbered = labels.index.equals(pd.RangeIndex(len(labels)))
    return Table.from_pandas(labels, preserve_index=not numbered)


def write_meta(
    folder: Path, pairs: Sequence[Pair], layers: Sequence[int], query_of_pair: Sequence[int],
    meta: Mapping[str, Any],
) -> None:
    """Describe a folder whose other files are all there."""
    write_json(folder / META, {
        **header(FORMAT), "provenance": {**software(), "git_commit": git_commit()},
        "sha256": checksums(folder, (TENSORS, LABELS)), "axes": AXES,
        "pairs": [asdict(p) for p in pairs], "layers": list(layers),
        "query_of_pair": list(query_of_pair), "meta": dict(meta)})
