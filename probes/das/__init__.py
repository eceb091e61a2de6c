"""Distributed alignment search: does a subspace carry the operation, or the operands, alone?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.das.result import DASResult as DASResult
    from latentcode.probes.das.search import Fit as Fit
    from latentcode.probes.das.search import fit_subspace as fit_subspace
    from latentcode.probes.das.subspaces import das as das
    from latentcode.probes.das.subspaces import das_model as das_model

__getattr__, __dir__, __all__ = lazy_module(__name__)
