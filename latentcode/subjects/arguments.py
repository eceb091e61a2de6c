"""Types of the arguments that every question takes: a model, problems, and a split.

They stand apart so that nothing is imported for their sake when a question is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import pandas as pd
from transformer_lens.model_bridge import TransformerBridge

from latentcode.codes import LatentCodes
from latentcode.config import TaskConfig
from latentcode.models.transformer import HookedTransformer
from latentcode.prompts import LanguageModel, Prompts
from latentcode.runs import Run
from latentcode.subjects.base import Subject
from latentcode.tasks import Task

Model: TypeAlias = (Run | str | Path | HookedTransformer | TransformerBridge | LanguageModel
                    | LatentCodes | Subject)
Problems: TypeAlias = (Task | TaskConfig | Prompts | pd.DataFrame | str | Path | Sequence[str]
                       | LatentCodes | None)
Split: TypeAlias = Literal["train", "test", "ood", "unknown"] | str
