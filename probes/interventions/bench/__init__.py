"""One instance, what is written into its codes, and its answer beside those of controls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.interventions.bench.bench import DRAWS as DRAWS
    from latentcode.probes.interventions.bench.bench import Bench as Bench
    from latentcode.probes.interventions.bench.outcome import BenchOutcome as BenchOutcome
    from latentcode.probes.interventions.bench.outcome import Writing as Writing

__getattr__, __dir__, __all__ = lazy_module(__name__)
