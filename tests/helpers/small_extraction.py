"""An extraction of three shards that takes a moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import latentcode as lc
from latentcode.codes import latent_codes as codes
from latentcode.codes import reader as drawing
from latentcode.codes import resume as partial_codes
from latentcode.codes.reader import Reader, TaskSource
from latentcode.models.transformer import HookedTransformer
from latentcode.presets import model_for
from latentcode.tasks import make_task

TASK = lc.LogicConfig(n_variables=3, n_examples=6, ood_fraction=0.5)
MODEL = model_for(TASK, n_layers=2, d_model=8, n_heads=2, d_head=2, d_head_v=2, d_mlp=8)
PAIRS = ("query->query", "query->example.2")
N = 44
"""Two shards of 16 instances and most of a third, drawn 8 at a time."""


def draw_at_once(patch: pytest.MonkeyPatch, n: int) -> None:
    patch.setattr(drawing, "DRAW", n)


def make_small(patch: pytest.MonkeyPatch) -> None:
    draw_at_once(patch, 8)
    for module in (codes, partial_codes):
        patch.setattr(module, "SHARD", 16)


def reader(
    seed: int = 0, *, n: int = N, pairs: Sequence[str] = PAIRS, **settings: Any
) -> Reader:
    model = HookedTransformer(MODEL, seed=seed).eval()
    return Reader(model, TaskSource(make_task(TASK), "ood", n=n, pairs=pairs), **{
        "residuals": True, "batch_size": 5, "meta": {"run": "a"}, **settings})


def interrupt_at(instances: int) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if done >= instances:
            raise KeyboardInterrupt
    return progress
