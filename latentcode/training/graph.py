"""A function of tensors that is captured once and replayed, so that a step is a single launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from latentcode.errors import check

WARM_UP = 3
"""Calls before the capture, in which libraries choose their kernels and take their memory."""


class StepGraph:
    """Calls `function` by replaying its kernels as one CUDA graph.

    function    takes tensors of the same shapes every time and returns one tensor; it may change
                the tensors `changes` and draw from `generators`, and nothing else
    generators  their states go on through replays as through calls
    changes     put back after the warm-up, like the states of the generators

    The results of replays equal those of calls. On a CPU, where there is nothing to capture, a
    replay is a call on the same fixed memory.
    """

    def __init__(
        self, function: Callable[..., Tensor], generators: Sequence[torch.Generator],
        changes: Sequence[Tensor],
    ) -> None:
        self.function, self.generators, self.changes = function, generators, changes
        self._inputs: list[Tensor] | None = None

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return what the function returns for these inputs; `ConfigError` for other shapes."""
        if self._inputs is None:
            self._inputs = [x.clone() for x in inputs]
            self._capture(self._inputs)
        pairs: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        for fixed, x in zip(self._inputs, inputs, strict=True):
            check(x.shape == fixed.shape, f"an input has shape {tuple(x.shape)}; expected "
                  f"{tuple(fixed.shape)}, that of the first call")
            targets, sources = pairs.setdefault(x.dtype, ([], []))
            targets.append(fixed)
            sources.append(x)
        for targets, sources in pairs.values():  # one launch for each type
            torch._foreach_copy_(targets, sources)
        self._replay()
        return self._output.clone()

    def _capture(self, inputs: Sequence[Tensor]) -> None:
        saved = [tensor.clone() for tensor in self.changes]
        states = [generator.get_state() for generator in self.generators]
        if inputs[0].device.type == "cuda":
            with torch.cuda.device(inputs[0].device):
                self._capture_on_current_device(inputs)
        else:
            for _ in range(WARM_UP):
                self._output = self.function(*inputs)

            def replay() -> None:
                self._output = self.function(*inputs)

            self._replay = replay
        for tensor, before in zip(self.changes, saved, strict=True):
            tensor.copy_(before)
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state)

    def _capture_on_current_device(self, inputs: Sequence[Tensor]) -> None:
        # One stream for warm-up and capture: autograd remembers the stream of every weight.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.function(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, stream=stream):
            self._output = self.function(*inputs)
        self._replay = graph.replay
