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
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import tyro

from latentcode.codes.reader import Reader, TaskSource
from latentcode.devices import make_generator
from latentcode.errors import check
from latentcode.experiments.benchmarks.harness import (
    CPU,
    Contestant,
    Kind,
    ModelBenchmark,
    TaskName,
    peak_memory,
    sit,
    spread_text,
    timed,
)
from latentcode.figures.text import markdown_table
from latentcode.models.transformer import HookedTransformer
from latentcode.presets import preset
from latentcode.progress import Bar
from latentcode.subjects import extract
from latentcode.tasks import Task, make_task
from latentcode.tasks.base import DRAW


@dataclass(frozen=True, kw_only=True)
class Extraction(ModelBenchmark):
    """Time extraction against the forward pass; write JSON and a table."""

    QUESTION = "extraction"

    task: tuple[TaskName, ...] = ("sraven", "logic")
    """Tasks."""
    kinds: tuple[Kind, ...] = ("hyla", "softmax")
    """Attention kinds."""
    batch_size: int = 512
    """Instances of one forward pass."""
    n: int | None = None
    """Stream this many instances, and a tenth, of the first task and kind to disk, through the
    folder of the result."""
    turn_seconds: float = 1.0

    def start(self, task_name: TaskName, kind: Kind) -> tuple[Task, HookedTransformer]:
        """Return a task, and its model with the initial weights."""
        config = preset(self.size, task_name, kind)
        model = HookedTransformer(config.model, seed=config.training.seed)
        return make_task(config.task), model.to(self.device).eval()

    def measure(self) -> tuple[list[dict[str, Any]], str]:
        check(1 <= self.batch_size <= DRAW, f"batch_size is {self.batch_size}; expected 1 to "
              f"{DRAW:,}, the instances that are drawn at once")
        cases = [self.batches(task, kind) for task, kind in product(self.task, self.kinds)]
        if self.n is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            context = multiprocessing.get_context("spawn")
            for n in (self.n // 10, self.n):
                with ProcessPoolExecutor(1, context) as pool:
                    cases[0]["streamed"].append(pool.submit(stream, self, n).result())
        return cases, table(cases)

    def batches(self, task_name: TaskName, kind: Kind) -> dict[str, Any]:
        """Return one case, all contestants at one task and attention kind."""
        task, model = self.start(task_name, kind)
        device = torch.device(self.device)
        inputs = task.sample("ood", self.batch_size, make_generator(0, "benchmark", device)).inputs

        @torch.no_grad()
        def forward() -> None:
            model(inputs)

        def seconds(options: dict[str, Any], n: int) -> float:
            """Return the seconds that n batches of codes take, labels and scores included."""
            work = partial(extract, model, task, split="ood", n=n * self.batch_size,
                           batch_size=self.batch_size, **options)
            return timed(work, device)(1)

        pairs, name = tuple(task.pairs), f"{task_name}, {kind}"
        contestants = [Contestant("forward pass", timed(forward, device))]
        for what, options in (
                ("1 pair", {"pairs": pairs[:1]}), (f"{len(pairs)} pairs", {"pairs": pairs}),
                (f"{len(pairs)} pairs, residuals", {"pairs": pairs, "residuals": True})):
            contestants.append(Contestant(
                f"extraction, {what}", partial(seconds, options), DRAW // self.batch_size))
        return {"name": name, "batch_size": self.batch_size, "n_layers": model.cfg.n_layers,
                "n_heads": model.cfg.n_heads, "pairs": list(pairs), "streamed": [],
                "batches": sit(contestants, **self.turns, progress=Bar(name))}


def stream(settings: Extraction, n: int) -> dict[str, Any]:
    """Return seconds and peak memory of streaming n instances to disk, in a process that does
    nothing else with its memory."""
    torch.set_num_threads(settings.cores)
    task, model = settings.start(settings.task[0], settings.kinds[0])
    before = peak_memory(CPU)
    with TemporaryDirectory(dir=settings.folder) as folder:
        begin = time.perf_counter()
        reader = Reader(model, TaskSource(task, "train", n=n), batch_size=settings.batch_size,
                        meta={"split": "train", "seed": 0})
        reader.read(Path(folder) / "codes", progress=Bar(f"stream {n:,}"))
        seconds = time.perf_counter() - begin
        size = sum(f.stat().st_size for f in Path(folder).rglob("*") if f.is_file())
    return {"n": n, "seconds": seconds, "instances_per_second": n / seconds,
            "mib_on_disk": size / 2**20, "peak_memory_mib": peak_memory(CPU),
            "peak_memory_before_mib": before}


def table(cases: Sequence[dict[str, Any]]) -> str:
    """Return the markdown table: a row per case and contestant."""
    rows = []
    for case in cases:
        batches = case["batches"]
        for name, spread in batches["milliseconds"].items():
            kept = batches["speedup"].get(name)
            rows.append([case["name"], name, spread_text(spread),
                         f"{1e3 * case['batch_size'] / spread['median']:,.0f}",
                         "" if kept is None else f"{100 * kept['median']:.0f} %"])
    text = markdown_table(
        ["case", "contestant", f"ms per batch of {cases[0]['batch_size']}",
         "instances per second", "of the forward pass's speed"], rows)
    columns = {"instances": "n", "instances per second": "instances_per_second",
               "MiB on disk": "mib_on_disk", "peak memory of the process, MiB": "peak_memory_mib",
               "of which before it began": "peak_memory_before_mib"}
    streamed = [[case["name"], *(f"{part[key]:,.0f}" for key in columns.values())]
                for case in cases for part in case["streamed"]]
    if streamed:
        text += "\n\n" + markdown_table(["streamed to disk", *columns], streamed)
    return text


if __name__ == "__main__":
    tyro.cli(Extraction).run()
