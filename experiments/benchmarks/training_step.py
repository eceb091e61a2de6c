"""How long does a training step take: ours, plain PyTorch, the official code?

    python -m latentcode.experiments.benchmarks.training_step \
        --official CHECKOUT --official-python PYTHON

measures, in turn in one sitting and at the paper's setting (batch 128, attention dropout 0.1),
milliseconds of

    step    draw a batch and update once, as each side's own training loop does
    update  the update alone, on a batch that was drawn before

and how many times faster than the official code we are. The comparison is of `step` with `step`;
`update` leaves the sampling out. "Plain PyTorch" is our model with attention computed by the
functions of `models/attention.py`, operation by operation; it is there where `train` computes it
otherwise. Without `--official` our own contestants run alone. Our batches are drawn many at a time:
a turn of ours is a whole number of such draws, the official loop draws every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
import tyro

from latentcode.config import RunConfig, preset, to_dict
from latentcode.devices import available_cores, resolve_device
from latentcode.errors import check
from latentcode.experiments.benchmarks.harness import (
    Benchmark,
    Contestant,
    Kind,
    Local,
    Precision,
    Spread,
    TaskName,
    peak_memory,
    reset_peak_memory,
    sit,
    verdict,
)
from latentcode.experiments.benchmarks.official_process import (
    OfficialProcess,
    OfficialSteps,
    official_process,
)
from latentcode.figures.text import markdown_table
from latentcode.models.config import kind_of
from latentcode.models.kernels.fused import Case, kernel_for, written_out
from latentcode.models.transformer import HookedTransformer
from latentcode.progress import Bar
from latentcode.tasks import Batch
from latentcode.training.loop import make_learner
from latentcode.training.state import CHUNK, Learner, TrainingBatches, TrainingState

MEASURED: tuple[str, ...] = ("step", "update")
PLAIN = "plain PyTorch, float32"
ON_A_GPU = 3.0
"""How many times as fast as the official code on the same GPU a step is to be."""


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
    config: RunConfig, *, precisions: Sequence[Precision], official: OfficialProcess | None,
    turns: Mapping[str, Any],
) -> dict[str, Any]:
    """Return one case, all contestants at one task and attention kind, as plain data."""
    device = resolve_device(config.training.device)
    case: dict[str, Any] = {
        "name": f"{config.task.name}, {kind_of(config.model)}", "config": to_dict(config),
        "n_parameters": HookedTransformer(config.model).n_parameters,
        "input_shape": [config.training.batch_size, config.task.n_tokens, config.task.d_input]}
    if official is not None:
        case["official"] = official.build(config)
        theirs, ours = ([side[key] for key in ("n_parameters", "input_shape")]
                        for side in (case["official"], case))
        check(ours == theirs, f"parameters and input shape are {ours} here and {theirs} in the "
              "official code; expected the same, so that the same thing is timed")
    attention = Case.of_training(config.model, device, torch.float32, config.task.n_tokens)
    memory: dict[str, float] = {}
    for what in MEASURED:
        contestants: list[Contestant] = [] if official is None else [OfficialSteps(official, what)]
        if kernel_for(attention) != "plain":
            contestants.append(_updates(PLAIN, config, what, memory, alone=True,
                                        context=written_out))
        contestants += [
            _updates(f"ours, {precision}", replace(config, training=replace(
                config.training, precision=precision)), what, memory)
            for precision in precisions]
        sitting = sit(contestants, **turns, progress=Bar(f"{case['name']}, {what}"))
        case[what] = sitting.record(contestants[0].name)
    if official is not None:
        memory["official"] = official.ask(do="memory")["peak_mib"]
    case["peak_memory_mib"] = memory
    return case


def _updates(
    name: str, config: RunConfig, what: str, memory: dict[str, float], *, alone: bool = False,
    context: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Updates:
    """Return a contestant of ours, and note in `memory` what it needs."""
    device, sampling = resolve_device(config.training.device), what == "step"
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
                      for what in MEASURED
                      for measured in (case[what]["milliseconds"], case[what]["speedup"])]
            memory = case["peak_memory_mib"].get(name)
            rows.append([*cells, "" if memory is None else f"{memory:,.0f}"])
    against = cases[0]["step"]["baseline"]
    return markdown_table(["case", "contestant", "step, ms", f"times faster than {against}",
                     "update alone, ms", f"times faster than {against}", "peak memory, MiB"], rows)


def verdicts(cases: Sequence[dict[str, Any]], device: torch.device) -> list[str]:
    """Return whether the target on a GPU is reached; nothing on a CPU or without the official
    code."""
    return [verdict(f"{case['name']}, {name}", spread["median"], ON_A_GPU,
                    "times the official code's speed", at_least=True)
            for case in cases if device.type == "cuda" and "official" in case
            for name, spread in case["step"]["speedup"].items() if name.startswith("ours")]


@dataclass(frozen=True, kw_only=True)
class TrainingStep(Benchmark):
    """Time training steps in turn; write JSON and a table."""

    QUESTION = "training_step"

    task: tuple[TaskName, ...] = ("sraven", "logic")
    """Tasks."""
    kinds: tuple[Kind, ...] = ("hyla", "softmax", "linear")
    """Attention kinds."""
    precision: tuple[Precision, ...] = ("float32",)
    """Precisions of our step; the official code runs as it is, in float32 (on a GPU its jax
    multiplies matrices in tf32 unless told otherwise)."""
    device: str = "cpu"
    """cpu, cuda or cuda:N; the official code takes what its jax finds."""
    official: Path | None = None
    """A checkout of github.com/smonsays/hypernetwork-attention."""
    official_python: str = "python3"
    """A Python that has jax, flax, optax and chex."""
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
                # A process for each case, since its peak memory cannot be reset.
                with (nullcontext() if self.official is None else official_process(
                        self.official, self.official_python, self.cores)) as process:
                    cases.append(measure(config, precisions=self.precision, official=process,
                                         turns=self.turns))
            report.finish(cases, "\n\n".join([table(cases), *verdicts(cases, device)]))


if __name__ == "__main__":
    tyro.cli(TrainingStep).run()
