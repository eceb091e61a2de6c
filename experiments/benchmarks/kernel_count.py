"""How many kernels has one step of training on a GPU?

    python -m latentcode.experiments.benchmarks.kernel_count

counts, without a GPU, what a captured step of one model and of an ensemble starts at the paper's
sizes. It runs the step on the stand-in device of `tests/helpers/fake_cuda.py`, which has shapes and
no numbers, and counts the operators that torch dispatches to the device.

Counted   every operator but views and allocations, as often as `LAUNCHES` says, else once; in the
          row `generator states` two fills per replay for each generator that the graph knows
Not seen  copies that an operator makes inside itself of arguments laid out otherwise than it needs,
          products that the library splits in two, a second kernel of LayerNorm's backward pass:
          a profiler on a GPU finds a few more

A fused optimiser is one launch for each call, however many tensors it updates.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
import tyro
from torch.utils._python_dispatch import TorchDispatchMode

from latentcode.config import RunConfig, to_dict
from latentcode.config.presets import preset
from latentcode.errors import check
from latentcode.experiments.benchmarks.figures import bars
from latentcode.experiments.benchmarks.harness import Spread
from latentcode.experiments.benchmarks.report import Benchmark, Kind, Precision, Report, TaskName
from latentcode.figures.markdown import markdown_table
from latentcode.models.config import kind_of
from latentcode.training.batches import CHUNK
from latentcode.training.ensemble import Ensemble
from latentcode.training.graph import StepGraph

LAUNCHES = {
    "aten.baddbmm": 2,  # the added term is copied to the output, then the product is added
    "aten.index_put": 5,  # repeated places: they are numbered, sorted, and summed in order
    "aten.select_backward": 2, "aten.slice_backward": 2,  # zeros, and the gradient among them
    "latentcode.attention_backward": 4,  # dq, dk with dv; the bias's gradient: zeros, and a sum
    "aten._unsafe_view": 0,
    "aten.empty": 0, "aten.empty_like": 0, "aten.empty_strided": 0, "aten.new_empty": 0,
    "aten.new_empty_strided": 0, "prim.device": 0, "aten.lift_fresh": 0,
    "aten.promote_types": 0,
}
"""Operator -> kernels that torch starts for it, at least, where that is not one."""
GENERATOR_STATES = "generator states"
TOTAL = "all"


class Launches(TorchDispatchMode):
    """Counts in `seen` the kernels of each operator that is called in this context."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = str(func.overloadpacket)
        launches = 0 if func.is_view else LAUNCHES.get(name, 1)
        if launches:
            self.seen[name] += launches
        return func(*args, **(kwargs or {}))


