"""What operations do the codes of a model generate? The value networks of mean codes.

    W_qk = sum_h a_hqk W_V^h W_O^h                                        (paper, Eq. 5)

Every layer of a generated network is linear in the code, W(a) = sum_h a_h M_h, so that products
of the weights of thousands of codes need the H x H products of the M_h alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from matplotlib.colors import TwoSlopeNorm
from torch import Tensor

from latentcode.devices import checked_seed
from latentcode.errors import ProbeError, check, check_count
from latentcode.figures.style import Figure
from latentcode.models.hypernetwork import ValueNetwork, key_inputs, value_network
from latentcode.probes.common.figures import heat_maps
from latentcode.probes.common.harness import read
from latentcode.probes.common.labels import (
    Labels,
    asked_labels,
    groups_of,
    names_of,
    single_labels,
)
from latentcode.probes.common.results import TableResult, blocks, where
from latentcode.probes.common.statistics import ROUNDING, no_null, shuffled_classes
from latentcode.progress import Progress, reported, watched
from latentcode.subjects import subject as opened
from latentcode.subjects.base import CodesSubject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

SMALLEST = 1e-6
"""Singular values below this share of the largest are rounding, and left out of the tables."""
FEW = 30
"""A mean over fewer instances than this is pointed out."""

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
        n_inputs: The first of them, at most all, whose residual streams at the key are the inputs
            of all networks.
        controls: Also compare the codes of the untrained model (with its weights), and mean codes
            of labels that are shuffled among combinations.
        step: The checkpoint of a run; default: the newest.
        seed: Seed of the problems, and of shuffling.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (networks of a layer, pair and label done, in all).

    Raises:
        LatentCodeError: What `subject`, `custom_labels`, `extract` and `make_target` raise.
    """
    seed = checked_seed(seed)
    subject = opened(model, problems, step=step, device=device).probing
    wanted = asked_labels(labels, subject)
    n = subject.n_of("n", n, 2_048, split)
    check_count("n_inputs", n_inputs, 1, ProbeError)
    n_inputs = min(n_inputs, n)
    if isinstance(subject, CodesSubject):
        subject.model()  # says what is missing
    reads = read(subject, [(split, n)], ("code",), pairs=pairs, layers=layers, controls=controls,
                 seed=seed, labels=labels)
    inputs: dict[str, Any] = {name: subject.reader(
        split, n=n_inputs, pairs=pairs, layers=layers, untrained=name == "untrained", seed=seed)
        for name in (("code", "untrained") if controls else ("code",))}
    known, pair_names = reads.rows[0].labels, list(reads.labels)
    names = names_of(wanted) if labels is not None else single_labels(
        known, names_of(wanted), subject.pairs[pair_names[0]])
    targets = {(name, pair): target for name in names
               for pair, target in reads.targets(name, subject.pairs).items()}
    for (name, _), target in targets.items():
        check(not target.multilabel, f"label {name!r} stands for several columns, so that an "
              "instance has several classes; expected one of: "
              f"{', '.join(target.columns)}", ProbeError)
    shuffled = {place: shuffled_classes(
        target.train.argmax(axis=1), groups_of(known), np.random.default_rng(seed), 1)
        for place, target in targets.items()} if controls else {}
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in ValueNetworksResult.COLUMNS}
    x = {name: key_inputs(reader.model, reader.inputs_and_keys(), reads.layers)
         for name, reader in inputs.items()}
    places = list(product(inputs, enumerate(pair_names), names, enumerate(reads.layers)))
    for features, (p, pair), name, (i, layer) in reported(places, len(places), progress):
        target = targets[name, pair]
        arrangements = {features: target.train.argmax(axis=1)}
        for classes in shuffled.get((name, pair), ()) if features == "code" else ():
            arrangements["shuffled"] = classes  # a label without a null has none
        for arranged, classes in arrangements.items():
            compared = _compared(
                inputs[features].model, layer, reads.at(pair, layer, features).points[0],
                [*map(str, target.classes)], classes, x[features][i, p])
            for table, rows in compared.items():
                tables[table] += [{"layer": layer, "pair": pair, "label": name,
                                   "features": arranged, **row} for row in rows]
    return ValueNetworksResult.from_rows(tables, {
        **subject.settings, "split": split if subject.has_splits else "prompts", "n": n,
        "n_inputs": n_inputs, "labels": list(names), "pairs": pair_names, "seed": seed,
        "controls": controls,
        "no_null": sorted(name for name in names if not any(
            len(shuffled[name, pair]) for pair in pair_names)) if controls else []})


