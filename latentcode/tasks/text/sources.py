"""A text: files on this machine or a dataset of the Hugging Face hub, and excerpts kept of it.

The library `datasets` reads both. Of local text it keeps the tokens in the cache and maps them from
the disk, so that documents can be read in any order; a dataset of the hub, or a folder of tables
that is as large, is streamed.

Excerpts and the tokenizer are a folder, which is kept with a run:

    text.json             what it was made from, revision, end of a document, checksums
    tokenizer.json        as the library tokenizers writes it
    excerpts.safetensors  `split.tokens` and `split.document`, [N, T + 1]
    documents.parquet     `split`, and `TOKEN_COLUMNS`
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from latentcode.config import LanguageConfig, to_dict
from latentcode.errors import ArtifactError, check
from latentcode.files.provenance import header, read_checked, software
from latentcode.files.storage import (
    checksums,
    read_json,
    read_tensors,
    replace_file,
    replace_folder,
    rows_in,
    write_json,
    write_tensors,
    write_text,
)
from latentcode.tasks.text.cache import (
    MARKER,
    cache_folder,
    digest_of,
    excerpts_folder,
    known,
    made_once,
)
from latentcode.tasks.text.streams import (
    TOKEN_COLUMNS,
    Document,
    Excerpts,
    LocalStream,
    ShardStream,
    Stream,
    Tokenized,
    integer_type,
    kept_tokens,
    pack,
    token_ids,
    tokenized,
)
from latentcode.tasks.text.tokenizer import (
    FILE,
    FileTokenizer,
    check_vocabulary,
    load_tokenizer,
    one_sentence,
    tokenizer_from,
    trained_tokenizer,
)

if TYPE_CHECKING:
    import datasets

SPLITS = ("train", "test", "ood")
READING = 1
"""Version of the rules by which files become documents, a part of every revision."""
TABLES = (".jsonl", ".ndjson", ".parquet")
LONGEST = 2**15
"""Characters of plain text in one document, about: longer files are cut, at a blank line where
there is one, so that a single file can be shuffled and a part of it be held out."""
PIECES = 40
"""Documents, at least, that a folder of fewer texts and no tables is cut into."""
ABOUT = "about.json"
"""The file in a folder that says where its text comes from; see `packages`."""
HELD_OUT_LOCAL, HELD_OUT_STREAMED = 20, 100
"""Of so many documents, one is held out as `test`, and one as `ood` where no sources are; of a
dataset only where it has neither of `HELD_OUT_SPLITS`."""
HELD_OUT_SPLITS = ("validation", "test")
SCANNED = 100_000
"""Documents of a dataset, the first ones, among which excerpts are looked for."""
STREAMED = 2**32
"""Bytes of parquet or JSONL in a folder above which it is streamed, like a dataset of the hub."""
ON_THE_HUB = r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*"
HOW = ("a folder or file of text, or a dataset on the hub, as task.text (on the command line "
       "--task.text). `latentcode zoo text packages FOLDER` writes the text of the installed "
       "packages")
FORMAT = "latentcode.text"
EXCERPTS, DOCUMENTS = "excerpts.safetensors", "documents.parquet"
FILES = (FILE, EXCERPTS, DOCUMENTS)
KEYS = {"format", "format_version", "provenance", "text", "about", "end", "splits", "sha256"}


class StoredText:
    """A text of which excerpts and tokenizer are here; it is read in full when training begins.

    Raises:
        ArtifactError: Says what is wrong with the folder.
        ConfigError: For a tokenizer with more tokens than the configuration has.
    """

    def __init__(self, folder: Path, config: LanguageConfig) -> None:
        self.folder, path = folder, folder / MARKER
        described = read_checked(path, FORMAT, KEYS, "text", FILES)
        splits, end = described["splits"], described["end"]
        revision = described["text"].get("revision")
        check(isinstance(splits, list) and {*splits} <= {*SPLITS} and isinstance(end, str)
              and isinstance(revision, str), f"{path} has splits {splits!r}, end {end!r} and "
              f"text.revision {revision!r}; expected what a text was made from", ArtifactError)
        self.config = replace(config, revision=revision)
        self.splits: tuple[str, ...] = tuple(splits)
        text = (folder / FILE).read_text(encoding="utf-8")
        self.tokenizer = tokenizer_from(text, f"{folder / FILE}", end)
        check_vocabulary(self.tokenizer, config.n_vocabulary)

    def excerpts(self, split: str) -> Excerpts:
        """Return excerpts of a split: the same for every process and machine that has the run."""
        arrays = read_tensors(self.folder / EXCERPTS)
        tokens, document = (torch.from_numpy(arrays[f"{split}.{name}"].astype(np.int64))
                            for name in ("tokens", "document"))
        documents = pd.read_parquet(self.folder / DOCUMENTS).query("split == @split")
        return Excerpts(tokens, document, documents[list(TOKEN_COLUMNS)].reset_index(drop=True))

    def stream(self, seed: int) -> Stream:
        """Return the training text; `ConfigError` where it is not here, or cannot be reached."""
        return source_of(self.config).stream(seed)


def open_text(config: LanguageConfig) -> StoredText:
    """Return the text of a configuration, in the state that `revision` names.

    Without a revision it is the state that the files or the hub have now. `StoredText.config` has
    the revision filled in.

    Raises:
        ConfigError: Says what is wrong with the text, or that it has changed.
        HubError: Says that it cannot be reached.
    """
    check(bool(config.text), f"task {config.name!r} has no instances to draw: it names no text, "
          f"like runs that were imported; expected {HOW}")
    folder = known(config)
    if folder is None:
        source = source_of(config)
        full = replace(config, revision=source.revision)
        folder = made_once(excerpts_folder(full), lambda path: _write(path, full, source))
    return StoredText(folder, config)


def source_of(config: LanguageConfig) -> Source:
    """Return where the text can be read in full; `ConfigError` where its revision is another."""
    path = Path(config.text).expanduser()
    check(path.exists() or re.fullmatch(ON_THE_HUB, config.text, re.ASCII) is not None,
          f"task.text is {config.text!r}, which does not exist; expected {HOW}")
    is_streamed = not path.exists()
    if path.is_dir():
        files = text_files(path).values()
        is_streamed = (all(file.suffix in TABLES for file in files)
                       and sum(file.stat().st_size for file in files) > STREAMED)
    source = HubText(config) if is_streamed else LocalText(config)
    check(config.revision in ("", source.revision), f"task.text {config.text!r} is of revision "
          f"{source.revision!r} now; expected {config.revision!r}: the text or its tokenizer has "
          "changed since training began")
    return source


def _write(path: Path, config: LanguageConfig, source: Source) -> None:
    """Write the excerpts of every split of a text; `ConfigError` where there is too little of it.

    Without sources that are held out, `ood` is left out where there are not enough documents.
    """
    arrays, tables, splits = {}, [], []
    for split in SPLITS:
        excerpts = pack(source.sample(split), config.n_tokens)
        if excerpts is None:
            check(split == "ood" and not config.held_out_sources, f"task.text {config.text!r} has "
                  f"too little text for split {split}; expected at least {config.n_tokens + 1:,} "
                  f"tokens in its documents, one sequence of task.n_tokens = {config.n_tokens:,} "
                  "and the token that follows it")
            continue
        splits.append(split)
        arrays[f"{split}.tokens"] = excerpts.tokens.numpy().astype(
            integer_type(source.tokenizer.n_tokens))
        arrays[f"{split}.document"] = excerpts.document.numpy().astype(
            integer_type(len(excerpts.documents)))
        tables.append(excerpts.documents.assign(split=split))
    with replace_folder(path, overwrite=True, marker=MARKER) as folder:
        write_tensors(folder / EXCERPTS, arrays)
        with replace_file(folder / DOCUMENTS) as temporary:
            pd.concat(tables).to_parquet(temporary, index=False)
        write_text(folder / FILE, source.tokenizer.to_json())
        write_json(folder / MARKER, {
            **header(FORMAT), "provenance": software(), "text": to_dict(config),
            "about": dict(source.about), "end": source.tokenizer.end_token,
            "splits": splits, "sha256": checksums(folder, FILES)})


class Source(ABC):
    """A text as a configuration reads it.

    Attributes:
        state: Digest of the files, or commit of the dataset.
        identity: Strings that tell the text from others, and from other states of it.
        about: Origin of the text, such as packages and licences.
    """

    state: str
    identity: tuple[str, ...]
    about: Mapping[str, Any]

    def __init__(self, config: LanguageConfig) -> None:
        self.config = config

    @cached_property
    def tokenizer(self) -> FileTokenizer:
        """The tokenizer of the configuration, or one trained once on the training documents."""
        config = self.config
        if config.tokenizer:
            return load_tokenizer(config.tokenizer, config.n_vocabulary)
        key = digest_of(
            *self.identity, config.column, config.held_out_sources, config.n_vocabulary)
        texts = (document.text for document in self.documents("train"))
        file = made_once(cache_folder("tokenizers", f"{key}.json"), lambda path: write_text(
            path, trained_tokenizer(texts, config.n_vocabulary).to_json()))
        return tokenizer_from(file.read_text(encoding="utf-8"), "the trained tokenizer")

    @cached_property
    def revision(self) -> str:
        """The state of the text, and a digest of the tokenizer."""
        return f"{self.state}-{digest_of(self.tokenizer.to_json())}"

    @abstractmethod
    def documents(self, split: str) -> Iterator[Document]:
        """Return the documents of a split."""

    @abstractmethod
    def sample(self, split: str) -> Tokenized:
        """Return documents of a split with their ids, to take excerpts from."""

    @abstractmethod
    def stream(self, seed: int) -> Stream:
        """Return the training text in the order of a seed."""


class LocalText(Source):
    """The text of a folder or file; `ConfigError` as in `local_documents`, `load_tokenizer`."""

    def __init__(self, config: LanguageConfig) -> None:
        super().__init__(config)
        self.path = Path(config.text).expanduser()
        self.about, self.state = about_packages(self.path), digest_of_files(self.path)
        self.identity = (self.state,)

    def documents(self, split: str) -> Iterator[Document]:
        documents = local_documents(self.path, self.config.column)
        return (document for document, part in self._with_splits(documents) if part == split)

    def sample(self, split: str) -> Tokenized:
        for row in np.random.default_rng(0).permutation(self._rows(split)).tolist():
            yield (Document("", *self._labels.loc[row, list(TOKEN_COLUMNS)]),
                   token_ids(self.tokens, [row]))

    def stream(self, seed: int) -> LocalStream:
        return LocalStream(
            self.tokens, self._rows("train"), self.config.n_tokens, seed, self.revision)

    @cached_property
    def tokens(self) -> datasets.Dataset:
        """All documents as token ids."""
        with one_sentence(str(self.path), "text"):
            return kept_tokens(local_documents(self.path, self.config.column), self.tokenizer,
                               digest_of(self.revision, self.config.column))

    @cached_property
    def _labels(self) -> Any:
        return self.tokens.select_columns(list(TOKEN_COLUMNS)).to_pandas()

    def _rows(self, split: str) -> np.ndarray:
        """Return the documents of a split, int64; `ConfigError` for a source without documents."""
        sources = sorted(set(self._labels["source"]) - {""})
        for source in self.config.held_out_sources:
            check(source in sources, f"task.held_out_sources names {source!r}; the text has "
                  f"{', '.join(sources[:20]) or 'no sources'}")
        return np.array([row for row, (_, part) in enumerate(self._with_splits(
            self._labels.itertuples())) if part == split], dtype=np.int64)

    def _with_splits(self, documents: Iterable[Any]) -> Iterator[tuple[Any, str]]:
        """Return all documents, or rows with their `source`, with the split of each."""
        held_out, number = self.config.held_out_sources, 0
        for document in documents:
            yield document, _split_of(document.source, number, held_out, HELD_OUT_LOCAL)
            number += document.source not in held_out


class HubText(Source):
    """The text of a dataset, or of a folder of tables that is read like one.

    `HubError` says that the dataset cannot be reached, `ConfigError` what in it cannot be used.
    """

    def __init__(self, config: LanguageConfig) -> None:
        import datasets
        from huggingface_hub import HfApi

        super().__init__(config)
        path, commit = Path(config.text).expanduser(), config.revision.partition("-")[0]
        with one_sentence(config.text):
            if path.exists():
                self.state, name, revision = commit or digest_of_files(path), str(path), None
            else:
                self.state = commit or str(HfApi().dataset_info(config.text).sha)
                name, revision = config.text, self.state
            self._builder = datasets.load_dataset_builder(
                name, config.subset or None, revision=revision)
        self.identity = config.text, self.state, config.subset
        self.about = about_packages(path) or {
            "dataset": config.text, "subset": config.subset, "commit": self.state,
            "licence": self._builder.info.license or "see its page"}
        files = self._builder.config.data_files or self._builder.info.splits or ()
        self._split_names = [str(split) for split in files]
        self._held_out_split = next(
            (split for split in HELD_OUT_SPLITS if split in self._split_names), None)

    def documents(self, split: str, most: int | None = None) -> Iterator[Document]:
        names = {"train"} if split == "train" else {self._held_out_split or "train"}
        if split == "ood" and self.config.held_out_sources:
            names.add("train")
        for name in sorted(names):
            with one_sentence(self.config.text):
                for row in self._rows(name, split, most):
                    yield Document(row["text"], row["name"], row["source"], row["kind"])

    def sample(self, split: str) -> Tokenized:
        return tokenized(self.documents(split, SCANNED), self.tokenizer)

    def stream(self, seed: int) -> ShardStream:
        return ShardStream(
            self._rows("train", "train"), self.tokenizer, self.config, seed, self.revision)

    def _rows(self, name: str, split: str, most: int | None = None) -> datasets.IterableDataset:
        """Return the documents of one of `SPLITS` that are in a split of the dataset.

        Its rows have the fields of a `Document`. The first `most` rows of the dataset are read.
        """
        check(name in self._split_names, f"dataset {self.config.text!r} has splits "
              f"{', '.join(self._split_names)}; expected {name!r} among them")
        held_out, column = self.config.held_out_sources, self.config.column
        every = 0 if self._held_out_split else HELD_OUT_STREAMED
        if name != "train":
            every = 1 if held_out else 2

        def read(row: dict[str, Any], number: int) -> dict[str, Any]:
            document = _document(row, column, f"{name}#{number}")
            part = _split_of(document.source, number, held_out, every)
            return {**asdict(document), "part": part if document.text else ""}

        with one_sentence(self.config.text):
            rows: Any = self._builder.as_streaming_dataset(split=name)
            return (rows if most is None else rows.take(most)).map(read, with_indices=True).filter(
                lambda part: part == split, input_columns="part")


def _split_of(source: str, number: int, held_out: tuple[str, ...], every: int) -> str:
    """Return the split of document `number`: sources that are held out are `ood`; of `every` other
    documents (0: of none), one is `test`, and one `ood` where no sources are held out."""
    if source in held_out:
        return "ood"
    if every and number % every == 0:
        return "test"
    return "ood" if every and number % every == every // 2 and not held_out else "train"


def text_files(path: Path) -> dict[str, Path]:
    """Return the files of a text by their names in it, in the order in which they are read.

    Of a folder they are its parquet files (`*.parquet`, or else `data/*.parquet`); where it has
    none, all files below it except hidden ones.
    """
    if path.is_file():
        return {path.name: path}
    files = sorted(path.glob("*.parquet")) or sorted(path.glob("data/*.parquet")) or sorted(
        file for file in path.rglob("*") if file.is_file() and not any(
            part.startswith(".") for part in file.relative_to(path).parts))
    check(bool(files), f"{path} holds no files; expected text, JSONL or parquet")
    return {file.relative_to(path).as_posix(): file for file in files}


def digest_of_files(path: Path) -> str:
    """Return 12 hex digits that depend on the names and contents of the files of a text."""
    digest = hashlib.sha256(str(READING).encode())
    with one_sentence(str(path), "text"):
        for name, file in text_files(path).items():
            digest.update(name.encode() + b"\0")
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:12]


def about_packages(path: Path) -> dict[str, Any]:
    """Return the origin that `packages` wrote beside a text; empty for other texts."""
    try:
        about = read_json(path / ABOUT)
    except ArtifactError:
        return {}
    return about if isinstance(about, dict) and "packages" in about else {}


def local_documents(path: Path, column: str) -> Iterator[Document]:
    """Read the documents of a folder or file, always in the same order.

    Files that are not text in UTF-8 and documents that are empty are left out. Of JSONL and parquet
    the columns `name`, `source` and `kind` are read where there are any; a source is otherwise the
    first folder below `path`. `ConfigError` for a text without any document, and naming the file
    that lacks the column or cannot be read.
    """
    n, files = 0, text_files(path)
    longest = _longest(list(files.values()))
    for name, file in files.items():
        folder, _, rest = name.partition("/")
        source = folder if rest and file.suffix != ".parquet" else ""
        for document in (_table_documents(file, name, source, column) if file.suffix in TABLES
                         else plain_documents(file, name, source, longest)):
            if document.text:
                n += 1
                yield document
    check(n > 0, f"{path} holds no text: every file in it is empty or binary; expected text in "
          "UTF-8, JSONL or parquet")


def _table_documents(file: Path, name: str, source: str, column: str) -> Iterator[Document]:
    """Read the rows of a parquet file, numbered from 0, or of JSONL, from 1."""
    if file.suffix == ".parquet":
        import datasets

        with one_sentence(str(file), "file"):
            for number, row in enumerate(datasets.load_dataset(
                    "parquet", data_files=str(file), split="train", streaming=True)):
                yield _document(row, column, f"{name}#{number}", source)
        return
    for number, (where, row, _) in enumerate(rows_in(file), start=1):
        check(isinstance(row, dict), f"{where} is {row!r:.60}; expected an object with text")
        yield _document(row, column, f"{name}#{number}", source)


def _document(row: Mapping[str, Any], column: str, name: str, source: str = "") -> Document:
    """Return a row of a table as a document, of blank text an empty one."""
    check(column in row, f"{name} has columns {', '.join(row)}; expected {column!r} (task.column) "
          "among them")
    text = row[column]
    check(text is None or isinstance(text, str), f"{name} has {column} {text!r:.60}; expected text "
          "(task.column)")
    labels = {"name": name, "source": source, "kind": ""}
    return Document(text if text and text.strip() else "", **labels | {
        key: str(row[key]) for key in labels if row.get(key) is not None})


def plain_documents(file: Path, name: str, source: str, longest: int) -> Iterator[Document]:
    """Read a file of plain text, in pieces of at most `longest` characters."""
    with one_sentence(str(file), "file"):
        pieces = cut(_plain_text(file), longest)
    for number, piece in enumerate(pieces):
        part = f"#{number}" if len(pieces) > 1 else ""
        yield Document(piece, name + part, source, file.suffix[1:])


def _plain_text(file: Path) -> str:
    """Return the text of a file, empty where it has none."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        return ""
    return "" if "\0" in text or not text.strip() else text.replace("\r\n", "\n")


def _longest(files: Sequence[Path]) -> int:
    """Return how many characters a document of plain text may have."""
    if any(file.suffix in TABLES for file in files):
        return LONGEST
    n = n_texts = 0
    for file in files:
        size = len(_plain_text(file))
        n, n_texts = n + size, n_texts + (size > 0)
        if n_texts >= PIECES or n >= LONGEST * PIECES:
            return LONGEST
    return n // PIECES + 1


def cut(text: str, longest: int) -> Sequence[str]:
    """Cut a text into pieces of at most `longest` characters, after a blank line if possible.

    Together they are the text; an empty text has none.
    """
    pieces, start = [], 0
    while len(text) - start > longest:
        # Not at the very beginning of a piece, which would leave crumbs.
        window = start + longest // 4, start + longest
        end = next((place + len(mark) for mark in ("\n\n", "\n", " ")
                    if (place := text.rfind(mark, *window)) >= 0), start + longest)
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]] if text[start:] else pieces
