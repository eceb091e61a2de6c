"""What does a model generate, with which codes, and what if these are patched?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.generation.generating import generate as generate
    from latentcode.probes.generation.result import Generation as Generation

__getattr__, __dir__, __all__ = lazy_module(__name__)
