"""What every file says of itself: its format and version, and which software wrote it where.

Each JSON file that describes a run, a checkpoint, codes, a card, a manifest, a text or a result
begins with its `format` and its `format_version`. There is one version for all of them. Folders of
latentcode 1.0 are converted by `experiments/convert_1_0.py`, once; nothing older is read.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from latentcode.devices import device_name
from latentcode.errors import ArtifactError, LatentCodeError, check, listed
from latentcode.files.storage import check_checksum, read_json

VERSION = "2.0"
"""A string, so that no number of an older format can be taken for it."""
CONVERTER = "experiments/convert_1_0.py"
"""The script of a checkout that converts what latentcode 1.0 wrote."""
Data = dict[str, Any]
KEYS = frozenset({
    "format", "format_version", "id", "created", "config_hash", "latentcode", "git_commit",
    "torch", "transformer_lens", "numpy", "python", "platform", "device", "device_name",
    "threads", "resumed"})
"""What every `provenance.json` of a run holds."""
OPTIONAL = frozenset({"imported", "registered", "loaded_from"})
"""What some hold: where imported weights come from; what users registered, and in which file; where
on the hub a copy was downloaded from."""


@cache
def package_version(name: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


__version__ = package_version("latentcode") or "unknown"
"""Of latentcode, as pyproject.toml has it; `unknown` where it is not installed."""


@cache
def git_commit() -> str | None:
    """Return the commit of the checkout that the package runs from, with "-dirty" if edited.

    None for an installed package, and where git is missing or fails.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40",
               "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def software() -> dict[str, str | None]:
    """Return the versions of what writes a file.

    Nothing here differs between two runs of one installation, so that equal work gives equal
    bytes. Needs no torch.
    """
    return {
        "latentcode": package_version("latentcode"),
        "torch": package_version("torch"),
        "numpy": package_version("numpy"),
        "python": sys.version.split()[0],
    }


def environment(device: str) -> dict[str, Any]:
    """Return what, beside configuration and code, can change the last bits of a result."""
    import torch

    return {
        "latentcode": package_version("latentcode"),
        "git_commit": git_commit(),
        "torch": torch.__version__,
        "transformer_lens": package_version("transformer-lens"),
        "numpy": package_version("numpy"),
        "python": sys.version.split()[0],
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device,
        "device_name": device_name(device),
        "threads": torch.get_num_threads(),
    }


def now() -> str:
    """Return the present moment, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def check_provenance(path: Path, provenance: Mapping[str, Any]) -> None:
    """Raise `ArtifactError` unless a run's provenance, read from `path`, has all its keys."""
    missing, unknown = (sorted(keys) for keys in (
        KEYS - set(provenance), set(provenance) - KEYS - OPTIONAL))
    check(not missing, f"{path} lacks key(s) {', '.join(missing)}", ArtifactError)
    check(not unknown, f"{path} has unknown key(s) {listed(unknown)}; expected "
          f"{', '.join(sorted(KEYS))}", ArtifactError)
    resumed, imported = provenance["resumed"], provenance.get("imported", {})
    check(isinstance(resumed, list), f"{path} has resumed {resumed!r}; expected a list",
          ArtifactError)
    check(isinstance(imported, dict), f"{path} has imported {imported!r}; expected an object",
          ArtifactError)
    names = provenance.get("registered", {})
    check(isinstance(names, dict) and all(
        isinstance(files, dict) and all(isinstance(file, str) for file in files.values())
        for files in names.values()), f"{path} has registered {names!r}; expected an object of "
          "names and files", ArtifactError)


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
