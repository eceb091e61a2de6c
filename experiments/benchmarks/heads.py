"""What do the metrics of all heads cost, beside a forward pass that shows patterns?

    python -m latentcode.experiments.benchmarks.heads

A model of GPT-2's size with random weights reads texts of random tokens. Batch after batch takes
its turn: a plain pass, in which the patterns are shown and nobody looks at them, with the logits of
the last token alone and with those of all; the metrics of all heads with their direct logit
attribution (`probes/heads/metrics.py`); and the metrics alone. A ratio is taken within each
batch. Times are of the processor, on one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any

import torch
import tyro

from latentcode.devices import make_generator
from latentcode.experiments.benchmarks.harness import (
    CPU,
    Benchmark,
    peak_memory,
    ratio,
    record,
    reset_peak_memory,
    spread_text,
    timed,
    verdict,
)
from latentcode.figures.text import markdown_table
from latentcode.models.hooks import evaluating, last_token, read_out_hook
from latentcode.models.pretrained import as_bridge, fresh_network
from latentcode.probes.heads.metrics import Observer, Sums
from latentcode.progress import Bar
from latentcode.prompts.texts import TextBatch

PLAIN, WHOLE, METRICS, ALL = (
    "plain pass", "plain pass, all logits", "metrics", "metrics and direct logits")
TARGET = 1.3
"""How many times as long as a plain pass all of it may take."""
MEMORY = 2500.0
"""MiB that the process may hold."""


@dataclass(frozen=True, kw_only=True)
class Heads(Benchmark):
    """Time all of them on the same texts; write JSON and a table."""

    QUESTION = "heads"

    rounds: int = 5
    """Batches, each of eight texts of 250 tokens."""

    def measure(self) -> tuple[list[dict[str, Any]], str]:
        from transformers import GPT2Config

        sizes: dict[str, Any] = {"n_layer": 12, "n_head": 12, "n_embd": 768, "vocab_size": 50_257}
        n_batches, batch_size, n_tokens = self.rounds, 8, 250
        if self.smoke:
            sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 400}
            n_batches, batch_size, n_tokens = 2, 2, 16
        model = as_bridge("random", fresh_network(GPT2Config(
            **sizes, n_positions=1024, bos_token_id=0, eos_token_id=0), torch.float32, 0), None)
        observer, metrics = Observer(model), Observer(model)
        metrics.direct.writes.clear()
        sums = Sums.zeros(sizes["n_layer"], sizes["n_head"])
        work: dict[str, Callable[[TextBatch], object]] = {
            PLAIN: lambda batch: plain_pass(observer, batch),
            METRICS: metrics.observe,
            ALL: lambda batch: sums.add(batch, *observer.observe(batch)),
            WHOLE: lambda batch: plain_pass(observer, batch, all_logits=True)}
        generator = make_generator(0, "random texts")

        def texts(number: int) -> TextBatch:
            tokens = torch.randint(sizes["vocab_size"], (batch_size, n_tokens),
                                   generator=generator)
            read = torch.ones_like(tokens, dtype=torch.bool)
            read[:, -1] = False
            return TextBatch(tokens, torch.full((batch_size,), n_tokens), tokens.roll(-1, 1),
                             read, number * batch_size + torch.arange(batch_size))

        plain_pass(observer, texts(0))  # warm-up
        seconds: dict[str, list[float]] = {name: [] for name in work}
        memory = dict.fromkeys(work, 0.0)
        with Bar("batches") as progress:
            for number in range(1, n_batches + 1):
                batch = texts(number)
                for name, function in work.items():
                    reset_peak_memory(CPU)
                    seconds[name].append(timed(partial(function, batch), CPU, process_time)(1))
                    memory[name] = max(memory[name], peak_memory(CPU))
                progress(number, n_batches)
        passes = {name: ratio(seconds[name], seconds[PLAIN]) for name in work if name != PLAIN}
        times = record(seconds, dict.fromkeys(work, 1))
        case = {"name": "all heads", "times": times, "peak_mib": memory, "passes": passes}
        rows = [[name, spread_text(times["milliseconds"][name], 1e-3),
                 "1" if name == PLAIN else spread_text(passes[name]), f"{memory[name]:,.0f}"]
                for name in (PLAIN, METRICS, ALL, WHOLE)]
        return [case], "\n\n".join([
            markdown_table(["", "seconds a batch", "plain passes", "MiB held"], rows),
            verdict("metrics of all heads", passes[ALL]["median"], TARGET, "plain passes",
                    at_least=False),
            verdict("memory", memory[ALL], MEMORY, "MiB", at_least=False)])


def plain_pass(observer: Observer, batch: TextBatch, *, all_logits: bool = False) -> None:
    """Compute patterns that are shown to hooks, and logits."""
    shown: list[Any] = [(name, lambda pattern, hook: None)
                        for name in observer.layout.pattern_hooks.values()]
    with evaluating(observer.model):
        observer.model.run_with_hooks(batch.tokens, fwd_hooks=[
            *shown, *([] if all_logits else [(read_out_hook(observer.model), last_token)])])


if __name__ == "__main__":
    tyro.cli(Heads).run()
