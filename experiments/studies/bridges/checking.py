"""What becomes of every architecture."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.errors import LatentCodeError
from latentcode.experiments.studies.bridges.small_models import NotBuiltError, make, names
from latentcode.files.provenance import package_version
from latentcode.probes.model_checks import check_model
from latentcode.probes.model_checks.questions import TOLERANCES
from latentcode.progress import Progress

Rows = list[dict[str, Any]]


def architectures(work: Path, *, progress: Progress | None = None) -> dict[str, pd.DataFrame]:
    """Return what became of every architecture that has a bridge.

    architectures  a row each: its `outcome` (supported, partly, refused, not built) and `reason`;
                   the `others`, which in a hybrid stand in layers without attention; the function
                   of the `gate` of its attention
    precisions     a row per architecture that was opened and precision: the `reason` if it cannot
                   be checked; else the checks that `failed`, and whether each verb is trusted
    worst          the worst layer of every check of these: its `value`, `outcome` and `note`
    versions       of the packages
    """
    found: dict[str, Rows] = {"architectures": [], "precisions": [], "worst": []}
    every = names()
    for number, name in enumerate(every, 1):
        for table, rows in check_architecture(name).items():
            found[table] += rows
        if progress is not None:
            progress(number, len(every))
    return {**{name: pd.DataFrame(rows) for name, rows in found.items()},
            "versions": pd.DataFrame([{"package": name, "version": package_version(name)}
                                      for name in ("transformer-lens", "transformers")])}


def check_architecture(name: str) -> dict[str, Rows]:
    """Return the rows of an architecture: see `architectures`."""
    precisions: Rows = []
    worst: Rows = []
    supported = False
    about_it = {"others": "", "gate": ""}

    def outcome(said: str, reason: str = "") -> dict[str, Rows]:
        return {"architectures": [{"architecture": name, "outcome": said, "reason": reason,
                                   **about_it}],
                "precisions": precisions, "worst": worst}

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Of sizes that no published model has.
        warnings.simplefilter("ignore")
        model = Path(folder) / "model"
        try:
            make(name, model)
        except NotBuiltError as error:
            return outcome("not built", str(error))
        for dtype in sorted(TOLERANCES):
            about = {"architecture": name, "dtype": dtype}
            try:
                result = check_model(model, dtype=dtype)
            except LatentCodeError as error:
                reason = str(error).replace(f"{str(model)!r} ", "")
                if dtype == "float32":
                    return outcome("refused", reason)
                precisions.append({**about, "reason": reason})
                continue
            about_it = {"others": ", ".join(sorted(set(result.settings["others"].values()))),
                        "gate": ", ".join(result.settings["gates"])}
            supported |= dtype == "float32" and result.supported
            precisions.append({**about, "reason": "", "failed": ", ".join(result.failed),
                               **result.trusted})
            worst += [{**about, "check": row.check, "value": row.value, "layer": row.layer,
                       "outcome": row.outcome, "note": row.note}
                      for row in result.worst().itertuples()]
    return outcome("supported" if supported else "partly")
