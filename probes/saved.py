"""Saved results of every kind, opened from their folders."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from latentcode.errors import ArtifactError, check, check_choice
from latentcode.files.storage import read_json
from latentcode.probes.common.results import META_KEYS, TableResult

RESULTS: Mapping[str, tuple[str, str]] = {
    "alignment": ("alignment", "AlignmentResult"),
    "attribution": ("attribution", "AttributionResult"),
    "subspaces": ("das", "DASResult"),
    "decoding": ("decoding", "DecodingResult"),
    "heads": ("heads", "HeadsResult"),
    "interventions": ("interventions", "InterventionResult"),
    "separation": ("knn_purity", "KNNPurityResult"),
    "model_checks": ("model_checks", "ModelCheckResult"),
    "probe": ("registered", "ProbeResult"),
    "projection": ("projection", "ProjectionResult"),
    "similarity": ("similarity", "SimilarityResult"),
    "topography": ("topography", "TopographyResult"),
    "value_networks": ("value_networks", "ValueNetworksResult")}
"""Kind of result, by the name of its format -> the probe's module, which is imported for a folder
of that kind, and the class."""


def load_result(folder: str | Path) -> TableResult:
    """Open a saved result of any kind.

    Args:
        folder: The folder that `save` or `--out` wrote.

    Raises:
        ArtifactError: The folder holds no result, or a damaged one.
        UnknownNameError: It holds a result of a kind that is not known.
    """
    kind = result_kind(folder)
    check(kind is not None, f"{folder} holds no result; expected a folder that a result was saved "
          "in", ArtifactError)
    assert kind is not None
    return kind.load(folder)


def result_kind(folder: str | Path) -> type[TableResult] | None:
    """Return the class of the result that a folder holds, known by its JSON; None without one.

    Raises:
        UnknownNameError: The folder holds a result of a kind that is not known.
    """
    folder = Path(folder)
    for kind in RESULTS:
        if (folder / f"{kind}.json").is_file():
            return result_class(kind)
    for path in sorted(folder.glob("*.json")):
        with suppress(ArtifactError):  # a damaged JSON is no result
            described = read_json(path)
            if isinstance(described, dict) and set(described) == META_KEYS:
                check_choice(f"result in {path}, of format", described["format"],
                             [f"latentcode.{kind}" for kind in RESULTS])
    return None


def result_class(kind: str) -> type[TableResult]:
    """Return the class of a kind of result, one of `RESULTS`."""
    module, name = RESULTS[kind]
    found: type[TableResult] = getattr(import_module(f"latentcode.probes.{module}"), name)
    return found
