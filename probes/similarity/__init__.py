"""Which values of a label have similar codes, and how many heads does a code use?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.similarity.cosines import similarity as similarity
    from latentcode.probes.similarity.cosines import similarity_codes as similarity_codes
    from latentcode.probes.similarity.result import SimilarityResult as SimilarityResult

__getattr__, __dir__, __all__ = lazy_module(__name__)
