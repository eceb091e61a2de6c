"""How fast are codes read out, against the plain forward pass at the same batch?

    python -m latentcode.experiments.benchmarks.extraction [--n 1000000]

takes turns between the model alone (inputs drawn before, no hooks), and `extract` with one pair,
with all named pairs, and with residual streams: instances per second, and the share of the plain
forward pass's speed that is kept. With `--n` it then streams that many instances, and a tenth of
them, to a folder that is deleted afterwards, and reports the most memory that a process of its own
came to hold for each.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import tyro

from latentcode.codes.reader import Reader, TaskSource
from latentcode.config import preset
from latentcode.devices import make_generator, resolve_device
from latentcode.errors import check
from latentcode.experiments.benchmarks.harness import (
    Benchmark,
    Contestant,
    Kind,
    Local,
    Spread,
    TaskName,
    peak_memory,
    sit,
)
from latentcode.figures.text import markdown_table
from latentcode.models.transformer import HookedTransformer
from latentcode.progress import Bar
from latentcode.subjects import extract
from latentcode.tasks import Task, make_task
from latentcode.tasks.base import DRAW

FORWARD = "forward pass"


@dataclass(frozen=True)
class Extraction:
    """The contestant: `extract`, whose unit of work is one batch."""

    name: str
    model: HookedTransformer
    task: Task
    batch_size: int
    options: dict[str, Any]

    @property
    def multiple(self) -> int:
        """Instances are drawn DRAW at a time."""
        return max(1, DRAW // self.batch_size)

    def seconds(self, n: int) -> float:
        """Return the seconds that the codes of n batches take, labels and scores included."""
        device = next(self.model.parameters()).device

        def work() -> None:
            extract(self.model, self.task, split="ood", n=n * self.batch_size,
                          batch_size=self.batch_size, **self.options)

        return Local(self.name, work, device).seconds(1)


def measure(settings: ExtractionSpeed, task_name: TaskName, kind: Kind) -> dict[str, Any]:
    """Return one case, all contestants at one task and attention kind, as plain data."""
    task, model, device = settings.start(task_name, kind)
    batch_size = settings.batch_size
    inputs = task.sample("ood", batch_size, make_generator(0, "benchmark", device)).inputs

    @torch.no_grad()
    def forward() -> None:
        model(inputs)

    pairs = tuple(task.pairs)
    contestants: list[Contestant] = [
        Local(FORWARD, forward, device),
        *(Extraction(name, model, task, batch_size, options) for name, options in (
            ("extraction, 1 pair", {"pairs": pairs[:1]}),
            (f"extraction, {len(pairs)} pairs", {"pairs": pairs}),
            (f"extraction, {len(pairs)} pairs, residuals", {"pairs": pairs, "residuals": True})))]
    name = f"{task_name}, {kind}"
    sitting = sit(contestants, **settings.turns, progress=Bar(name))
    return {"name": name, "batch_size": batch_size, "n_layers": model.cfg.n_layers,
            "n_heads": model.cfg.n_heads, "pairs": list(pairs),
            "batches": sitting.record(FORWARD), "streamed": []}


def stream(settings: ExtractionSpeed, n: int) -> dict[str, Any]:
    """Return seconds and peak memory of streaming n instances to disk, in a process that does
    nothing else with its memory."""
    torch.set_num_threads(settings.cores)
    task, model, _ = settings.start(settings.task[0], settings.kinds[0])
    cpu = torch.device("cpu")
    before = peak_memory(cpu)
    with TemporaryDirectory(dir=settings.folder) as folder:
        begin = time.perf_counter()
        reader = Reader(model, TaskSource(task, "train", n=n), batch_size=settings.batch_size,
                        meta={"split": "train", "seed": 0})
        codes = reader.to_folder(Path(folder) / "codes", progress=Bar(f"stream {n:,}"))
        seconds = time.perf_counter() - begin
        size = sum(f.stat().st_size for f in codes.rglob("*") if f.is_file())
    return {"n": n, "seconds": seconds, "instances_per_second": n / seconds,
            "mib_on_disk": size / 2**20, "peak_memory_mib": peak_memory(cpu),
            "peak_memory_before_mib": before}


def table(cases: Sequence[dict[str, Any]]) -> str:
    """Return the markdown table: a row per case and contestant."""
    rows = []
    for case in cases:
        batches = case["batches"]
        for name, spread in batches["milliseconds"].items():
            kept = batches["speedup"].get(name)
            rows.append([case["name"], name, Spread(**spread).text(),
                         f"{1e3 * case['batch_size'] / spread['median']:,.0f}",
                         "" if kept is None else f"{100 * kept['median']:.0f} %"])
    lines = markdown_table(
        ["case", "contestant", f"ms per batch of {cases[0]['batch_size']}",
         "instances per second", "of the forward pass's speed"], rows)
    streamed = [[case["name"], f"{s['n']:,}", f"{s['instances_per_second']:,.0f}",
                 f"{s['mib_on_disk']:,.0f}", f"{s['peak_memory_mib']:,.0f}",
                 f"{s['peak_memory_before_mib']:,.0f}"]
                for case in cases for s in case["streamed"]]
    if streamed:
        lines += "\n\n" + markdown_table(
            ["streamed to disk", "instances", "instances per second", "MiB on disk",
             "peak memory of the process, MiB", "of which before it began"], streamed)
    return lines


@dataclass(frozen=True, kw_only=True)
class ExtractionSpeed(Benchmark):
    """Time extraction against the forward pass; write JSON and a table."""

    QUESTION = "extraction"

    task: tuple[TaskName, ...] = ("sraven", "logic")
    """Tasks."""
    kinds: tuple[Kind, ...] = ("hyla", "softmax")
    """Attention kinds."""
    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    batch_size: int = 512
    """Instances of one forward pass."""
    n: int | None = None
    """Stream this many instances, and a tenth, of the first task and kind to disk, through the
    folder of the result."""
    turn_seconds: float = 1.0

    def start(
        self, task_name: TaskName, kind: Kind
    ) -> tuple[Task, HookedTransformer, torch.device]:
        """Return a task, its model with the initial weights, and where that lies."""
        config, device = preset(self.size, task_name, kind), resolve_device(self.device)
        model = HookedTransformer(config.model, seed=config.training.seed)
        return make_task(config.task), model.to(device).eval(), device

    def run(self) -> None:
        n = self.n
        check(n is None or n >= 10, f"n is {n}; expected at least 10 instances")
        check(1 <= self.batch_size <= DRAW, f"batch_size is {self.batch_size}; expected 1 to "
              f"{DRAW:,}, the instances that are drawn at once")
        with self.report(
                resolve_device(self.device), batch_size=self.batch_size, n=n) as report:
            cases = [measure(self, task, kind) for task, kind in product(self.task, self.kinds)]
            if n is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                context = multiprocessing.get_context("spawn")
                for size in (n // 10, n):
                    with ProcessPoolExecutor(1, context) as pool:
                        cases[0]["streamed"].append(pool.submit(stream, self, size).result())
            report.finish(cases, table(cases))


if __name__ == "__main__":
    tyro.cli(ExtractionSpeed).run()
