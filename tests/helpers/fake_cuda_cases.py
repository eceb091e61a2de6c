"""Which models and tasks are tried on the device that computes nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from fake_cuda import FROM_HOST
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from latentcode.config import RunConfig
from latentcode.models.config import ATTENTION_KINDS
from latentcode.models.transformer import HookedTransformer
from latentcode.presets import preset

without_cuda = pytest.mark.skipif(
    torch.version.cuda is not None, reason="stands in for CUDA where torch was built without it")


def kinds_and_tasks(*of_every_day: str, all_kinds: bool = False) -> pytest.MarkDecorator:
    """Return some `kind-task`, and beside them, if asked for, all kinds on one task, slow: what a
    kind waits for is the model's and what a task waits for its own."""
    others = [f"{kind}-logic" for kind in ATTENTION_KINDS] if all_kinds else []
    every = dict.fromkeys([*of_every_day, *others])
    return pytest.mark.parametrize(("kind", "task"), [
        pytest.param(*name.split("-"), id=name,
                     marks=[] if name in of_every_day else pytest.mark.slow) for name in every])


CONSTANTS = {
    "logic": {("FuzzyLogic._tables", FROM_HOST), ("_buckets_on", FROM_HOST)},
    "sraven": {("Sraven._combinations_on", FROM_HOST), ("_buckets_on", FROM_HOST)}}
"""What is copied to the device when it is first needed, and never again."""


def configure(task: str = "logic", kind: str = "hyla", **training: Any) -> RunConfig:
    config = preset("smoke", task, kind)
    return replace(config, training=replace(
        config.training, **{"device": "cuda", "grad_clip": 1.0, "batch_size": 8, **training}))


def model_of(config: RunConfig) -> HookedTransformer:
    return HookedTransformer(config.model).to("cuda").eval()


class Operators(TorchDispatchMode):
    """The operators that start kernels in this context, neither views nor empty tensors, and the
    numbers in the largest tensor that any makes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **kwargs or {})
        name = str(func.overloadpacket)
        if not func.is_view and name not in ("prim.device", "aten.empty", "aten.empty_like"):
            self.seen[name] += 1
        self.largest = max(self.largest, *(
            x.untyped_storage().nbytes() // x.element_size()
            for x in tree_leaves(made) if isinstance(x, torch.Tensor)), 0, 0)
        return made
