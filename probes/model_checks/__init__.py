"""Can what is read from and written into a pretrained model be trusted?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.model_checks.answers import check_model as check_model
    from latentcode.probes.model_checks.result import ModelCheckResult as ModelCheckResult

__getattr__, __dir__, __all__ = lazy_module(__name__)
