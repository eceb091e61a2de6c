"""Language models and prompts: what is asked, what is read of them, minimal pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.registry import lazy_module

if TYPE_CHECKING:
    from latentcode.prompts.answers import score_prompts as score_prompts
    from latentcode.prompts.language_models import LanguageModel as LanguageModel
    from latentcode.prompts.language_models import OwnLanguageModel as OwnLanguageModel
    from latentcode.prompts.language_models import (
        PretrainedLanguageModel as PretrainedLanguageModel,
    )
    from latentcode.prompts.language_models import as_language_model as as_language_model
    from latentcode.prompts.language_models import load_language_model as load_language_model
    from latentcode.prompts.prompt_tasks import make_prompts as make_prompts
    from latentcode.prompts.prompts import Prompts as Prompts
    from latentcode.prompts.prompts import Tokens as Tokens
    from latentcode.prompts.prompts import as_prompts as as_prompts

__getattr__, __dir__, __all__ = lazy_module(__name__)
