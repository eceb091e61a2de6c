"""Texts to train language models on, made without a network.

A grid names such a text by a path relative to the current folder, so that runs do not hold the
paths of a machine, and `make_texts` writes it where it is missing. Which state of the text a run
was trained on is recorded in the run (its `task.revision`, and `text/` beside its checkpoints).

`packages`  docstrings, documents and sources of the installed Python packages, as a folder in the
            layout of the Hugging Face hub: `data/train-00000-of-00001.parquet` with columns text,
            name, source (package) and kind, and `about.json` with packages and versions. Of three
            Python files in four only the docstrings are taken (kind `doc`), the fourth is taken
            whole. The same versions give the same text, bit for bit
`spans`     a text in which copying pays: documents whose few spans of random words are repeated.
            Only what a document has shown before tells which word comes next within a span, so
            that a model that predicts it copies (as on the repeated random tokens of Olsson et
            al., In-context Learning and Induction Heads, 2022)
"""

from __future__ import annotations

import ast
import hashlib
import json
import platform
import re
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd

from latentcode.config import LanguageConfig, RunConfig
from latentcode.errors import check
from latentcode.files.provenance import software
from latentcode.files.storage import replace_folder, write_json, write_text
from latentcode.tasks.text.sources import ABOUT
from latentcode.tasks.text.streams import Document

PACKAGES = (
    "python", "accelerate", "datasets", "fsspec", "huggingface-hub", "jinja2", "joblib",
    "matplotlib", "mpmath", "networkx", "numba", "numpy", "opentsne", "pandas", "pillow", "pyarrow",
    "pyyaml", "rich", "scikit-learn", "scipy", "sympy", "torch", "transformer-lens", "transformers",
    "tyro", "umap-learn")
"""The standard library and packages that come with latentcode, whatever else is installed."""
SUFFIXES = (".py", ".pyi", ".rst", ".md", ".txt")
LEFT_OUT = re.compile(r"(^|/)(tests?|testing|idlelib|lib2to3|_vendor|site-packages)/"
                      r"|\.dist-info/|\.egg-info/|(licen[cs]e|copying|notice|authors|version)[^/]*$",
                      re.IGNORECASE)
"""Paths of tests, of other people's packages inside of a package, and of legal texts."""
GENERATED = re.compile(r"do not (edit|modify)|auto-?\s?generated|generated (by|from|automatically)",
                       re.IGNORECASE)
MOST_MEGABYTES = 3.0
"""Of one package, so that none dominates."""
SHORTEST, LONGEST, LONGEST_LINE = 200, 200_000, 300
"""Characters of a document, and of a line."""
LETTERS = 0.5
"""Least share of letters among the characters that are no white space: tables have fewer."""
SOURCES = 4
"""Of so many Python files, one is taken whole."""
PARQUET = "data/train-00000-of-00001.parquet"

WORDS = tuple(a + b for a, b in product(
    ("ba", "de", "fi", "go", "hu", "ja", "ke", "li"),
    ("bek", "dal", "fom", "gur", "hin", "jop", "kes", "lat")))
DOCUMENTS = "documents.jsonl"
N_DOCUMENTS = 8_000
N_SPANS, LENGTH, N_COPIES = 2, (6, 10), 12
"""Different spans of a document, words of a span, and spans in a document, repeated ones included.
"""


def write_packages(
    out: str | Path, *, packages: Sequence[str] = PACKAGES, most_megabytes: float = MOST_MEGABYTES,
    overwrite: bool = False,
) -> list[dict[str, Any]]:
    """Write the text of installed packages into a folder.

    Args:
        out: Folder to write.
        packages: Names of distributions, or `python` for the standard library; those that are not
            installed are left out.
        most_megabytes: Limit for each package.
        overwrite: Replace a folder that was written so before.

    Returns:
        A record of each package: name, version, documents, bytes; `about.json` holds the same.

    Raises:
        RunError: If `out` is occupied.
        ConfigError: If no package has any text.
    """
    seen: set[bytes] = set()
    documents: list[Document] = []
    about: list[dict[str, Any]] = []
    with replace_folder(Path(out), overwrite=overwrite, marker=ABOUT) as folder:
        for name in packages:
            if name == "python":
                version, library = platform.python_version(), Path(sysconfig.get_path("stdlib"))
                files = {path.relative_to(library).as_posix(): path for path in library.rglob("*")}
            else:
                try:
                    installed = distribution(name)
                except PackageNotFoundError:
                    continue
                version = installed.version
                files = {path.as_posix(): Path(str(path.locate()))
                         for path in installed.files or ()}
            files = {file: path for file, path in files.items()
                     if path.suffix in SUFFIXES and not LEFT_OUT.search(file)}
            if not files:
                continue
            chosen = list(_documents(name, files, most_megabytes * 1e6, seen))
            about.append({"name": name, "version": version, "documents": len(chosen),
                          "bytes": sum(len(document.text.encode()) for document in chosen)})
            documents += sorted(chosen, key=lambda document: document.name)
        check(bool(documents), f"none of {', '.join(packages)} is installed, or has any text")
        (folder / PARQUET).parent.mkdir()
        pd.DataFrame([asdict(document) for document in documents]).to_parquet(
            folder / PARQUET, index=False)
        write_json(folder / ABOUT, {"made_with": software(), "packages": about})
    return about


