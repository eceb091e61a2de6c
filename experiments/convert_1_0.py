"""Convert what latentcode 1.0 wrote: runs, unfinished trainings, codes, results, models of a zoo.

    python experiments/convert_1_0.py FOLDER               in place
    python experiments/convert_1_0.py FOLDER --out COPY    into a new folder; FOLDER stays as it is

FOLDER may hold any number of them at any depth, such as the members of a sweep. Each is converted
whole or not at all, and those that are of version 2.0 already are passed over, so that the same
command goes on after an interruption. Weights, codes, states of optimisers and of random generators
stay byte for byte; a training that was stopped is resumed as always. Tables of results, which 1.0
kept as CSV, become parquet with the types that 1.0 read from them.

What is older than 1.0, damaged, or being trained right now is refused, and left as it is.
"""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import tyro

from latentcode.errors import ArtifactError, LatentCodeError, RunError, check
from latentcode.files.provenance import VERSION, header
from latentcode.files.storage import (
    TEMPORARY,
    check_checksum,
    check_free,
    checksums,
    exclusive,
    install_folder,
    read_json,
    replace_folder,
    write_json,
    write_table,
)

LOCK, MANIFEST, META = ".lock", "manifest.json", "meta.json"
VERSIONS: Mapping[str, int] = {
    "latentcode.run": 1, "latentcode.checkpoint": 4, "latentcode.codes": 3, "latentcode.card": 1,
    "latentcode.manifest": 1, "latentcode.text": 1, "latentcode.reproduction": 3,
    "latentcode.decoding": 5, "latentcode.separation": 3, "latentcode.similarity": 3,
    "latentcode.topography": 3, "latentcode.alignment": 3, "latentcode.interventions": 6,
    "latentcode.attribution": 4, "latentcode.subspaces": 4, "latentcode.projection": 1,
    "latentcode.value_networks": 2, "latentcode.heads": 1, "latentcode.model_checks": 1,
    "latentcode.probe": 1}
"""Each format in the version in which 1.0 wrote it."""
TEXT: Mapping[str, tuple[str, ...]] = {
    "latentcode.decoding": ("label", "class", "given"),
    "latentcode.similarity": ("label", "class", "row", "column"),
    "latentcode.topography": ("label", "run", "kind", "scope"),
    "latentcode.alignment": ("label", "run_a", "run_b", "kind_a", "kind_b", "alignment"),
    "latentcode.interventions": ("layers", "heads", "base_label", "source_label", "class",
                                 "against"),
    "latentcode.attribution": ("query", "key", "chosen", "estimate", "among", "order"),
    "latentcode.subspaces": ("objective", "search", "source", "class"),
    "latentcode.value_networks": ("label", "class", "other"),
    "latentcode.heads": ("heads", "how", "acts", "patch", "quantity", "query_token", "key_token",
                         "context", "token", "against", "clusters"),
    "latentcode.model_checks": ("check", "layer", "outcome", "note")}
"""Columns of a result's CSV that 1.0 read as text even where they look like numbers."""
OTHER_TEXT = ("label", "class")
"""The same of all other results."""
EXACTLY: Mapping[str, Any] = (
    {"float_precision": "round_trip"} if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
    else {})
"""Numbers as they were written to the last bit, which pandas reads by default from 3.1 on."""
NO_LONGER_ON_CARDS = "results", "files"


class Count(NamedTuple):
    """Folders that were converted, and those that needed no conversion."""

    converted: int
    current: int


def written_format(path: Path) -> str | None:
    """Return the format that a JSON file says, or None where it is not one of ours."""
    try:
        data = read_json(path)
    except ArtifactError:
        return None
    kind = data.get("format") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) and kind.startswith("latentcode.") else None


