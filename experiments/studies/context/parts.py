"""What at the context carries the operation: which heads and keys, and do other seeds read it?

Where a kind carries the operation is what the criteria say (`carrier`): codes of the context's
queries in the lower layers, or values of its tokens in the upper ones. Heads and keys are ranked by
attribution on problems of training combinations; what patches of the first of them bring is counted
on held-out combinations, whose sources have another rule and other operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.experiments.studies.context.patches import BOTH, CONTEXT, directions
from latentcode.models.config import kind_of
from latentcode.probes.alignment.matching import match_heads
from latentcode.probes.attribution.instances import Known, Setting
from latentcode.probes.attribution.smallest import doublings
from latentcode.probes.common.bootstrap import mean_and_interval
from latentcode.probes.interventions.sites import Edit, Place, capture, run_patched
from latentcode.runs import Run
from latentcode.seeds import make_generator
from latentcode.subjects import subject
from latentcode.tasks import make_counterfactuals, make_task
from latentcode.tasks.counterfactuals import ChosenPairs

N = 200
"""Bases in each direction."""
N_POINTS = 4
"""On the way to the source at which gradients are taken."""
N_ORDERS = 3
"""Random orders, whose rates are averaged."""
N_FITTED = 400
"""Problems of training combinations on which maps between seeds are fitted; as many test them."""
N_BOOTSTRAP = 1_000
MAPS = ("its own", "heads", "linear", "linear, untrained", "linear, other problems",
        "of each position", "of each position, untrained", "of each position, other problems")
"""How codes of another seed are put in (`carried`)."""


def carrier(run: Run) -> tuple[str, tuple[int, ...]]:
    """Return the site and layers where the run's kind was expected to carry the operation."""
    rule = next(rule for rule in CONTEXT["statements"].values()
                if rule["class"] == "operation" and kind_of(run.config.model) in rule["expected"])
    return rule["patch"]["site"], tuple(rule["patch"]["layers"])


@dataclass(frozen=True)
class _At:
    """What of a run's activations is patched."""

    model: Any
    site: str
    layers: tuple[int, ...]

    @property
    def places(self) -> list[Place]:
        return [(self.site, layer) for layer in self.layers]

    def known(
        self, task: ChosenPairs, split: str, source: str, seed: int, n_points: int = 1
    ) -> Known:
        """Return N bases of a split, those that count, with activations of their sources."""
        generator = make_generator(seed, f"parts {split}", "cpu")
        found = Setting(self.model, task, source, self.places, n_points).known(
            task.sample(split, N, generator))
        assert found is not None
        return found

    def mask(self, context: Tensor, heads: Tensor, keys: Tensor) -> Tensor:
        """Return what is patched of a layer's activation, broadcastable to it.

        context, keys  bool [B, T]; heads  bool [H]
        """
        if self.site == "code":
            return (heads[:, None, None] & context[:, None, :, None] & keys[:, None, None])
        return (context & keys)[..., None, None] & heads[:, None]

    def attributed(self, known: Known, task: ChosenPairs) -> Tensor:
        """Return the attribution to the context's heads and key roles, [B, layer, head, role]."""
        names, _ = task.roles(known.pairs)
        estimates = known.estimates("path", self.site)
        if self.site == "value":
            return estimates * _of_context(task, known)[:, None, None]
        per_query = estimates.unflatten(-1, (len(names), len(names)))
        return (per_query * _of_context(task, known)[:, None, None, :, None]).sum(3)


def _directions(run: Run) -> dict[str, ChosenPairs]:
    task = make_counterfactuals(make_task(run.config.task))
    return {name: pairs for name, pairs in directions(task).items()
            if isinstance(pairs, ChosenPairs)}


def _of_context(task: ChosenPairs, known: Known) -> Tensor:
    """Return which roles tokens of the context have, float64 [B, role]."""
    names, role = task.roles(known.pairs)
    context = task.place("context", known.pairs)
    return torch.zeros(len(role), len(names), dtype=torch.float64).scatter_reduce(
        1, role, context.double(), "amax")


def _rate(at: _At, task: ChosenPairs, known: Known, edits: Mapping[Place, Edit]) -> np.ndarray:
    """Return which answers become those of the source's operation to the base's operands, [B]."""
    logits = run_patched(at.model, known.pairs.bases.inputs, edits)
    outcomes = task.outcomes(known.pairs, known.unpatched.logits, known.answered, logits)
    return outcomes["operation"].double().numpy()


def _interval(hits: np.ndarray, known: Known, seed: int) -> dict[str, float]:
    combination = known.pairs.bases.combination.numpy()
    mean, low, high, _ = mean_and_interval(hits, combination, N_BOOTSTRAP, seed)
    return {"operation": float(mean), "low": float(low), "high": float(high), "n": len(hits)}


