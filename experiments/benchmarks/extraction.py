"""How fast are codes read out, against the plain forward pass at the same batch?

    python -m latentcode.experiments.benchmarks.extraction [--n 1000000]

takes turns between the model alone (inputs drawn before, no hooks), drawing instances and the
model, and `extract_model` with one pair, with all named pairs, and with residual streams: instances
per second, and the share of the plain forward pass's speed that is kept. With `--n` it then
streams that many instances, and a tenth of them, to a folder that is deleted afterwards, and
reports the most memory that a process of its own came to hold for each.
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
from typing import Any, Literal

import torch
import tyro

from latentcode.codes.of_tasks import CodeReader, extract_model
from latentcode.config.presets import preset
from latentcode.devices import available_cores, resolve_device
from latentcode.errors import check
from latentcode.experiments.benchmarks.figures import RESULTS, bars, markdown, save
from latentcode.experiments.benchmarks.harness import (
    Contestant,
    Local,
    Report,
    Spread,
    peak_memory,
    sit,
    torch_threads,
)
from latentcode.models.transformer import HookedTransformer
from latentcode.progress import bar
from latentcode.seeds import make_generator
from latentcode.tasks import Task, make_task
from latentcode.tasks.base import DRAW

QUESTION = "extraction"
FORWARD = "forward pass"


@dataclass(frozen=True)
class Extraction:
    """The contestant: `extract_model`, whose unit of work is one batch."""

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
            extract_model(self.model, self.task, "ood", n=n * self.batch_size,
                          batch_size=self.batch_size, **self.options)

        return Local(self.name, work, device).seconds(1)


def measure(
    task_name: str, kind: str, *, preset_name: str, device: torch.device, batch_size: int,
    rounds: int, turn_seconds: float,
) -> dict[str, Any]:
    """Return one case, all contestants at one task and attention kind, as plain data."""
    config = preset(preset_name, task_name, kind)
    task = make_task(config.task)
    model = HookedTransformer(config.model, seed=config.training.seed).to(device).eval()
    generator = make_generator(0, "benchmark", device)
    batch = task.sample("ood", batch_size, generator)
    per_draw, waiting = max(1, DRAW // batch_size), list[torch.Tensor]()

    @torch.no_grad()
    def forward() -> None:
        model(batch.inputs)

    @torch.no_grad()
    def sample_and_forward() -> None:
        # Drawn as the extraction draws them: many at a time, for several batches.
        if not waiting:
            drawn = task.sample("ood", per_draw * batch_size, generator).inputs
            waiting.extend(drawn.split(batch_size))
        model(waiting.pop())

    pairs = tuple(task.pairs)
    contestants: list[Contestant] = [
        Local(FORWARD, forward, device),
        Local("drawing + forward pass", sample_and_forward, device, multiple=per_draw),
        *(Extraction(name, model, task, batch_size, options) for name, options in (
            ("extraction, 1 pair", {"pairs": pairs[:1]}),
            (f"extraction, {len(pairs)} pairs", {"pairs": pairs}),
            (f"extraction, {len(pairs)} pairs, residuals", {"pairs": pairs, "residuals": True})))]
    name = f"{task_name}, {kind}"
    sitting = sit(contestants, rounds=rounds, turn_seconds=turn_seconds, progress=bar(name))
    return {"name": name, "batch_size": batch_size, "n_layers": config.model.n_layers,
            "n_heads": config.model.n_heads, "pairs": list(pairs),
            "batches": sitting.record(FORWARD), "streamed": []}


def stream(task_name: str, kind: str, *, preset_name: str, device: torch.device, batch_size: int,
           sizes: Sequence[int], out: Path) -> list[dict[str, Any]]:
    """Return seconds and peak memory of streaming so many instances to disk, each size in a
    process of its own, whose memory nothing else has touched."""
    streamed = []
    context = multiprocessing.get_context("spawn")
    for n in sizes:
        with ProcessPoolExecutor(1, context) as pool:
            streamed.append(pool.submit(
                _stream_once, task_name, kind, preset_name, str(device), batch_size, n, out,
                torch.get_num_threads()).result())
    return streamed


def _stream_once(task_name: str, kind: str, preset_name: str, device: str, batch_size: int, n: int,
                 out: Path, threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    place = torch.device(device)
    config = preset(preset_name, task_name, kind)
    task = make_task(config.task)
    model = HookedTransformer(config.model, seed=config.training.seed).to(place).eval()
    cpu = torch.device("cpu")
    before = peak_memory(cpu)
    with TemporaryDirectory(dir=out) as folder:
        begin = time.perf_counter()
        reader = CodeReader(model, task, "train", n=n, batch_size=batch_size)
        codes = reader.to_folder(Path(folder) / "codes", progress=bar(f"stream {n:,}"))
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
    lines = markdown(["case", "contestant", f"ms per batch of {cases[0]['batch_size']}",
                      "instances per second", "of the forward pass's speed"], rows)
    streamed = [[case["name"], f"{s['n']:,}", f"{s['instances_per_second']:,.0f}",
                 f"{s['mib_on_disk']:,.0f}", f"{s['peak_memory_mib']:,.0f}",
                 f"{s['peak_memory_before_mib']:,.0f}"]
                for case in cases for s in case["streamed"]]
    if streamed:
        lines += "\n\n" + markdown(["streamed to disk", "instances", "instances per second",
                                    "MiB on disk", "peak memory of the process, MiB",
                                    "of which before it began"], streamed)
    return lines


def figure(cases: Sequence[dict[str, Any]]) -> Any:
    """Return bars of milliseconds per batch, with the share of the plain speed that is kept."""
    measured = [{name: Spread(**spread) for name, spread in case["batches"]["milliseconds"].items()}
                for case in cases]
    notes = [{name: f"{100 * s['median']:.0f} %" for name, s in case["batches"]["speedup"].items()}
             for case in cases]
    return bars([case["name"] for case in cases], measured,
                f"milliseconds per batch of {cases[0]['batch_size']} (median, quartiles)", notes)


def main(
    task: tuple[Literal["sraven", "logic"], ...] = ("sraven", "logic"),
    kinds: tuple[Literal["hyla", "softmax", "linear"], ...] = ("hyla", "softmax"),
    device: str = "cpu",
    batch_size: int = 512,
    n: int | None = None,
    rounds: int = 7,
    turn_seconds: float = 1.0,
    threads: int | None = None,
    out: Path = RESULTS / QUESTION,
    smoke: bool = False,
) -> None:
    """Time extraction against the forward pass; write JSON, a table and a figure.

    Args:
        task: Tasks.
        kinds: Attention kinds.
        device: cpu, cuda or cuda:N.
        batch_size: Instances of one forward pass.
        n: Stream this many instances, and a tenth, of the first task and kind to disk.
        rounds: Turns of every contestant.
        turn_seconds: About how long a turn lasts.
        threads: Threads on the CPU; default: all cores.
        out: Folder of the result; streamed codes pass through it.
        smoke: Tiny models and two short rounds, to see that it works.
    """
    place = resolve_device(device)
    check(n is None or n >= 10, f"n is {n}; expected at least 10 instances")
    check(1 <= batch_size <= DRAW, f"batch_size is {batch_size}; expected 1 to {DRAW:,}, the "
          "instances that are drawn at once")
    name = "smoke" if smoke else "paper"
    if smoke:
        rounds, turn_seconds, threads = 2, 0.0, 1
    with torch_threads(threads or available_cores()):
        report = Report(QUESTION, place, {"rounds": rounds, "turn_seconds": turn_seconds,
                                          "batch_size": batch_size, "n": n, "smoke": smoke})
        cases = [measure(t, kind, preset_name=name, device=place, batch_size=batch_size,
                         rounds=rounds, turn_seconds=turn_seconds)
                 for t, kind in product(task, kinds)]
        if n is not None:
            out.mkdir(parents=True, exist_ok=True)
            cases[0]["streamed"] = stream(task[0], kinds[0], preset_name=name, device=place,
                                          batch_size=batch_size, sizes=(n // 10, n), out=out)
        lines = table(cases)
        folder = save(out, report.result(cases), lines, figure(cases))
    print(f"{lines}\n\nwrote {folder}")


if __name__ == "__main__":
    tyro.cli(main)
