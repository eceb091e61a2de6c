"""What operations do the codes of a model generate? The value networks of mean codes.

    W_qk = sum_h a_hqk W_V^h W_O^h                                        (paper, Eq. 5)

Every layer of a generated network is linear in the code, W(a) = sum_h a_h M_h, so that products
of the weights of thousands of codes need the H x H products of the M_h alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check, check_count
from latentcode.models.hypernetwork import ValueNetwork, value_network
from latentcode.models.key_inputs import key_inputs
from latentcode.probes.common.features import ROUNDING
from latentcode.probes.common.labels import combination_clusters, make_target, single_labels
from latentcode.probes.common.own_labels import Labels, asked_labels, names_of, own_labels
from latentcode.probes.common.shuffling import shuffled_classes
from latentcode.probes.value_networks.result import ValueNetworksResult
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import subject
from latentcode.subjects.of_tasks import TaskSubject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

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


@dataclass(frozen=True)
class Networks:
    """The value networks of N codes, part by part: the generated weights, and the `response`.

    matrices  part -> [N, n, m]; the response is the outputs on M inputs over the root of M
    products  part -> [N, N], the inner products of the matrices
    active    which units of the last hidden layer are active on each input, [N, M, n]; None for
              an affine network
    """

    matrices: dict[str, Tensor]
    products: dict[str, Tensor]
    active: Tensor | None


@torch.no_grad()
def networks(
    model: Any, layer: int, codes: Float[Tensor, "N H"], x: Float[Tensor, "M D"]
) -> Networks:
    """Return the networks that codes generate, and how they respond to inputs."""
    outputs, active = respond(model, layer, codes, x)
    response = outputs / len(x)**0.5
    flat = response.flatten(1).double()
    return Networks(
        {**generated_parts(model, layer, codes), "response": response},
        {**weight_products(model, layer, codes), "response": flat @ flat.T}, active)


@torch.no_grad()
def own_activity(
    model: Any, layer: int, codes: Float[Tensor, "M H"], x: Float[Tensor, "M D"]
) -> Bool[Tensor, "M n"] | None:
    """Return which hidden units are active where each code meets its own input, as they do in the
    forward pass."""
    network = value_network(model, layer, codes)
    return None if network.is_linear else _is_active(network, network.activations(x)[-2])


@watched("comparing networks")
def value_networks(
    model: Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    split: Split = "ood",
    n: int | None = None,
    n_inputs: int = 256,
    controls: bool = True,
    step: int | None = None,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> ValueNetworksResult:
    """Compare the value networks that mean codes generate.

    Args:
        model: See `subject`.
        problems: See `subject`; default: what the run's task chooses for probing.
        labels: Default: those single columns that the task names for probing, such as rule or
            term_1, and of prompts the column label; or functions of a batch, as in `decode`.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        split: Which combinations the problems have: `train`, `test`, `ood` or `unknown`.
        n: Problems that mean codes are taken of; default: 2,048, of prompts all.
        n_inputs: The first of them, whose residual streams at the key are the inputs of all
            networks; of prompts at most all.
        controls: Also compare the codes of the untrained model (with its weights), and mean codes
            of labels that are shuffled among combinations.
        step: The checkpoint of a run; default: the newest.
        seed: Seed of the problems, and of shuffling.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (networks of a layer, pair and label done, in all).

    Raises:
        LatentCodeError: What `subject`, `own_labels`, `extract` and `make_target` raise.
    """
    seed = checked_seed(seed)
    of = subject(model, problems, step=step, device=device).probing
    asked = asked_labels(labels, of)
    given, n = n, of.n_of("n", n, 2_048, split)
    check_count("n_inputs", n_inputs, 1, ProbeError)
    check(n_inputs <= n or given is None or not isinstance(of, TaskSubject),
          f"n_inputs is {n_inputs}; expected 1 to n = {n}", ProbeError)
    n_inputs = min(n_inputs, n)
    further = own_labels(asked if labels is not None else None, of, [(split, n)], seed=seed)
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in ValueNetworksResult.COLUMNS}
    done = 0
    for untrained in (False, True) if controls else (False,):
        reader = of.reader(split, n=n, pairs=pairs, layers=layers, untrained=untrained, seed=seed)
        codes = reader.read().with_labels(**further[0])
        names = (single_labels(codes, names_of(asked)) if labels is None else names_of(asked))
        pair_names = [pair.name for pair in codes.pairs]
        x = key_inputs(reader.model, of.at_keys(split, pair_names, n=n_inputs, seed=seed),
                       codes.layers)
        total = len(codes.layers) * len(pair_names) * len(names) * (2 if controls else 1)
        for (p, pair), name in product(enumerate(pair_names), names):
            values, classes = _classes(codes, name, pair, untrained, controls, seed)
            for i, layer in enumerate(codes.layers):
                for kind, of_class in classes.items():
                    place = {"layer": layer, "pair": pair, "label": name, "features": kind}
                    found = _tables(reader.model, layer, codes.select(layer=layer, pair=pair),
                                    values, of_class, x[i, p])
                    for table, rows in found.items():
                        tables[table] += [place | row for row in rows]
                done += 1
                if progress is not None:
                    progress(done, total)
    frames = {name: pd.DataFrame(rows, columns=list(ValueNetworksResult.COLUMNS[name]))
              for name, rows in tables.items()}
    return ValueNetworksResult(**frames, settings={
        **of.settings, "split": of.split_name(split), "n": n, "n_inputs": n_inputs,
        "labels": list(names), "pairs": pair_names, "seed": seed, "controls": controls,
        "no_null": _without_null(frames["networks"]) if controls else []})


def _without_null(networks: pd.DataFrame) -> list[str]:
    """Return the labels that there are no shuffled classes of."""
    labels = {features: set(networks.loc[networks["features"] == features, "label"])
              for features in ("code", "shuffled")}
    return sorted(labels["code"] - labels["shuffled"])


def _classes(
    codes: LatentCodes, name: str, pair: str, untrained: bool, controls: bool, seed: int
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Return the values of a label, and by features which of them each instance has, int [N]."""
    target = make_target(codes, codes, name, pair)
    check(not target.multilabel, f"label {name!r} stands for several columns, so that an instance "
          f"has several classes; expected one of: {', '.join(target.columns)}", ProbeError)
    found = {"untrained" if untrained else "code": target.train.argmax(axis=1)}
    if controls and not untrained:
        for shuffled in shuffled_classes(found["code"], combination_clusters(codes),
                                         np.random.default_rng(seed), 1):
            found["shuffled"] = shuffled
    return tuple(str(value) for value in target.classes), found


