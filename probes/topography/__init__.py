"""Representational similarity analysis: are close tasks given close codes?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.topography.correlation import topography as topography
    from latentcode.probes.topography.correlation import topography_codes as topography_codes
    from latentcode.probes.topography.result import TopographyResult as TopographyResult

__getattr__, __dir__, __all__ = lazy_module(__name__)