@torch.no_grad()
def _compared(
    model: Any, layer: int, scores: np.ndarray, values: Sequence[str], classes: np.ndarray,
    x: Float[Tensor, "M D"],
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each table for the codes [N, H] of one layer and pair.

    classes  which of the values each instance has, int [N]
    x        inputs of the networks, those of the first M codes
    """
    members = {value: classes == c for c, value in enumerate(values) if (classes == c).any()}
    codes = torch.from_numpy(np.array(scores)).to(x)
    means = torch.stack([codes[torch.from_numpy(mine)].double().mean(dim=0)
                         for mine in members.values()]).to(x)
    outputs, active = respond(model, layer, means, x)
    own = value_network(model, layer, codes[:len(x)])
    active_own = None if own.is_linear else is_active(own, own.activations(x)[-2])  # [M, n]
    response = outputs / len(x)**0.5
    flat = response.flatten(1).double()
    all_products = {**weight_products(model, layer, means), "response": flat @ flat.T}
    tables: dict[str, list[dict[str, Any]]] = {"networks": [], "spectra": [], "cosines": []}
    for part, matrices in {**generated_parts(model, layer, means), "response": response}.items():
        products, singular = all_products[part], torch.linalg.svdvals(matrices.double())
        apart = relative_distances(products)
        for c, (value, mine) in enumerate(members.items()):
            here = {"class": value, "part": part}
            shares = {"active": np.nan, "active_own": np.nan}
            if part == "response" and active is not None and active_own is not None:
                mine_in_x = torch.from_numpy(mine[:len(x)])
                shares = {"active": float(active[c].double().mean()),
                          "active_own": float(active_own[mine_in_x].double().mean())}
            tables["networks"].append(here | {
                "n": int(mine.sum()),
                "norm": float(products[c, c].clamp(min=0.0).sqrt()),
                "effective_rank": float(effective_rank(singular[c])),
                "stable_rank": float(stable_rank(singular[c])), "apart": float(apart[c]), **shares})
            kept = singular[c][singular[c] > SMALLEST * singular[c, 0]]
            tables["spectra"] += [here | {"index": i, "singular_value": s}
                                  for i, s in enumerate(kept.tolist())]
        raw, without_mean = cosines(products), cosines(centred(products))
        tables["cosines"] += [
            {"part": part, "class": a, "other": b, "cosine": float(raw[i, j]),
             "centred": float(without_mean[i, j])}
            for (i, a), (j, b) in product(enumerate(members), enumerate(members))]
    return tables


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

    Units are those of the last hidden layer (`is_active`). None for an affine network, whose units
    are never off.
    """
    outputs, active = [], []
    for code in codes:
        network = value_network(model, layer, code)
        *hidden, output = network.activations(x)
        outputs.append(output)
        if not network.is_linear:
            active.append(is_active(network, hidden[-1]))
    return torch.stack(outputs), torch.stack(active) if active else None


def is_active(network: ValueNetwork, hidden: Tensor) -> Tensor:
    """Return which hidden units are on, phi(u) > phi(0): for a ReLU u > 0."""
    return hidden > network.phi(torch.zeros((), dtype=hidden.dtype, device=hidden.device))


@dataclass(frozen=True, repr=False)
class ValueNetworksResult(TableResult):
    """Value networks of the mean codes of each class of a label.

    Parts of a network are `matrix`, W_qk of an affine network, or `weights 1`, `weights 2`, ...
    of its generated layers, and `response`, its outputs on all inputs as a matrix
    [input, d_model] over the root of their number. Features are `code`, `untrained` and
    `shuffled` (labels).

    networks  one row per layer, pair, label, features, class and part: instances `n`, Frobenius
              `norm`, `effective_rank`, `stable_rank`; `apart`, the distance from the mean over
              the classes over the norm; with part `response` and hidden units, the share of units
              that are `active`, on all inputs, and `active_own`, with the instances' own codes
              on their own inputs as in the forward pass
    spectra   the singular values of each of them, down to a millionth of the largest
    cosines   one row per two classes: `cosine` of their parts, and `centred`, of their
              differences from the mean over the classes (NaN where these are rounding)
    settings  everything else that determines the numbers
    """

    FORMAT = "latentcode.value_networks"
    CAPTION = "means over classes"
    COLUMNS: ClassVar = {
        "networks": ("layer", "pair", "label", "features", "class", "part", "n", "norm",
                     "effective_rank", "stable_rank", "apart", "active", "active_own"),
        "spectra": ("layer", "pair", "label", "features", "class", "part", "index",
                    "singular_value"),
        "cosines": ("layer", "pair", "label", "features", "part", "class", "other", "cosine",
                    "centred")}

    networks: pd.DataFrame
    spectra: pd.DataFrame
    cosines: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = []
        if not self.settings["controls"]:
            notes.append("Without controls: untrained, shuffled.")
        notes += map(no_null, self.settings.get("no_null", ()))
        trained = self.networks[self.networks["features"] == "code"]
        few = trained[trained["n"] < FEW]
        notes += [f"Label {label}: the mean code of {value} is of {n} instances only."
                  for label, value, n in few[["label", "class", "n"]].drop_duplicates()
                  .itertuples(index=False)]
        silent = trained[(trained["part"] == "response") & (trained["norm"] == 0.0)]
        notes += [f"Layer {layer}, {pair}, label {label}: the mean networks of {len(rows)} classes "
                  "are silent, no hidden unit being active on any input; they have no response "
                  f"to compare. With its own code {rows['active_own'].mean():.1%} of the units "
                  "are active."
                  for (layer, pair, label), rows in silent.groupby(["layer", "pair", "label"])]
        return tuple(notes)

    def summary(self) -> pd.DataFrame:
        """Return, per layer, pair, label, features and part, means over the classes, and the mean
        cosine of two different ones."""
        keys = ["layer", "pair", "label", "features", "part"]
        means = self.networks.groupby(keys, sort=False)[
            ["norm", "effective_rank", "stable_rank", "apart", "active", "active_own"]].mean()
        different = self.cosines[self.cosines["class"] != self.cosines["other"]]
        means["cosine"] = different.groupby(keys, sort=False)["cosine"].mean()
        return means.round(3).reset_index()

    def figure(self) -> Figure:
        """Return cosines between the networks of the classes: raw ones above the diagonal,
        centred ones below; layers across, labels, pairs and parts down."""
        matrices = {}
        for place, rows in blocks(where(self.cosines, features="code"),
                                  ("label", "pair", "part", "layer")):
            names = list(rows["class"].unique())
            raw, without_mean = (
                rows.pivot(index="class", columns="other", values=column).loc[names, names]
                for column in ("cosine", "centred"))
            above = np.triu(np.ones(raw.shape, dtype=bool))
            matrices[f"{place['label']}, {place['part']}\n{place['pair']}",
                     f"layer {place['layer']}"] = raw.where(above, without_mean)
        return heat_maps(matrices, TwoSlopeNorm(0.0, -1.0, 1.0), label="cosine", cell=0.15, title=(
            "cosines between networks; below the diagonal of differences from the mean"))
