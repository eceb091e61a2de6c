"""How fast is training? Tokens per second, and the share of the arithmetic that a GPU can do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from latentcode.config import RunConfig
from latentcode.devices import device_name
from latentcode.metrics import Metric
from latentcode.models.flops import peak_flops, training_flops_per_token


class Pace:
    """Counts updates and the seconds that they took; evaluations and checkpoints are left out.

    n_members    models that are trained at once, each with batches of its own
    n_processes  processes with a device each
    """

    def __init__(self, config: RunConfig, n_members: int, n_processes: int, step: int) -> None:
        settings = config.training
        self.tokens_per_step = n_members * settings.batch_size * config.task.n_tokens
        self.flops_per_token = training_flops_per_token(config.model, config.task.n_tokens)
        peak = (peak_flops(device_name(settings.device), settings.precision)
                if settings.device.startswith("cuda") else None)
        self.peak = None if peak is None else peak * n_processes
        self._step, self._began, self._aside = step, time.perf_counter(), 0.0

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave out what is done in here."""
        began = time.perf_counter()
        yield
        self._aside += time.perf_counter() - began

    def measured(self, step: int) -> dict[str, float]:
        """Return `tokens_per_second` since the last call and, of a GPU whose peak is known,
        `model_flop_utilisation`, from 0 to 1."""
        now = time.perf_counter()
        seconds = now - self._began - self._aside
        tokens = (step - self._step) * self.tokens_per_step
        self._step, self._began, self._aside = step, now, 0.0
        speed = tokens / max(seconds, 1e-9)
        found = {"tokens_per_second": round(speed, 1)}
        if self.peak is not None:
            found["model_flop_utilisation"] = round(speed * self.flops_per_token / self.peak, 4)
        return found


def as_metrics(measured: dict[str, float]) -> dict[str, Metric]:
    """Return single measurements as metrics, whose error is not known."""
    return {name: Metric(value, float("nan"), 1) for name, value in measured.items()}
