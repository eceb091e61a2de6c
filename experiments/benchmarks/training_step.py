"""How long does a training step take: ours, plain PyTorch, the official code?

    python -m latentcode.experiments.benchmarks.training_step \
        --official CHECKOUT --official-python PYTHON

measures, in turn in one sitting and at the paper's setting (batch 128, attention dropout 0.1),
milliseconds of

    step    draw a batch and update once, as each side's own training loop does
    update  the update alone, on a batch that was drawn before

and how many times faster than the official code we are. The comparison is of `step` with `step`;
`update` shows what of it is not sampling, and beside it stand the matrix products of our float32
update alone, a floor under what can be reached without making them fewer or faster. "Plain
PyTorch" is our model with attention computed by the functions of `models/attention.py`, operation
by operation; it is there where `train` computes it otherwise. Without `--official` our own
contestants run alone. Our batches are drawn many at a time: a turn of ours is a whole number of
such draws, the official loop draws every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
import tyro

from latentcode.config import RunConfig, to_dict
from latentcode.config.presets import preset
from latentcode.devices import available_cores, resolve_device
from latentcode.errors import check
from latentcode.experiments.benchmarks.figures import RESULTS, bars, markdown, save
from latentcode.experiments.benchmarks.harness import (
    Contestant,
    Report,
    Spread,
    peak_memory,
    reset_peak_memory,
    sit,
    torch_threads,
)
from latentcode.experiments.benchmarks.official_process import (
    OfficialProcess,
    OfficialSteps,
    official_process,
)
from latentcode.experiments.benchmarks.ours import MatrixProducts, Updates, learner
from latentcode.models.config import kind_of
from latentcode.models.kernels.fused import is_fused, written_out
from latentcode.models.transformer import HookedTransformer
from latentcode.progress import bar
from latentcode.training.batches import CHUNK

QUESTION = "training_step"
Precision = Literal["float32", "tf32", "bf16_mlp", "bf16"]
MEASURED: tuple[str, ...] = ("step", "update")
PLAIN = "plain PyTorch, float32"
FLOOR = "matrix products alone, float32"


def measure(
    config: RunConfig,
    *,
    precisions: Sequence[Precision],
    official: OfficialProcess | None,
    rounds: int,
    turn_seconds: float,
) -> dict[str, Any]:
    """Return one case, all contestants at one task and attention kind, as plain data."""
    device = resolve_device(config.training.device)
    configs = {precision: replace(config, training=replace(config.training, precision=precision))
               for precision in precisions}
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
    memory: dict[str, float] = {}
    for what in MEASURED:
        contestants: list[Contestant] = [] if official is None else [OfficialSteps(official, what)]
        if is_fused(config.model, config.training.device, torch.float32):
            contestants.append(_updates(PLAIN, config, what, device, memory, alone=True,
                                        context=written_out))
        for precision, chosen in configs.items():
            contestants.append(_updates(f"ours, {precision}", chosen, what, device, memory))
        if what == "update" and "float32" in configs and device.type == "cpu":
            products = MatrixProducts(FLOOR)
            with products:
                learner([configs["float32"]], sampling=False).update()
            contestants.append(products)
            case["matrix_product_operations"] = products.operations
        case[what] = sit(contestants, rounds=rounds, turn_seconds=turn_seconds,
                         progress=bar(f"{case['name']}, {what}")).record(contestants[0].name)
    if official is not None:
        memory["official"] = official.ask(do="memory")["peak_mib"]
    case["peak_memory_mib"] = memory
    return case


def _updates(
    name: str, config: RunConfig, what: str, device: torch.device, memory: dict[str, float], *,
    alone: bool | None = None,
    context: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Updates:
    """Return a contestant of ours, and note in `memory` what it needs."""
    before = torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
    reset_peak_memory(device)
    sampling = what == "step"
    made = Updates(name, learner([config], sampling=sampling, alone=alone), device,
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
            cells += [Spread(**figures[name]).text() if name in figures else ""
                      for what in MEASURED
                      for figures in (case[what]["milliseconds"], case[what]["speedup"])]
            memory = case["peak_memory_mib"].get(name)
            rows.append([*cells, "" if memory is None else f"{memory:,.0f}"])
    against = cases[0]["step"]["baseline"]
    return markdown(["case", "contestant", "step, ms", f"times faster than {against}",
                     "update alone, ms", f"times faster than {against}", "peak memory, MiB"], rows)


def figure(cases: Sequence[dict[str, Any]]) -> Any:
    """Return bars of milliseconds per step, with how many times faster each is."""
    measured = [{name: Spread(**spread) for name, spread in case["step"]["milliseconds"].items()}
                for case in cases]
    notes = [{name: f"{s['median']:.2f}x" for name, s in case["step"]["speedup"].items()}
             for case in cases]
    return bars([case["name"] for case in cases], measured,
                "milliseconds per training step, sampling included (median, quartiles)", notes)


def main(
    task: tuple[Literal["sraven", "logic"], ...] = ("sraven", "logic"),
    kinds: tuple[Literal["hyla", "softmax", "linear"], ...] = ("hyla", "softmax", "linear"),
    precision: tuple[Precision, ...] = ("float32",),
    device: str = "cpu",
    official: Path | None = None,
    official_python: str = "python3",
    rounds: int = 11,
    turn_seconds: float = 1.5,
    threads: int | None = None,
    out: Path = RESULTS / QUESTION,
    smoke: bool = False,
) -> None:
    """Time training steps in turn; write JSON, a table and a figure.

    Args:
        task: Tasks.
        kinds: Attention kinds.
        precision: Precisions of our step; the official code runs as it is, in float32 (on a GPU
            its jax multiplies matrices in tf32 unless told otherwise).
        device: cpu, cuda or cuda:N; the official code takes what its jax finds.
        official: A checkout of github.com/smonsays/hypernetwork-attention.
        official_python: A Python that has jax, flax, optax and chex.
        rounds: Turns of every contestant.
        turn_seconds: About how long a turn lasts.
        threads: Threads on the CPU, for both sides; default: all cores.
        out: Folder of the result.
        smoke: Tiny models and two short rounds, to see that it works.
    """
    place = resolve_device(device)
    cores = threads or available_cores()
    check(1 <= cores <= available_cores(), f"threads is {threads}; expected 1 to "
          f"{available_cores()}, the cores of this machine")
    if smoke:
        rounds, turn_seconds, cores = 2, 0.0, 1
    with torch_threads(cores):
        report = Report(QUESTION, place, {
            "rounds": rounds, "turn_seconds": turn_seconds, "threads": cores, "smoke": smoke,
            "precisions": list(precision),
            "torch_float32_matmul_precision": torch.get_float32_matmul_precision()})
        cases = []
        for name, kind in product(task, kinds):
            config = preset("smoke" if smoke else "paper", name, kind)
            config = replace(config, training=replace(config.training, device=device))
            # A process for each case, since its peak memory cannot be counted anew.
            with (nullcontext() if official is None
                  else official_process(official, official_python, cores)) as process:
                cases.append(measure(config, precisions=precision, official=process,
                                     rounds=rounds, turn_seconds=turn_seconds))
        lines = table(cases)
        folder = save(out, report.result(cases), lines, figure(cases))
    print(f"{lines}\n\nwrote {folder}")


if __name__ == "__main__":
    tyro.cli(main)
