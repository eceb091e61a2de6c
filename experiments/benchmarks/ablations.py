"""How many plain passes does it take to ablate every head, where passes share layers?

    python -m latentcode.experiments.benchmarks.ablations

A model of GPT-2's size with random weights reads texts of random tokens. Batch after batch takes
its turn: plain passes with the logits of all tokens; mean ablation of every head, one after the
other, with the pass for the means and what is measured (`probes/heads/causal.py`); and some heads
of each layer ablated in whole passes, the usual way. A ratio is taken within each batch. Times are
of the processor, on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro

from latentcode.experiments.benchmarks import random_gpt2
from latentcode.experiments.benchmarks.figures import bars
from latentcode.experiments.benchmarks.harness import (
    Sitting,
    Spread,
    peak_memory,
    reset_peak_memory,
    torch_threads,
)
from latentcode.experiments.benchmarks.random_gpt2 import random_model, random_texts
from latentcode.experiments.benchmarks.report import RESULTS, Report, said
from latentcode.figures.markdown import markdown_table
from latentcode.models.modes import evaluating
from latentcode.models.replay import clean_pass
from latentcode.probes.heads.batches import TextBatch
from latentcode.probes.heads.causal import HeadEffects, mean_z
from latentcode.probes.heads.parts import drawn
from latentcode.probes.heads.sets import writes
from latentcode.progress import bar
from latentcode.prompts import PretrainedLanguageModel

QUESTION = "ablations"
PLAIN, SHARED, WHOLE = "plain pass", "all heads, shared layers", "all heads, whole passes"
TARGET = 80.0
"""Plain passes in whose time all heads should be ablated."""
MEMORY = 2500.0
"""MiB that the process may hold."""
PLAIN_PASSES = 2
"""Plain passes of each turn."""


@dataclass(frozen=True)
class Size(random_gpt2.Size):
    """Of the model, and of what it reads: `n_read` tokens of each text."""

    batch_size: int = 2
    n_read: int = 64


SMOKE = Size(2, 2, 16, 400, 4, 16, 2, 4)


def main(
    size: Size = Size(),
    control: bool = False,
    out: Path = RESULTS / QUESTION,
    smoke: bool = False,
) -> None:
    """Time all three on the same texts; write JSON, a table and a figure.

    Args:
        size: Of the model and the texts.
        control: Compute the control beside every ablation, too: as many passes again.
        out: Folder of the result.
        smoke: A tiny model, to see that it works.
    """
    size = SMOKE if smoke else size
    with torch_threads(1):
        report = Report(QUESTION, torch.device("cpu"), {
            **asdict(size), "control": control, "smoke": smoke, "target": TARGET})
        asked = PretrainedLanguageModel(random_model(size))
        batches = random_texts(size)
        begin = time.process_time()
        effects = HeadEffects(asked, {}, kinds=("mean",),
                              control=control, n_read=size.n_read)
        trying = time.process_time() - begin
        plain_passes(asked, batches[0])
        reset_peak_memory(torch.device("cpu"))
        seconds: dict[str, list[float]] = {PLAIN: [], SHARED: [], WHOLE: []}
        with bar("batches") as progress:
            for number, batch in enumerate(batches, 1):
                turn = {PLAIN: timed(partial(plain_passes, asked, batch)) / PLAIN_PASSES,
                        SHARED: timed(partial(ablate, asked, effects, batch)),
                        WHOLE: whole_passes(asked, batch, size)}
                for name, took in turn.items():
                    seconds[name].append(took)
                progress(number, len(batches))
        memory = peak_memory(torch.device("cpu"))
        sitting = Sitting(dict.fromkeys(seconds, 1), seconds)
        case = {"name": "mean ablation", "times": sitting.record(PLAIN),
                "passes": {name: asdict(sitting.ratio(name, PLAIN)) for name in (SHARED, WHOLE)},
                "peak_mib": memory, "seconds_to_try_the_model": trying,
                "layers": effects.settings["passes"]}
        passes = {name: sitting.ratio(name, PLAIN) for name in (SHARED, WHOLE)}
        report.finish(out, [case], table(case), bars(
            [str(case["name"])], [passes], "plain passes"))


def plain_passes(asked: PretrainedLanguageModel, batch: TextBatch) -> None:
    """Compute the logits of all tokens, a few times."""
    with evaluating(asked.model):
        for _ in range(PLAIN_PASSES):
            asked.model(batch.tokens)


def ablate(asked: PretrainedLanguageModel, effects: HeadEffects, batch: TextBatch) -> None:
    """Ablate all heads on a batch, with the pass that their means need."""
    effects.means = mean_z(asked, [batch])
    effects.read(batch)


def whole_passes(asked: PretrainedLanguageModel, batch: TextBatch, size: Size) -> float:
    """Return the seconds that all heads take in whole passes: of one in each layer, times heads.

    What is measured of the logits, and the clean pass, are not in it.
    """
    means = mean_z(asked, [batch])
    clean = clean_pass(asked.model, batch.tokens, drawn(batch, None, 0), shared=False)
    took = 0.0
    for layer in range(size.n_layers):
        one = [writes(((layer, layer % size.n_heads),), means)]
        took += timed(partial(clean.after, one))
    return took * size.n_heads


def timed(work: Callable[[], object]) -> float:
    """Return the seconds of the processor that work takes."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def table(case: dict[str, Any]) -> str:
    """Return the markdown table, and whether the targets are reached."""
    shared, whole = (Spread(**case["passes"][name]) for name in (SHARED, WHOLE))
    milliseconds = case["times"]["milliseconds"]
    rows = [[name, Spread(**milliseconds[name]).scaled(1e-3).text(),
             "1" if name == PLAIN else Spread(**case["passes"][name]).text()]
            for name in (PLAIN, SHARED, WHOLE)]
    return "\n\n".join([
        markdown_table(["", "seconds a batch", "plain passes"], rows),
        said("mean ablation of all heads", shared.median, TARGET, "plain passes", at_least=False),
        said("memory", case["peak_mib"], MEMORY, "MiB", at_least=False),
        f"In whole passes it takes {whole.median:.3g}."])


if __name__ == "__main__":
    tyro.cli(main)
