"""What operations do the codes of a trained run generate? The value networks of mean codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.codes import LatentCodes
from latentcode.codes.of_tasks import code_reader, instances
from latentcode.config import TaskConfig
from latentcode.errors import ProbeError, check
from latentcode.models.hypernetwork import value_network
from latentcode.models.modes import evaluating
from latentcode.probes.common.controls import shuffle_labels
from latentcode.probes.common.labels import combination_clusters, make_target, single_labels
from latentcode.probes.value_networks.measures import (
    centred,
    cosines,
    effective_rank,
    generated_parts,
    is_active,
    relative_distances,
    respond,
    stable_rank,
    weight_products,
)
from latentcode.probes.value_networks.result import ValueNetworksResult
from latentcode.progress import Progress
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.tasks import Task, make_task
from latentcode.tasks.base import DRAW

SMALLEST = 1e-6
"""Singular values below this share of the largest are rounding, and left out of the tables."""


def key_inputs(
    model: Any, task: Task, split: str, pairs: Sequence[str], layers: Sequence[int], *,
    n: int, seed: int = 0,
) -> Float[Tensor, "L P N D"]:
    """Return LN1(x_k), what the values at each pair's key are computed from, of n instances.

    They are the first instances that `extract` reads with the same task, split and seed.
    """
    check(1 <= n <= DRAW, f"n is {n}; expected 1 to {DRAW} inputs")
    device = next(model.parameters()).device
    batch = instances(task, split, range(n), seed=seed, device=device)
    _, key = task.positions(pairs, batch)
    found: dict[int, Tensor] = {}

    def keep(layer: int) -> Callable[..., None]:
        def store(residual: Tensor, hook: object) -> None:
            found[layer] = _at_keys(model.blocks[layer].ln1(residual), key)
        return store

    with evaluating(model):
        model.run_with_hooks(batch.inputs, fwd_hooks=[
            (f"blocks.{layer}.hook_resid_pre", keep(layer)) for layer in layers])
    return torch.stack([found[layer] for layer in layers])


def _at_keys(x: Float[Tensor, "B T D"], key: Int[Tensor, "B P"]) -> Float[Tensor, "P B D"]:
    return x[torch.arange(len(x), device=x.device)[:, None], key].transpose(0, 1)


def value_networks(
    run: Run | str | Path,
    labels: Sequence[str] | None = None,
    *,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    split: str = "ood",
    n: int = 2_048,
    n_inputs: int = 256,
    controls: bool = True,
    task: TaskConfig | None = None,
    step: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> ValueNetworksResult:
    """Which operation does the mean code of each rule or term generate, and how do they differ?

    run       a run, its folder, or a name of the zoo
    labels    default: those single columns that the task names for probing, such as rule or term_1
    pairs     default: the paper's pair, the first of the task's
    layers    default: all
    n         instances that mean codes are taken of
    n_inputs  the first of them, whose residual streams at the key are the inputs of all networks
    controls  beside the trained codes those of the untrained model (with its weights), and mean
              codes of labels that are shuffled among combinations
    task      what to draw instances from; default: the task's own choice for probing
    step      the checkpoint; default: the newest
    progress  called with (networks of a layer, pair and label done, in all)

    Raises what `load_run`, `extract` and `make_target` raise.
    """
    run = load_run(run)
    own = make_task(run.config.task)
    source = make_task(own.probe_config if task is None else task)
    check(1 <= n_inputs <= n, f"n_inputs is {n_inputs}; expected 1 to n = {n}", ProbeError)
    rows: dict[str, list[dict[str, Any]]] = {"networks": [], "spectra": [], "cosines": []}
    done = 0
    names: Sequence[str] = ()
    for untrained in (False, True) if controls else (False,):
        reader = code_reader(run, split, n=n, pairs=pairs, layers=layers, untrained=untrained,
                             task=source.config, step=step, seed=seed, device=device)
        codes = reader.read()
        pair_names = [pair.name for pair in codes.pairs]
        names = single_labels(codes, own.probe_labels) if labels is None else labels
        x = key_inputs(reader.model, source, split, pair_names, codes.layers, n=n_inputs, seed=seed)
        total = len(codes.layers) * len(pair_names) * len(names) * (2 if controls else 1)
        for p, pair in enumerate(pair_names):
            for name in names:
                classes = _classes(codes, name, pair, shuffled=controls and not untrained,
                                   seed=seed)
                for i, layer in enumerate(codes.layers):
                    measured = codes.select(layer=layer, pair=pair)
                    for kind, (values, of_class) in classes.items():
                        where = {"layer": layer, "pair": pair, "label": name,
                                 "source": "untrained" if untrained else kind}
                        _describe(rows, reader.model, where, measured, values, of_class, x[i, p])
                    done += 1
                    if progress is not None:
                        progress(done, total)
    tables = {name: pd.DataFrame(found, columns=list(ValueNetworksResult.COLUMNS[name]))
              for name, found in rows.items()}
    return ValueNetworksResult(**tables, settings={
        "run": run.name, "run_id": run.id, "kind": codes.meta["kind"], "split": split, "n": n,
        "n_inputs": n_inputs, "labels": list(names), "pairs": pair_names, "seed": seed,
        "controls": controls, "step": run.checkpoints()[-1] if step is None else step,
        "task": codes.meta["task"]})


def _classes(
    codes: LatentCodes, name: str, pair: str, *, shuffled: bool, seed: int
) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Return source -> (classes, class of each instance [N])."""
    target = make_target(codes, codes, name, pair)
    check(not target.multilabel, f"label {name!r} stands for several columns, so that an instance "
          f"has several classes; expected one of: {', '.join(target.columns)}", ProbeError)
    values = tuple(str(value) for value in target.classes)
    found = {"code": (values, target.train.argmax(axis=1))}
    if shuffled:
        dealt = shuffle_labels(target.train, combination_clusters(codes),
                               np.random.default_rng(seed))
        found["shuffled"] = values, dealt.argmax(axis=1)
    return found


