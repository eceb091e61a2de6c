"""What do the metrics of all heads cost, beside a forward pass that shows patterns?

    python -m latentcode.experiments.benchmarks.heads

A model of GPT-2's size with random weights reads texts of random tokens. Batch after batch takes
its turn: a plain pass, in which the patterns are shown and nobody looks at them, with the logits of
the last token alone and with those of all; the metrics of all heads with their direct logit
attribution (`probes/heads/metrics.py`); and the metrics alone. A ratio is taken within each
batch. Times are of the processor, on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

from latentcode.devices import make_generator
from latentcode.experiments.benchmarks.harness import (
    RESULTS,
    Report,
    Sitting,
    Spread,
    peak_memory,
    reset_peak_memory,
    torch_threads,
    verdict,
)
from latentcode.figures.text import markdown_table
from latentcode.models.hooks import evaluating, last_token, read_out_hook
from latentcode.models.pretrained import as_bridge, fresh_network
from latentcode.probes.heads.metrics import Observer, Sums
from latentcode.progress import Bar
from latentcode.prompts.texts import TextBatch

QUESTION = "heads"
PLAIN, WHOLE, METRICS, ALL = (
    "plain pass", "plain pass, all logits", "metrics", "metrics and direct logits")
TARGET = 1.3
"""How many times as long as a plain pass all of it may take."""
MEMORY = 2500.0
"""MiB that the process may hold."""


@dataclass(frozen=True)
class Size:
    """Of the model, and of what it reads."""

    n_layers: int = 12
    n_heads: int = 12
    d_model: int = 768
    vocabulary: int = 50_257
    n_texts: int = 40
    n_tokens: int = 250
    batch_size: int = 8


FULL, SMOKE = Size(), Size(2, 2, 16, 400, 4, 16, 2)


def main(size: Size = FULL, out: Path = RESULTS / QUESTION, smoke: bool = False) -> None:
    """Time all of them on the same texts; write JSON and a table.

    Args:
        size: Of the model and the texts.
        out: Folder of the result.
        smoke: A tiny model, to see that it works.
    """
    size = SMOKE if smoke else size
    cpu = torch.device("cpu")
    with torch_threads(1):
        report = Report(QUESTION, cpu, {**asdict(size), "smoke": smoke, "target": TARGET}, out)
        model = random_model(size)
        observer, metrics = Observer(model), Observer(model)
        metrics.direct.writes.clear()
        batches = random_texts(size)
        sums = Sums.zeros(size.n_layers, size.n_heads)
        plain_pass(observer, batches[0])
        work: dict[str, Callable[[TextBatch], object]] = {
            PLAIN: lambda batch: plain_pass(observer, batch),
            METRICS: metrics.observe,
            ALL: lambda batch: sums.add(batch, *observer.observe(batch)),
            WHOLE: lambda batch: plain_pass(observer, batch, all_logits=True)}
        seconds: dict[str, list[float]] = {name: [] for name in work}
        memory = dict.fromkeys(work, 0.0)
        with Bar("batches") as progress:
            for number, batch in enumerate(batches, 1):
                for name, function in work.items():
                    reset_peak_memory(cpu)
                    begin = time.process_time()
                    function(batch)
                    seconds[name].append(time.process_time() - begin)
                    memory[name] = max(memory[name], peak_memory(cpu))
                progress(number, len(batches))
        sitting = Sitting(dict.fromkeys(seconds, 1), seconds)
        case = {"name": "all heads", "times": sitting.record(PLAIN), "peak_mib": memory,
                "passes": {name: asdict(sitting.ratio(name, PLAIN))
                           for name in seconds if name != PLAIN}}
        report.finish([case], table(case))


def random_model(size: Size) -> Any:
    """Return the bridge of a GPT-2 with random weights."""
    from transformers import GPT2Config

    return as_bridge("random", fresh_network(GPT2Config(
        vocab_size=size.vocabulary, n_embd=size.d_model, n_layer=size.n_layers,
        n_head=size.n_heads, n_positions=max(1024, size.n_tokens), bos_token_id=0,
        eos_token_id=0), torch.float32, 0), None)


def random_texts(size: Size) -> list[TextBatch]:
    """Return batches of texts of random tokens."""
    tokens = torch.randint(size.vocabulary, (size.n_texts, size.n_tokens),
                           generator=make_generator(0, "random texts"))
    read = torch.ones_like(tokens, dtype=torch.bool)
    read[:, -1] = False
    return [TextBatch(tokens[rows], torch.full((len(rows),), size.n_tokens),
                      tokens[rows].roll(-1, 1), read[rows], rows)
            for rows in torch.arange(size.n_texts).split(size.batch_size)]


def plain_pass(observer: Observer, batch: TextBatch, *, all_logits: bool = False) -> None:
    """Compute patterns that are shown to hooks, and logits."""
    shown: list[Any] = [(name, lambda pattern, hook: None)
                        for name in observer.layout.pattern_hooks.values()]
    with evaluating(observer.model):
        observer.model.run_with_hooks(batch.tokens, fwd_hooks=[
            *shown, *([] if all_logits else [(read_out_hook(observer.model), last_token)])])


def table(case: dict[str, Any]) -> str:
    """Return the markdown table, and whether the targets are reached."""
    milliseconds = case["times"]["milliseconds"]
    rows = [[name, Spread(**milliseconds[name]).scaled(1e-3).text(),
             "1" if name == PLAIN else Spread(**case["passes"][name]).text(),
             f"{case['peak_mib'][name]:,.0f}"]
            for name in (PLAIN, METRICS, ALL, WHOLE)]
    return "\n\n".join([
        markdown_table(["", "seconds a batch", "plain passes", "MiB held"], rows),
        verdict("metrics of all heads", case["passes"][ALL]["median"], TARGET, "plain passes",
                at_least=False),
        verdict("memory", case["peak_mib"][ALL], MEMORY, "MiB", at_least=False)])


if __name__ == "__main__":
    tyro.cli(main)
