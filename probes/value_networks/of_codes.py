"""What operations do codes generate? The value networks of each label's mean code.

    W_qk = sum_h a_hqk W_V^h W_O^h                                        (paper, Eq. 5)

Every layer of a generated network is linear in the code, W(a) = sum_h a_h M_h, so that products
of the weights of thousands of codes need the H x H products of the M_h alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentcode.codes import LatentCodes
from latentcode.codes.of_tasks import code_reader, instances
from latentcode.errors import ProbeError, check
from latentcode.models.hypernetwork import ValueNetwork, value_network
from latentcode.models.modes import evaluating
from latentcode.probes.common.controls import shuffle_labels
from latentcode.probes.common.labels import combination_clusters, label_columns, make_target
from latentcode.probes.common.sources import ROUNDING
from latentcode.probes.value_networks.result import ValueNetworkResult
from latentcode.runs import Run
from latentcode.tasks import Task, make_task
from latentcode.tasks.base import DRAW

SMALLEST = 1e-6
"""Singular values below this share of the largest are rounding, and left out of the tables."""


def effective_rank(singular: Float[Tensor, "... r"]) -> Float[Tensor, "..."]:
    """exp(-sum_i p_i log p_i), p_i = s_i / sum_j s_j (Roy and Vetterli 2007); NaN for zero."""
    p = singular / singular.sum(dim=-1, keepdim=True)
    return torch.special.entr(p).sum(dim=-1).exp()


def stable_rank(singular: Float[Tensor, "... r"]) -> Float[Tensor, "..."]:
    """sum_i s_i^2 / max_i s_i^2, the squared Frobenius over the squared spectral norm."""
    return singular.square().sum(dim=-1) / singular.square().amax(dim=-1)


def generated_parts(
    model: Any, layer: int, codes: Float[Tensor, "N H"]
) -> dict[str, Float[Tensor, "N n m"]]:
    """Return the weights that each code generates: `matrix` of an affine network, or `weights 1`..

    With a nonlinearity on each head's values the first layer is the same for every code and is
    left out.
    """
    network = value_network(model, layer, codes)
    if network.is_linear:
        return {"matrix": network.matrix}
    config = model.blocks[layer].attn.cfg  # an attention without one is linear
    first = 1 if config.value_network == "linear" else 0
    return {f"weights {i}": weight for i, weight in enumerate(network.weights, 1) if i > first}


def weight_products(
    model: Any, layer: int, codes: Float[Tensor, "N H"]
) -> dict[str, Float[Tensor, "N N"]]:
    """Return <W(a), W(b)>_F = sum_gh a_g b_h <M_g, M_h>_F for all pairs of codes, per part.

    The parts are those of `generated_parts`. Where the whole network is affine in several layers
    its matrix is not linear in the code, and all matrices are made: N x d_model^2 numbers.
    """
    heads = torch.eye(codes.shape[1], dtype=codes.dtype, device=codes.device)
    network = value_network(model, layer, heads)
    if network.is_linear and len(network.weights) > 1:
        matrices = value_network(model, layer, codes).matrix.flatten(1).double()
        return {"matrix": matrices @ matrices.T}
    products = {}
    for part, maps in generated_parts(model, layer, heads).items():
        flat = maps.flatten(1).double()  # [H, n m], the M_h
        products[part] = codes.double() @ (flat @ flat.T) @ codes.double().T
    return products


def cosines(products: Float[Tensor, "N N"]) -> Float[Tensor, "N N"]:
    """Return <W_a, W_b> / (|W_a| |W_b|) of products <W_a, W_b>; NaN where a norm is 0."""
    norms = products.diagonal().clamp(min=0.0).sqrt()
    return (products / (norms[:, None] * norms)).clamp(-1.0, 1.0)


def centred(products: Float[Tensor, "N N"]) -> Float[Tensor, "N N"]:
    """Return <W_a - W, W_b - W> of products <W_a, W_b>, where W is the mean of all N.

    0 for a network that differs from the mean by no more than rounding.
    """
    rows = products - products.mean(dim=0, keepdim=True)
    differences = rows - rows.mean(dim=1, keepdim=True)
    rounding = differences.diagonal() <= ROUNDING**2 * products.diagonal()
    differences[rounding] = 0.0
    differences[:, rounding] = 0.0
    return differences


def relative_distances(products: Float[Tensor, "N N"]) -> Float[Tensor, "N"]:
    """Return |W_a - W| / |W_a| of products <W_a, W_b>, with the mean W; NaN where |W_a| is 0."""
    squared = products.diagonal()
    ratio = (centred(products).diagonal().clamp(min=0.0) / squared).sqrt()
    return torch.where(squared > 0.0, ratio, torch.nan)


def respond(
    model: Any, layer: int, codes: Float[Tensor, "N H"], x: Float[Tensor, "M D"]
) -> tuple[Float[Tensor, "N M D"], Bool[Tensor, "N M n"] | None]:
    """Return the outputs of each code's network on each input, and which hidden units are active.

    x  layer-normed residual streams, what the layer's values are computed from

    A unit of the last hidden layer is active where phi(u) > phi(0), for a ReLU u > 0. None for
    an affine network, whose units are never off.
    """
    outputs, active = [], []
    for code in codes:
        network = value_network(model, layer, code)
        *hidden, output = network.activations(x)
        outputs.append(output)
        if not network.is_linear:
            active.append(_is_active(network, hidden[-1]))
    return torch.stack(outputs), torch.stack(active) if active else None


def _is_active(network: ValueNetwork, hidden: Tensor) -> Tensor:
    return hidden > network.phi(torch.zeros((), dtype=hidden.dtype, device=hidden.device))


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
    run: Run,
    *,
    labels: Sequence[str] | None = None,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    split: str = "ood",
    n: int = 2_048,
    n_inputs: int = 256,
    controls: bool = True,
    step: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> ValueNetworkResult:
    """Which operation does the mean code of each rule or term generate, and how do they differ?

    labels    default: those single columns that the task probes, such as rule or term_1
    pairs     default: the paper's pair, the first of the task's
    n         instances that mean codes are taken of
    n_inputs  the first of them, whose residual streams at the key are the inputs of all networks
    controls  beside the trained codes those of the untrained model (with its weights), and mean
              codes of labels that are shuffled among combinations
    progress  called with (networks of a layer, pair and label done, in all)

    Raises what `extract` and `make_target` raise.
    """
    task = make_task(run.config.task)
    source = make_task(task.probe_config)
    check(1 <= n_inputs <= n, f"n_inputs is {n_inputs}; expected 1 to n = {n}", ProbeError)
    rows: dict[str, list[dict[str, Any]]] = {"networks": [], "spectra": [], "cosines": []}
    done = 0
    names: Sequence[str] = ()
    for untrained in (False, True) if controls else (False,):
        reader = code_reader(run, split, n=n, pairs=pairs, layers=layers, untrained=untrained,
                             task=task.probe_config, step=step, seed=seed, device=device)
        codes = reader.read()
        pair_names = [pair.name for pair in codes.pairs]
        names = labels or [name for name in task.probe_labels
                           if not label_columns(codes, name, pair_names[0])[1]]
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
    tables = {name: pd.DataFrame(found, columns=list(ValueNetworkResult.COLUMNS[name]))
              for name, found in rows.items()}
    return ValueNetworkResult(**tables, settings={
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
    own = None if network.is_linear else _is_active(network, network.activations(x)[-2])
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