def _tables(
    model: Any, layer: int, measured: np.ndarray, values: Sequence[str], of_class: np.ndarray,
    x: Float[Tensor, "M D"],
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each table for the codes [N, H] of one layer and pair by their class.

    x  inputs of the networks, those of the first M codes
    """
    members = {value: of_class == c for c, value in enumerate(values) if (of_class == c).any()}
    codes = torch.from_numpy(np.array(measured)).to(x)
    means = torch.stack([codes[torch.from_numpy(mine)].double().mean(dim=0)
                         for mine in members.values()]).to(x)
    found = networks(model, layer, means, x)
    own = own_activity(model, layer, codes[:len(x)], x)
    tables: dict[str, list[dict[str, Any]]] = {"networks": [], "spectra": [], "cosines": []}
    for part, matrix in found.matrices.items():
        products, singular = found.products[part], torch.linalg.svdvals(matrix.double())
        apart = relative_distances(products)
        active, active_own = (found.active, own) if part == "response" else (None, None)
        for c, (value, mine) in enumerate(members.items()):
            here = {"class": value, "part": part}
            tables["networks"].append(here | {
                "n": int(mine.sum()),
                "norm": float(products[c, c].clamp(min=0.0).sqrt()),
                "effective_rank": float(effective_rank(singular[c])),
                "stable_rank": float(stable_rank(singular[c])), "apart": float(apart[c]),
                "active": np.nan if active is None else _share(active[c]),
                "active_own": np.nan if active_own is None else _share(
                    active_own[torch.from_numpy(mine[:len(x)])])})
            kept = singular[c][singular[c] > SMALLEST * singular[c, 0]]
            tables["spectra"] += [here | {"index": i, "singular_value": s}
                                  for i, s in enumerate(kept.tolist())]
        raw, without_mean = cosines(products), cosines(centred(products))
        tables["cosines"] += [
            {"part": part, "class": a, "other": b, "cosine": float(raw[i, j]),
             "centred": float(without_mean[i, j])}
            for (i, a), (j, b) in product(enumerate(members), enumerate(members))]
    return tables


def _share(active: Tensor) -> float:
    return float(active.double().mean()) if active.numel() else np.nan
