"""A question is asked of a model on problems: which model is meant, and which problems?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.registry import lazy_module

if TYPE_CHECKING:
    from latentcode.subjects.arguments import Model as Model
    from latentcode.subjects.arguments import Problems as Problems
    from latentcode.subjects.arguments import Split as Split
    from latentcode.subjects.base import Subject as Subject
    from latentcode.subjects.resolving import extract as extract
    from latentcode.subjects.resolving import subject as subject

__getattr__, __dir__, __all__ = lazy_module(__name__)
