"""What do codes separate: do the nearest neighbours of a code have its label?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.separation.of_codes import separation_codes as separation_codes
    from latentcode.probes.separation.of_run import separation as separation
    from latentcode.probes.separation.purity import purity as purity
    from latentcode.probes.separation.result import SeparationResult as SeparationResult

__getattr__, __dir__, __all__ = lazy_module(__name__)
