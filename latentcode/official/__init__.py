"""Agreement with the paper's code: its files, and its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.official.files import CONVERSION as CONVERSION
    from latentcode.official.files import export_flax as export_flax
    from latentcode.official.files import import_flax as import_flax

__getattr__, __dir__, __all__ = lazy_module(__name__)
