"""How does throughput grow with the members of an ensemble, and where does it saturate?

    python -m latentcode.experiments.benchmarks.ensembles --device cuda

measures milliseconds per model and step over the number of members E; then, at one E, over the
sequence length T, the number of heads H and the depth L. Sampling is counted; on a GPU the step
is captured as a graph, as `train_ensemble` does it. Memory is what torch allocated on a GPU, and
what the process has resident on the CPU, where an ensemble is not what to use: several models
train faster as processes side by side (`train_side_by_side`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tyro

from latentcode.config import LogicConfig, RunConfig, SravenConfig, to_dict
from latentcode.config.presets import model_for, preset
from latentcode.devices import resolve_device
from latentcode.errors import check
from latentcode.experiments.benchmarks.figures import panels
from latentcode.experiments.benchmarks.harness import (
    Spread,
    peak_memory,
    reset_peak_memory,
    sit,
)
from latentcode.experiments.benchmarks.ours import Updates, learner
from latentcode.experiments.benchmarks.report import RESULTS, Benchmark, Kind, Precision, TaskName
from latentcode.experiments.benchmarks.targets import (
    AGGREGATE,
    MILLISECONDS,
    gpu_of,
    least_milliseconds,
    official_milliseconds,
    said,
)
from latentcode.figures.markdown import markdown_table
from latentcode.models.config import kind_of
from latentcode.progress import bar

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
    config: RunConfig, members: int, axis: str, value: int, turns: Mapping[str, Any]
) -> dict[str, Any]:
    """Return one case: an ensemble of `members`, as plain data."""
    device = resolve_device(config.training.device)
    before = torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
    reset_peak_memory(device)
    configs = [replace(config, training=replace(config.training, seed=seed))
               for seed in range(members)]
    name = f"{AXES[axis]} = {value}"
    contestant = Updates("ours", learner(configs, alone=False), device)
    sitting = sit([contestant], **turns, progress=bar(name))
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
    return markdown_table(["varied", "value", "members", "ms per model and step",
                           "model-steps per second", "peak memory, MiB"], rows)


def verdicts(cases: Sequence[dict[str, Any]], config: RunConfig, precision: str,
             gpu: str | None, official: float | None) -> list[str]:
    """Return whether the targets on a GPU are reached by the best number of members.

    official  milliseconds per step of the official code on the same GPU, if known
    """
    best = min((case for case in cases if case["axis"] == "members"),
               key=lambda case: per_model(case).median, default=None)
    if gpu is None or best is None:
        return []
    milliseconds, name = per_model(best).median, f"best, {best['members']} members"
    target = MILLISECONDS.get((config.task.name, kind_of(config.model)))
    said_of = [] if target is None else [
        said(name, milliseconds, target, "ms per model and step", at_least=False)]
    least = least_milliseconds(config, precision, gpu)
    said_of.append(f"The least that the peak rates of an {gpu} allow: {least['products']:.3g} ms "
                   f"for products, {least['memory']:.3g} ms for weights to and from memory.")
    if official is not None:
        said_of.append(said(name, official / milliseconds, AGGREGATE,
                            "times the official code's model-steps", at_least=True))
    return said_of


def figure(cases: Sequence[dict[str, Any]]) -> Any:
    """Return one panel per axis: milliseconds per model and step."""
    return panels({AXES[axis]: ([c["value"] for c in cases if c["axis"] == axis],
                                [per_model(c) for c in cases if c["axis"] == axis])
                   for axis in dict.fromkeys(c["axis"] for c in cases)}, "ms per model and step")


@dataclass(frozen=True, kw_only=True)
class Ensembles(Benchmark):
    """Time ensembles; write JSON, a table and a figure."""

    QUESTION = "ensembles"

    task: TaskName = "sraven"
    """The task."""
    kind: Kind = "hyla"
    """The attention kind."""
    members: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    """Numbers of members E."""
    at: int = 16
    """E for the other axes."""
    tokens: tuple[int, ...] = ()
    """Sequence lengths T; for SRAVEN multiples of 9."""
    heads: tuple[int, ...] = ()
    """Numbers of heads H, the total dimension of queries, keys and values unchanged."""
    layers: tuple[int, ...] = ()
    """Depths L."""
    precision: Precision = "float32"
    """float32, tf32 (on a GPU), bf16_mlp or bf16."""
    device: str = "cuda"
    """cpu, cuda or cuda:N."""
    official: Path | None = None
    """A result (JSON) of training_step --official on the same GPU, to compare with."""
    turn_seconds: float = 0.5
    out: Path | None = None
    """Folder of the result; default: one per task and kind in
    experiments/results/benchmarks/ensembles."""

    @property
    def folder(self) -> Path:
        """Folder of the result."""
        return self.out or RESULTS / self.QUESTION / f"{self.task}-{self.kind}"

    def points(self) -> list[tuple[str, int, int]]:
        """Return (axis, value, members) of every case."""
        members, at = ((1, 2), 2) if self.smoke else (self.members, self.at)
        others = {"tokens": self.tokens, "heads": self.heads, "layers": self.layers}
        return [*(("members", value, value) for value in members),
                *((axis, value, at) for axis, values in others.items() for value in values)]

    def run(self) -> None:
        place = resolve_device(self.device)
        config = preset(self.size, self.task, self.kind)
        config = replace(config, training=replace(config.training, device=self.device,
                                                  precision=self.precision))
        wanted = [(vary(config, axis, value), members, axis, value)
                  for axis, value, members in self.points()]
        with self.report(
                place, task=self.task, kind=self.kind, precision=self.precision,
                batch_size=config.training.batch_size,
                torch_float32_matmul_precision=torch.get_float32_matmul_precision()) as report:
            cases = [measure(*case, self.turns) for case in wanted]
            official = None if self.official is None else official_milliseconds(
                self.official, self.task, self.kind)
            said_of = verdicts(cases, config, self.precision, gpu_of(place), official)
            report.finish(self.folder, cases, "\n\n".join([table(cases), *said_of]),
                          figure(cases))


if __name__ == "__main__":
    tyro.cli(Ensembles).run()
