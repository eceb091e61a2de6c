"""What do the tokens of a text alone tell? A control of what is read of whole texts.

    x_v = ln(1 + n_v),    and  ln T

with n_v how often token v is in the text, for the v of training texts, and T the number of tokens:
the order of the tokens is left out, and every model. A label that this tells as well is no finding
about attention; entropy and eigenvalues of a pattern, for one, depend on T. All columns have one
scale (`fit_probe`): with each brought to its own, frequent tokens would be lost among rare ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from latentcode.codes.rows import Rows
from latentcode.probes.common.results import BAG

MOST = 2_048
"""Tokens of the training texts that are counted, the most frequent ones."""
Tokens = Sequence[Sequence[int]]
"""Token ids of each text."""


def bag_of_tokens(train: Tokens, heldout: Tokens) -> tuple[np.ndarray, np.ndarray]:
    """Return x of training and of held-out texts, float32 [N, V + 1] each."""
    counter = CountVectorizer(analyzer=list, max_features=MOST, dtype=np.float32)
    counts = counter.fit_transform(train), counter.transform(heldout)
    lengths = ([[len(ids)] for ids in texts] for texts in (train, heldout))
    x, x_heldout = (np.concatenate([np.log1p(each.toarray()), np.log(n)], axis=1, dtype=np.float32)
                    for each, n in zip(counts, lengths, strict=True))
    return x, x_heldout


def bag_rows(both: Sequence[Rows], tokens: Sequence[Tokens]) -> list[Rows]:
    """Return the bags of training and of held-out texts as features of a layer, which they are none
    of, beside what was read of the same texts."""
    place = BAG, "0"
    return [Rows({place: x}, {place: x.shape[1]}, rows.labels, rows.meta)
            for rows, x in zip(both, bag_of_tokens(*tokens), strict=True)]


__all__ = ["bag_of_tokens", "bag_rows"]
