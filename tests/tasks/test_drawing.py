"""What holds of every task that draws its instances: seeds, and no waiting for a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from latentcode.config import LogicConfig, SravenConfig, TaskConfig
from latentcode.devices import make_generator
from latentcode.tasks import make_task
from latentcode.tasks.base import Batch

CONFIGS: dict[str, TaskConfig] = {
    "logic": LogicConfig(), "logic, fixed context": LogicConfig(inputs="fixed_context"),
    "logic, fixed query": LogicConfig(inputs="fixed_query"), "sraven": SravenConfig(),
    "sraven, sorted": SravenConfig(rule_order="sorted"),
    "sraven, not permuted": SravenConfig(permuted=False),
    "sraven, sorted, not permuted": SravenConfig(rule_order="sorted", permuted=False)}
every_task = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def tensors(batch: Batch) -> dict[str, torch.Tensor]:
    return {"inputs": batch.inputs, "targets": batch.targets, "combination": batch.combination,
            **batch.info}


@every_task
def test_the_generator_alone_determines_a_batch(config: TaskConfig) -> None:
    torch.manual_seed(1)
    first = make_task(config).sample("train", 16, make_generator(3, "drawing"))
    torch.manual_seed(2)
    same = make_generator(3, "drawing")
    again, second = (make_task(config).sample("train", 16, same) for _ in range(2))
    other = make_task(config).sample("train", 16, make_generator(4, "drawing"))
    assert tensors(first).keys() == tensors(again).keys()
    assert all(torch.equal(values, tensors(again)[name]) for name, values in tensors(first).items())
    assert not torch.equal(second.inputs, first.inputs)
    assert not torch.equal(other.inputs, first.inputs)


@every_task
def test_the_global_random_state_is_left_alone(config: TaskConfig) -> None:
    def states() -> list[Any]:
        numpy_state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
        return [torch.get_rng_state().tolist(), numpy_state["key"].tolist(), numpy_state["pos"]]

    before = states()
    make_task(config).sample("train", 4, make_generator(0, "drawing"))
    assert states() == before


class Recorder(TorchDispatchMode):
    """Collects the names of all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        moved = kwargs.get("device") is not None and "_to_copy" in str(func)
        self.names.append("moved" if moved else str(func))
        return func(*args, **kwargs)


@every_task
def test_sampling_neither_loops_over_instances_nor_waits_for_the_device(
    config: TaskConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On the processor alone a batch looks at its inputs.
    monkeypatch.setattr(Batch, "__post_init__", lambda self: None)
    task = make_task(config)
    task.sample("train", 8, make_generator(0, "drawing"))
    counts = []
    for n in (8, 300):
        with Recorder() as recorder:
            task.sample("train", n, make_generator(0, "drawing"))
        waiting = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "moved", "item")
        assert not [name for name in recorder.names if any(w in name for w in waiting)]
        counts.append(len(recorder.names))
    assert counts[0] == counts[1]
    with Recorder() as recorder:  # the recorder does see what it looks for
        torch.ones(2).nonzero().sum().item()
    assert {"aten.nonzero.default", "aten._local_scalar_dense.default"} <= set(recorder.names)
