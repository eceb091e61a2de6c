"""What was said, token by token, and the codes by which it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.errors import check
from latentcode.tasks.pairs import Pair


@dataclass(frozen=True, repr=False)
class Generation:
    """A text that a model went on with: N new tokens after P of the prompt.

    prompt    the text that was given
    text      what the model went on to say
    tokens    ids of all P + N tokens
    n_prompt  P
    table     one row per new token: `token`, `text`, `position` (from 0, in the whole text) and
              `logprob`, log p of the token in nats, at temperature 1
    scores    float32 [N, layer, head, P + N]: of each new token the row of codes of the query that
              said it, the token before; 0 for keys that it does not see. As they were used, with
              what was written
    layers    the layers of the second axis
    logits    float32 [N, vocabulary], of what was said next; None where they were not asked for
    cached    whether keys and values were kept, so that a pass computes the new token alone
    settings  of the model and of the call
    """

    prompt: str
    text: str
    tokens: tuple[int, ...]
    n_prompt: int
    table: pd.DataFrame
    scores: np.ndarray
    layers: tuple[int, ...]
    logits: np.ndarray | None
    cached: bool
    settings: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.table)

    def codes(self, *keys: int) -> LatentCodes:
        """Return the codes of all new tokens with some tokens of the prompt.

        keys  positions in the prompt, negative ones from its end; default: all

        An instance is a new token, and its pair is `query->KEY`, of the token before it. So every
        question about codes can be asked. `ConfigError` for keys that the prompt does not have.
        """
        wanted = keys or tuple(range(self.n_prompt))
        for key in wanted:
            check(-self.n_prompt <= key < self.n_prompt, f"key is {key}; expected a position of "
                  f"the prompt, which has {self.n_prompt} tokens")
        places = [key % self.n_prompt for key in wanted]
        scores = self.scores[..., places].transpose(0, 1, 3, 2)  # [N, L, pair, H]
        return LatentCodes(np.ascontiguousarray(scores), self.table.copy(), tuple(
            Pair(f"query->{key}", f"the token before a new one, and token {key} of the prompt")
            for key in places), self.layers, dict(self.settings))

    def __repr__(self) -> str:
        kept = "with kept keys and values" if self.cached else "by whole passes"
        return (f"{self.prompt!r} -> {self.text!r} ({len(self)} tokens {kept}; codes of "
                f"{self.scores.shape[1]} layers, {self.scores.shape[2]} heads)")
