"""What do codes cause? Write others in their place, at any layers and scope, beside controls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.registry import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.interventions.bench import Bench as Bench
    from latentcode.probes.interventions.intervention import (
        InterventionResult as InterventionResult,
    )
    from latentcode.probes.interventions.intervention import intervene as intervene
    from latentcode.probes.interventions.intervention import intervene_model as intervene_model
    from latentcode.probes.interventions.outcomes import BenchOutcome as BenchOutcome
    from latentcode.probes.interventions.outcomes import Replication as Replication
    from latentcode.probes.interventions.patch import Patch as Patch
    from latentcode.probes.interventions.patch import first_interventions as first_interventions
    from latentcode.probes.interventions.patch import (
        standard_interventions as standard_interventions,
    )
    from latentcode.probes.interventions.patches import PATCHES as PATCHES
    from latentcode.probes.interventions.patches import ByHand as ByHand
    from latentcode.probes.interventions.patches import Problem as Problem
    from latentcode.probes.interventions.patches import register_patch as register_patch

__getattr__, __dir__, __all__ = lazy_module(__name__)
