"""How does throughput grow with the members of an ensemble, and where does it saturate?

    python -m latentcode.experiments.benchmarks.ensembles --device cuda

measures milliseconds per model and step over the number of members E; then, at one E, over the
sequence length T, the number of heads H and the depth L. Sampling is counted; on a GPU the step
is captured as a graph, as `train_ensemble` does it. Memory is what torch allocated on a GPU, and
what the process has resident on the CPU, where an ensemble is not what to use: several models
train faster as processes side by side (`train_side_by_side`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
import tyro

from latentcode.config import LogicConfig, RunConfig, SravenConfig, to_dict
from latentcode.config.presets import model_for, preset
from latentcode.devices import available_cores, resolve_device
from latentcode.errors import check
from latentcode.experiments.benchmarks.figures import RESULTS, markdown, panels, save
from latentcode.experiments.benchmarks.harness import (
    Report,
    Spread,
    peak_memory,
    reset_peak_memory,
    sit,
    torch_threads,
)
from latentcode.experiments.benchmarks.ours import Updates, learner
from latentcode.progress import bar

QUESTION = "ensembles"
AXES: dict[str, str] = {"members": "members E", "tokens": "tokens T", "heads": "heads H",
                        "layers": "layers L"}
"""What is varied -> the label of its axis."""


def vary(config: RunConfig, axis: str, value: int) -> RunConfig:
    """Return a configuration with another sequence length, number of heads or depth.

    SRAVEN's length is that of M features in nine panels, so that `value` must be a multiple of
    9; the total dimension of queries, keys and values stays as it is.
    """
    task, model = config.task, config.model
    if axis == "tokens":
        if isinstance(task, LogicConfig):
            task = replace(task, n_examples=value)
        elif isinstance(task, SravenConfig):
            cells = task.grid_size**2
            check(value % cells == 0, f"tokens is {value}; expected a multiple of {cells}, the "
                  "panels of SRAVEN")
            task = replace(task, n_features=value // cells)
        shape = model_for(task)
        model = replace(model, d_input=shape.d_input, d_output=shape.d_output,
                        n_buckets=shape.n_buckets, max_distance=shape.max_distance)
    elif axis == "heads":
        total = model.n_heads * model.d_head
        check(total % value == 0, f"heads is {value}; expected a divisor of {total}, the total "
              "dimension of the queries")
        model = replace(model, n_heads=value, d_head=total // value, d_head_v=total // value)
    elif axis == "layers":
        model = replace(model, n_layers=value)
    return replace(config, task=task, model=model)


def measure(
    config: RunConfig, members: int, axis: str, value: int, *, rounds: int, turn_seconds: float,
) -> dict[str, Any]:
    """Return one case: an ensemble of `members`, as plain data."""
    device = resolve_device(config.training.device)
    before = torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
    reset_peak_memory(device)
    configs = [replace(config, training=replace(config.training, seed=seed))
               for seed in range(members)]
    name = f"{AXES[axis]} = {value}"
    contestant = Updates("ours", learner(configs, alone=False), device)
    sitting = sit([contestant], rounds=rounds, turn_seconds=turn_seconds, progress=bar(name))
    memory = peak_memory(device) - before
    return {"name": name, "axis": axis, "value": value, "members": members,
            "config": to_dict(config), "steps": sitting.record("ours"), "peak_memory_mib": memory}


def per_model(case: dict[str, Any]) -> Spread:
    """Return milliseconds per model and step."""
    return Spread(**case["steps"]["milliseconds"]["ours"]).scaled(1.0 / case["members"])


def table(cases: Sequence[dict[str, Any]]) -> str:
    """Return the markdown table: a row per case."""
    rows = [[AXES[case["axis"]], str(case["value"]), str(case["members"]),
             per_model(case).text(), f"{1e3 / per_model(case).median:,.0f}",
             f"{case['peak_memory_mib']:,.0f}"] for case in cases]
    return markdown(["varied", "value", "members", "ms per model and step",
                     "model-steps per second", "peak memory, MiB"], rows)


def figure(cases: Sequence[dict[str, Any]]) -> Any:
    """Return one panel per axis: milliseconds per model and step."""
    return panels({AXES[axis]: ([c["value"] for c in cases if c["axis"] == axis],
                                [per_model(c) for c in cases if c["axis"] == axis])
                   for axis in dict.fromkeys(c["axis"] for c in cases)}, "ms per model and step")


def main(
    task: Literal["sraven", "logic"] = "sraven",
    kind: Literal["hyla", "softmax", "linear"] = "hyla",
    members: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64),
    at: int = 16,
    tokens: tuple[int, ...] = (),
    heads: tuple[int, ...] = (),
    layers: tuple[int, ...] = (),
    precision: Literal["float32", "tf32", "bf16_mlp", "bf16"] = "float32",
    device: str = "cuda",
    rounds: int = 7,
    turn_seconds: float = 0.5,
    threads: int | None = None,
    out: Path | None = None,
    smoke: bool = False,
) -> None:
    """Time ensembles; write JSON, a table and a figure.

    Args:
        task: The task.
        kind: The attention kind.
        members: Numbers of members E.
        at: E for the other axes.
        tokens: Sequence lengths T; for SRAVEN multiples of 9.
        heads: Numbers of heads H, the total dimension of queries, keys and values unchanged.
        layers: Depths L.
        precision: float32, tf32 (on a GPU) or bf16.
        device: cpu, cuda or cuda:N.
        rounds: Turns per case.
        turn_seconds: About how long a turn lasts.
        threads: Threads on the CPU; default: all cores.
        out: Folder of the result; default: a folder per task and kind.
        smoke: Tiny models and two short rounds, to see that it works.
    """
    place = resolve_device(device)
    config = preset("smoke" if smoke else "paper", task, kind)
    if smoke:
        rounds, turn_seconds, members, at, threads = 2, 0.0, (1, 2), 2, 1
    config = replace(config, training=replace(config.training, device=device,
                                              precision=precision))
    points = [*(("members", value, value) for value in members),
              *((axis, value, at) for axis, values in (
                  ("tokens", tokens), ("heads", heads), ("layers", layers)) for value in values)]
    wanted = [(vary(config, axis, value), count, axis, value) for axis, value, count in points]
    with torch_threads(threads or available_cores()):
        report = Report(QUESTION, place, {
            "task": task, "kind": kind, "precision": precision, "rounds": rounds,
            "turn_seconds": turn_seconds, "smoke": smoke,
            "batch_size": config.training.batch_size,
            "torch_float32_matmul_precision": torch.get_float32_matmul_precision()})
        cases = [measure(*case, rounds=rounds, turn_seconds=turn_seconds) for case in wanted]
        lines = table(cases)
        folder = save(out or RESULTS / QUESTION / f"{task}-{kind}", report.result(cases), lines,
                      figure(cases))
    print(f"{lines}\n\nwrote {folder}")


if __name__ == "__main__":
    tyro.cli(main)
