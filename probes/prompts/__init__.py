"""The same questions, asked of a language model about prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.prompts.decoding import decode_prompts as decode_prompts
    from latentcode.probes.prompts.interventions import intervene_prompts as intervene_prompts

__getattr__, __dir__, __all__ = lazy_module(__name__)
