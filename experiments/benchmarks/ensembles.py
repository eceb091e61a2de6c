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
from latentcode.experiments.benchmarks.report import (
    RESULTS,
    Benchmark,
    Kind,
    Precision,
    TaskName,
    said,
)
from latentcode.figures.markdown import markdown_table
from latentcode.models.config import kind_of
from latentcode.progress import bar

MILLISECONDS = {("sraven", "hyla"): 0.25, ("logic", "hyla"): 0.06}
"""(task, kind) -> milliseconds per model and step that are to be reached on an H100 or H200."""


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


def verdict(
    cases: Sequence[dict[str, Any]], config: RunConfig, device: torch.device
) -> str | None:
    """Return whether the best number of members reaches the target on a GPU; None without one."""
    target = MILLISECONDS.get((config.task.name, kind_of(config.model)))
    if device.type != "cuda" or target is None:
        return None
    best = min(cases, key=lambda case: per_model(case).median)
    return said(f"best, {best['members']} members", per_model(best).median, target,
                "ms per model and step", at_least=False)


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
            lines = [table(cases), verdict(cases, config, place)]
            report.finish(
                self.folder, cases, "\n\n".join(filter(None, lines)),
                bars([case["name"] for case in cases],
                     [{"ours": per_model(case)} for case in cases],
                     "milliseconds per model and step (median, quartiles)"))


if __name__ == "__main__":
    tyro.cli(Ensembles).run()
