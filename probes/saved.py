"""Saved results of every kind, opened from their folders."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from latentcode.errors import ArtifactError, check, check_choice
from latentcode.files.storage import read_json
from latentcode.probes.alignment import AlignmentResult
from latentcode.probes.attribution import AttributionResult
from latentcode.probes.common.results import META_KEYS, TableResult
from latentcode.probes.das import DASResult
from latentcode.probes.decoding import DecodingResult
from latentcode.probes.heads import HeadsResult
from latentcode.probes.interventions import InterventionResult
from latentcode.probes.knn_purity import KNNPurityResult
from latentcode.probes.model_checks import ModelCheckResult
from latentcode.probes.projection import ProjectionResult
from latentcode.probes.registered import ProbeResult
from latentcode.probes.similarity import SimilarityResult
from latentcode.probes.topography import TopographyResult
from latentcode.probes.value_networks import ValueNetworksResult

RESULTS: tuple[type[TableResult], ...] = (
    AlignmentResult, AttributionResult, DASResult, DecodingResult, HeadsResult, InterventionResult,
    KNNPurityResult, ModelCheckResult, ProbeResult, ProjectionResult, SimilarityResult,
    TopographyResult, ValueNetworksResult)
"""The results of all questions; what each imports is what its pictures need."""


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
        if (folder / kind.marker()).is_file():
            return kind
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
