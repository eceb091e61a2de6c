"""Do models that differ in their seed, layer or attention kind have the same codes?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.alignment.alignment import align as align
    from latentcode.probes.alignment.alignment import align_codes as align_codes
    from latentcode.probes.alignment.result import AlignmentResult as AlignmentResult

__getattr__, __dir__, __all__ = lazy_module(__name__)
