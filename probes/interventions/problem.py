"""Former names of `latentcode.probes.interventions.patches`."""

from __future__ import annotations

from latentcode.probes.interventions.patches import Problem as Problem
