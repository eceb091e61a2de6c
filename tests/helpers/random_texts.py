"""Texts of random tokens, in batches as `heads` reads them, and of random words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from latentcode.prompts import LanguageModel
from latentcode.prompts.texts import TextBatch

WORDS = ("The", "capital", "of", "France", "Italy", "Peru", "Kenya", "is", "river", "Paris", "Lima")


def said(n: int) -> list[str]:
    """Return n texts of 3 to 13 words."""
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(3, 14))) for _ in range(n)]


def batches(
    asked: LanguageModel, n: int, size: int, *, seed: int = 0, least: int = 3, most: int = 14
) -> Iterator[TextBatch]:
    """Yield n texts of random tokens in batches of a size, the same ones whatever the size."""
    rng = np.random.default_rng(seed)
    ids = [torch.from_numpy(rng.integers(1, 400, rng.integers(least, most + 1)))
           for _ in range(n)]
    for begin in range(0, n, size):
        some = ids[begin:begin + size]
        tokens = torch.nn.utils.rnn.pad_sequence(some, batch_first=True)
        lengths = torch.tensor([len(one) for one in some])
        mask = torch.arange(tokens.shape[1]) < lengths[:, None]
        targets = torch.cat([tokens[:, 1:], torch.zeros_like(tokens[:, :1])], dim=1)
        yield TextBatch(tokens, lengths, targets, mask & (targets > 0),
                        torch.arange(begin, begin + len(some)), asked.padded(mask))
