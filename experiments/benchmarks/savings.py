"""What is each saving of the training step worth?

    python -m latentcode.experiments.benchmarks.savings

measures, in turn in one sitting and at the paper's setting, milliseconds per step in float32: of
everything that the model computes, and with one saving after the other, up to the step as `train`
does it. All of them leave the result as it is, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import torch
import torch.nn.functional as F
import tyro

from latentcode.config import to_dict
from latentcode.config.presets import preset
from latentcode.devices import available_cores
from latentcode.experiments.benchmarks.figures import RESULTS, bars, markdown, save
from latentcode.experiments.benchmarks.harness import Report, Spread, sit, torch_threads
from latentcode.experiments.benchmarks.ours import Updates, learner
from latentcode.models.config import kind_of
from latentcode.progress import bar
from latentcode.tasks import Batch, make_task

QUESTION = "savings"
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


def measure(
    task: str, kind: str, *, size: str, rounds: int, turn_seconds: float
) -> dict[str, Any]:
    """Return one case as plain data: a contestant with no saving, then one more with each."""
    config = preset(size, task, kind)
    names = [name for name in SAVINGS if SAVINGS[name] is not every_token or task == "sraven"]
    contestants = [
        Updates(name, learner([config]), torch.device("cpu"),
                context=partial(without, names[n_saved:], task))
        for n_saved, name in enumerate([EVERYTHING, *names])]
    sitting = sit(contestants, rounds=rounds, turn_seconds=turn_seconds,
                  progress=bar(f"{task}, {kind}"))
    return {"name": f"{task}, {kind_of(config.model)}", "config": to_dict(config),
            "step": sitting.record(EVERYTHING)}


def table(cases: list[dict[str, Any]]) -> str:
    """Return the markdown table: a row per case and saving."""
    rows = []
    for case in cases:
        step = case["step"]
        for name, spread in step["milliseconds"].items():
            faster = step["speedup"].get(name)
            rows.append([case["name"], name, Spread(**spread).text(),
                         "" if faster is None else Spread(**faster).text()])
    return markdown(["case", "computed", "step, ms", "times faster than everything"], rows)


def main(
    task: tuple[Literal["sraven", "logic"], ...] = ("sraven", "logic"),
    kinds: tuple[Literal["hyla", "softmax", "linear"], ...] = ("hyla", "softmax"),
    rounds: int = 5,
    turn_seconds: float = 1.5,
    threads: int | None = None,
    out: Path = RESULTS / QUESTION,
    smoke: bool = False,
) -> None:
    """Time training steps with and without each saving; write JSON, a table and a figure.

    Args:
        task: Tasks.
        kinds: Attention kinds.
        rounds: Turns of every contestant.
        turn_seconds: About how long a turn lasts.
        threads: Threads on the CPU; default: all cores.
        out: Folder of the result.
        smoke: Tiny models and two short rounds, to see that it works.
    """
    cores = threads or available_cores()
    if smoke:
        rounds, turn_seconds, cores = 2, 0.0, 1
    with torch_threads(cores):
        report = Report(QUESTION, torch.device("cpu"), {
            "rounds": rounds, "turn_seconds": turn_seconds, "threads": cores, "smoke": smoke})
        cases = [measure(name, kind, size="smoke" if smoke else "paper", rounds=rounds,
                         turn_seconds=turn_seconds) for name, kind in product(task, kinds)]
        lines = table(cases)
        drawn = bars([case["name"] for case in cases],
                     [{name: Spread(**spread)
                       for name, spread in case["step"]["milliseconds"].items()}
                      for case in cases],
                     "milliseconds per training step, sampling included (median, quartiles)")
        folder = save(out, report.result(cases), lines, drawn)
    print(f"{lines}\n\nwrote {folder}")


if __name__ == "__main__":
    tyro.cli(main)
