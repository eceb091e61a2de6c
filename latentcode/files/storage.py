"""Files that are either whole or not there: temporary name, fsync, rename.

Everything that latentcode keeps goes through these functions. Formats: JSON, safetensors,
parquet, YAML; nothing is ever unpickled. Below them locks, with which one process at a time writes
into a run, and the cache of what can be computed again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout

from latentcode.errors import ArtifactError, RunError, check, check_no_pipe, reason

JSON_COLUMNS = b"latentcode.json_columns"
"""Metadata of a file: columns of mixed types, such as layers 0, 1 and "all", one JSON a cell."""
VARIABLE = "LATENTCODE_CACHE"
"""Environment variable with the folder of the cache."""
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
    temporary = _beside(path)
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


def followed(path: Path) -> Path:
    """Return where a path leads, links followed; `RunError` where one of them leads nowhere."""
    for place in (path, *path.parents):
        if os.path.islink(place) and not os.path.exists(place):
            raise RunError(f"{place} is a link to {os.readlink(place)}, which cannot be reached; "
                           "expected another folder")
    return Path(os.path.realpath(path))


def check_writable(path: Path) -> None:
    """Raise `RunError` that says why, unless a file or folder of this name can be made.

    It is made, with the longest name of `replace_folder`, and deleted again.
    """
    target = followed(path)
    above = next(folder for folder in target.parents if os.path.exists(folder))
    check(above.is_dir(), f"{path} cannot be made, because {above} is a file; expected a folder",
          RunError)
    try:
        with TemporaryDirectory(prefix=f"{TEMPORARY}probe-", dir=above) as probe:
            _beside(probe / target.relative_to(above), "-old").mkdir(parents=True)
    except OSError as error:
        raise RunError(f"{path} cannot be made in {above}: {error.strerror}") from None


def _beside(path: Path, ending: str = "") -> Path:
    """Return a temporary name beside a path."""
    return path.with_name(f"{TEMPORARY}{uuid.uuid4().hex[:8]}-{path.name}{ending}")


def check_free(path: Path, *, overwrite: bool, marker: str) -> None:
    """Raise `RunError` where `replace_folder` would: ask before long work, not after it."""
    check_writable(path)
    occupied = path.exists() and (not path.is_dir() or any(path.iterdir()))
    check(not occupied or (path / marker).is_file(),
          f"{path} exists already and is not one of ours (no {marker}); expected a new or an empty "
          "folder", RunError)
    check(overwrite or not occupied, f"{path} exists already; choose another folder, or overwrite "
          "it (--overwrite, overwrite=True)", RunError)


@contextmanager
def replace_folder(path: Path, *, overwrite: bool, marker: str) -> Iterator[Path]:
    """Yield a temporary folder; on success all its files are flushed and it is renamed `path`.

    A folder that exists is refused (`RunError`) unless it is empty or `overwrite` is set; even
    then it must hold `marker`, the file that tells it is one of ours, so that no foreign folder
    is ever deleted. Of a link, the folder that it leads to is replaced, and the link stays.
    """
    check_free(path, overwrite=overwrite, marker=marker)
    temporary = _beside(followed(path))
    try:
        temporary.mkdir(parents=True)
        yield temporary
        install_folder(temporary, path)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def install_folder(temporary: Path, path: Path) -> None:
    """Flush a folder with all its files and rename it `path`, in place of what is there."""
    path = followed(path)
    discarded = _beside(path, "-old")
    try:
        for file in temporary.rglob("*"):
            fsync_path(file)
        fsync_path(temporary)
        if path.exists():
            os.rename(path, discarded)
        os.rename(temporary, path)
        fsync_path(path.parent)
    finally:
        # Whatever stopped us between the two renames, Ctrl-C included: the old folder comes back.
        if discarded.exists() and not path.exists():
            os.rename(discarded, path)
        shutil.rmtree(discarded, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, all or nothing."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, data: object) -> None:
    """Write JSON, all or nothing."""
    write_text(path, json.dumps(data, indent=2) + "\n")


def parse_json(text: str) -> Any:
    """Return what JSON says; `ValueError` where it says nothing, or says one key twice, or half of
    a pair of surrogates."""
    try:
        data = json.loads(text, object_pairs_hook=_no_key_twice)
        if "\\ud" in text.lower():
            json.dumps(data, ensure_ascii=False).encode()
        return data
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key(s) given twice: {sorted({k for k in keys if keys.count(k) > 1})}")
    return data


def rows_in(path: Path, suffix: str | None = None) -> Iterator[tuple[str, Any, int]]:
    """Yield what errors call a line, what it holds, and the byte behind it, of lines not empty.

    What a line of a `.txt` holds is `{"text": line}`, of any other file, or with another `suffix`,
    what its JSON says. Memory: one line. `ArtifactError` for a file that cannot be read, and for a
    line that is not UTF-8 or not JSON, when it is reached.
    """
    check_no_pipe(path, ArtifactError)
    is_plain = (suffix or path.suffix) == ".txt"
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(file.readline, b""), start=1):
                begin = file.tell() - len(line)
                where = f"{path} line {number}"
                try:
                    content = line.decode("utf-8" if begin else "utf-8-sig").rstrip("\r\n")
                    if content.strip():
                        yield (where, {"text": content} if is_plain else parse_json(content),
                               file.tell())
                except UnicodeDecodeError as error:
                    raise ArtifactError(f"{where} is not UTF-8: {error}") from None
                except ValueError as error:
                    raise ArtifactError(f"{where} is not JSON: {error}") from None
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {reason(error)}") from None


def read_json(path: Path) -> Any:
    """Read JSON; `ArtifactError` says which file is missing or damaged."""
    check_no_pipe(path, ArtifactError)
    try:
        return parse_json(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ArtifactError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
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


def map_tensors(path: Path) -> dict[str, np.ndarray]:
    """Open the float32 arrays of a safetensors file; what is used of them is read when it is used.

    The file is never written: a change to an array stays in memory. `ArtifactError` says what is
    wrong with the file.
    """
    # An array without numbers has nothing that could be mapped.
    return {name: np.zeros(shape, np.float32) if 0 in shape else np.asarray(
        np.memmap(path, "<f4", mode="c", offset=offset, shape=shape))
        for name, (shape, offset) in _layout(path).items()}


def _layout(path: Path) -> dict[str, tuple[tuple[int, ...], int]]:
    """Return the shape of each float32 array of a safetensors file, and where in it it begins."""
    from safetensors import SafetensorError, safe_open

    check(path.is_file(), f"{path} is missing", ArtifactError)
    try:
        with safe_open(path, framework="numpy"):
            pass  # Opening compares the header with the length of the file.
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = parse_json(file.read(length).decode())
        header.pop("__metadata__", None)
        for name, entry in header.items():
            check(entry["dtype"] == "F32", f"{path} holds {name} as {entry['dtype']}; expected F32",
                  ArtifactError)
        return {name: (tuple(entry["shape"]), 8 + length + entry["data_offsets"][0])
                for name, entry in header.items()}
    except (SafetensorError, OSError, ValueError, TypeError, OverflowError) as error:
        raise ArtifactError(f"{path} is not a readable safetensors file: {error}") from None


def create_tensors(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Reserve a safetensors file of float32 arrays, whose values `write_instances` puts there.

    A full disk is noticed at once, and the arrays, which safetensors itself would write, never
    have to be in memory.
    """
    end, header = 0, {}
    for name, shape in shapes.items():
        start, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.flush()
        _reserve(file.fileno(), file.tell() + end)


