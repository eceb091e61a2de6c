"""Files that are either whole or not there: temporary name, fsync, rename.

Everything that latentcode keeps goes through these functions. Formats: JSON, safetensors,
parquet, YAML; nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from latentcode.errors import ArtifactError, RunError, check

TEMPORARY = ".tmp-"
"""Prefix of files and folders that are still being written."""


def fsync_path(path: Path) -> None:
    """Flush a file or a folder entry to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; on success it is flushed and takes the name `path`.

    On any error the temporary file is removed and `path` keeps its old contents. A full disk or
    a read-only folder is an `ArtifactError` that names the path.
    """
    temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        yield temporary
        fsync_path(temporary)
        os.replace(temporary, path)
        fsync_path(path.parent)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def replace_folder(path: Path, *, overwrite: bool, marker: str) -> Iterator[Path]:
    """Yield a temporary folder; on success all its files are flushed and it is renamed `path`.

    A folder that exists is refused (`RunError`) unless it is empty or `overwrite` is set; even
    then it must hold `marker`, the file that tells it is one of ours, so that no foreign folder
    is ever deleted.
    """
    occupied = path.exists() and (not path.is_dir() or any(path.iterdir()))
    check(overwrite or not occupied,
          f"{path} exists already; choose another folder or overwrite it", RunError)
    check(not occupied or (path / marker).is_file(),
          f"{path} exists and is not one of ours (no {marker}); it will not be overwritten",
          RunError)
    temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex[:8]}-{path.name}")
    discarded = temporary.with_name(temporary.name + "-old")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.rglob("*"):
            fsync_path(file)
        fsync_path(temporary)
        if path.exists():
            os.rename(path, discarded)
        os.rename(temporary, path)
        fsync_path(path.parent)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error}") from error
    finally:
        # Whatever stopped us between the two renames, Ctrl-C included: the old folder comes back.
        if discarded.exists() and not path.exists():
            os.rename(discarded, path)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(discarded, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, all or nothing."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, data: object) -> None:
    """Write JSON, all or nothing."""
    write_text(path, json.dumps(data, indent=2, sort_keys=False, allow_nan=True) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON; `ArtifactError` says which file is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtifactError(f"{path} is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is not readable JSON: {error}") from None


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write named arrays as safetensors, all or nothing."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    # safetensors writes the memory as it lies, so a transposed view would come back scrambled.
    # (`ascontiguousarray` would do, but it gives scalars a dimension.)
    contiguous = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    with replace_file(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        try:
            save_file(contiguous, temporary)
            temporary.chmod(mode)  # safetensors would let nobody but the owner read it
        except SafetensorError as error:
            raise ArtifactError(f"cannot write {path}: {error}") from error


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Read named arrays from safetensors; `ArtifactError` says what is wrong with the file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    check(path.is_file(), f"{path} is missing", ArtifactError)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        # The last three: numpy lacks a dtype of the file, such as bfloat16.
        raise ArtifactError(f"{path} is not a readable safetensors file: {error}") from None
