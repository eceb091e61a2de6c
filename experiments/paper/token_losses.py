"""Which tokens does a language model predict well? Its loss by what the text has shown before.

A token repeats an earlier pair where it follows the same token as earlier in the excerpt, `... A B
... A B`, so that it can be copied (the induction pair). Such pairs are more frequent than others;
their control are the same pairs where they are new. Who knows nothing but which token follows which
predicts both equally well.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from latentcode.models.modes import evaluating
from latentcode.runs import Run
from latentcode.tasks import make_task
from latentcode.tasks.text.patterns import previous_same
from latentcode.tasks.text.task import Text

REPEATED, CONTROL = "repeats an earlier pair", "the same pairs, where they are new"
NEW, ALL = "the pair is new", "all tokens"
BATCH = 32


def pairs_of(tokens: Int[Tensor, "N S"]) -> Int[Tensor, "N T"]:
    """Return a number for each pair (x_t, x_t+1) of a sequence, the same for the same pair."""
    ids = tokens[:, :-1] * (int(tokens.max()) + 1) + tokens[:, 1:]
    return ids.unique(return_inverse=True)[1]


def repeats_a_pair(tokens: Int[Tensor, "N S"]) -> Bool[Tensor, "N T"]:
    """Whether (x_t, x_t+1) = (x_s, x_s+1) for an s < t, of every token t + 1 of a sequence."""
    return previous_same(pairs_of(tokens)) >= 0


def token_losses(run: Run, *, device: str = "cpu") -> pd.DataFrame:
    """Return the mean loss of each class of tokens over all excerpts of `test`, in nats.

    Rows: class, loss, n. The first two are of the pairs that occur in both; the control has every
    pair as often as it is repeated: sum_p n_p mean loss of p where it is new / sum_p n_p.
    """
    task, model = make_task(run.config.task), run.load_model().to(device)
    assert isinstance(task, Text)
    tokens = task.excerpts("test").tokens
    parts = []
    with evaluating(model):
        for batch in tokens.split(BATCH):
            logits = model(batch[:, :-1].to(device))
            parts.append(F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten().to(device),
                                         reduction="none").cpu())
    return by_class(torch.cat(parts).double().numpy(), pairs_of(tokens).flatten().numpy(),
                    repeats_a_pair(tokens).flatten().numpy())


def by_class(losses: np.ndarray, pairs: np.ndarray, repeated: np.ndarray) -> pd.DataFrame:
    """Return what `token_losses` does, of the loss, the pair and the class of every token."""
    size = int(pairs.max()) + 1
    (n, total), (n_new, total_new) = (
        (np.bincount(pairs[chosen], minlength=size),
         np.bincount(pairs[chosen], losses[chosen], size)) for chosen in (repeated, ~repeated))
    both = (n > 0) & (n_new > 0)
    n_both = n[both].sum() or np.nan  # without any there is no mean
    rows = [(REPEATED, total[both].sum() / n_both, n[both].sum()),
            (CONTROL, (n * total_new)[both] @ (1.0 / n_new[both]) / n_both, n_new[both].sum()),
            (NEW, losses[~repeated].mean(), n_new.sum()),
            (ALL, losses.mean(), len(losses))]
    return pd.DataFrame(rows, columns=["class", "loss", "n"])
