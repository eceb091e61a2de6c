"""kNN purity: how many of a code's k nearest neighbours have its label?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.knn_purity.purity import purity as purity
    from latentcode.probes.knn_purity.result import KNNPurityResult as KNNPurityResult
    from latentcode.probes.knn_purity.separation import knn_purity as knn_purity
    from latentcode.probes.knn_purity.separation import knn_purity_codes as knn_purity_codes

__getattr__, __dir__, __all__ = lazy_module(__name__)
