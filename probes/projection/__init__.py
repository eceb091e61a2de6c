"""What do the codes look like in two dimensions, and how far can the picture be trusted?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.projection.methods import fit_projection as fit_projection
    from latentcode.probes.projection.projection import project as project
    from latentcode.probes.projection.projection import project_codes as project_codes
    from latentcode.probes.projection.result import ProjectionResult as ProjectionResult

__getattr__, __dir__, __all__ = lazy_module(__name__)
