"""The trained models that come with the library, and their cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.zoo.loading import list_models as list_models
    from latentcode.zoo.loading import load_card as load_card
    from latentcode.zoo.loading import load_codes as load_codes
    from latentcode.zoo.loading import load_model as load_model

__getattr__, __dir__, __all__ = lazy_module(__name__)