def write_instances(path: Path, name: str, start: int, values: np.ndarray) -> None:
    """Put values [A, B, m, C] at start <= n < start + m of an array [A, B, n, C] of a file."""
    (_, b, n, c), offset = _layout(path)[name]
    with path.open("r+b") as file:
        for i, j in np.ndindex(values.shape[:2]):
            file.seek(offset + 4 * c * ((i * b + j) * n + start))
            file.write(np.ascontiguousarray(values[i, j], "<f4").data)


def _reserve(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
    os.ftruncate(descriptor, size)


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file in hex; `ArtifactError` says why it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise ArtifactError(f"{path} is missing") from None
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from None


def checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of files of a folder, by name."""
    return {name: checksum(folder / name) for name in names}


def check_checksum(path: Path, recorded: object) -> None:
    """Raise `ArtifactError` unless a file has the SHA-256 that was recorded when it was written."""
    present = checksum(path)
    check(present == recorded, f"{path} was damaged or changed after it was "
          f"written: its SHA-256 is {present}; expected {recorded}", ArtifactError)


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


@contextmanager
def exclusive(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock on the file `path`, which the system releases however the process ends.

    Args:
        path: The lock file; it stays.
        wait: Wait until another process lets go.

    Raises:
        RunError: Another process holds the lock, or the folder cannot be written.
    """
    # The lock itself would make the folder.
    check(path.parent.is_dir(), f"{path.parent} does not exist; expected a folder", RunError)
    lock = FileLock(path, timeout=-1 if wait else 0)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(f"{path.parent} is being written by another process; expected no other "
                       "process to use it") from None
    except OSError as error:
        raise RunError(f"{path.parent} cannot be written: {error}") from None
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock on the file `path`; none is made."""
    if not path.exists():
        return False
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return True
    lock.release()
    return False


def default_cache() -> Path:
    """Return the folder LATENTCODE_CACHE, or `latentcode` in the user's own cache folder."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "latentcode"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "latentcode"
