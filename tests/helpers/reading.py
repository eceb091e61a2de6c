"""Features of one pair, of a model on a task or on prompts, as tests read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latentcode.codes.features import read_features
from latentcode.codes.reader import Reader, Rows, TaskSource
from latentcode.errors import as_tuple
from latentcode.prompts import as_language_model, as_prompts
from latentcode.prompts.codes import PromptSource


def read_rows(
    model: Any, task: Any, *, n: int, features: Sequence[str] | str, pair: str | None = None,
    layers: Any = None, batch_size: int = 256,
) -> Rows:
    """Read features of instances of the split `ood`."""
    return read_features(Reader(model, TaskSource(task, "ood", n=n, pairs=pair), layers=layers,
                                batch_size=batch_size, meta={}), as_tuple(features))


def read_prompt_rows(
    model: Any, prompts: Any, *, features: Sequence[str] | str, pair: str | None = None,
    layers: Any = None, batch_size: int = 32,
) -> Rows:
    """Read features of prompts, at the first pair unless another is named."""
    features, prompts = as_tuple(features), as_prompts(prompts)
    source = PromptSource(as_language_model(model), prompts, features=features,
                          pair=prompts.pairs[0].name if pair is None else pair)
    return read_features(Reader(source.model.model, source, layers=layers, batch_size=batch_size,
                                meta={}), features)
