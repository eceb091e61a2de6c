"""One question each, asked of many models, with results that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentcode.probes.common.results import TableResult


def result_kinds() -> tuple[type[TableResult], ...]:
    """Return the results that studies save, which whoever opens folders adds to the probes'."""
    # A study trains models, and so takes seconds to import.
    from latentcode.experiments.studies.hyla_variance import HylaVarianceResult

    return (HylaVarianceResult,)