@torch.no_grad()
def _describe(
    rows: dict[str, list[dict[str, Any]]], model: Any, where: Mapping[str, object],
    measured: np.ndarray, values: tuple[str, ...], of_class: np.ndarray, x: Tensor,
) -> None:
    """Add the rows of one layer, pair, label and source."""
    layer = int(str(where["layer"]))
    present = [c for c in range(len(values)) if (of_class == c).any()]
    names = [values[c] for c in present]
    counts = [int((of_class == c).sum()) for c in present]
    codes = torch.from_numpy(np.array(measured)).to(x)
    mean = torch.stack([codes[torch.from_numpy(of_class == c)].double().mean(dim=0)
                        for c in present]).to(x)
    outputs, active = respond(model, layer, mean, x)
    network = value_network(model, layer, codes[:len(x)])
    own = None if network.is_linear else is_active(network, network.activations(x)[-2])
    weights = generated_parts(model, layer, mean)
    matrices = {**weights, "response": outputs / len(x)**0.5}
    flat = matrices["response"].flatten(1).double()
    products = {**weight_products(model, layer, mean), "response": flat @ flat.T}
    for part, matrix in matrices.items():
        singular = torch.linalg.svdvals(matrix.double())
        apart = relative_distances(products[part])
        for c, name in enumerate(names):
            mine = torch.from_numpy(of_class[:len(x)] == present[c])
            is_response = part == "response"
            rows["networks"].append({
                **where, "class": name, "part": part, "n": counts[c],
                "norm": float(products[part][c, c].clamp(min=0.0).sqrt()),
                "effective_rank": float(effective_rank(singular[c])),
                "stable_rank": float(stable_rank(singular[c])), "apart": float(apart[c]),
                "active": _share(active[c]) if is_response and active is not None else np.nan,
                "active_own": _share(own[mine]) if is_response and own is not None else np.nan})
            rows["spectra"] += [
                {**where, "class": name, "part": part, "index": i, "singular_value": float(s)}
                for i, s in enumerate(singular[c]) if s > SMALLEST * singular[c, 0]]
        rows["cosines"] += list(_cosine_rows(where, part, names, products[part]))


def _share(active: Tensor) -> float:
    return float(active.double().mean()) if active.numel() else np.nan


def _cosine_rows(
    where: Mapping[str, object], part: str, names: Sequence[str], products: Tensor
) -> Iterator[dict[str, Any]]:
    raw, without_mean = cosines(products), cosines(centred(products))
    for i, name in enumerate(names):
        for j, other in enumerate(names):
            yield {**where, "part": part, "class": name, "other": other,
                   "cosine": float(raw[i, j]), "centred": float(without_mean[i, j])}
