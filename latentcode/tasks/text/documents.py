"""Documents of a folder or file: plain text, JSONL, or parquet in the layout of the hub."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentcode.errors import ArtifactError, check
from latentcode.files.storage import read_json, rows_in
from latentcode.tasks.text.failures import one_sentence

READING = 1
"""Version of the rules by which files become documents, a part of every revision."""
LONGEST = 2**15
"""Characters of plain text in one document, about: longer files are cut, at a blank line where
there is one, so that a single file can be shuffled and a part of it be held out."""
ABOUT = "about.json"
"""The file in a folder that says where its text comes from; see `packages`."""
PIECES = 40
"""Documents, at least, that a single file, or a folder of fewer texts and no tables, is cut into:
of a few, none could be held out."""
TABLES = (".jsonl", ".ndjson", ".parquet")


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
    for pattern in ("*.parquet", "data/*.parquet"):
        if files := sorted(path.glob(pattern)):
            return files
    files = sorted(file for file in path.rglob("*") if file.is_file() and not any(
        part.startswith(".") for part in file.relative_to(path).parts))
    check(bool(files), f"{path} holds no files; expected text, JSONL or parquet")
    return files


def digest_of_files(path: Path) -> str:
    """Return 12 hex digits that depend on the names and contents of the files of a text."""
    digest = hashlib.sha256(str(READING).encode())
    with one_sentence(str(path), "text"):
        for file in text_files(path):
            digest.update(_name(file, path).encode() + b"\0")
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:12]


def about_packages(path: Path) -> dict[str, Any]:
    """Return what `packages` wrote beside a text of where it comes from; empty for other texts."""
    try:
        about = read_json(path / ABOUT)
    except ArtifactError:
        return {}
    return about if isinstance(about, dict) and "packages" in about else {}


def local_documents(path: Path, column: str) -> Iterator[Document]:
    """Read the documents of a folder or file, always in the same order.

    Files that are not text in UTF-8 and documents that are empty are left out.

    Args:
        path: The folder or file.
        column: Column of JSONL and parquet that holds the text. Columns `name`, `source` and `kind`
            are read where there are any; a source is otherwise the first folder below `path`.

    Raises:
        ConfigError: For a text without any document, and naming the file that lacks the column or
            cannot be read.
    """
    n, files = 0, text_files(path)
    longest = _longest(files)
    for file in files:
        name = _name(file, path)
        folders = Path(name).parts[:-1]
        source = folders[0] if folders and file.suffix != ".parquet" else ""
        for document in (_of_table(file, name, source, column) if file.suffix in TABLES
                         else _of_plain(file, name, source, longest)):
            n += 1
            yield document
    check(n > 0, f"{path} holds no text: every file in it is empty or binary; expected text in "
          "UTF-8, JSONL or parquet")


def _of_plain(file: Path, name: str, source: str, longest: int) -> Iterator[Document]:
    with one_sentence(str(file), "file"):
        pieces = cut(_plain(file), longest)
    for number, piece in enumerate(pieces):
        part = f"#{number}" if len(pieces) > 1 else ""
        yield Document(piece, name + part, source, file.suffix[1:])


def _of_table(file: Path, name: str, source: str, column: str) -> Iterator[Document]:
    is_parquet = file.suffix == ".parquet"
    for number, row in enumerate(_of_parquet(file) if is_parquet else _of_lines(file),
                                 start=0 if is_parquet else 1):
        if document := as_document(row, column, f"{name}#{number}", source):
            yield document


def _of_parquet(file: Path) -> Iterator[dict[str, Any]]:
    import datasets

    with one_sentence(str(file), "file"):
        yield from datasets.load_dataset(
            "parquet", data_files=str(file), split="train", streaming=True)


def _of_lines(file: Path) -> Iterator[dict[str, Any]]:
    for where, row, _ in rows_in(file):
        check(isinstance(row, dict), f"{where} is {row!r:.60}; expected an object with text")
        yield row


def as_document(
    row: Mapping[str, Any], column: str, name: str, source: str = ""
) -> Document | None:
    """Return a row of a table as a document; None where its text is empty."""
    check(column in row, f"{name} has columns {', '.join(row)}; expected {column!r} (task.column) "
          "among them")
    text = row[column]
    check(text is None or isinstance(text, str), f"{name} has {column} {text!r:.60}; expected text "
          "(task.column)")
    if not text or not text.strip():
        return None
    labels = {"name": name, "source": source, "kind": ""}
    return Document(text, **labels | {
        key: str(row[key]) for key in labels if row.get(key) is not None})


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


def _longest(files: Sequence[Path]) -> int:
    """Return how many characters a document of plain text may have."""
    if any(file.suffix in TABLES for file in files):
        return LONGEST
    n = n_texts = 0
    for file in files:
        size = len(_plain(file))
        n, n_texts = n + size, n_texts + (size > 0)
        if n_texts >= PIECES or n >= LONGEST * PIECES:
            return LONGEST
    return n // PIECES + 1


def _plain(file: Path) -> str:
    """Return the text of a file, empty where it has none."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        return ""
    return "" if "\0" in text or not text.strip() else text.replace("\r\n", "\n")


def _name(file: Path, path: Path) -> str:
    return file.name if file == path else file.relative_to(path).as_posix()