def heads_and_keys(run: Run, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return what growing sets of heads, and of keys, bring; and the order in which they come.

    sets   a row per direction, `of` (`heads` of every layer patched; `keys`, by role), `order`
           (`attribution`, `random`, `least` first) and `size`: the rate of `operation`
    ranks  a row per head or key: its attribution, a share of the sum of all
    """
    at = _At(run.load_model(), *carrier(run))
    asked = _directions(run)
    ranking = [at.attributed(at.known(task, "test", "interchange", seed, N_POINTS), task)
               for task in asked.values()]
    mean = torch.cat(ranking).mean(0).numpy()  # [layer, head, role]
    held = {name: (task, at.known(task, "ood", BOTH, seed)) for name, task in asked.items()}
    names, _ = next(iter(asked.values())).roles(next(iter(held.values()))[1].pairs)
    n_heads = mean.shape[1]
    keys = [i for i, name in enumerate(names)
            if at.site == "code" or bool(np.abs(mean[..., i]).any())]
    found = {"heads": mean.sum(2).ravel(), "keys": mean.sum((0, 1))[keys]}
    called = {"heads": [f"layer {layer} head {head}" for layer in at.layers
                        for head in range(n_heads)],
              "keys": [names[i] for i in keys]}

    def patched(of: str, chosen: np.ndarray, name: str) -> np.ndarray:
        task, known = held[name]
        heads, roles = np.ones((len(at.layers), n_heads), bool), np.ones(len(names), bool)
        if of == "heads":
            heads = np.isin(np.arange(heads.size), chosen).reshape(heads.shape)
        else:
            roles = np.isin(np.arange(len(names)), np.asarray(keys)[chosen])
        context = task.place("context", known.pairs)
        of_key = torch.from_numpy(roles)[known.role]
        edits = {place: _put(known.activations[place],
                             at.mask(context, torch.from_numpy(heads[i]), of_key))
                 for i, place in enumerate(at.places)}
        return _rate(at, task, known, edits)

    rng, rows, ranks = np.random.default_rng(seed), [], []
    for of, estimates in found.items():
        first = np.argsort(-estimates, kind="stable")
        orders = {"attribution": [first], "least": [first[::-1]],
                  "random": [rng.permutation(len(first)) for _ in range(N_ORDERS)]}
        ranks += [{"of": of, "rank": rank, "name": called[of][i],
                   "share": float(estimates[i] / estimates.sum())}
                  for rank, i in enumerate(first)]
        for name, (_, known) in held.items():
            for size in doublings(len(first)):
                for order, of_order in orders.items():
                    hits = np.mean([patched(of, one[:size], name) for one in of_order], axis=0)
                    rows.append({"direction": name, "of": of, "order": order, "size": size,
                                 "among": len(first), **_interval(hits, known, seed)})
    return {"sets": pd.DataFrame(rows), "ranks": pd.DataFrame(ranks)}


def _put(values: Tensor, mask: Tensor) -> Edit:
    return lambda live: torch.where(mask, values.to(live.dtype), live)


def carried(source: Run, target: Run, seed: int = 0) -> pd.DataFrame:
    """Return what the codes of one seed bring when they are put into another.

    The codes a' that the source's model computes for a problem, at the context and in the layers of
    `carrier`, are put into the target's model, which sees the base:

        its own           what the target's model computes for that problem itself
        heads             a' with the heads (and signs) matched, each brought to its mean and
                          standard deviation
        linear            W_l a' + b_l, least squares on codes of training combinations, the same
                          for every query and key
        of each position  W_lqk a' + b_lqk, one for every query and key

    and, as controls of the two last, fitted to what the *untrained* model of the source computes,
    or to the codes of *other problems*.

    A row per `direction`, `map` (`MAPS`), `from` (the source of the criteria whose codes they are:
    with the source's rule and other operands, with other operands alone, with a third rule), the
    rate of `operation`, and `r2`, how well the map predicts codes of other problems (NaN where
    nothing was fitted).
    """
    site, layers = carrier(target)
    assert site == "code"
    at = _At(target.load_model(), site, layers)
    read = subject(source, target.config.task)
    models = {"trained": read.model(), "untrained": read.model(untrained=True)}
    asked = _directions(target)
    maps = _fitted(at, models, next(iter(asked.values())), seed)
    rows = []
    for name, task in asked.items():
        known = at.known(task, "ood", BOTH, seed)
        context = task.place("context", known.pairs)
        queries = context[0].nonzero()[:, 0]
        for batch in ("sources", "operands", "unrelated"):
            inputs = known.pairs.batch(batch).inputs
            computed = {of: capture(one, inputs, at.places)[1]
                        for of, one in (("target", at.model), *models.items())}
            for how, (of, each) in maps.items():
                edits = {place: _put(_mapped(each[place][0], computed[of][place], queries),
                                     context[:, None, :, None]) for place in at.places}
                hits = _rate(at, task, known, edits)
                rows.append({
                    "direction": name, "map": how, "from": BOTH if batch == "sources" else batch,
                    "r2": float(np.mean([each[place][1] for place in at.places])),
                    **_interval(hits, known, seed)})
    return pd.DataFrame(rows)


def _mapped(by: Callable[[Tensor], Tensor], codes: Tensor, queries: Tensor) -> Tensor:
    """Return codes [B, H, Q, K] of which those of some queries are mapped, [B, Q, K, H] each."""
    found = codes.clone()
    found[:, :, queries] = by(codes[:, :, queries].movedim(1, -1).double()).movedim(-1, 1).to(
        codes.dtype)
    return found


Map = tuple[Callable[[Tensor], Tensor], float]
"""A map of codes [B, Q, K, H], and how well it predicts others."""


def _fitted(
    at: _At, models: Mapping[str, Any], task: ChosenPairs, seed: int
) -> dict[str, tuple[str, dict[Place, Map]]]:
    """Return for each of `MAPS` whose codes it takes, and the map of each place."""
    pairs = task.unrestricted.sample("test", 2 * N_FITTED, make_generator(seed, "maps", "cpu"))
    context = task.place("context", pairs)[0]
    codes = {of: {place: x[:, :, context] for place, x in capture(
        model, pairs.bases.inputs, at.places)[1].items()}
        for of, model in (("target", at.model), *models.items())}
    order = torch.randperm(N_FITTED, generator=make_generator(seed, "others", "cpu"))

    def fitted(
        make: Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]], of: str = "trained",
        shuffled: bool = False,
    ) -> tuple[str, dict[Place, Map]]:
        maps = {}
        for place in at.places:
            x, y = (codes[name][place].movedim(1, -1).double() for name in (of, "target"))
            found = make(x[:N_FITTED][order] if shuffled else x[:N_FITTED], y[:N_FITTED])
            maps[place] = found, _r2(found(x[N_FITTED:]), y[N_FITTED:])
        return of, maps

    itself: tuple[str, dict[Place, Map]] = (
        "target", {place: ((lambda x: x), float("nan")) for place in at.places})
    of_lines = [fitted(make, of, shuffled) for make in (_linear, _of_each_position)
                for of, shuffled in (("trained", False), ("untrained", False), ("trained", True))]
    return dict(zip(MAPS, (itself, fitted(_by_heads), *of_lines), strict=True))


def _linear(x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
    """Fit one map for all queries and keys to codes [N, Q, K, H]."""
    return _of_least_squares(_least_squares(x.flatten(0, 2), y.flatten(0, 2)))


def _of_each_position(x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
    """Fit a map for each query and key."""
    by_position = (z.movedim(0, 2) for z in (x, y))  # [Q, K, N, H]
    return _of_least_squares(_least_squares(*by_position))


def _least_squares(x: Tensor, y: Tensor) -> Tensor:
    """Return weights [..., H + 1, H] of y [..., N, H] from x, the last row the bias.

    A little ridge (1e-3 of the mean variance) keeps heads that never differ from mattering.
    """
    x = torch.cat([x, torch.ones_like(x[..., :1])], -1)
    square = x.mT @ x
    ridge = 1e-3 * square.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    eye = torch.eye(square.shape[-1], dtype=x.dtype)
    return torch.linalg.solve(square + ridge * eye, x.mT @ y)


def _of_least_squares(weights: Tensor) -> Callable[[Tensor], Tensor]:
    def apply(codes: Tensor) -> Tensor:  # [B, Q, K, H]
        return (codes[..., None, :] @ weights[..., :-1, :])[..., 0, :] + weights[..., -1, :]

    return apply


def _by_heads(x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
    x, y = x.flatten(0, 2), y.flatten(0, 2)
    match = match_heads(y.numpy(), x.numpy())
    order, sign = torch.from_numpy(match.order), torch.from_numpy(match.sign)
    ours = x[:, order] * sign
    scale = y.std(0) / ours.std(0).clamp_min(1e-12)
    return lambda codes: (codes[..., order] * sign - ours.mean(0)) * scale + y.mean(0)


def _r2(predicted: Tensor, codes: Tensor) -> float:
    """Return the share of the variance at each query and key that is predicted."""
    left, whole = (codes - predicted).square().sum(), (codes - codes.mean(0)).square().sum()
    return float(1 - left / whole)


def carried_between(runs: list[Run], seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return `carried` of every pair of seeds: of codes of `other` that are put into `run`."""
    return {"carried": pd.concat([
        carried(source, target, seed).assign(kind=kind_of(target.config.model), run=target.name,
                                             other=source.name)
        for source, target in pairs_of_seeds(runs)], ignore_index=True)}


def pairs_of_seeds(runs: list[Run]) -> Iterator[tuple[Run, Run]]:
    """Yield every ordered pair of runs of a kind whose codes carry the operation."""
    for source in runs:
        for target in runs:
            if (source.id != target.id and carrier(target)[0] == "code"
                    and kind_of(source.config.model) == kind_of(target.config.model)):
                yield source, target
