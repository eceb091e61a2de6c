"""Which problems are codes the codes of?"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from pathlib import Path

import torch

from latentcode.arguments import as_tuple
from latentcode.config import TaskConfig
from latentcode.devices import resolve_device
from latentcode.errors import check
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.seeds import make_generator
from latentcode.tasks import Batch, Task, as_task, try_task
from latentcode.tasks.base import DRAW

LOGIT_BYTES = 2**28
"""Bytes of the logits of all tokens beyond which a forward pass takes fewer instances."""


def instances(
    run_or_task: Run | str | Path | Task | TaskConfig,
    split: str = "ood",
    n: int | Sequence[int] = 4_096,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Batch:
    """Which problems are the rows of `extract(run, split=split, n=n, seed=seed)` the codes of?

    run_or_task  what they are drawn from: a run, its folder or a name of the zoo, which stand for
                 the run's own task; or a task, or its configuration. `decode` and the other verbs
                 draw from `make_task(run.config.task).probe_config`
    n            how many; or the numbers of the instances, from 0, in any order
    seed         that of the extraction
    device       where the codes were extracted, as a GPU draws other numbers from the same seed

    Fewer are the first of more. Raises what `load_run` raises, `ConfigError` for an n below 1 and
    for what is no whole number from 0, `SplitError` for a split that the task does not offer.
    """
    given = n.tolist() if hasattr(n, "tolist") else n  # an array, a tensor, or a number of numpy
    rows = range(given) if type(given) is int else as_tuple(given)
    check(len(rows) > 0 and all(_is_number(row) for row in rows), f"n is {n!r}; expected at least "
          "1, or numbers of instances, from 0")
    task = (as_task(load_run(run_or_task).config.task)
            if isinstance(run_or_task, Run | str | Path) else as_task(run_or_task))
    try_task(task, split)
    place = resolve_device(str(device))
    found = {block: drawn(task, split, block, seed, place)
             for block in sorted({row // DRAW for row in rows})}
    start = {block: i * DRAW for i, block in enumerate(found)}
    together = Batch.cat(list(found.values()))
    chosen = [start[row // DRAW] + row % DRAW for row in rows]
    return together[torch.tensor(chosen, device=together.inputs.device)]


def at_once(task: Task, batch_size: int) -> int:
    """Return how many instances to pass through a model: fewer where logits are large.

    At most `batch_size`, at least one, and no more than have logits of `LOGIT_BYTES`.
    """
    size = 4 * task.config.n_tokens * task.config.d_output
    return min(batch_size, max(LOGIT_BYTES // size, 1))


def _is_number(row: object) -> bool:
    return isinstance(row, Integral) and not isinstance(row, bool) and int(row) >= 0


def drawn(task: Task, split: str, block: int, seed: int, device: torch.device | str) -> Batch:
    """Return the instances of a split from number `block` * DRAW on, DRAW of them."""
    return task.sample(split, DRAW, make_generator(seed, f"extract {split} {block}", device))
