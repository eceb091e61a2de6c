"""Where are the codes that the answer hangs on? Attribution, single patches, small sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.attribution.attribution import attribute as attribute
    from latentcode.probes.attribution.attribution import attribute_model as attribute_model
    from latentcode.probes.attribution.result import AttributionResult as AttributionResult

__getattr__, __dir__, __all__ = lazy_module(__name__)
