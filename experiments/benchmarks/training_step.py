"""How long does a training step take: ours, and plain PyTorch?

    python -m latentcode.experiments.benchmarks.training_step

measures, in turn in one sitting and at the paper's setting (batch 128, attention dropout 0.1),
milliseconds of

    step    draw a batch and update once, as `train` does
    update  the update alone, on a batch that was drawn before

"Plain PyTorch" is our model with attention computed by the functions of `models/attention.py`,
operation by operation; it is there where `train` computes it otherwise. Batches are drawn many at a
time: a turn is a whole number of such draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
import tyro

from latentcode.config import RunConfig, to_dict
from latentcode.config.presets import preset
from latentcode.devices import available_cores, resolve_device
from latentcode.errors import check
from latentcode.experiments.benchmarks.harness import (
    Benchmark,
    Kind,
    Local,
    Precision,
    Spread,
    TaskName,
    peak_memory,
    reset_peak_memory,
    sit,
)
from latentcode.figures.markdown import markdown_table
from latentcode.models.config import kind_of
from latentcode.models.kernels.fused import Case, kernel_for, written_out
from latentcode.models.transformer import HookedTransformer
from latentcode.progress import Bar
from latentcode.tasks import Batch
from latentcode.training.loop import make_learner
from latentcode.training.state import CHUNK, Learner, TrainingBatches, TrainingState

MEASURED: tuple[str, ...] = ("step", "update")
PLAIN = "plain PyTorch, float32"


class SameBatches(TrainingBatches):
    """Batches that are drawn once and then used again and again."""

    def chunk(self, index: int) -> Batch:
        """Return the first CHUNK batches, whatever the index."""
        return super().chunk(0)

    def forget(self) -> None:
        """Keep what was drawn."""


def learner(config: RunConfig, *, sampling: bool = True, alone: bool = False) -> Learner:
    """Return a training of one configuration.

    Args:
        config: Its configuration.
        sampling: False draws batches once, so that updates alone are left.
        alone: Train without the machinery of ensembles; otherwise as `train` does.
    """
    made: Learner = TrainingState.start(config) if alone else make_learner(config)
    if not sampling:
        state = made.member(0)
        state.batches = SameBatches(state.task, config.training.seed, config.training.batch_size,
                                    resolve_device(config.training.device))
    return made


@dataclass(frozen=True)
class Updates:
    """The contestant: updates of a training; `context` is entered for every turn."""

    name: str
    learner: Learner
    device: torch.device
    multiple: int
    context: Callable[[], AbstractContextManager[Any]] = nullcontext

    def seconds(self, n: int) -> float:
        """Return the seconds of n updates."""
        with self.context():
            seconds = Local(self.name, self.learner.update, self.device).seconds(n)
        self.learner.forget_losses()
        return seconds


def measure(
    config: RunConfig, *, precisions: Sequence[Precision], turns: Mapping[str, Any]
) -> dict[str, Any]:
    """Return one case, all contestants at one task and attention kind, as plain data."""
    device = resolve_device(config.training.device)
    case: dict[str, Any] = {
        "name": f"{config.task.name}, {kind_of(config.model)}", "config": to_dict(config),
        "n_parameters": HookedTransformer(config.model).n_parameters,
        "input_shape": [config.training.batch_size, config.task.n_tokens, config.task.d_input]}
    attention = Case.of_training(config.model, device, torch.float32, config.task.n_tokens)
    memory: dict[str, float] = {}
    for quantity in MEASURED:
        contestants = []
        if kernel_for(attention) != "plain":
            contestants.append(_updates(PLAIN, config, quantity, memory, alone=True,
                                        context=written_out))
        contestants += [
            _updates(f"ours, {precision}", replace(config, training=replace(
                config.training, precision=precision)), quantity, memory)
            for precision in precisions]
        sitting = sit(contestants, **turns, progress=Bar(f"{case['name']}, {quantity}"))
        case[quantity] = sitting.record(contestants[0].name)
    case["peak_memory_mib"] = memory
    return case


def _updates(
    name: str, config: RunConfig, quantity: str, memory: dict[str, float], *, alone: bool = False,
    context: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Updates:
    """Return a contestant, and note in `memory` what it needs."""
    device, sampling = resolve_device(config.training.device), quantity == "step"
    before = torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
    reset_peak_memory(device)
    made = Updates(name, learner(config, sampling=sampling, alone=alone), device,
                   CHUNK if sampling else 1, context)
    made.seconds(2)
    memory[name] = max(peak_memory(device) - before, memory.get(name, 0.0))
    return made


def table(cases: Sequence[dict[str, Any]]) -> str:
    """Return the markdown table: a row per case and contestant."""
    rows = []
    for case in cases:
        for name in case["update"]["milliseconds"]:
            cells = [case["name"], name]
            cells += [Spread(**measured[name]).text() if name in measured else ""
                      for quantity in MEASURED
                      for measured in (case[quantity]["milliseconds"], case[quantity]["speedup"])]
            rows.append([*cells, f"{case['peak_memory_mib'][name]:,.0f}"])
    against = cases[0]["step"]["baseline"]
    return markdown_table(["case", "contestant", "step, ms", f"times faster than {against}",
                     "update alone, ms", f"times faster than {against}", "peak memory, MiB"], rows)


@dataclass(frozen=True, kw_only=True)
class TrainingStep(Benchmark):
    """Time training steps in turn; write JSON and a table."""

    QUESTION = "training_step"

    task: tuple[TaskName, ...] = ("sraven", "logic")
    """Tasks."""
    kinds: tuple[Kind, ...] = ("hyla", "softmax", "linear")
    """Attention kinds."""
    precision: tuple[Precision, ...] = ("float32",)
    """Precisions of our step."""
    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    rounds: int = 11

    def run(self) -> None:
        device = resolve_device(self.device)
        check(self.threads is None or 1 <= self.threads <= available_cores(),
              f"threads is {self.threads}; expected 1 to {available_cores()}, the cores of this "
              "machine")
        with self.report(
                device, threads=self.cores, precisions=list(self.precision),
                torch_float32_matmul_precision=torch.get_float32_matmul_precision()) as report:
            cases = []
            for name, kind in product(self.task, self.kinds):
                config = preset(self.size, name, kind)
                config = replace(config, training=replace(config.training, device=self.device))
                cases.append(measure(config, precisions=self.precision, turns=self.turns))
            report.finish(self.folder, cases, table(cases))


if __name__ == "__main__":
    tyro.cli(TrainingStep).run()
