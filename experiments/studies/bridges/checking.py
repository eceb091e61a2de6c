"""What becomes of one architecture."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

from latentcode.errors import LatentCodeError
from latentcode.experiments.studies.bridges.small_models import NotBuiltError, make
from latentcode.probes.model_checks import ModelCheckResult, check_model
from latentcode.probes.model_checks.questions import TOLERANCES


def check_architecture(name: str) -> dict[str, Any]:
    """Return what became of an architecture: its results by precision, or why there are none."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Of sizes that no published model has.
        warnings.simplefilter("ignore")
        model = Path(folder) / "model"
        try:
            make(name, model)
        except NotBuiltError as error:
            return {"outcome": "not built", "reason": str(error)}
        found: dict[str, Any] = {}
        supported: dict[str, bool] = {}
        for dtype in TOLERANCES:
            try:
                result = check_model(model, dtype=dtype)
                found[dtype], supported[dtype] = _told(result), result.supported
            except LatentCodeError as error:
                found[dtype] = {"reason": str(error).replace(f"{str(model)!r} ", "")}
    if "reason" in found["float32"]:
        return {"outcome": "refused", "reason": found["float32"]["reason"]}
    return {"outcome": "supported" if supported["float32"] else "partly", **found}


def _told(result: ModelCheckResult) -> dict[str, Any]:
    """Return a result as JSON: the worst layer of every question."""
    worst = result.worst()
    return {"failed": list(result.failed), "trusted": result.trusted,
            "worst": {row.check: {"value": str(f"{row.value:.2g}"), "layer": row.layer,
                                  "outcome": row.outcome, "note": row.note}
                      for row in worst.itertuples()}}
