"""Which result does a folder hold?"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from latentcode.probes.results import TableResult

RESULTS: dict[str, str] = {
    "DecodingResult": "latentcode.probes.results",
    "SimilarityResult": "latentcode.probes.similarity",
    "TopographyResult": "latentcode.probes.topography",
    "AlignmentResult": "latentcode.probes.alignment",
    "ProjectionResult": "latentcode.probes.projecting",
    "ValueNetworkResult": "latentcode.probes.value_network_result",
    "InterventionResult": "latentcode.probes.interventions.results",
}
"""Class -> its module, which is imported when a folder is opened."""


def load_result(folder: str | Path) -> TableResult | None:
    """Return the result that a folder holds, or None where it holds none; raises what `load` does.

    A folder is known by its JSON (`TableResult.marker`).
    """
    folder = Path(folder)
    for name, module in RESULTS.items():
        kind: type[TableResult] = getattr(import_module(module), name)
        if (folder / kind.marker()).is_file():
            return kind.load(folder)
    return None
