"""Does the device that computes nothing catch what a GPU would refuse or wait for?"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from fake_cuda import FROM_HOST, ITEM, MASK, TO_HOST, Generator, fake_cuda
from fake_cuda_cases import configure, without_cuda
from torch import Tensor, nn

from latentcode.models.attention import relative_bias
from latentcode.tasks.logic.task import FuzzyLogic
from latentcode.training.ensemble import StepGraph
from latentcode.training.loop import make_learner
from latentcode.training.state import TrainingState

pytestmark = without_cuda

MISTAKES: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "a tensor of the CPU": (lambda x: x + torch.zeros(x.shape), "at least two devices"),
    "an index of the CPU": (lambda x: x[torch.arange(len(x))], FROM_HOST),
    "a list as index": (lambda x: x[[0, 1]], FROM_HOST),
    "a tensor of numbers": (lambda x: torch.tensor([1.0, 2.0], device=x.device), FROM_HOST),
    "a copy into it": (lambda x: x.detach().clone().copy_(torch.zeros(x.shape)), FROM_HOST),
    "item": (lambda x: x.sum().item(), ITEM),
    "a condition": (lambda x: 1 if x.sum() > 0 else 2, ITEM),
    "tolist": (lambda x: x.tolist(), ITEM),
    "equal": (lambda x: torch.equal(x, x), ITEM),
    "a boolean mask": (lambda x: x[x > 0], MASK),
    "a mask that is written": (
        lambda x: x.detach().clone().index_put_((x > 0,), x.detach().flatten()), MASK),
    "nonzero": (lambda x: x.nonzero(), MASK),
    "unique": (lambda x: x.unique(), "unique"),
    "cpu": (lambda x: x.cpu(), TO_HOST),
    "to": (lambda x: x.to("cpu", torch.float64), TO_HOST),
    "a copy out of it": (lambda x: torch.zeros(x.shape).copy_(x), TO_HOST),
    "numpy": (lambda x: x.detach().numpy(), "can't convert cuda:0"),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_every_sort_of_mistake_is_caught(name: str) -> None:
    mistake, message = MISTAKES[name]
    with fake_cuda() as device:
        x = torch.zeros(4, device="cuda")
        with device.never_waits(), pytest.raises(Exception, match=message):
            mistake(x)


@pytest.mark.parametrize("captured", [False, True])
def test_a_mistake_planted_in_the_loss_is_caught(
    captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake, message = MISTAKES["item"]
    losses = FuzzyLogic.losses

    def mistaken(*args: Any, **kwargs: Any) -> Tensor:
        result = losses(*args, **kwargs)
        mistake(result)
        return result

    with fake_cuda() as device:
        learner = make_learner(configure()) if captured else TrainingState.start(configure())
        if not captured:  # the first update waits
            learner.update()
        monkeypatch.setattr(FuzzyLogic, "losses", mistaken)
        waits = nullcontext() if captured else device.never_waits()
        with waits, pytest.raises(Exception, match=message):
            learner.update()


def test_generators_belong_to_their_device_and_to_their_graph() -> None:
    with fake_cuda() as device:
        here, there = torch.Generator(), torch.Generator("cuda")
        with pytest.raises(RuntimeError, match="'cuda:0' device type for generator"):
            torch.rand(3, device="cuda", generator=here)
        with pytest.raises(RuntimeError, match="'cpu' device type for generator"):
            torch.rand(3, generator=there)

        def step(x: Tensor) -> Tensor:
            return x + torch.rand(3, device="cuda", generator=there)

        StepGraph(step, [there], [])(torch.zeros(3, device="cuda"))
        assert device.captured == 1
        with pytest.raises(RuntimeError, match="not registered"):
            StepGraph(step, [], [])(torch.zeros(3, device="cuda"))


def test_nothing_is_left_behind() -> None:
    table = torch.zeros(2, 6)
    with fake_cuda():
        TrainingState.start(configure()).update()
        relative_bias(table, 6, 6, 6)
    assert not torch.cuda.is_available()
    assert type(torch.Generator()) is not Generator
    assert relative_bias(table, 6, 6, 6).sum().item() == 0.0
    assert nn.Linear(2, 2).to(torch.float64).weight.dtype == torch.float64
