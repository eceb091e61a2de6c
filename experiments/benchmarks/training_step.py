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

    python -m latentcode.experiments.benchmarks.training_step --runs RUN ...

times ours against plain PyTorch at the weights of trained models: how long a processor takes for a
product may depend on the numbers.
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

from latentcode.config import RunConfig, to_dict
from latentcode.config.presets import preset
from latentcode.devices import available_cores, resolve_device
from latentcode.errors import check
from latentcode.experiments.benchmarks.figures import bars
from latentcode.experiments.benchmarks.harness import (
    Contestant,
    Spread,
    peak_memory,
    reset_peak_memory,
    sit,
    spreads,
)
from latentcode.experiments.benchmarks.official_process import (
    OfficialProcess,
    OfficialSteps,
    official_process,
)
from latentcode.experiments.benchmarks.ours import Updates, learner
from latentcode.experiments.benchmarks.report import Benchmark, Kind, Precision, TaskName, said
from latentcode.figures.markdown import markdown_table
from latentcode.models.config import kind_of
from latentcode.models.kernels.fused import Case, kernel_for, written_out
from latentcode.models.transformer import HookedTransformer
from latentcode.progress import bar
from latentcode.runs import Run
from latentcode.runs.checkpoints import Checkpoint
from latentcode.training.batches import CHUNK

MEASURED: tuple[str, ...] = ("step", "update")
PLAIN = "plain PyTorch, float32"
ON_A_GPU = 3.0
"""How many times as fast as the official code on the same GPU a step is to be."""


def measure(
    config: RunConfig,
    *,
    precisions: Sequence[Precision],
    official: OfficialProcess | None,
    turns: Mapping[str, Any],
    weights: Checkpoint | None = None,
) -> dict[str, Any]:
    """Return one case, all contestants at one task and attention kind, as plain data.

    weights  where ours begin (the optimiser begins anew); default: at fresh ones
    """
    device = resolve_device(config.training.device)
    configs = {precision: replace(config, training=replace(config.training, precision=precision))
               for precision in precisions}
    case: dict[str, Any] = {
        "name": f"{config.task.name}, {kind_of(config.model)}"
                + ("" if weights is None else f", after {weights.step:,} updates"),
        "config": to_dict(config),
        "n_parameters": HookedTransformer(config.model).n_parameters,
        "input_shape": [config.training.batch_size, config.task.n_tokens, config.task.d_input]}
    if official is not None:
        case["official"] = official.build(config)
        theirs, ours = ([side[key] for key in ("n_parameters", "input_shape")]
                        for side in (case["official"], case))
        check(ours == theirs, f"parameters and input shape are {ours} here and {theirs} in the "
              "official code; expected the same, so that the same thing is timed")
    memory: dict[str, float] = {}
    for what in MEASURED:
        contestants: list[Contestant] = [] if official is None else [OfficialSteps(official, what)]
        met = Case.of_training(config.model, device, torch.float32, config.task.n_tokens)
        if kernel_for(met) != "plain":
            contestants.append(_updates(PLAIN, config, what, device, memory, weights, alone=True,
                                        context=written_out))
        for precision, chosen in configs.items():
            contestants.append(
                _updates(f"ours, {precision}", chosen, what, device, memory, weights))
        sitting = sit(contestants, **turns, progress=bar(f"{case['name']}, {what}"))
        case[what] = sitting.record(contestants[0].name)
    if official is not None:
        memory["official"] = official.ask(do="memory")["peak_mib"]
    case["peak_memory_mib"] = memory
    return case


def _updates(
    name: str, config: RunConfig, what: str, device: torch.device, memory: dict[str, float],
    weights: Checkpoint | None, *,
    alone: bool | None = None,
    context: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Updates:
    """Return a contestant of ours, and note in `memory` what it needs."""
    before = torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
    reset_peak_memory(device)
    sampling = what == "step"
    made = Updates(name, learner([config], sampling=sampling, alone=alone), device,
                   CHUNK if sampling else 1, context)
    if weights is not None:
        weights.restore_model(made.learner.member(0).model)
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
    return [said(f"{case['name']}, {name}", spread["median"], ON_A_GPU,
                 "times the official code's speed", at_least=True)
            for case in cases if device.type == "cuda" and "official" in case
            for name, spread in case["step"]["speedup"].items() if name.startswith("ours")]


def figure(cases: Sequence[dict[str, Any]]) -> Any:
    """Return bars of milliseconds per step, with how many times faster each is."""
    notes = [{name: f"{s['median']:.2f}x" for name, s in case["step"]["speedup"].items()}
             for case in cases]
    return bars([case["name"] for case in cases],
                [spreads(case["step"]["milliseconds"]) for case in cases],
                "milliseconds per training step, sampling included (median, quartiles)", notes)


@dataclass(frozen=True, kw_only=True)
class TrainingStep(Benchmark):
    """Time training steps in turn; write JSON, a table and a figure."""

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
    runs: tuple[Path, ...] = ()
    """Runs of which the newest weights are timed, on a CPU, instead of fresh models of `task` and
    `kinds`."""
    official: Path | None = None
    """A checkout of github.com/smonsays/hypernetwork-attention."""
    official_python: str = "python3"
    """A Python that has jax, flax, optax and chex."""
    rounds: int = 11

    def run(self) -> None:
        place = resolve_device(self.device)
        check(self.threads is None or 1 <= self.threads <= available_cores(),
              f"threads is {self.threads}; expected 1 to {available_cores()}, the cores of this "
              "machine")
        check(not self.runs or (place.type == "cpu" and self.official is None),
              f"runs are given with device {self.device} and official {self.official}; expected "
              "cpu and None: a captured step and the official code begin at weights of their own")
        begun: list[tuple[RunConfig, Checkpoint | None]] = [
            (run.config, run.load_checkpoint()) for run in map(Run.open, self.runs)]
        begun = begun or [(preset(self.size, name, kind), None)
                          for name, kind in product(self.task, self.kinds)]
        with self.report(
                place, threads=self.cores, precisions=list(self.precision),
                torch_float32_matmul_precision=torch.get_float32_matmul_precision()) as report:
            cases = []
            for config, weights in begun:
                config = replace(config, training=replace(config.training, device=self.device))
                # A process for each case, since its peak memory cannot be reset.
                with (nullcontext() if self.official is None else official_process(
                        self.official, self.official_python, self.cores)) as process:
                    cases.append(measure(config, precisions=self.precision, official=process,
                                         turns=self.turns, weights=weights))
            report.finish(self.folder, cases, "\n\n".join([table(cases), *verdicts(cases, place)]),
                          figure(cases))


if __name__ == "__main__":
    tyro.cli(TrainingStep).run()
