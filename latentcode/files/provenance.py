"""Provenance of runs and files: versions, commit, device, threads, time."""

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
from latentcode.errors import ArtifactError, check

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
    check(not unknown, f"{path} has unknown key(s) {', '.join(unknown)}; expected "
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
