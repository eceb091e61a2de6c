"""The figures and tables that were reproduced, as they lie in a folder.

    OUT/PRESET/NAME/result.json
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from latentcode.config import parse_yaml
from latentcode.errors import ArtifactError, check
from latentcode.experiments.paper.claims import RESULTS
from latentcode.files.formats import check_format
from latentcode.files.storage import read_json

FORMAT = "latentcode.reproduction"
RESULT = "result.json"
KEYS = ("name", "title", "preset", "digest", "summary", "notes", "claims", "tables", "figures",
        "selection", "runs", "missing", "minutes", "environment")
"""What it holds, beside its format."""
N_SPLITS: Mapping[str, int] = {"paper": 3, "small": 1, "smoke": 1}
"""On how many splits a member should have a run; the paper has three seeds."""


def read_result(folder: Path) -> dict[str, Any]:
    """Return what `result.json` of a result holds; `ArtifactError` for a damaged one."""
    found = check_format(read_json(folder / RESULT), FORMAT, folder / RESULT)
    lacking = [key for key in KEYS if key not in found]
    check(not lacking, f"{folder / RESULT} lacks {', '.join(lacking)}; expected a result as "
          "`latentcode reproduce` writes it", ArtifactError)
    return found


def results_in(out: Path, preset: str) -> dict[str, dict[str, Any]]:
    """Return every result of a preset that is there, in the order of the paper."""
    return {name: read_result(out / preset / name) for name in RESULTS
            if (out / preset / name / RESULT).exists()}


def remarks() -> Mapping[str, str]:
    """Return claim -> what was tried, for claims that differ."""
    found: dict[str, str] = _read("remarks.yaml") or {}
    return found


def answers() -> Mapping[str, Mapping[str, str]]:
    """Return claim -> `under`, the reading under which it differs, and `answer`, what the authors
    could say to that; for claims of the paper that differ."""
    entries: list[dict[str, Any]] = _read("answers.yaml") or []
    return {claim: entry for entry in entries for claim in entry["claims"]}


def central() -> list[Mapping[str, Any]]:
    """Return what the paper's abstract says: a `sentence` each, and the `claims` it rests on."""
    found: list[Mapping[str, Any]] = _read("central.yaml")
    return found


def _read(name: str) -> Any:
    text = files("latentcode.experiments.paper").joinpath(name).read_text("utf-8")
    return parse_yaml(text, name)
