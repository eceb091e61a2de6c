"""How good is a model on a split? Exact means over instances, with standard errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from latentcode.errors import check_count
from latentcode.metrics import Metric
from latentcode.models.blocks import Generators
from latentcode.models.modes import evaluating
from latentcode.progress import Progress, watched
from latentcode.seeds import make_generator
from latentcode.tasks.base import DRAW, Task
from latentcode.tasks.batch import Batch


def forward(
    model: nn.Module, task: Task, inputs: Tensor, precision: str, generator: Generators = None,
    *, one_hot: bool = False, recompute: bool = False,
) -> Tensor:
    """Return the logits of the tokens that the task reads, [*E, B, n_read or T, d_output].

    They are of the type of the weights.

    With precision `bf16` the model runs under bfloat16 autocast, with `bf16_mlp` its feed-forward
    layers do; losses are float32 all the same. `generator` draws the dropout masks of a model in
    training mode; `one_hot` says of the inputs what it says of a `Batch`. For `recompute` see
    `HookedTransformer.forward`.
    """
    low = precision == "bf16"
    feedforward_dtype = torch.bfloat16 if precision == "bf16_mlp" else None
    with torch.autocast(inputs.device.type, dtype=torch.bfloat16, enabled=low):
        logits: Tensor = model(inputs, generator=generator, feedforward_dtype=feedforward_dtype,
                               read=task.check_n_read(), one_hot=one_hot, recompute=recompute)
    return logits.float() if low else logits


@contextmanager
def matrix_products(precision: str) -> Iterator[None]:
    """Let float32 matrix products, backward passes included, be TF32 where `precision` is tf32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@watched("evaluating")
def evaluate(
    model: nn.Module,
    task: Task,
    split: str,
    n: int,
    *,
    seed: int,
    batch_size: int = 128,
    device: torch.device | str = "cpu",
    precision: str = "float32",
    progress: Progress | None = None,
) -> dict[str, Metric]:
    """Return the task's metrics, each a mean over the same n instances for every model.

    Metrics of one rule or term are named `metric[constituent]`; see `summarize` of the task.

    Which instances those are depends on (seed, split, n) and the kind of device alone. Unlike
    in the official code, no mean of batch means is taken. `SplitError` says why a task lacks a
    split.

    Args:
        progress: Called with (instances done, n).
    """
    task.check_split(split)
    check_count("n", n)
    check_count("batch_size", batch_size)
    measures: dict[str, list[Tensor]] = {}
    done = 0
    with evaluating(model), matrix_products(precision):
        for batch in batches_of(task, split, n, seed, batch_size, device):
            logits = forward(model, task, batch.inputs, precision, one_hot=batch.one_hot)
            for name, values in (task.measures(logits, batch)
                                  | task.constituent_measures(logits, batch)).items():
                measures.setdefault(name, []).append(values)
            done += len(batch)
            if progress is not None:
                progress(done, n)
    return task.summarize({name: torch.cat(values).cpu().numpy().astype(np.float64)
                           for name, values in measures.items()})


def batches_of(
    task: Task, split: str, n: int, seed: int, batch_size: int, device: torch.device | str
) -> Iterator[Batch]:
    generator = make_generator(seed, f"evaluate {split}", device)
    for start in range(0, n, DRAW):
        drawn = task.sample(split, min(DRAW, n - start), generator)
        for first in range(0, len(drawn), batch_size):
            yield drawn[first:first + batch_size]
