"""Which heads attend to what, and what do they cause, alone and together?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.registry import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.heads.measure import HeadsResult as HeadsResult
    from latentcode.probes.heads.measure import heads as heads

__getattr__, __dir__, __all__ = lazy_module(__name__)
