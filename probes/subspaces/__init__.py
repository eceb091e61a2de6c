"""Is there a subspace of codes that carries the operation alone, or the operands alone?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.subspaces.fitting import Fit as Fit
    from latentcode.probes.subspaces.fitting import fit_subspace as fit_subspace
    from latentcode.probes.subspaces.of_model import find_subspace_model as find_subspace_model
    from latentcode.probes.subspaces.of_run import find_subspace as find_subspace
    from latentcode.probes.subspaces.result import SubspaceResult as SubspaceResult

__getattr__, __dir__, __all__ = lazy_module(__name__)