def a_device() -> AbstractContextManager[Any]:
    """Return a context in which there is a CUDA device: that of torch, or the stand-in.

    `ConfigError` where neither is: the stand-in comes with a checkout, not with the package.
    """
    if torch.version.cuda is not None:
        return nullcontext()
    file = Path(__file__).resolve().parents[2] / "tests" / "helpers" / "fake_cuda.py"
    check(file.is_file(), f"{file} is missing; expected a checkout of the repository, or a build "
          "of torch for CUDA")
    spec = importlib.util.spec_from_file_location("latentcode_stand_in_device", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    device: AbstractContextManager[Any] = module.fake_cuda()
    return device


def count(configs: Sequence[RunConfig]) -> dict[str, dict[str, int]]:
    """Return the kernels, by operator, of what an ensemble does on a CUDA device.

    captured  in the graph of a step
    around    at every replay: filling the graph's inputs, taking the loss out
    chunk     once in CHUNK steps: drawing them
    """
    counted: dict[str, dict[str, int]] = {}
    for graphed in (False, True):
        ensemble = Ensemble(configs, graphed=graphed)
        ensemble.update()  # constants are copied to the device, and the graph is captured
        with Launches() as step:
            ensemble.update()
        counted["around" if graphed else "captured"] = dict(step.seen)
    if isinstance(ensemble._update, StepGraph):
        n_states = 2 * len(ensemble._update.generators)
        counted["around"] |= {GENERATOR_STATES: n_states} if n_states else {}
    while ensemble.step < CHUNK:
        ensemble.update()
    with Launches() as drawing:
        ensemble.update()
    drawing.seen.subtract(counted["around"])
    counted["chunk"] = {name: n for name, n in drawing.seen.items() if n > 0}
    return counted


def measure(config: RunConfig, members: int) -> dict[str, Any]:
    """Return one case as plain data."""
    configs = [replace(config, training=replace(config.training, seed=seed))
               for seed in range(members)]
    return {"name": f"{config.task.name}, {kind_of(config.model)}", "members": members,
            "config": to_dict(config), "launches": count(configs)}


def per_step(case: Mapping[str, Any]) -> dict[str, float]:
    """Return the kernels of a step by operator, and of `TOTAL`: drawing counts for its share."""
    launches: dict[str, float] = {}
    for part, seen in case["launches"].items():
        for name, n in seen.items():
            share = n / (CHUNK if part == "chunk" else 1)
            launches[name] = launches.get(name, 0.0) + share
    return {TOTAL: sum(launches.values()), **launches}


def table(cases: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> str:
    """Return one markdown table per number of members: a row per operator, a column per case.

    before  the cases of an earlier count, in the same order, or none
    """
    tables = []
    for members in dict.fromkeys(case["members"] for case in cases):
        columns = [(case["name"], per_step(case), [per_step(old) for old in before if (
            old["name"], old["members"]) == (case["name"], members)])
            for case in cases if case["members"] == members]
        most: dict[str, float] = {}
        for _, new, old in columns:
            for counted in (new, *old):
                for name, n in counted.items():
                    most[name] = max(most.get(name, 0.0), n)
        rows = [[name, *(" → ".join(f"{counted.get(name, 0):.4g}" for counted in (*old, new))
                         for _, new, old in columns)]
                for name, n in sorted(most.items(), key=lambda item: -item[1]) if n >= 1]
        title = "one model" if members == 1 else f"an ensemble of {members}"
        tables.append(f"Kernels per step of {title}{', before → after' if before else ''}:\n\n"
                      + markdown_table(["operator", *(name for name, *_ in columns)], rows))
    return "\n\n".join(tables)


@dataclass(frozen=True, kw_only=True)
class KernelCount(Benchmark):
    """Count the kernels of a step; write JSON, a table by operator and a figure."""

    QUESTION = "kernel_count"

    task: tuple[TaskName, ...] = ("sraven", "logic")
    """Tasks."""
    kinds: tuple[Kind, ...] = ("hyla", "softmax", "linear")
    """Attention kinds."""
    members: tuple[int, ...] = (1, 16)
    """Numbers of members E."""
    precision: Precision = "float32"
    """float32, tf32, bf16_mlp or bf16."""
    before: Path | None = None
    """`kernel_count.json` of an earlier state, to stand beside this one."""

    def run(self) -> None:
        before = [] if self.before is None else json.loads(
            self.before.read_text(encoding="utf-8"))["cases"]
        report = Report(self.QUESTION, torch.device("cpu"), {
            "members": self.members, "precision": self.precision, "smoke": self.smoke})
        cases = []
        with a_device():
            for members, task, kind in product(self.members, self.task, self.kinds):
                config = preset(self.size, task, kind)
                cases.append(measure(replace(config, training=replace(
                    config.training, device="cuda", precision=self.precision)), members))
        states = [(old, "before") for old in (before,) if old] + [(cases, "now")]
        drawn = bars(
            [f"{case['name']}, E = {case['members']}" for case in cases],
            [{name: Spread.of([per_step(state[i])[TOTAL]]) for state, name in states}
             for i in range(len(cases))], "kernels per step")
        report.finish(self.folder, cases, table(cases, before), drawn)


if __name__ == "__main__":
    tyro.cli(KernelCount).run()
