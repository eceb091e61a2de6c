"""What would come next, with the code of another text in one place? One code of a text is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from latentcode.app.data import loaded
from latentcode.app.data.benches import given_pairs
from latentcode.app.data.catalog import Entry

if TYPE_CHECKING:
    from torch import Tensor

_one_at_a_time = Lock()


@dataclass(frozen=True)
class Place:
    """Where a query of a text looks; positions of tokens."""

    query: int
    key: int


@dataclass(frozen=True)
class Swap:
    """The next token at the query of a text, before and after one code was written.

    before, after, source  float [V], its probabilities; of the source: in the source's own pass
    base_token, source_token  ids of the token at the induction pair's key, here and in the source
    counts  whether the text goes on with `base_token`, and the source has another token
    exact   whether its own code, written back, leaves all logits as they are
    pieces  texts of all ids
    """

    before: np.ndarray
    after: np.ndarray
    source: np.ndarray
    base_token: int
    source_token: int
    counts: bool
    exact: bool
    pieces: tuple[str, ...]

    def likeliest(self, n: int) -> np.ndarray:
        """Return the n ids that are likeliest before or after, int [n]."""
        return np.argsort(-np.maximum(self.before, self.after), kind="stable")[:n]


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=loaded.UNTIL_TRAINED)
def place(entry: Entry, split: str, instance: int) -> Place:
    """Return the query of an instance and the key of its induction pair."""
    task, one = loaded.one_problem(entry, split, instance)
    query, key = task.positions([next(iter(task.pairs))], one)
    return Place(int(query), int(key))


@st.cache_data(max_entries=64, show_spinner="Writing …", hash_funcs=loaded.UNTIL_TRAINED)
def swap(
    entry: Entry, split: str, instance: int, key: int, layers: tuple[int, ...],
    heads: tuple[int, ...] | None,
) -> Swap:
    """Write a[:, q, key] of the minimal pair's source into a base, in some layers and heads."""
    import torch

    from latentcode.codes.instances import instances
    from latentcode.probes.interventions.patch import Patch
    from latentcode.probes.interventions.problem import Problem
    from latentcode.probes.interventions.sites import capture, run_patched
    from latentcode.seeds import make_generator
    from latentcode.tasks.counterfactuals import code_mask

    counterfactuals = given_pairs(entry, split)
    assert counterfactuals is not None
    task = counterfactuals.task
    pairs = counterfactuals.pairs_of(
        instances(task, split, [instance]), make_generator(instance, "swap"))
    query = pairs.bases.info["query"]
    patch = Patch("interchange", "pair", layers, heads=heads)
    with _one_at_a_time:
        model = _model(entry)
        # The text twice: the source's code is written into the first, its own into the second.
        inputs = pairs.bases.inputs.expand(2, -1)
        clean, own = capture(model, inputs, patch.places)
        answered, codes = capture(model, pairs.sources.inputs.expand(2, -1), patch.places)
        scope = code_mask(query, torch.tensor([[key]]), inputs.shape[1]).expand(2, -1, -1)
        sources = {place: torch.cat([code[:1], own[place][1:]]) for place, code in codes.items()}
        patched = run_patched(model, inputs, patch.edits(
            model, Problem(pairs, {"sources": sources}, scope, torch.Generator())))

    def next_token(logits: Tensor) -> np.ndarray:
        return logits[0, int(query)].double().softmax(-1).numpy()

    return Swap(
        next_token(clean), next_token(patched), next_token(answered),
        int(pairs.bases.info["copied"]), int(pairs.sources.info["copied"]),
        bool(pairs.counts), torch.equal(clean[1], patched[1]), task.token_table.pieces)


@st.cache_resource(max_entries=4, show_spinner="Loading the model …",
                   hash_funcs=loaded.UNTIL_TRAINED)
def _model(entry: Entry) -> Any:
    run = loaded.open_run(entry.path)
    # A model of its own: other pages hook theirs.
    return run.load_model(loaded.newest_step(run))
