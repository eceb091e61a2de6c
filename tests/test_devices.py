"""Seeds: streams of their own, and one check of what a seed is, whoever is given it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import latentcode as lc
from latentcode.devices import checked_seed, make_generator
from latentcode.errors import ConfigError
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.interventions import intervene_model
from latentcode.probes.projection import fit_projection

UNREAD: Any = None
"""A seed is looked at before anything else that is given."""
TAKES_A_SEED: dict[str, Callable[[Any], object]] = {
    "make_generator": lambda seed: make_generator(seed, "test"),
    "HookedTransformer": lambda seed: HookedTransformer(lc.ModelConfig(), seed),
    "ensemble": lambda seed: HookedTransformer(lc.ModelConfig(), [0, seed]),
    "load_pretrained": lambda seed: lc.load_pretrained("nowhere/at-all", seed=seed),
    "fit_projection": lambda seed: fit_projection(np.eye(4), "pca", seed=seed),
    "intervene_model": lambda seed: intervene_model(UNREAD, UNREAD, [], seed=seed),
    **{verb: lambda seed, verb=verb: getattr(lc, verb)(UNREAD, seed=seed) for verb in (
        "decode", "project", "knn_purity", "similarity", "topography", "align", "value_networks",
        "heads", "intervene", "attribute", "das", "extract")},
}


@pytest.mark.parametrize("name", TAKES_A_SEED)
def test_what_is_no_seed_is_refused_before_any_work(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^seed is -1; expected a whole number from 0 to 2\^"):
        TAKES_A_SEED[name](-1)


@pytest.mark.parametrize("seed", [-1, 1.0, True, "7", None, 2**63, np.float64(1)])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    with pytest.raises(ConfigError) as refused:
        checked_seed(seed, "training.seed")
    assert str(refused.value) == (
        f"training.seed is {seed!r}; expected a whole number from 0 to 2^63 - 1")


def test_a_seed_of_numpy_is_a_seed() -> None:
    seed = checked_seed(np.int64(5))
    assert type(seed) is int
    streams = [torch.rand(3, generator=make_generator(s, "test")) for s in (5, np.int64(5))]
    assert torch.equal(*streams)


def test_the_largest_seeds() -> None:
    make_generator(2**63 - 1, "test")
    fit_projection(np.random.default_rng(0).normal(size=(8, 3)), "pca", seed=2**32 - 1)
    with pytest.raises(ConfigError, match=r"from 0 to 2\^32 - 1"):
        fit_projection(np.eye(4), "tsne", seed=2**32)


def test_streams_differ_by_seed_and_purpose() -> None:
    drawn = {(seed, purpose): torch.rand(4, generator=make_generator(seed, purpose)).tolist()
             for seed in (0, 1) for purpose in ("train", "ood")}
    assert len(set(map(tuple, drawn.values()))) == 4
