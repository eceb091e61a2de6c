"""A CUDA device that computes nothing: do tensors meet on one device, and who waits for it?

Under torch's `FakeTensorMode` a tensor has a shape, a type and a device, and no numbers. An
operation on tensors of two devices raises as it would on a GPU. Here is what a GPU refuses or
waits for besides, and stand-ins for what a build of torch without CUDA lacks.

What it cannot see: kernels, the order of streams, and branches of torch's C++ side that ask for
CUDA. Those need a GPU.
"""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from latentcode.models import attention

CUDA, META = torch.device("cuda:0"), torch.device("meta")

ITEM, MASK, TO_HOST, FROM_HOST = ".item()", "boolean mask", "copy to the host", "copy from the host"
"""What the host waits for. A blocking copy is one in either direction: torch waits for its end."""

OTHERS = (str(Path(torch.__file__).parents[1]), str(Path(os.__file__).parent), __file__, "<")
"""How the files of functions begin that wait on behalf of somebody else."""


class HostWaitError(Exception):
    """The host waits for the device where it must not."""


@dataclass
class FakeDevice:
    """What happened on the device so far.

    waits     (function, what it waited for)
    number    what the host reads where it asks for a whole number, which nobody knows
    graph     the CUDA graph that is being captured
    captured  how many graphs were
    """

    waits: list[tuple[str, str]] = field(default_factory=list)
    number: int = 1
    graph: Graph | None = None
    captured: int = 0
    _strict: bool = False

    def wait(self, what: str) -> None:
        """Take note of a wait; `HostWaitError` where there must be none."""
        where = _caller()
        if self._strict or self.graph is not None:
            raise HostWaitError(f"{where} waits for the device: {what}")
        self.waits.append((where, what))

    @contextmanager
    def never_waits(self) -> Iterator[None]:
        """Raise `HostWaitError` at the place of every wait in this context."""
        self._strict = True
        try:
            yield
        finally:
            self._strict = False

    @contextmanager
    def counting(self) -> Iterator[Counter[tuple[str, str]]]:
        """Yield what will hold how often who waited for what in this context."""
        before, counter = len(self.waits), Counter[tuple[str, str]]()
        yield counter
        counter.update(self.waits[before:])


