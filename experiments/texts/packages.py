"""The text of the grid `fig6_small`: documentation and sources of the installed Python packages.

Of three Python files in four the docstrings and comments are taken (kind `doc`), of the fourth the
source as it stands. The same versions of the packages give the same text, bit for bit, and runs of
it the same `task.revision`. It is a folder in the layout of the Hugging Face hub:

    about.json    packages with versions, licences and sizes
    data/train-00000-of-00001.parquet    columns text, name, source (package), kind
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.errors import check
from latentcode.files.provenance import software
from latentcode.files.storage import replace_folder, write_json
from latentcode.tasks.text.documents import ABOUT, Document

PACKAGES = (
    "accelerate", "datasets", "fsspec", "huggingface-hub", "jinja2", "joblib", "matplotlib",
    "mpmath", "networkx", "numba", "numpy", "opentsne", "pandas", "pillow", "pyarrow", "pyyaml",
    "rich", "scikit-learn", "scipy", "sympy", "torch", "transformer-lens", "transformers", "tyro",
    "umap-learn")
"""Packages that come with latentcode, whatever else is installed."""
PYTHON = "python"
"""What the standard library is called among them."""
SUFFIXES = (".py", ".pyi", ".rst", ".md", ".txt")
LEFT_OUT = re.compile(r"(^|/)(tests?|testing|idlelib|lib2to3|_vendor|site-packages)/"
                      r"|\.dist-info/|\.egg-info/|(licen[cs]e|copying|notice|authors|version)[^/]*$",
                      re.IGNORECASE)
"""Paths of tests, of other people's packages inside of a package, and of legal texts."""
GENERATED = re.compile(r"do not (edit|modify)|auto-?\s?generated|generated (by|from|automatically)",
                       re.IGNORECASE)
MOST_MEGABYTES = 3.0
"""Of one package, so that none dominates."""
SHORTEST, LONGEST = 200, 200_000
"""Characters of a document."""
LONGEST_LINE = 300
LETTERS = 0.5
"""Least share of letters among the characters that are no white space: tables have fewer."""
SENTENCE = 60
"""Characters of a comment that is worth keeping."""
SOURCES = 4
"""Of so many Python files, one is taken as it stands."""
PARQUET = "data/train-00000-of-00001.parquet"


def write_packages(
    out: str | Path, *, packages: Sequence[str] = (PYTHON, *PACKAGES),
    most_megabytes: float = MOST_MEGABYTES, overwrite: bool = False,
) -> list[dict[str, Any]]:
    """Write the text of packages into a folder, and return what `about.json` says of each.

    packages        names of installed distributions, or `python`; those that are not installed are
                    left out
    most_megabytes  of one package
    overwrite       replace a folder that was written so before

    `RunError` where `out` is occupied, `ConfigError` where no package has any text.
    """
    seen: set[bytes] = set()
    documents: list[Document] = []
    about: list[dict[str, Any]] = []
    with replace_folder(Path(out), overwrite=overwrite, marker=ABOUT) as folder:
        for name in packages:
            found = _installed(name)
            if found is None:
                continue
            chosen = list(_some_of(name, found, most_megabytes * 1e6, seen))
            about.append({
                "name": name, "version": found.version if isinstance(found, Distribution)
                else platform.python_version(), "licence": _licence(found),
                "documents": len(chosen),
                "bytes": sum(len(document.text.encode()) for document in chosen)})
            documents += sorted(chosen, key=lambda document: document.name)
        check(bool(documents), f"none of {', '.join(packages)} is installed, or has any text")
        (folder / PARQUET).parent.mkdir()
        pd.DataFrame([asdict(document) for document in documents]).to_parquet(
            folder / PARQUET, index=False)
        write_json(folder / ABOUT, {"made_with": software(), "packages": about})
    return about


def _installed(name: str) -> Distribution | Path | None:
    """Return a distribution, the folder of the standard library, or None."""
    if name == PYTHON:
        return Path(sysconfig.get_paths()["stdlib"])
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _some_of(
    package: str, found: Distribution | Path, most: float, seen: set[bytes]
) -> Iterator[Document]:
    """Return documents of a package that were not seen, at most so many bytes, spread over it."""
    files = sorted(_files(found), key=lambda item: hashlib.sha256(item[0].encode()).digest())
    for name, file in files:
        try:
            source = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if GENERATED.search(source[:2_000]):
            continue
        kind, text = file.suffix[1:], source
        if kind == "py" and hashlib.sha256(name.encode()).digest()[0] % SOURCES:
            kind, text = "doc", docstrings_and_comments(source)
        text = text.strip()
        digest = hashlib.sha256(text.encode()).digest()
        if digest in seen or not is_prose_or_code(text):
            continue
        seen.add(digest)
        most -= len(text.encode())
        if most < 0:
            return
        yield Document(text, f"{package}/{name}", package, kind)


def _files(found: Distribution | Path) -> Iterator[tuple[str, Path]]:
    if isinstance(found, Path):
        named = ((file.relative_to(found).as_posix(), file) for file in found.rglob("*"))
    else:
        named = ((file.as_posix(), Path(str(file.locate()))) for file in found.files or ())
    return ((name, file) for name, file in named
            if file.suffix in SUFFIXES and not LEFT_OUT.search(name))


def is_prose_or_code(text: str) -> bool:
    """Whether a text is of a sensible length, was typed by people, and is no table."""
    if not SHORTEST <= len(text) <= LONGEST or max(map(len, text.splitlines())) > LONGEST_LINE:
        return False
    printed = [c for c in text if not c.isspace()]
    return sum(map(str.isalpha, printed)) >= LETTERS * len(printed)


def docstrings_and_comments(source: str) -> str:
    """Return the docstrings of a file, below the names of what they describe, and its comments.

    Empty for a file that is no Python of this version.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes in other people's strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    in_string = {line for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)
                 for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    found = [*_docstrings(tree, ""), *_comments(source.splitlines(), in_string)]
    return "\n\n".join(text for _, text in sorted(found))


def _docstrings(node: ast.AST, name: str) -> Iterator[tuple[int, str]]:
    """Return line and text of the docstrings of a module, class or function and those within."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if said := ast.get_docstring(node, clean=False):
            text = inspect.cleandoc(said)
            yield node.body[0].lineno, f"{name}\n{text}" if name else text
        for child in ast.iter_child_nodes(node):
            inner = getattr(child, "name", "")
            yield from _docstrings(child, f"{name}.{inner}" if name and inner else inner)


def _comments(lines: list[str], in_string: set[int]) -> Iterator[tuple[int, str]]:
    """Return line and text of successive lines of comment that say a sentence."""
    block: list[str] = []
    for number, line in enumerate([*lines, ""], 1):
        stripped = line.strip()
        if stripped.startswith("#") and number not in in_string:
            block.append(stripped.lstrip("#").removeprefix(" "))
            continue
        text = "\n".join(block).strip()
        if len(text) >= SENTENCE:
            yield number - len(block), text
        block = []


def _licence(found: Distribution | Path) -> str:
    if isinstance(found, Path):
        return "PSF-2.0"
    metadata = found.metadata.json
    said = metadata.get("license_expression") or next(
        (line.rpartition(" :: ")[2] for line in metadata.get("classifier", ())
         if line.count(" :: ") > 1 and line.startswith("License :: ")), None)
    return str(said or next(iter(str(metadata.get("license", "")).strip().splitlines()), "unknown"))