def units(folder: Path) -> Iterator[Path]:
    """Yield the outermost folders that a JSON of ours describes."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(TEMPORARY))
        if any(written_format(Path(place) / name) for name in files if name.endswith(".json")):
            folders.clear()
            yield Path(place)


def described(unit: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return the JSON files below a folder that 1.0 wrote, innermost first.

    Raises:
        ArtifactError: One of them is older than what 1.0 wrote.
    """
    written = []
    for path in sorted(unit.rglob("*.json"), key=lambda path: (-len(path.parts), path)):
        kind = written_format(path)
        data = read_json(path) if kind else {}
        version = data.get("format_version")
        if not kind or version == VERSION:
            continue
        wanted = VERSIONS.get(kind)
        check(wanted is not None and version == wanted, f"{path} is of format {kind}, version "
              f"{version!r}; expected version {wanted}, which latentcode 1.0 wrote", ArtifactError)
        written.append((path, data))
    return written


def convert_unit(unit: Path) -> None:
    """Convert all that lies in a folder, file by file; it must be a copy that may be lost."""
    for path, data in described(unit):
        kind = data["format"]
        if kind == "latentcode.manifest":  # of a download: the copy is a folder like any other
            path.unlink()
            continue
        for file, recorded in data.get("sha256", {}).items():
            check_checksum(path.with_name(file), recorded)
        if path.name != META and "settings" in data and "sha256" in data:
            data["sha256"] = convert_tables(path.parent, kind, data["sha256"])
        if kind == "latentcode.card":
            data = {key: value for key, value in data.items() if key not in NO_LONGER_ON_CARDS}
            data["codes"].pop("tolerance", None)
        write_json(path, {**data, **header(kind)})


def convert_tables(folder: Path, kind: str, recorded: Mapping[str, str]) -> dict[str, str]:
    """Write the tables of a result as parquet and CSV; return the checksums of the former."""
    for file in recorded:
        parquet = folder / f"{Path(file).stem}.parquet"
        if file.endswith(".parquet"):
            table = pd.read_parquet(parquet)
            write_table(parquet, table)
            table.to_csv(parquet.with_suffix(".csv"), index=False)
            continue
        table = pd.read_csv(
            folder / file, dtype=dict.fromkeys(TEXT.get(kind, OTHER_TEXT), str),
            keep_default_na=False, na_values=[""], **EXACTLY)
        # Types that a CSV cannot hold.
        if kind == "latentcode.decoding":
            layers = [int(layer) if str(layer).isdigit() else layer for layer in table["layer"]]
            table = table.assign(layer=pd.Series(layers, index=table.index))
        elif kind == "latentcode.interventions" and "against" in table:
            table = table.assign(**{"class": table["class"].fillna("")})
        write_table(parquet, table)
    return checksums(folder, [f"{Path(file).stem}.parquet" for file in recorded])


def convert(folder: Path, out: Path | None = None) -> Count:
    """Convert all that a folder holds, in place or into the new folder `out`.

    Raises:
        RunError: There is nothing of ours, `out` exists, or a training is running.
        ArtifactError: Something is damaged or older than what 1.0 wrote.
    """
    there = list(units(folder))
    check(bool(there), f"{folder} holds nothing that latentcode wrote", RunError)
    former = [unit for unit in there if described(unit)]
    count = Count(len(former), len(there) - len(former))
    if out is not None:
        check_free(out, overwrite=False, marker=MANIFEST)
        with replace_folder(out, overwrite=False, marker=MANIFEST) as copy:
            shutil.copytree(folder, copy, dirs_exist_ok=True)
            for unit in former:
                convert_unit(copy / unit.relative_to(folder))
        return count
    for unit in former:
        with exclusive(unit / LOCK) if (unit / LOCK).exists() else nullcontext():
            copy = unit.with_name(f"{TEMPORARY}{uuid.uuid4().hex[:8]}-{unit.name}")
            try:
                shutil.copytree(unit, copy)
                convert_unit(copy)
                install_folder(copy, unit)
            finally:
                shutil.rmtree(copy, ignore_errors=True)
    return count


def main(folder: tyro.conf.Positional[Path], out: Path | None = None) -> None:
    """Convert what latentcode 1.0 wrote.

    Args:
        folder: Runs, codes, results and models of a zoo, at any depth.
        out: New folder that takes the copies; default: convert in place.
    """
    try:
        count = convert(folder.resolve(), out and out.resolve())
    except LatentCodeError as error:
        sys.exit(f"error: {error}")
    print(f"converted {count.converted}; {count.current} were of version {VERSION} already")


if __name__ == "__main__":
    tyro.cli(main)
