"""Reads latent codes out of a model through its hooks, keeping only what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.codes import LatentCodes
from latentcode.config import TaskConfig, config_hash, to_dict
from latentcode.devices import resolve_device
from latentcode.errors import ConfigError, UnknownNameError, check
from latentcode.models.config import kind_of
from latentcode.provenance import package_version
from latentcode.runs import Run
from latentcode.seeds import make_generator
from latentcode.tasks import Batch, Task, make_task


def gather_codes(
    pattern: Float[Tensor, "B H Q K"], query: Int[Tensor, "B P"], key: Int[Tensor, "B P"]
) -> Float[Tensor, "B P H"]:
    """code[b, p] = pattern[b, :, query[b, p], key[b, p]], the code of each pair."""
    batch = torch.arange(len(pattern), device=pattern.device)[:, None]
    return pattern[batch, :, query, key]


def extract(
    run: Run,
    split: str = "ood",
    *,
    n: int = 4_096,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    residuals: bool = False,
    untrained: bool = False,
    task: TaskConfig | None = None,
    step: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    batch_size: int = 512,
    progress: Callable[[int, int], None] | None = None,
) -> LatentCodes:
    """Run a trained model over fresh instances of a split and keep the codes of named pairs.

    run        an open run
    split      `train`, `test`, `ood` or `unknown`
    n          number of instances
    pairs      names from `make_task(run.config.task).pairs`; default: the paper's, the first
    layers     layer numbers; default: all
    residuals  also keep `hook_resid_pre` at the pairs' queries, a control for every probe
    untrained  use the run's initial weights instead, another control
    task       the task to draw from where it is not the run's own, for example
               `replace(run.config.task, inputs="fixed_context")`
    step       the checkpoint; default: the newest
    seed       seed of the instances; the same instances for every model of a task
    progress   called with (instances done, n) after every batch

    Memory grows with n x layers x pairs x heads, not with the attention matrices.
    Raises `UnknownNameError` for a pair, layer or split, `SplitError` for a split that the task
    does not offer, `ConfigError` for a task that does not fit the model.
    """
    from latentcode.models.transformer import HookedTransformer

    place = resolve_device(device)
    config = run.config
    source = config.task if task is None else task
    check(source.d_input == config.model.d_input and source.d_output == config.model.d_output,
          f"task has d_input {source.d_input} and d_output {source.d_output}; expected "
          f"{config.model.d_input} and {config.model.d_output}, those of the model", ConfigError)
    if untrained:
        model = HookedTransformer(config.model, seed=config.training.seed).to(place).eval()
    else:
        model = run.load_model(step, device=device)
    drawn = make_task(source)
    meta = {
        "run": run.name, "run_id": run.id, "kind": kind_of(config.model),
        "config_hash": config_hash(config), "split": split, "seed": seed, "untrained": untrained,
        "step": 0 if untrained else (run.checkpoints()[-1] if step is None else step),
        "task": to_dict(source), "model": to_dict(config.model),
        "latentcode_version": package_version("latentcode")}
    return extract_codes(model, drawn, split, n=n, pairs=pairs, layers=layers,
                         residuals=residuals, seed=seed, batch_size=batch_size, meta=meta,
                         progress=progress)


@torch.no_grad()
def extract_codes(
    model: Any,
    task: Task,
    split: str,
    *,
    n: int,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    residuals: bool = False,
    seed: int = 0,
    batch_size: int = 512,
    meta: dict[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LatentCodes:
    """As `extract`, for a model in hand: anything with `cfg` and `run_with_hooks`.

    Beside the task's labels, the labels hold the task's per-instance scores (such as `loss`
    and `accuracy`), so that codes can be coloured by correctness.
    """
    names = tuple(pairs) if pairs is not None else tuple(task.pairs)[:1]
    task.check_pairs(names)
    kept = tuple(range(model.cfg.n_layers)) if layers is None else tuple(layers)
    for layer in kept:
        if layer not in range(model.cfg.n_layers):
            raise UnknownNameError("layer", layer, range(model.cfg.n_layers))
    check(n >= 1 and batch_size >= 1 and bool(names) and bool(kept),
          f"n is {n}, batch_size {batch_size}, pairs {names}, layers {kept}; expected at least "
          "one of each")
    device = next(model.parameters()).device
    generator = make_generator(seed, f"extract {split}", device)
    scores = np.empty((n, len(kept), len(names), model.cfg.n_heads), np.float32)
    streams: np.ndarray | None = None
    columns: list[int] = []
    query_of_pair: tuple[int, ...] = ()
    tables = []
    for start in range(0, n, batch_size):
        batch = task.sample(split, min(batch_size, n - start), generator)
        rows = slice(start, start + len(batch))
        query, key = task.positions(names, batch)
        hooks: list[tuple[str, Callable[..., None]]] = []
        for index, layer in enumerate(kept):
            hooks.append((f"blocks.{layer}.attn.hook_pattern",
                          partial(_store_codes, scores, rows, index, query, key)))
        if residuals:
            if streams is None:
                columns, query_of_pair = _distinct_queries(query)
                streams = np.empty((n, len(kept), len(columns), model.cfg.d_model), np.float32)
            chosen = query[:, columns]
            for index, layer in enumerate(kept):
                hooks.append((f"blocks.{layer}.hook_resid_pre",
                              partial(_store_residuals, streams, rows, index, chosen)))
        logits = model.run_with_hooks(batch.inputs, fwd_hooks=hooks)
        tables.append(_table(task, batch, logits))
        if progress is not None:
            progress(rows.stop, n)
    return LatentCodes(
        scores, pd.concat(tables, ignore_index=True), tuple(task.pairs[p] for p in names), kept,
        meta or {"split": split, "seed": seed}, streams, query_of_pair)


def _table(task: Task, batch: Batch, logits: Tensor) -> pd.DataFrame:
    labels = task.labels(batch)
    for name, values in task.scores(logits, batch).items():
        labels[name] = values.float().cpu().numpy()
    return labels


def _distinct_queries(query: Tensor) -> tuple[list[int], tuple[int, ...]]:
    """Return the columns of `query` [B, P] that are distinct, and each pair's place in them."""
    columns: list[int] = []
    of_pair: list[int] = []
    for p in range(query.shape[1]):
        same = [i for i, c in enumerate(columns) if torch.equal(query[:, c], query[:, p])]
        if not same:
            columns.append(p)
        of_pair.append(same[0] if same else len(columns) - 1)
    return columns, tuple(of_pair)


def _store_codes(
    out: np.ndarray, rows: slice, layer: int, query: Tensor, key: Tensor,
    pattern: Tensor, hook: object,
) -> None:
    out[rows, layer] = gather_codes(pattern, query, key).float().cpu().numpy()


def _store_residuals(
    out: np.ndarray, rows: slice, layer: int, query: Tensor, resid: Tensor, hook: object
) -> None:
    batch = torch.arange(len(resid), device=resid.device)[:, None]
    out[rows, layer] = resid[batch, query].float().cpu().numpy()


__all__ = ["extract", "extract_codes", "gather_codes"]
