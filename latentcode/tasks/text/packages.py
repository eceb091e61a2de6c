"""Text that every machine has: documentation and sources of the installed Python packages.

Mostly English: of three Python files in four the docstrings and comments are taken, of the fourth
the source as it stands. The folder is in the layout of the Hugging Face hub:

    README.md     its card
    about.json    packages with versions, licences and sizes
    data/train-00000-of-00001.parquet    columns text, name, source (package), kind
"""

from __future__ import annotations

import hashlib
import platform
import re
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pandas as pd

from latentcode.errors import check
from latentcode.files.provenance import software
from latentcode.files.storage import replace_folder, write_json, write_text
from latentcode.tasks.text.docstrings import docstrings_and_comments
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
SOURCES = 4
"""Of so many Python files, one is taken as it stands."""
PARQUET = "data/train-00000-of-00001.parquet"


@dataclass(frozen=True)
class PackageText:
    """What was taken from one package."""

    name: str
    version: str
    licence: str
    documents: int
    bytes: int


def write_packages(
    out: str | Path, *, packages: Sequence[str] = (PYTHON, *PACKAGES),
    most_megabytes: float = MOST_MEGABYTES, overwrite: bool = False,
) -> list[PackageText]:
    """Write a folder of text in the hub's layout, and return what it was made from.

    out             the folder
    packages        names of installed distributions, or `python`; those that are not installed are
                    left out
    most_megabytes  of one package
    overwrite       replace a folder that was written so before

    It is the same for the same versions of the packages. `RunError` where `out` is occupied,
    `ConfigError` for a size that is none.
    """
    check(most_megabytes > 0, f"most_megabytes is {most_megabytes}; expected a number above 0")
    out = Path(out)
    seen: set[bytes] = set()
    documents: list[Document] = []
    about: list[PackageText] = []
    with replace_folder(out, overwrite=overwrite, marker=ABOUT) as folder:
        for name in packages:
            found = _installed(name)
            if found is None:
                continue
            chosen = list(_some_of(name, found, most_megabytes * 1e6, seen))
            about.append(PackageText(
                name, found.version if isinstance(found, Distribution)
                else platform.python_version(), _licence(found), len(chosen),
                sum(len(document.text.encode()) for document in chosen)))
            documents += sorted(chosen, key=lambda document: document.name)
        check(bool(documents), f"none of {', '.join(packages)} is installed, or has any text")
        (folder / PARQUET).parent.mkdir()
        pd.DataFrame([asdict(document) for document in documents]).to_parquet(
            folder / PARQUET, index=False)
        write_json(folder / ABOUT, {"made_with": software(),
                                    "packages": [asdict(package) for package in about]})
        write_text(folder / "README.md", _card(about))
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


def _licence(found: Distribution | Path) -> str:
    if isinstance(found, Path):
        return "PSF-2.0"
    metadata = found.metadata.json
    said = metadata.get("license_expression") or next(
        (line.rpartition(" :: ")[2] for line in metadata.get("classifier", ())
         if line.count(" :: ") > 1 and line.startswith("License :: ")), None)
    return str(said or next(iter(str(metadata.get("license", "")).strip().splitlines()), "unknown"))


def _card(about: Sequence[PackageText]) -> str:
    rows = "\n".join(f"| {p.name} | {p.version} | {p.licence} | {p.documents:,} | {p.bytes:,} |"
                     for p in about)
    total = sum(package.bytes for package in about)
    return f"""---
license: other
language: en
task_categories: [text-generation]
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*.parquet
---
# Text of installed Python packages

Documentation and sources of {len(about)} Python packages, {total / 1e6:.1f} MB: docstrings and
comments (kind `doc`), and every {SOURCES}th Python file as it stands (`py`), with stubs and
documents. Written by `latentcode zoo text packages`. Every text has the licence of its package.

| package | version | licence | documents | bytes |
|---|---|---|---|---|
{rows}
"""
