"""Which result does a folder hold?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from latentcode.errors import ArtifactError, check_choice
from latentcode.files.storage import read_json
from latentcode.probes.common.results import META_KEYS, TableResult
from latentcode.probes.questions import results

RESULTS: tuple[type[TableResult], ...] = tuple(
    getattr(import_module(module), name) for name, module in results().items())
"""The results of all questions; what each imports is what its pictures need."""


def load_result(folder: str | Path) -> TableResult | None:
    """Return the result that a folder holds, or None where it holds none; raises what `load` does.

    A folder is known by its JSON (`TableResult.marker`).

    `UnknownNameError` for a result of a kind that is not known.
    """
    folder = Path(folder)
    for kind in RESULTS:
        if (folder / kind.marker()).is_file():
            return kind.load(folder)
    for path in sorted(folder.glob("*.json")):
        described = _read(path)
        if set(described) == META_KEYS:
            check_choice(f"result in {path}, of format", described["format"],
                         [kind.FORMAT for kind in RESULTS])
    return None


def _read(path: Path) -> Mapping[str, object]:
    """Return what a JSON holds, nothing where it is damaged or no mapping."""
    with suppress(ArtifactError):
        data = read_json(path)
        if isinstance(data, dict):
            return data
    return {}
