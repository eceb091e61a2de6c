"""One problem in one layer: who attends to what, with all heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from latentcode.app.data import loaded
from latentcode.app.data.catalog import Entry

if TYPE_CHECKING:
    from latentcode.models.hypernetwork import TwoWays


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=loaded.UNTIL_TRAINED)
def two_ways(entry: Entry, split: str, instance: int, layer: int, query: int) -> TwoWays:
    """Compute a layer of a model for one query of one problem both ways, in float64."""
    from latentcode.models import hypernetwork

    _, batch = loaded.one_problem(entry, split, instance)
    return hypernetwork.two_ways(loaded.open_model(entry), batch.inputs[0], layer, query)


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=loaded.UNTIL_TRAINED)
def sketch(entry: Entry, split: str, instance: int) -> str:
    """Return a problem as HTML with all its tokens: in small, or whole where that leaves some out.
    """
    task, one = loaded.one_problem(entry, split, instance)
    small = task.sketch(one, 0)
    return small if small.count(" data-token=") >= one.inputs.shape[1] else task.render(
        one, 0, "html")


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=loaded.UNTIL_TRAINED)
def names_of(entry: Entry, split: str, instance: int) -> list[str]:
    """Return what each token of a problem shows."""
    task, one = loaded.one_problem(entry, split, instance)
    return list(task.names_of(one, 0))


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=loaded.UNTIL_TRAINED)
def row_of(
    entry: Entry, split: str, instance: int, layer: int, pair: str
) -> tuple[np.ndarray, list[str], int]:
    """Return the scores a_hqk of the query of a pair, float [H, K], its tokens' names, and q."""
    task, one = loaded.one_problem(entry, split, instance)
    queries, _ = task.positions([pair], one)
    query = int(queries.flatten()[0])
    pattern = two_ways(entry, split, instance, layer, query).pattern
    return pattern[:, query].numpy(), names_of(entry, split, instance), query
