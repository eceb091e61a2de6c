"""What do codes of the context look like? Neighbours, planes and mean codes, by rule.

The rule is that of the last response token, as everywhere where the paper's pair is looked at. Of
the context the codes of the queries that show the same feature are taken (`own`): those of the
other features say other rules. SRAVEN whose features are not permuted alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from latentcode.codes.instances import instances
from latentcode.config import SravenConfig
from latentcode.errors import check
from latentcode.figures.style import Figure, category_styles
from latentcode.probes.common.figures import panels
from latentcode.probes.decoding.reduction import fit_reduction
from latentcode.probes.interventions.sites import capture
from latentcode.probes.knn_purity.purity import ALL, purity
from latentcode.probes.projection.methods import fit_projection
from latentcode.runs import Run
from latentcode.subjects import subject
from latentcode.tasks import make_task
from latentcode.tasks.sraven.rules import RULES
from latentcode.tasks.sraven.task import rules_shown

N = 1_500
"""Held-out problems whose codes are compared."""
N_CHOSEN = 800
"""Problems of training combinations on which the best single code is chosen."""
WIDTH = 50
"""Principal axes that the codes of all queries are reduced to."""
AT_ONCE = 100
PAIR, OWN, SINGLE = "the paper's pair", "the context's queries", "one code of the context"
"""What is compared."""


def codes_at(run: Run, split: str, n: int, untrained: bool = False) -> Mapping[str, np.ndarray]:
    """Return codes of n problems, with the rule and the combination of each.

    pair     [N, L, H], of the last response token attending to itself
    context  [N, L, C, T, H], of the C context tokens that show the same feature, to all T
    """
    config = run.config.task
    check(isinstance(config, SravenConfig) and not config.permuted, f"{run.name} is not of SRAVEN "
          "with features that keep their tokens; expected a run that is")
    assert isinstance(config, SravenConfig)
    model, task = subject(run).model(untrained=untrained), make_task(config)
    m, size = config.n_features, config.grid_size
    own = torch.arange(size * (size - 1)) * m + m - 1
    places = [("code", layer) for layer in range(model.cfg.n_layers)]
    batch = instances(task, split, n)
    pairs, contexts = [], []
    for first in range(0, n, AT_ONCE):
        with torch.no_grad():
            _, found = capture(model, batch.inputs[first:first + AT_ONCE], places)
        whole = torch.stack([found[place] for place in places], 1)  # [B, L, H, Q, K]
        pairs.append(whole[..., -1, -1])
        contexts.append(whole[..., own, :].movedim(2, -1))  # [B, L, C, T, H]
    rules = np.array(RULES)[rules_shown(batch)[:, -1].numpy()]
    return {"pair": torch.cat(pairs).numpy(), "context": torch.cat(contexts).numpy(),
            "rule": rules, "combination": batch.combination.numpy()}


def looked_at(run: Run, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return what neighbours agree on, and how many dimensions mean codes have; of one run.

    separation  a row per layer, model (`trained`, `untrained`) and what is compared (`PAIR`, `OWN`,
                `SINGLE`): `purity` of the 10 nearest neighbours by rule, of `shuffled` labels, and
                `excess`; `query` and `key` of the single code, chosen on training combinations
    dimensions  a row per layer: `participation`, (sum_i s_i^2)^2 / sum_i s_i^4 of the singular
                values s of the eight mean codes less their mean, and that of random groups
    """
    chosen = codes_at(run, "test", N_CHOSEN)
    parts, rows, ranks = {"trained": codes_at(run, "ood", N),
                          "untrained": codes_at(run, "ood", N, untrained=True)}, [], []
    for layer in range(run.config.model.n_layers):
        query, key = _best(chosen, layer, seed)
        for model, found in parts.items():
            for what, x in compared(found, layer, query, key).items():
                rows.append({"layer": layer, "model": model, "compared": what,
                             **_purity(x, found, seed),
                             **({"query": query, "key": key} if what == SINGLE else {})})
        found = parts["trained"]
        rng = np.random.default_rng(seed)
        for what, x in compared(found, layer, query, key).items():
            ranks.append({"layer": layer, "compared": what,
                          "participation": participation(x, found["rule"]),
                          "of random groups": participation(x, rng.permutation(found["rule"]))})
    return {"separation": pd.DataFrame(rows), "dimensions": pd.DataFrame(ranks)}


