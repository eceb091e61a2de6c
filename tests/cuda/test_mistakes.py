"""Does the device that computes nothing catch what a GPU would refuse or wait for?"""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import pytest
import torch
from fake_cuda import FROM_HOST, ITEM, MASK, TO_HOST, Generator, fake_cuda
from fake_cuda_cases import configure, without_cuda
from torch import Tensor, nn

from latentcode.models.positions import relative_bias
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

FOUR = ("a tensor of the CPU", "item", "a boolean mask", "cpu")
PLACES = {
    "sampling": "latentcode.tasks.logic.task.evaluate",
    "the forward pass": "latentcode.models.blocks.dense",
    "the loss": "latentcode.tasks.logic.task.FuzzyLogic.losses"}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_every_sort_of_mistake_is_caught(name: str) -> None:
    mistake, message = MISTAKES[name]
    with fake_cuda() as device:
        x = torch.zeros(4, device="cuda")
        with device.never_waits(), pytest.raises(Exception, match=message):
            mistake(x)


def plant(monkeypatch: pytest.MonkeyPatch, path: str, mistake: Callable[[Tensor], object]) -> None:
    """Let a function make a mistake with what it returns, or with its first argument."""
    original = resolve_name(path)

    def mistaken(*args: Any, **kwargs: Any) -> Tensor:
        result = original(*args, **kwargs)
        mistake(args[0] if result is None else result)
        return result

    monkeypatch.setattr(path, mistaken)


everywhere = pytest.mark.parametrize(("name", "place"), [
    *((name, "the loss") for name in FOUR),
    *(pytest.param("item", place, marks=pytest.mark.slow)
      for place in PLACES if place != "the loss")])


@everywhere
def test_a_mistake_planted_in_an_update_is_caught(
    name: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake, message = MISTAKES[name]
    monkeypatch.setattr("latentcode.training.state.CHUNK", 1)  # every update draws
    with fake_cuda() as device:
        state = TrainingState.start(configure())
        state.update()
        plant(monkeypatch, PLACES[place], mistake)
        with device.never_waits(), pytest.raises(Exception, match=message):
            state.update()


@everywhere
def test_a_mistake_planted_in_a_captured_step_is_caught(
    name: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake, message = MISTAKES[name]
    # Drawing is no part of the step; what follows the loss is.
    place = "latentcode.training.ensemble.adamw_" if place == "sampling" else PLACES[place]
    plant(monkeypatch, place, mistake)
    with fake_cuda(), pytest.raises(Exception, match=message):
        make_learner(configure()).update()


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
