"""What was read of texts, kept in the cache folder: another start shows it at once."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from latentcode.app.language.given import PAIRS, Given
from latentcode.app.language.reading import Read
from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError, check
from latentcode.files.provenance import package_version
from latentcode.files.storage import (
    check_checksum,
    checksum,
    default_cache,
    read_json,
    read_tensors,
    replace_folder,
    write_json,
    write_tensors,
)
from latentcode.probes.heads.metrics import Sums

FILE, ARRAYS, CODES = "read.json", "read.safetensors", "codes"


def folder_of(given: Given) -> Path:
    """Return where it is kept what was read of the model that was given.

    It is known by the model, the texts, and the version that read them.
    """
    known = {"model": given.model.identity, "texts": given.digest, "n": given.n,
             "longest": given.longest, "pairs": PAIRS, "version": package_version("latentcode")}
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
    return default_cache() / "language" / digest[:24]


def keep(read: Read, folder: Path) -> None:
    """Write what was read; `ArtifactError` where that cannot be."""
    with replace_folder(folder, overwrite=True, marker=FILE) as temporary:
        read.codes.save(temporary / CODES)
        write_tensors(temporary / ARRAYS, {
            "rows": read.rows, "tokens": np.concatenate(read.tokens),
            "lengths": np.array([len(ids) for ids in read.tokens]), "sums": read.sums.sums,
            "n": read.sums.n, "maxima": read.maxima, "query": read.query, "key": read.key})
        write_json(temporary / FILE, {
            "notes": list(read.notes), "whole": read.whole,
            "sha256": checksum(temporary / ARRAYS)})


def kept(folder: Path) -> Read | None:
    """Return what was kept; None where nothing was, `ArtifactError` where it is damaged."""
    if not (folder / FILE).is_file():
        return None
    said = read_json(folder / FILE)
    check(isinstance(said, dict) and {"notes", "whole", "sha256"} <= set(said),
          f"{folder / FILE} does not describe what was read", ArtifactError)
    check_checksum(folder / ARRAYS, said["sha256"])
    arrays = read_tensors(folder / ARRAYS)
    ends = np.cumsum(arrays["lengths"])[:-1]
    return Read(LatentCodes.load(folder / CODES), arrays["rows"],
                tuple(np.split(arrays["tokens"], ends)), Sums(arrays["sums"], arrays["n"]),
                tuple(said["notes"]), arrays["maxima"], arrays["query"], arrays["key"],
                bool(said["whole"]))
