"""How long does a training step of a language model take: ours, and plain PyTorch?

    python -m latentcode.experiments.benchmarks.language_step

measures, in turn in one sitting, milliseconds of an update of about 3.4 M parameters on random
token ids: ours with softmax, linear and HYLA attention, and the model with softmax attention
written in plain PyTorch (`plain_language`), which computes the same function of the same weights.
Where others work on the machine, too, `--processor-time` counts what the process has had of the
processor.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import tyro

from latentcode.config import LanguageConfig, RunConfig, TrainingConfig, to_dict
from latentcode.config.presets import model_for
from latentcode.errors import check
from latentcode.experiments.benchmarks.figures import bars
from latentcode.experiments.benchmarks.harness import Clock, Contestant, Local, sit, spreads
from latentcode.experiments.benchmarks.ours import Updates
from latentcode.experiments.benchmarks.plain_language import PlainLanguageModel
from latentcode.experiments.benchmarks.report import Benchmark, Kind, said
from latentcode.figures.markdown import markdown_table
from latentcode.models.config import with_kind
from latentcode.models.transformer import HookedTransformer
from latentcode.progress import bar
from latentcode.seeds import make_generator
from latentcode.tasks import Batch, Task
from latentcode.tasks.text.task import Text
from latentcode.training.batches import TrainingBatches
from latentcode.training.optimizer import make_optimizer
from latentcode.training.state import TrainingState

PLAIN = "plain PyTorch, softmax"
SOFTMAX_TARGET = 0.8
"""Least speed of ours with softmax, in that of plain PyTorch."""
HYLA_TARGET = 3.0
"""Most time of ours with HYLA, in that of ours with softmax."""
CLOSE = 1e-4
"""Largest difference of logits, which are of the order of 1, for two models to be the same."""


class RandomText(Text):
    """Token ids that are drawn at random: nothing to learn."""

    def __init__(self, config: LanguageConfig) -> None:
        Task.__init__(self, config)

    def in_order(self, seed: int) -> None:  # type: ignore[override]
        """Return None: every batch is drawn by itself."""

    def sample(self, split: str, n: int, generator: torch.Generator) -> Batch:
        """Draw n sequences."""
        shape = (n, self.config.n_tokens + 1)
        tokens = torch.randint(self.config.n_vocabulary, shape, generator=generator)
        return Batch(tokens[:, :-1], tokens[:, 1:], torch.zeros(n, dtype=torch.long), {}, split)


def setting(kind: str, n_tokens: int, batch_size: int, smoke: bool = False) -> RunConfig:
    """Return 6 layers of 12 heads of 16 features over 4,096 tokens; in a test less."""
    sizes: dict[str, int] = (
        {"n_layers": 1, "d_model": 32, "n_heads": 2, "d_mlp": 32} if smoke else
        {"n_layers": 6, "d_model": 192, "n_heads": 12, "d_mlp": 512})
    task = LanguageConfig(n_vocabulary=64 if smoke else 4_096, n_tokens=n_tokens)
    model = with_kind(model_for(
        task, d_head=16, d_head_v=16, feedforward="swiglu", positions="rotary", causal=True,
        attention_dropout=0.0, embedding="token", readout="tied", **sizes), kind)
    return RunConfig(task, model, TrainingConfig(
        steps=1_000, batch_size=batch_size, warmup_steps=10, learning_rate=1e-4))


def state_of(config: RunConfig) -> TrainingState:
    """Return what `train` trains, on random text."""
    assert isinstance(config.task, LanguageConfig)
    settings, task = config.training, RandomText(config.task)
    model = HookedTransformer(config.model, seed=settings.seed).train()
    return TrainingState(config, task, model, make_optimizer(model, settings), {"dropout": (
        make_generator(settings.seed, "train dropout", "cpu"))}, TrainingBatches(
            task, settings.seed, settings.batch_size, torch.device("cpu")))


def measure(
    kinds: Sequence[Kind], n_tokens: int, batch_size: int, smoke: bool, turns: Mapping[str, Any],
    clock: Clock,
) -> dict[str, Any]:
    """Return one case, all contestants at one length, as plain data.

    `ConfigError` where the two softmax models are not the same function.
    """
    device = torch.device("cpu")
    configs = {kind: setting(kind, n_tokens, batch_size, smoke) for kind in kinds}
    states = {kind: state_of(config) for kind, config in configs.items()}
    batch = states["softmax"].batches[0]
    model = states["softmax"].model
    plain = PlainLanguageModel.of(model)
    with torch.no_grad():
        apart = float((model(batch.inputs) - plain(batch.inputs)).abs().max())
    check(apart <= CLOSE, f"logits are {apart:.2g} apart; expected at most {CLOSE:g}, so that the "
          "same function is timed")
    optimizer = make_optimizer(plain, configs["softmax"].training)
    contestants: list[Contestant] = [
        Local(PLAIN, lambda: plain.update(optimizer, batch.inputs, batch.targets), clock=clock),
        *(Updates(f"ours, {kind}", state, device, multiple=1, clock=clock)
          for kind, state in states.items())]
    name = f"{batch_size} sequences of {n_tokens} tokens"
    sitting = sit(contestants, **turns, progress=bar(name))
    slower = {kind: asdict(sitting.ratio(f"ours, {kind}", "ours, softmax"))
              for kind in kinds if kind != "softmax"}
    return {"name": name, "config": to_dict(configs["softmax"]), "tokens": batch.inputs.numel(),
            "n_parameters": model.n_parameters, "logits_apart": apart,
            "update": sitting.record(PLAIN), "slower_than_softmax": slower}


def table(cases: Sequence[dict[str, Any]]) -> str:
    """Return the markdown table: a row per case and contestant."""
    rows = []
    for case in cases:
        faster = spreads(case["update"]["speedup"])
        slower = {f"ours, {kind}": spread
                  for kind, spread in spreads(case["slower_than_softmax"]).items()}
        for name, spread in spreads(case["update"]["milliseconds"]).items():
            rows.append([case["name"], name, spread.text(),
                         f"{1e3 * case['tokens'] / spread.median:,.0f}",
                         faster[name].text() if name in faster else "",
                         slower[name].text() if name in slower else ""])
    return markdown_table(["case", "contestant", "update, ms", "tokens per second",
                           "speed in that of plain PyTorch", "times as long as ours, softmax"],
                          rows)


def verdicts(cases: Sequence[dict[str, Any]]) -> list[str]:
    """Return whether the targets are reached."""
    lines = []
    for case in cases:
        lines.append(said(f"{case['name']}, ours with softmax",
                          case["update"]["speedup"]["ours, softmax"]["median"], SOFTMAX_TARGET,
                          "of the speed of plain PyTorch", at_least=True))
        if "hyla" in case["slower_than_softmax"]:
            lines.append(said(f"{case['name']}, HYLA",
                              case["slower_than_softmax"]["hyla"]["median"], HYLA_TARGET,
                              "times as long as softmax", at_least=False))
    return lines


@dataclass(frozen=True, kw_only=True)
class LanguageStep(Benchmark):
    """Time updates of language models in turn; write JSON, a table and a figure."""

    QUESTION = "language_step"

    n_tokens: tuple[int, ...] = (128, 256)
    """Lengths of the sequences."""
    tokens: int = 4_096
    """Tokens of a batch."""
    kinds: tuple[Kind, ...] = ("softmax", "linear", "hyla")
    """Attention kinds; softmax is needed."""
    processor_time: bool = False
    """Count processor time, of all threads together, and not what a clock on the wall shows."""

    def run(self) -> None:
        check("softmax" in self.kinds, f"kinds are {', '.join(self.kinds)}; expected softmax among "
              "them, which the others are measured against")
        lengths, tokens = ((16,), 256) if self.smoke else (self.n_tokens, self.tokens)
        clock = time.process_time if self.processor_time else time.perf_counter
        with self.report(torch.device("cpu"), threads=self.cores, tokens=tokens,
                         clock=clock.__name__) as report:
            cases = [measure(self.kinds, n, max(1, tokens // n), self.smoke, self.turns, clock)
                     for n in lengths]
            drawn = bars([case["name"] for case in cases],
                         [spreads(case["update"]["milliseconds"]) for case in cases],
                         "milliseconds per update (median, quartiles)")
            report.finish(self.folder, cases, "\n\n".join([table(cases), *verdicts(cases)]), drawn)


if __name__ == "__main__":
    tyro.cli(LanguageStep).run()
