"""Which result does a folder hold?"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from latentcode.probes.common.results import TableResult

RESULTS: dict[str, tuple[str, str]] = {
    "decoding.json": ("latentcode.probes.common.results", "DecodingResult"),
    "similarity.json": ("latentcode.probes.similarity.of_codes", "SimilarityResult"),
    "topography.json": ("latentcode.probes.topography.of_codes", "TopographyResult"),
    "alignment.json": ("latentcode.probes.alignment.of_codes", "AlignmentResult"),
    "projection.json": ("latentcode.probes.projection.of_codes", "ProjectionResult"),
    "value_networks.json": ("latentcode.probes.value_networks.result", "ValueNetworkResult"),
    "interventions.json": ("latentcode.probes.interventions.result", "InterventionResult"),
    "hyla_variance.json": ("latentcode.experiments.studies.hyla_variance", "HylaVarianceResult"),
}
"""`TableResult.marker` -> module and class, imported when a folder with that file is opened.

Names and not imports: the class may stand in a room above this one.
"""


def load_result(folder: str | Path) -> TableResult | None:
    """Return the result that a folder holds, or None where it holds none; raises what `load` does.

    A folder is known by its JSON (`TableResult.marker`).
    """
    folder = Path(folder)
    for marker, (module, name) in RESULTS.items():
        if (folder / marker).is_file():
            kind: type[TableResult] = getattr(import_module(module), name)
            return kind.load(folder)
    return None
