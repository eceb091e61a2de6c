"""How long would the missing runs take?

    python -m latentcode.experiments.paper.cost

measures the seconds of an update on one core, for every model that the claims speak of, and writes
them to `paces.json`: processor time, which work beside it hardly changes, without evaluations.
Models whose updates are too large for a core, such as the published language models, are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

import tyro

from latentcode.config import RunConfig
from latentcode.errors import check
from latentcode.experiments.evidence.claim import RESULTS
from latentcode.files.provenance import environment
from latentcode.files.storage import parse_json, write_json
from latentcode.models.config import kind_of
from latentcode.models.flops import PEAKS, training_flops_per_token
from latentcode.sweep.texts import make_texts

CORES = 2
"""Of the machine that hours are stated for."""
GPU_MINUTES: Mapping[str, tuple[float, float]] = {"logic": (2, 3), "sraven": (20, 200)}
"""Minutes of a run on one GPU, as the paper has them (D.1: RTX 3090 or 4090), its smallest to its
largest."""
GPU, UTILISATION = "H100", (0.4, 0.2)
"""The GPU that a language model's hours are stated for, and what share of its peak rate (bfloat16)
a training reaches: what we aim at, and half of it."""
REPEATS = 2
UPDATES = 2
"""Between two looks at the clock."""
MOST_TOKENS = 100_000
"""Of an update that one core is asked for."""


def shape(config: RunConfig) -> str:
    """Return what the pace of a training depends on, in words."""
    model = config.model
    return (f"{kind_of(model)}, {model.nonlinearity}, {model.n_layers} layers, {model.n_heads} "
            f"heads of {model.d_head}, width {model.d_model}, {config.task.n_tokens} tokens of "
            f"{config.task.d_input}, batch {config.training.batch_size}")


@cache
def paces() -> Mapping[str, float]:
    """Return shape -> seconds of an update, one core."""
    text = files("latentcode.experiments.paper").joinpath("paces.json").read_text("utf-8")
    found: dict[str, float] = parse_json(text)["seconds"]
    return found


def seconds(config: RunConfig) -> float | None:
    """Return how long one core takes for a run, or None where its shape was not measured."""
    pace = paces().get(shape(config))
    return None if pace is None else pace * config.training.steps


def hours(configs: Iterable[RunConfig]) -> dict[str, Any]:
    """Return what runs cost: their number, hours on two cores and on one GPU.

    two_cores  None where a shape was not measured
    gpu        the least and the most, by what the paper says of its own runs or, of language
               models, by arithmetic; None for others than the published ones
    """
    configs = list(configs)
    taken = [seconds(config) for config in configs]
    known = [value for value in taken if value is not None]
    published = all(config.training.steps >= 50_000 for config in configs)
    return {
        "runs": len(configs),
        # A run takes one core, so that the longest is the least.
        "two_cores": (max(sum(known) / CORES, max(known, default=0.0)) / 3600
                      if len(known) == len(taken) else None),
        "gpu": [sum(ends) for ends in zip(*map(gpu_hours, configs), strict=True)]
        if published and configs else None}


def gpu_hours(config: RunConfig) -> tuple[float, float]:
    """Return the least and the most hours of a published run on one GPU; see `hours`."""
    minutes = GPU_MINUTES.get(config.task.name)
    if minutes is not None:
        return minutes[0] / 60, minutes[1] / 60
    rate = PEAKS[GPU]["bf16"]
    least, most = (training_flops(config) / (rate * share) / 3600 for share in UTILISATION)
    return least, most


def training_flops(config: RunConfig) -> float:
    """Return the operations of a training, forward and backward, as its equations need them."""
    tokens = config.training.steps * config.training.batch_size * config.task.n_tokens
    return tokens * training_flops_per_token(config.model, config.task.n_tokens)


def in_words(cost: Mapping[str, Any]) -> str:
    """Return `3 runs, 1.9 h on two cores, 6 min to 9 min on one GPU`."""
    runs = f"{cost['runs']} run{'s' if cost['runs'] != 1 else ''}"
    cores = "" if cost["two_cores"] is None else f", {_time(cost['two_cores'])} on two cores"
    gpu = "" if cost["gpu"] is None else (
        f", {_time(cost['gpu'][0])} to {_time(cost['gpu'][1])} on one GPU")
    return runs + cores + gpu


def _time(hours: float) -> str:
    if hours < 1:
        return f"{60 * hours:.0f} min"
    return f"{hours:,.0f} h" if hours >= 10 else f"{hours:.1f} h"


def measure(config: RunConfig) -> float:
    """Return the processor seconds of an update on one thread, its batch's drawing included."""
    import torch

    from latentcode.experiments.benchmarks.training_step import learner
    from latentcode.tasks import make_task
    from latentcode.training.batches import CHUNK, TrainingBatches

    torch.set_num_threads(1)
    made = learner(replace(config, training=replace(config.training, device="cpu")),
                   sampling=False)
    made.update()
    task, began = make_task(config.task), time.process_time()
    TrainingBatches(task, 0, config.training.batch_size, torch.device("cpu")).chunk(0)
    sampling = (time.process_time() - began) / CHUNK
    taken = []
    for _ in range(REPEATS):
        began = time.process_time()
        for _ in range(UPDATES):
            made.update()
        taken.append((time.process_time() - began) / UPDATES)
        made.forget_losses()
    return median(taken) + sampling


def main() -> None:
    """Measure every shape of the claims, and of the results' own settings."""
    from latentcode.experiments.paper.reproduction import reproduction

    settings = [setting for name in RESULTS for preset in ("paper", "small")
                for setting in reproduction(name).settings(preset)]
    configs = {shape(config): config for setting in settings
               for config in setting.grid.members().values()
               if config.training.batch_size * config.task.n_tokens <= MOST_TOKENS}
    check(bool(configs), "no claim has runs; expected some")
    make_texts(configs.values())
    found = {}
    for number, (name, config) in enumerate(configs.items(), 1):
        found[name] = round(measure(config), 4)
        print(f"{number} of {len(configs)}: {found[name]:.3f} s  {name}", flush=True)
    write_json(Path(__file__).parent / "paces.json",
               {"what": "processor seconds of an update on one thread, median of "
                        f"{REPEATS} x {UPDATES}",
                "environment": environment("cpu"), "seconds": found})


if __name__ == "__main__":
    tyro.cli(main, prog="python -m latentcode.experiments.paper.cost")
