"""What is each saving of the training step worth?

    python -m latentcode.experiments.benchmarks.savings

measures, in turn in one sitting and at the paper's setting, milliseconds per step in float32: of
everything that the model computes, and with one saving after the other, up to the step as `train`
does it. All of them leave the result as it is, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
import tyro

from latentcode.config import RunConfig, to_dict
from latentcode.config.presets import preset
from latentcode.experiments.benchmarks.figures import bars
from latentcode.experiments.benchmarks.harness import sit, spreads
from latentcode.experiments.benchmarks.ours import Updates, learner
from latentcode.experiments.benchmarks.report import Benchmark, Kind, TaskName
from latentcode.figures.markdown import markdown_table
from latentcode.models.config import kind_of
from latentcode.progress import bar
from latentcode.tasks import Batch, make_task

EVERYTHING = "everything"


@contextmanager
def all_tokens(task: str) -> Iterator[None]:
    """Let the last block compute all tokens, whatever the task reads."""
    read = type(make_task(preset("paper", task).task))
    with patch.object(read, "n_read", None):
        yield


@contextmanager
def torch_gelu(task: str) -> Iterator[None]:
    """Let torch compute GELU."""
    with patch("latentcode.models.feedforward.gelu", partial(F.gelu, approximate="tanh")):
        yield


@contextmanager
def every_token(task: str) -> Iterator[None]:
    """Compute the first queries, keys and values of every token, equal ones too."""
    with patch("latentcode.tasks.sraven.task.Batch", lambda *parts, one_hot: Batch(*parts)):
        yield


SAVINGS: dict[str, Callable[[str], AbstractContextManager[None]]] = {
    "tokens that are not read have no last block": all_tokens,
    "and GELU is a kernel": torch_gelu,
    "and equal tokens share their first queries, keys and values": every_token,
}
"""What is saved, and how to do without it; in the order in which they are added."""


@contextmanager
def without(savings: list[str], task: str) -> Iterator[None]:
    """Train without these savings."""
    with ExitStack() as stack:
        for name in savings:
            stack.enter_context(SAVINGS[name](task))
        yield


def measure(config: RunConfig, turns: Mapping[str, Any]) -> dict[str, Any]:
    """Return one case as plain data: a contestant with no saving, then one more with each."""
    task, name = config.task.name, f"{config.task.name}, {kind_of(config.model)}"
    names = [name for name in SAVINGS if SAVINGS[name] is not every_token or task == "sraven"]
    contestants = [
        Updates(saved, learner([config]), torch.device("cpu"),
                context=partial(without, names[n_saved:], task))
        for n_saved, saved in enumerate([EVERYTHING, *names])]
    sitting = sit(contestants, **turns, progress=bar(name))
    return {"name": name, "config": to_dict(config), "step": sitting.record(EVERYTHING)}


def table(cases: list[dict[str, Any]]) -> str:
    """Return the markdown table: a row per case and saving."""
    rows = []
    for case in cases:
        faster = spreads(case["step"]["speedup"])
        rows += [[case["name"], name, spread.text(), faster[name].text() if name in faster else ""]
                 for name, spread in spreads(case["step"]["milliseconds"]).items()]
    return markdown_table(["case", "computed", "step, ms", "times faster than everything"], rows)


@dataclass(frozen=True, kw_only=True)
class Savings(Benchmark):
    """Time training steps with and without each saving; write JSON, a table and a figure."""

    QUESTION = "savings"

    task: tuple[TaskName, ...] = ("sraven", "logic")
    """Tasks."""
    kinds: tuple[Kind, ...] = ("hyla", "softmax")
    """Attention kinds."""
    rounds: int = 5

    def run(self) -> None:
        with self.report(torch.device("cpu"), threads=self.cores) as report:
            cases = [measure(preset(self.size, name, kind), self.turns)
                     for name, kind in product(self.task, self.kinds)]
            drawn = bars([case["name"] for case in cases],
                         [spreads(case["step"]["milliseconds"]) for case in cases],
                         "milliseconds per training step, sampling included (median, quartiles)")
            report.finish(self.folder, cases, table(cases), drawn)


if __name__ == "__main__":
    tyro.cli(Savings).run()