def _caller() -> str:
    """Return the innermost function that is no library's."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if "latentcode" in Path(file).parts or not file.startswith(OTHERS):
            break
        frame = frame.f_back
    return frame.f_code.co_qualname.partition(".<locals>")[0]


def on_device(tensor: Tensor) -> bool:
    """Whether a tensor lies on the fake device; `is_cuda` asks the C++ side, which is not told."""
    return tensor.device.type == "cuda"


class Generator(torch.Generator):
    """A generator that says that it is on a device; none of its numbers is ever drawn.

    Underneath it is one of the CPU, so that whatever asks for a `torch.Generator` takes it.
    """

    _device: torch.device

    def __new__(cls, device: torch.device | str = "cpu") -> Generator:
        generator = super().__new__(cls)
        generator._device = torch.empty(0, device=device).device  # "cuda" has an index then
        return generator

    @property
    def device(self) -> torch.device:
        return self._device

    def get_state(self) -> Tensor:
        return torch.zeros(16, dtype=torch.uint8)

    def set_state(self, state: Tensor) -> Generator:
        assert state.device.type == "cpu", "the state of a generator lies on the host"
        return self


class Graph:
    """In place of `torch.cuda.CUDAGraph`: knows its generators, and replays nothing."""

    def __init__(self) -> None:
        self.generators: list[torch.Generator] = []

    def register_generator_state(self, generator: torch.Generator) -> None:
        self.generators.append(generator)

    def replay(self) -> None:
        """What a replay would write lies where the capture left it."""


class _Stream:
    """In place of `torch.cuda.Stream`."""

    def wait_stream(self, stream: _Stream) -> None:
        """Nothing runs, in no order."""


def _real_device(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**kwargs, "device": CUDA} if kwargs.get("device") == META else dict(kwargs)


class _Mode(FakeTensorMode):
    # It asks `torch.cuda.is_available`, which says yes here, and would initialise the device.
    avoid_device_init = True

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # The C++ side of torch, autograd above all, asks a build without CUDA for the streams of a
        # CUDA tensor. It is told `meta`, of which it wants nothing; Python sees the device.
        if func is torch.ops.prim.device.default:
            return META if on_device(args[0]) else args[0].device
        return super().dispatch(func, types, args, _real_device(kwargs or {}))


class _Operations(TorchDispatchMode):
    """Sees every operation before `FakeTensorMode` does."""

    def __init__(self, device: FakeDevice, fake: FakeTensorMode) -> None:
        super().__init__()
        self.device, self.fake = device, fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        if func is torch.ops.prim.device.default:
            return func(*args)
        if func is aten._local_scalar_dense.default and not isinstance(args[0], FakeTensor):
            with unset_fake_temporarily():  # a constant made outside, which has a number
                return func(*args)
        args, kwargs = tuple(map(self._faked, args)), _real_device(kwargs or {})
        if func in (aten._local_scalar_dense.default, aten.equal.default):
            if on_device(args[0]):
                self.device.wait(ITEM)
            return self._guess(func, args[0])
        if func is aten.nonzero.default:
            if on_device(args[0]):
                self.device.wait(MASK)
            return torch.zeros(  # everything is said to be True
                args[0].numel(), args[0].ndim, dtype=torch.int64, device=args[0].device)
        if func in (aten._to_copy.default, aten.copy_.default):
            self._copies(func, args, kwargs)
        if func in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default):
            args = self._indexed(func, *args)
        return func(*args, **kwargs)

    def _faked(self, value: Any) -> Any:
        """Constants made outside of this context are as good as others."""
        if isinstance(value, (list, tuple)):
            return [self._faked(part) for part in value]
        if isinstance(value, Tensor) and not isinstance(value, FakeTensor):
            return self.fake.from_tensor(value)
        return value

    def _guess(self, func: Any, x: Tensor) -> bool | int | float:
        """Return an answer with which most paths go on: positions agree, activations do not."""
        if func is torch.ops.aten.equal.default:
            return not x.is_floating_point()
        return True if x.dtype == torch.bool else (
            1.0 if x.is_floating_point() else self.device.number)

    def _copies(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if func is torch.ops.aten.copy_.default:
            target, source = args[0].device, args[1].device
            blocking = not any(args[2:])
        else:
            target, source = torch.device(kwargs.get("device") or args[0].device), args[0].device
            blocking = not kwargs.get("non_blocking")
        if source.type == "cuda" and target.type == "cpu":
            self.device.wait(TO_HOST)
        elif source.type == "cpu" and target.type == "cuda" and blocking:
            self.device.wait(FROM_HOST)

    def _indexed(
        self, func: Any, x: Tensor, indices: Sequence[Tensor | None], *rest: Any
    ) -> tuple[Any, ...]:
        """Take note of indices on the host, and of masks, whose number of True it has to know."""
        # A number that is put where a mask is True is an exception: nothing is counted.
        filled = bool(rest) and rest[0].numel() == 1 and not on_device(rest[0])
        whole: list[Tensor | None] = []
        for index in indices:
            if index is None or index.dtype not in (torch.bool, torch.uint8):
                whole.append(index)
            else:  # nobody knows what a mask holds: say everything
                count = math.prod(index.shape)
                whole += [torch.zeros(count, dtype=torch.int64, device=index.device)] * index.ndim
            if index is not None and on_device(x):
                if not on_device(index):
                    self.device.wait(FROM_HOST)
                elif whole[-1] is not index and not filled:
                    self.device.wait(MASK)
        return (x, whole) if func is torch.ops.aten.index.Tensor else (x, indices, *rest)


class _Functions(TorchFunctionMode):
    """Sees every call from Python, with the generator that it was given."""

    def __init__(self, device: FakeDevice) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Of "cuda" without an index the driver would be asked for the current device.
        args = tuple(CUDA if _lacks_index(x) else x for x in args)
        kwargs = {name: CUDA if _lacks_index(x) else x for name, x in (kwargs or {}).items()}
        if func is Tensor.numpy and isinstance(args[0], FakeTensor):
            if on_device(args[0]):
                raise TypeError(f"can't convert {args[0].device} device type tensor to numpy")
            return np.zeros(args[0].shape, str(args[0].dtype).removeprefix("torch."))
        result = func(*args, **kwargs)
        generator = kwargs.get("generator")
        if generator is not None and isinstance(result, Tensor):
            if generator.device != result.device:
                raise RuntimeError(f"Expected a {str(result.device)!r} device type for generator "
                                   f"but found {str(generator.device)!r}")
            if self.device.graph is not None and generator not in self.device.graph.generators:
                raise RuntimeError("a graph draws from a generator that is not registered with it")
        return result


def _lacks_index(x: object) -> bool:
    return isinstance(x, (str, torch.device)) and str(x) == "cuda"


def _apply(module: nn.Module, function: Callable[[Tensor], Tensor]) -> nn.Module:
    """`nn.Module._apply` by new parameters; torch's swaps the tensors of fake ones, and fails."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = nn.Parameter(
                    function(parameter.detach()), parameter.requires_grad)
    return module


@contextmanager
def fake_cuda() -> Iterator[FakeDevice]:
    """Make `cuda` a device for all that is done in this context, and yield what happens on it.

    `HostWaitError` for a wait during the capture of a graph, where it fails on a GPU; others are
    noted, and the host goes on with a guess.
    """
    device = FakeDevice()

    @contextmanager
    def capture(graph: Graph, stream: object) -> Iterator[None]:
        device.graph = graph
        try:
            yield
        finally:
            device.graph = None
        device.captured += 1

    stand_ins: list[tuple[object, str, object]] = [
        # What `resolve_device` and autocast ask before they accept the device.
        (torch.cuda, "is_available", lambda: True),
        (torch.cuda, "device_count", lambda: 1),
        (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
        (torch.cuda, "get_device_capability", lambda *_: (9, 0)),
        # What `StepGraph` captures with.
        (torch.cuda, "device", lambda _: nullcontext()),
        (torch.cuda, "Stream", _Stream),
        (torch.cuda, "stream", lambda _: nullcontext()),
        (torch.cuda, "current_stream", _Stream),
        (torch.cuda, "CUDAGraph", Graph),
        (torch.cuda, "graph", capture),
        # torch makes generators of devices that are there alone.
        (torch, "Generator", Generator),
        (nn.Module, "_apply", _apply),
        # Draws until all numbers are within bounds, and there are none.
        (nn.init, "trunc_normal_", lambda tensor, *_, **__: tensor),
        # torch 2.6 knows no `avoid_device_init`.
        (fake_tensor, "init_gpu_context", lambda *_, **__: None),
        # Tensors without numbers must not stay in a cache that outlives this context.
        (attention, "_buckets_on", cache(attention._buckets_on.__wrapped__)),
    ]
    fake = _Mode()
    with ExitStack() as stack:
        for owner, name, stand_in in stand_ins:
            stack.enter_context(patch.object(owner, name, stand_in))
        for mode in (fake, _Operations(device, fake), _Functions(device)):
            stack.enter_context(mode)
        yield device