def compared(
    found: Mapping[str, np.ndarray], layer: int, query: int, key: int
) -> dict[str, np.ndarray]:
    """Return what is compared in a layer, float [N, d] each."""
    context = found["context"][:, layer]
    flat = context.reshape(len(context), -1)
    return {PAIR: found["pair"][:, layer], OWN: fit_reduction(flat, WIDTH)(flat),
            SINGLE: context[:, query, key]}


def participation(x: np.ndarray, labels: np.ndarray) -> float:
    """Return (sum_i s_i^2)^2 / sum_i s_i^4 of the mean points of labels, less their mean.

    s_i are their singular values: 1 for means on a line, one less than the labels at most.
    """
    means = np.stack([x[labels == label].mean(0) for label in np.unique(labels)])
    power = np.linalg.svd(means - means.mean(0), compute_uv=False) ** 2
    return float(power.sum() ** 2 / (power**2).sum()) if power.sum() > 0 else float("nan")


def _best(found: Mapping[str, np.ndarray], layer: int, seed: int) -> tuple[int, int]:
    """Return the (query, key) whose code separates the rules best, by their places in `context`.

    Keys are among the tokens of the context that show the same feature, as the queries are.
    """
    context = found["context"][:, layer]
    n, m = context.shape[1], context.shape[2] // (context.shape[1] + context.shape[1] // 2)
    cells = [(query, key * m + m - 1) for query in range(n) for key in range(n)]
    scores = [_purity(context[:, query, key], found, seed)["purity"] for query, key in cells]
    return cells[int(np.nanargmax(scores))] if np.isfinite(scores).any() else cells[0]


def _purity(x: np.ndarray, found: Mapping[str, np.ndarray], seed: int) -> dict[str, Any]:
    if not x.shape[1] or bool((np.ptp(x, axis=0) < 1e-6).all()):
        return dict.fromkeys(("purity", "shuffled", "excess"), float("nan"))
    table = purity(x, {"rule": found["rule"]}, combinations=found["combination"], seed=seed)
    row = table[table["among"] == ALL].iloc[0]
    return {name: float(row[name]) for name in ("purity", "shuffled", "excess")}


def planes_figure(run: Run, separation: pd.DataFrame, seed: int = 0) -> Figure:
    """Draw t-SNE planes of the paper's pair and of the context's codes, by rule, layer by layer."""
    found = codes_at(run, "ood", N)
    n_layers = run.config.model.n_layers
    single = separation[(separation["compared"] == SINGLE) & (separation["model"] == "trained")]
    styles = category_styles(RULES)
    with panels(3, n_layers, 2.3 * n_layers, 7.6) as (figure, grid):
        for layer, (_, cell) in enumerate(single.iterrows()):
            parts = compared(found, layer, int(cell["query"]), int(cell["key"]))
            for axes, (what, x) in zip(grid[:, layer], parts.items(), strict=True):
                row = separation[(separation["layer"] == layer) & (separation["compared"] == what)
                                 & (separation["model"] == "trained")].iloc[0]
                axes.set(xticks=[], yticks=[])
                axes.set_title(f"layer {layer}: {row['purity']:.2f} ({row['shuffled']:.2f})",
                               fontsize=8)
                if layer == 0:
                    axes.set_ylabel(what)
                if not np.isfinite(row["purity"]):
                    axes.text(0.5, 0.5, "all the same", ha="center", transform=axes.transAxes)
                    continue
                plane = fit_projection(x, "tsne", seed=seed).projection.coordinates
                for rule in RULES:
                    mine, (colour, marker) = found["rule"] == rule, styles[rule]
                    axes.scatter(*plane[mine].T, s=4, color=colour, marker=marker, linewidths=0,
                                 label=rule)
        handles, labels = _handles(grid.ravel().tolist())
        figure.legend(handles, labels, loc="outside lower center", ncols=4, markerscale=3)
    return figure


def _handles(grid: Sequence[Any]) -> tuple[list[Any], list[str]]:
    for axes in grid:
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            return handles, labels
    return [], []
