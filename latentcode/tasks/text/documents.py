"""Which documents does a folder or file hold? Plain text, JSONL, or parquet in the hub's layout."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentcode.errors import ArtifactError, ConfigError, check, reason
from latentcode.files.storage import read_json

READING = 1
"""Version of the rules by which files become documents, a part of every revision."""
LONGEST = 2**15
"""Characters of plain text in one document, about: longer files are cut, at a blank line where
there is one, so that a single file can be shuffled and a part of it be held out."""
ABOUT = "about.json"
"""The file in a folder of parquet that says where the text comes from; see `packages`."""
PIECES = 40
"""Documents, at least, that a single file, or a folder of fewer texts and no tables, is cut into:
of a few, none could be held out."""
JSON_LINES = (".jsonl", ".ndjson")
TABLES = (*JSON_LINES, ".parquet")


@dataclass(frozen=True)
class Document:
    """One document, with what `TOKEN_COLUMNS` says of it."""

    text: str
    name: str
    source: str = ""
    kind: str = ""


def text_files(path: Path) -> list[Path]:
    """Return the files of a text, in the order in which they are read.

    A file is itself. Of a folder they are its parquet files (`*.parquet`, or else
    `data/*.parquet`); where it has none, all files below it except hidden ones.
    """
    if path.is_file():
        return [path]
    check(path.is_dir(), f"task.text is {str(path)!r}; expected a folder or a file of text")
    for pattern in ("*.parquet", "data/*.parquet"):
        if found := sorted(path.glob(pattern)):
            return found
    found = sorted(file for file in path.rglob("*") if file.is_file() and not any(
        part.startswith(".") for part in file.relative_to(path).parts))
    check(bool(found), f"{path} holds no files; expected text, JSONL or parquet")
    return found


def digest_of_files(path: Path) -> str:
    """Return 12 hex digits that depend on the names and contents of the files of a text."""
    digest, files = hashlib.sha256(str(READING).encode()), text_files(path)
    if path.is_dir() and _longest(files) < LONGEST:
        digest.update(b"few")
    for file in files:
        digest.update(_name(file, path).encode() + b"\0")
        with _reading(file), file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:12]


def about_packages(path: Path) -> dict[str, Any]:
    """Return what `packages` wrote beside a text of where it comes from; empty for other texts."""
    try:
        found = read_json(path / ABOUT)
    except ArtifactError:
        return {}
    return found if isinstance(found, dict) and "packages" in found else {}


def local_documents(path: Path, column: str) -> Iterator[Document]:
    """Read the documents of a folder or file, always in the same order.

    column  of JSONL and parquet: what holds the text. Columns `name`, `source` and `kind` are read
            where there are any; a source is otherwise the first folder below `path`

    Files of a folder that are empty or not text are left out. `ConfigError` names a single file
    that is empty or binary, a folder without any text, and the line or file that lacks the column.
    """
    n, files = 0, text_files(path)
    longest = _longest(files)
    for file in files:
        with _reading(file):
            for document in _of_file(file, path, column, longest):
                n += 1
                yield document
    check(n > 0, f"{path} holds no text: every file in it is empty or binary; expected text in "
          "UTF-8, JSONL or parquet")


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turn what the disk refuses into `ConfigError`."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {reason(error)}") from None


def _longest(files: Sequence[Path]) -> int:
    """Return how many characters a document of plain text may have."""
    if any(file.suffix in TABLES for file in files):
        return LONGEST
    n = n_texts = 0
    for file in files:
        with _reading(file):
            size = len(_plain(file, alone=False))
        n, n_texts = n + size, n_texts + (size > 0)
        if n_texts >= PIECES or n >= LONGEST * PIECES:
            return LONGEST
    return n // PIECES + 1


def _of_file(file: Path, path: Path, column: str, longest: int) -> Iterator[Document]:
    name = _name(file, path)
    folders = Path(name).parts[:-1]
    source = folders[0] if folders and file.suffix != ".parquet" else ""
    if file.suffix == ".parquet":
        yield from _of_parquet(file, name, column)
    elif file.suffix in JSON_LINES:
        yield from _of_json_lines(file, name, source, column)
    else:
        pieces = cut(_plain(file, alone=file == path), longest)
        for number, piece in enumerate(pieces):
            part = f"#{number}" if len(pieces) > 1 else ""
            yield Document(piece, name + part, source, file.suffix[1:])


def _plain(file: Path, *, alone: bool) -> str:
    """Return the text of a file, empty where it has none."""
    data = file.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    binary = "\0" in text
    check(not (alone and binary), f"{file} is binary, or not in UTF-8; expected text")
    check(not alone or bool(text.strip()), f"{file} is empty; expected text")
    return "" if binary or not text.strip() else text.replace("\r\n", "\n")


def _of_json_lines(file: Path, name: str, source: str, column: str) -> Iterator[Document]:
    with file.open(encoding="utf-8-sig") as lines:
        number = 0
        try:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    row = json.loads(line)
                    if not (isinstance(row, dict) and isinstance(row.get(column), str)):
                        has = (f"a {_type(row)}" if not isinstance(row, dict)
                               else f"{row[column]!r:.60} in column {column!r}" if column in row
                               else ", ".join(row))
                        raise ConfigError(f"{file}, line {number} has {has}; expected text in "
                                          f"column {column!r} (task.column)")
                    yield from as_document(row, column, f"{name}#{number}", source)
        except UnicodeDecodeError:
            raise ConfigError(f"{file} is not in UTF-8 after line {number}; expected JSON, one "
                              "object a line") from None
        except ValueError as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{file}, line {number} is not JSON ({error}); expected one object "
                              "a line") from None


def _of_parquet(file: Path, name: str, column: str) -> Iterator[Document]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as table:
            columns = table.schema_arrow.names
            check(column in columns, f"{file} has columns {', '.join(columns)}; expected "
                  f"{column!r} (task.column) among them")
            kept = [c for c in (column, "name", "source", "kind") if c in columns]
            number = 0
            for batch in table.iter_batches(1_024, columns=kept):
                for row in batch.to_pylist():
                    yield from as_document(row, column, f"{name}#{number}")
                    number += 1
    except pa.ArrowException as error:
        raise ConfigError(f"{file} is not readable parquet: {reason(error)}") from None


def as_document(
    row: Mapping[str, Any], column: str, name: str, source: str = ""
) -> Iterator[Document]:
    """Return a row of a table as a document; nothing where its text is empty."""
    text = row.get(column)
    check(text is None or isinstance(text, str), f"{name} has {column} {text!r:.60}; expected text "
          "(task.column)")
    if text and text.strip():
        said = {"name": name, "source": source, "kind": ""}
        said |= {key: str(row[key]) for key in said if row.get(key) is not None}
        yield Document(text, **said)


def cut(text: str, longest: int) -> Sequence[str]:
    """Cut a text into pieces of at most `longest` characters, after a blank line if possible.

    Together they are the text; an empty text has none.
    """
    pieces, start = [], 0
    while len(text) - start > longest:
        end = -1
        for mark in ("\n\n", "\n", " "):
            # Not at the very beginning of a piece, which would leave crumbs.
            end = text.rfind(mark, start + longest // 4, start + longest)
            if end >= 0:
                end += len(mark)
                break
        end = min(end, start + longest) if end >= 0 else start + longest
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]] if text[start:] else pieces


def _name(file: Path, path: Path) -> str:
    return file.name if file == path else file.relative_to(path).as_posix()


def _type(value: object) -> str:
    return type(value).__name__
