"""The version of everything that latentcode writes, and the refusal of every other version.

Each JSON file that describes a run, a checkpoint, codes, a card, a manifest, a text or a result
begins with its `format` and its `format_version`. There is one version for all of them. Folders of
latentcode 1.0 are converted by `experiments/convert_1_0.py`, once; nothing older is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from latentcode.errors import ArtifactError, LatentCodeError, check
from latentcode.files.storage import check_checksum, read_json

VERSION = "2.0"
"""A string, so that no number of an older format can be taken for it."""
CONVERTER = "experiments/convert_1_0.py"
"""The script of a checkout that converts what latentcode 1.0 wrote."""

Data = dict[str, Any]


def header(name: str) -> Data:
    """Return the two keys that every file of the format `name` begins with."""
    return {"format": name, "format_version": VERSION}


def check_format(
    data: object, name: str, where: Path, error: type[LatentCodeError] = ArtifactError
) -> Data:
    """Return the contents of a JSON file if they are of the format `name` in the present version.

    Args:
        data: What was read.
        name: The format, such as `latentcode.run`.
        where: The file or folder it comes from, for messages.
        error: What is raised for anything else.
    """
    kind, version = ((data.get("format"), data.get("format_version"))
                     if isinstance(data, Mapping) else (None, None))
    check(kind == name, f"{where} is of format {kind!r}; expected {name}", error)
    folder = where if where.is_dir() else where.parent
    check(type(version) is not int, f"{where} is of format {name}, version {version} (latentcode "
          f"1.0 or older); convert it with `python {CONVERTER} {folder}`, from a checkout", error)
    check(version == VERSION, f"{where} is of format {name}, version {version!r}; expected "
          f"{VERSION!r}", error)
    assert isinstance(data, Mapping)
    return dict(data)


def read_checked(
    path: Path, name: str, keys: set[str], mapping: str, files: tuple[str, ...], *,
    verify: bool = True,
) -> Data:
    """Return the JSON that describes a folder, with its files verified.

    Args:
        path: The JSON file.
        name: Its format.
        keys: All that it must hold.
        mapping: The key whose value must be a mapping.
        files: The files beside it whose SHA-256 it records.
        verify: Compare them; False leaves the files unread.

    Raises:
        ArtifactError: Something is missing, unknown, of another type or version, or changed.
    """
    data = check_format(read_json(path), name, path)
    check(set(data) == keys, f"{path} has keys {sorted(data)}; expected {sorted(keys)}",
          ArtifactError)
    check(isinstance(data[mapping], dict),
          f"{path} has {mapping} {data[mapping]!r}; expected a mapping", ArtifactError)
    check(isinstance(data["sha256"], dict) and set(data["sha256"]) == set(files),
          f"{path} has sha256 {data['sha256']!r}; expected those of {' and '.join(files)}",
          ArtifactError)
    for file, recorded in data["sha256"].items() if verify else ():
        check_checksum(path.with_name(file), recorded)
    return data
