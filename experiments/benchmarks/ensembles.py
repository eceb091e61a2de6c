"""How does throughput grow with the members of an ensemble, and where does it saturate?

    python -m latentcode.experiments.benchmarks.ensembles --device cuda

measures milliseconds per model and step over the number of members E. Sampling is counted; on a
GPU the step is captured as a graph, as `train_ensemble` does it. Memory is what torch allocated on
a GPU, and what the process has resident on the CPU, where an ensemble is not what to use: several
models train faster as processes side by side (`train_side_by_side`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tyro

from latentcode.config import RunConfig, to_dict
from latentcode.config.presets import preset
from latentcode.devices import resolve_device
from latentcode.experiments.benchmarks.figures import bars
from latentcode.experiments.benchmarks.harness import Spread, peak_memory, reset_peak_memory, sit
from latentcode.experiments.benchmarks.ours import Updates, learner
from latentcode.experiments.benchmarks.report import RESULTS, Benchmark, Kind, Precision, TaskName
from latentcode.experiments.benchmarks.targets import (
    AGGREGATE,
    MILLISECONDS,
    official_milliseconds,
    said,
)
from latentcode.figures.markdown import markdown_table
from latentcode.models.config import kind_of
from latentcode.progress import bar


def measure(config: RunConfig, members: int, turns: Mapping[str, Any]) -> dict[str, Any]:
    """Return one case: an ensemble of `members`, as plain data."""
    device = resolve_device(config.training.device)
    before = torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
    reset_peak_memory(device)
    configs = [replace(config, training=replace(config.training, seed=seed))
               for seed in range(members)]
    name = f"{members} members"
    contestant = Updates("ours", learner(configs, alone=False), device)
    sitting = sit([contestant], **turns, progress=bar(name))
    memory = peak_memory(device) - before
    return {"name": name, "members": members, "config": to_dict(config),
            "steps": sitting.record("ours"), "peak_memory_mib": memory}


def per_model(case: dict[str, Any]) -> Spread:
    """Return milliseconds per model and step."""
    return Spread(**case["steps"]["milliseconds"]["ours"]).scaled(1.0 / case["members"])


def table(cases: Sequence[dict[str, Any]]) -> str:
    """Return the markdown table: a row per case."""
    rows = [[str(case["members"]), per_model(case).text(), f"{1e3 / per_model(case).median:,.0f}",
             f"{case['peak_memory_mib']:,.0f}"] for case in cases]
    return markdown_table(["members", "ms per model and step", "model-steps per second",
                           "peak memory, MiB"], rows)


def verdicts(
    cases: Sequence[dict[str, Any]], config: RunConfig, device: torch.device,
    official: float | None,
) -> list[str]:
    """Return whether the targets on a GPU are reached by the best number of members.

    official  milliseconds per step of the official code on the same GPU, if known
    """
    if device.type != "cuda":
        return []
    best = min(cases, key=lambda case: per_model(case).median)
    milliseconds, name = per_model(best).median, f"best, {best['members']} members"
    target = MILLISECONDS.get((config.task.name, kind_of(config.model)))
    lines = [] if target is None else [
        said(name, milliseconds, target, "ms per model and step", at_least=False)]
    if official is not None:
        lines.append(said(name, official / milliseconds, AGGREGATE,
                          "times the official code's model-steps", at_least=True))
    return lines


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

    def run(self) -> None:
        place = resolve_device(self.device)
        config = preset(self.size, self.task, self.kind)
        config = replace(config, training=replace(config.training, device=self.device,
                                                  precision=self.precision))
        with self.report(
                place, task=self.task, kind=self.kind, precision=self.precision,
                batch_size=config.training.batch_size,
                torch_float32_matmul_precision=torch.get_float32_matmul_precision()) as report:
            cases = [measure(config, members, self.turns)
                     for members in ((1, 2) if self.smoke else self.members)]
            official = None if self.official is None else official_milliseconds(
                self.official, self.task, self.kind)
            lines = verdicts(cases, config, place, official)
            report.finish(
                self.folder, cases, "\n\n".join([table(cases), *lines]),
                bars([case["name"] for case in cases],
                     [{"ours": per_model(case)} for case in cases],
                     "milliseconds per model and step (median, quartiles)"))


if __name__ == "__main__":
    tyro.cli(Ensembles).run()
