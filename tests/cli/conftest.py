"""Runs to point commands at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

import latentcode as lc

LITTLE = {"steps": 4, "warmup_steps": 1, "eval_every": 4}


@pytest.fixture(scope="session")
def run(smoke_run: Callable[[str, str], lc.Run]) -> lc.Run:
    """A run of fuzzy logic."""
    return smoke_run("logic", "softmax")


@pytest.fixture(scope="session")
def sraven(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], str]:
    """Return the folder of a hardly trained SRAVEN run of a kind and a seed, and of its split."""
    folder = tmp_path_factory.mktemp("runs")

    @cache
    def trained(kind: str, seed: int) -> str:
        config = lc.preset("smoke", "sraven", kind)
        config = replace(config, task=replace(config.task, split_seed=seed),
                         training=replace(config.training, seed=seed, **LITTLE))
        return str(lc.train(config, folder / f"{kind}{seed}", progress=False).path)

    return trained