def _documents(
    package: str, files: Mapping[str, Path], most: float, seen: set[bytes]
) -> Iterator[Document]:
    """Yield documents that were not seen yet, at most so many bytes, spread over a package."""
    for name in sorted(files, key=lambda name: hashlib.sha256(name.encode()).digest()):
        try:
            text = files[name].read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if GENERATED.search(text[:2_000]):
            continue
        kind = files[name].suffix[1:]
        if kind == "py" and hashlib.sha256(name.encode()).digest()[0] % SOURCES:
            kind, text = "doc", docstrings(text)
        text = text.strip()
        digest = hashlib.sha256(text.encode()).digest()
        if digest in seen or not is_prose_or_code(text):
            continue
        seen.add(digest)
        most -= len(text.encode())
        if most < 0:
            return
        yield Document(text, f"{package}/{name}", package, kind)


def is_prose_or_code(text: str) -> bool:
    """Whether a text is of a sensible length, was typed by people, and is no table."""
    if not SHORTEST <= len(text) <= LONGEST or max(map(len, text.splitlines())) > LONGEST_LINE:
        return False
    printed = [c for c in text if not c.isspace()]
    return sum(map(str.isalpha, printed)) >= LETTERS * len(printed)


def docstrings(source: str) -> str:
    """Return the docstrings of a Python file in their order, each below the name of its object.

    Empty for a file that is no Python of this version.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes in other people's strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    documented = [node for node in ast.walk(tree) if isinstance(
        node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
    texts = [(getattr(node, "lineno", 0), getattr(node, "name", ""), ast.get_docstring(node))
             for node in documented]
    return "\n\n".join(f"{name}\n{text}".strip() for _, name, text in sorted(
        texts, key=lambda item: item[0]) if text)


def span_document(seed: int) -> str:
    """Return a document of repeated spans in random order, the same for the same seed.

    No two spans share a word, so that every word but a span's last determines the next one.
    """
    random = Random(seed)
    lengths = [random.randint(*LENGTH) for _ in range(N_SPANS)]
    words = iter(random.sample(WORDS, sum(lengths)))
    spans = [" ".join(islice(words, length)) for length in lengths]
    return " ".join(random.choices(spans, k=N_COPIES))


def write_spans(out: str | Path, n: int = N_DOCUMENTS, *, overwrite: bool = False) -> None:
    """Write n documents of repeated spans as `documents.jsonl`, the same on every machine.

    Raises:
        RunError: If the folder `out` is occupied; with `overwrite`, by something else.
    """
    with replace_folder(Path(out), overwrite=overwrite, marker=DOCUMENTS) as folder:
        write_text(folder / DOCUMENTS, "".join(
            json.dumps({"text": span_document(seed), "name": f"{seed}"}) + "\n"
            for seed in range(n)))


TEXTS: Mapping[str, Callable[[str], Any]] = {
    "text/packages": write_packages,
    "text/smoke": partial(write_packages, packages=("jinja2", "joblib", "pyyaml"),
                          most_megabytes=0.2),
    "text/spans": write_spans}
"""Path, as grids name it -> the function that writes the text."""


def make_texts(configs: Iterable[RunConfig]) -> None:
    """Write those of `TEXTS` that configurations name and that are not in the current folder."""
    named = {config.task.text for config in configs if isinstance(config.task, LanguageConfig)}
    for text in named & set(TEXTS):
        if not Path(text).exists():
            TEXTS[text](text)
