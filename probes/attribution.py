"""Which codes and values does the source's answer hang on? Attribution, checked by patches.

The effect of writing a source's activation is estimated as (d step / d a) (a_source - a), where

    gradient  the derivative is taken at the base: attribution patching
    path      it is the mean over points on the way from the base's activations at all places
              of the site to the source's (integrated gradients): the estimates sum to the effect of
              writing all of them, up to the number of points

and `step` says how far an answer went towards the source's. A place is a layer, a query and a key,
which go by the roles of their tokens (`latentcode.probes.interventions.estimates`).

Of z, of what MLPs put out and of the residual stream every layer, token and head is a place of its
own: the map of activation patching (`latentcode.probes.attribution_maps`).

How few places carry the answer? Places are added in order of attribution until the share of answers
that become the source's is SHARE of what writing all places brings; then, from the least important
on, each that is not needed for that is taken out again. That is greedy: a smaller set may do as
much. One half of the instances says which places these are, the other half what they bring, which
may be less than SHARE.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from matplotlib.ticker import NullLocator, ScalarFormatter
from scipy.stats import rankdata
from torch import Tensor

from latentcode.devices import checked_seed, make_generator
from latentcode.errors import ProbeError, check, check_count, chosen
from latentcode.figures.panels import heat_map, signed_norm
from latentcode.figures.style import GREY, PALETTE, Figure
from latentcode.models.hooks import attention_layers, locked
from latentcode.models.patched.passes import unshared
from latentcode.models.patched.sites import check_written
from latentcode.probes.attribution_maps import (
    ACTIVATIONS,
    activations,
    activations_figure,
    sentences,
    summary_row,
)
from latentcode.probes.common.figures import layers_in, panels, reach
from latentcode.probes.common.results import TableResult, where, with_interval
from latentcode.probes.common.statistics import (
    LEVEL,
    NONE,
    Contrasts,
    check_bootstrap,
    cluster_sums,
    contrast_columns,
    mean_and_interval,
    percentile_interval,
    resample,
)
from latentcode.probes.interventions.estimates import MAPPED, Known, Patched, Setting, rate_of
from latentcode.progress import Progress, watched
from latentcode.subjects import subject as opened
from latentcode.tasks.counterfactuals import Counterfactuals

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

ATTRIBUTED = ("code", "value")
"""Sites that can be attributed to."""
METHODS = ("path", "gradient")
"""Sets are made in the order of the first."""
RANDOM_ORDERS = 3
"""Orders of places that the rates of random sets are means over."""
AMONG = ("all", "strongest", "random")
"""Which of the places that were patched a correlation is over."""
SHARE = 0.9
"""Share of the effect of all places that a set has to have where it is chosen."""
LEAST_RATE = 0.2
"""No set is looked for where the interval of the rate of all places does not lie above this."""
PLACE: tuple[str, ...] = ("site", "layer", "query", "key")
"""Columns that name a place; a value has no query."""
LEAST_PLACES = 20
"""A correlation over fewer places is not shown."""
ESTIMATES: tuple[str, ...] = ("path", "path_absolute", "gradient", "gradient_absolute")
IN_GRID = r"row(\d+)\.panel(\d+) (.+)"
"""How a role says in which panel of a grid its token is."""
OWN = "own"
"""The feature that is asked about."""
COLORS = {"path": PALETTE[0], "gradient": PALETTE[1], "random": GREY}


@watched("passes")
def attribute(
    model: Model,
    problems: Problems | Counterfactuals = None,
    source: str | None = None,
    *,
    sites: Sequence[str] | str = ATTRIBUTED,
    split: Split = "ood",
    n: int | None = None,
    n_patched: int = 200,
    n_points: int | None = None,
    n_checked: int | None = None,
    n_ranked: int = 200,
    among: str = "vocabulary",
    step: int | None = None,
    batch_size: int | None = None,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> AttributionResult:
    """Attribute the source's answer to codes, values and other activations.

    The attribution to codes is (d step / d a) (a_source - a), what writing the source's codes there
    would do to `step` if that were linear, for all codes at once
    (`latentcode.probes.interventions.estimates`). Intervals are 95 %, clustered by combination.

    Of the sites `z`, `mlp_out` and `residual` the result has `activations`: every layer, token and
    head with its estimate (attribution patching; N. Nanda, 2023), and the largest and some random
    ones patched exactly, beside the activations of a control (`control_source`).

    Args:
        model: See `subject`.
        problems: See `subject`; of prompts minimal pairs, or a factorial, with the columns that
            `PromptCounterfactuals` lists; default: the run's own task. Or the pairs of a model in
            hand, which has `cfg` and `run_with_hooks` (`make_counterfactuals(make_task(...))`).
        source: Whose activations would be put in: `operation+operands`, another source of a
            factorial (`latentcode.tasks.counterfactuals`), or `interchange`, the minimal pair's;
            default: operation+operands, without a factorial interchange.
        sites: Some of `code`, `value`, `z` (what heads put out), `mlp_out`, `residual` (what enters
            a layer).
        split: Problems that the attributions are means over.
        n: Problems drawn; those count which the model answers rightly, sources included; default:
            2,000, of prompts all, each of which is a base at most once.
        n_patched: How many of them single places and sets are patched in.
        n_points: Points on the way to the source at which the gradient is taken; of z, mlp_out and
            residual on the way of what enters the first layer (integrated gradients of inputs;
            Hanna et al., arXiv 2403.17806), 0: at the base alone. Default: 4, of these sites 0.
        n_checked: Places of a site that are patched singly: so many of the largest estimates, and
            random others; default: 40, of z, mlp_out and residual 10.
        n_ranked: Places, by attribution, of which a small set is made.
        among: Of prompts: whether the model's answer is the likeliest token of the `vocabulary` or
            the likelier of the two `answers`.
        step: The checkpoint of a run; default: the newest.
        batch_size: Problems at once; default: 250, of prompts 32.
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of everything that is drawn.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (passes through the model done, most that there can be).

    Raises:
        LatentCodeError: What `subject` raises.
        ConfigError: The problems have no minimal pairs, or an argument does not fit the task or the
            model.
        ProbeError: Fewer than four instances count; of z, mlp_out and residual alone: none.
    """
    seed, sites = checked_seed(seed), chosen("site", sites, (*ATTRIBUTED, *MAPPED))
    of_codes = [site for site in sites if site in ATTRIBUTED]
    n_points = (4 if of_codes else 0) if n_points is None else n_points
    n_single = {site: (10 if site in MAPPED else 40) if n_checked is None else n_checked
                for site in sites}
    network: Any = model
    settings: Mapping[str, Any] = {}
    if isinstance(problems, Counterfactuals):
        task = problems
        n, batch_size = 2_000 if n is None else n, batch_size or 250
    else:
        subject = opened(model, problems, step=step, device=device, batch_size=batch_size)
        network, task = subject.model(), subject.counterfactuals(among=among)
        settings = {**subject.settings, **({} if among == "vocabulary" else {"among": among})}
        n, batch_size = subject.n_of("n", n, 2_000, split), subject.patched_at_once
        split = split if subject.has_splits else "prompts"
    if source is None:
        source = "operation+operands" if task.factorial else "interchange"
    rate = rate_of(task, source)
    for name, value, least in (("n_patched", n_patched, 4),
                               ("n_points", n_points, 1 if of_codes else 0),
                               ("n_checked", min(n_single.values()), 1),
                               ("n_ranked", n_ranked, 1)):
        check_count(name, value, least)
    check_bootstrap(n_bootstrap)
    layers = attention_layers(network)
    every = tuple(range(network.cfg.n_layers))
    # Of a map alone as many passes would go into the trial of every layer as into the map.
    tried = None if of_codes else sorted({0, every[-1] // 2, every[-1]})
    setting = Setting(
        network, task, source, [(site, layer) for site in sites for layer in (
            every if site in ("mlp_out", "residual") else layers)],
        n_points, shared=not unshared(network, tried))
    total = -(-n // batch_size) + sum(
        2 * n_single[site] + (2 * n_ranked + 64 if site in ATTRIBUTED else n_single[site])
        for site in sites)
    passes = count(1)

    def advance() -> None:
        if progress is not None:
            progress(min(next(passes), total), total)

    def write(instances: Patched, site: str, places: np.ndarray) -> np.ndarray:
        """Return the step and whether the answer became the source's, [instance, 2]."""
        both = np.stack(instances.written(site, places), 1)
        advance()
        return both

    tables: dict[str, list[pd.DataFrame]] = {name: [] for name in AttributionResult.COLUMNS}
    low: dict[str, float] = {}
    with locked(network), task.reading(network):
        patched, sums, roles, labels, n_known = _attributed(
            setting, split, n, n_patched, batch_size, seed, advance)
        for site in [site for site in sites if site in MAPPED]:
            table, (estimates, effects, strongest) = activations(
                patched, site, labels, n_single[site], n_bootstrap, seed, advance)
            tables["activations"].append(table)
            tables["correlations"].append(pd.DataFrame(_agreement(
                site, estimates, effects, strongest, patched.combinations(), n_bootstrap, seed)))
        for site in of_codes:
            places = named(site, roles, layers)
            n_heads = sums["path", site][0].shape[1]
            maps, heads = places.copy(), places.merge(pd.Series(range(n_heads), name="head"),
                                                      how="cross")
            for method in METHODS:
                signed, absolute, absolute_place = sums[method, site]
                for column, of_place, of_head in (
                        (method, signed.sum(1), signed),
                        (f"{method}_absolute", absolute_place, absolute)):
                    maps[column] = of_place.flatten().numpy() / n_known
                    # A number per head, of which there are many, is kept with seven digits.
                    heads[column] = (of_head.transpose(1, 2).flatten() / n_known).numpy().astype(
                        np.float32)
            patches, correlations = _checked(
                patched, site, places, n_single[site], n_bootstrap, seed, write)
            of_sets, low[site] = _sets(patched, site, places, n_ranked, n_bootstrap, seed, write)
            for name, table in {"maps": maps, "heads": heads, "patches": patches,
                                "correlations": correlations, **of_sets}.items():
                tables[name].append(table)
    if progress is not None:
        progress(total, total)
    return AttributionResult.from_rows(tables, {
        **settings, "source": source, "rate": rate,
        "symbolic": task.symbolic, "sites": list(sites), "split": split, "n": n,
        "n_known": n_known, "n_patched": len(patched), "n_points": n_points,
        "n_checked": n_single, "n_ranked": n_ranked, "seed": seed, "batch_size": batch_size,
        "n_bootstrap": n_bootstrap, "level": LEVEL, "share": SHARE, "least_rate": LEAST_RATE,
        "searched_low": low, "roles": list(roles), "labels": list(labels),
        "control": patched.batches[0].control, "n_layers": len(layers)})


def _attributed(
    setting: Setting, split: str, n: int, n_patched: int, batch_size: int, seed: int,
    advance: Callable[[], None],
) -> tuple[Patched, dict[tuple[str, str], list[Tensor]], tuple[str, ...], tuple[str, ...], int]:
    """Return the first instances that count, sums over all, names and labels of the roles, and how
    many count.

    The sums by method and site are those of the estimates [layer, head, cell], of their sizes, and
    of the sizes of their sums over heads [layer, cell].
    """
    sums: dict[tuple[str, str], list[Tensor]] = {}
    kept: list[Known] = []
    roles: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    sites = {site for site, _ in setting.places} - set(MAPPED)
    n_known = 0
    generator = make_generator(seed, f"interventions {split}",
                               next(setting.model.parameters()).device)
    for pairs in setting.task.batches(split, n, batch_size, generator):
        if not roles:
            check_written(setting.model, pairs.bases.inputs[:2], setting.places)
            roles, _ = setting.task.roles(pairs)
            labels = setting.task.role_labels(pairs)
        known = setting.known(pairs)
        if known is not None:
            n_known += len(known)
            for key in product(METHODS, sites):
                x = known.estimates(*key).double().cpu()  # [B, layer, head, cell]
                more = x.sum(0), x.abs().sum(0), x.sum(2).abs().sum(0)
                sums[key] = [before + added for before, added in zip(
                    sums.get(key, [torch.zeros(())] * 3), more, strict=True)]
            wanted = n_patched - sum(map(len, kept))
            if wanted > 0:
                kept.append(known[:wanted])
        advance()
    least = "four" if sites else "one"
    check(n_known >= (4 if sites else 1), f"of {n} instances of {split}, the model answers "
          f"{n_known} and their sources rightly; expected at least {least}. Is it trained, and n "
          f"large enough?{setting.task.doubt}", ProbeError)
    return Patched(setting, kept), sums, roles, labels, n_known


Write = Callable[[Patched, str, np.ndarray], np.ndarray]
"""Writes places of a site into instances; returns the step and whether the answer became the
source's, [instance, 2]."""


def _checked(
    patched: Patched, site: str, names: pd.DataFrame, n: int, n_bootstrap: int, seed: int,
    write: Write,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return single patches beside their estimates, and the correlations of the two.

    Patched are the n places of largest |estimate|, every method giving its strongest in turn, and n
    random ones of the others whose estimates are not exactly 0, as they are where nothing leads
    from a place to the answer.

    names  `site`, `layer`, `query` and `key` of every place
    """
    estimates = np.stack([patched.estimates(method, site) for method in METHODS])
    means, combination = estimates.mean(1), patched.combinations()  # means [method, place]
    ranks = np.argsort(np.argsort(-np.abs(means), axis=1, kind="stable"), axis=1)
    order = np.argsort(ranks.min(0), kind="stable")
    others = order[n:][(means[:, order[n:]] != 0.0).any(0)]
    places = np.concatenate([order[:n], np.random.default_rng(seed).permutation(others)[:n]])
    group = np.where(np.arange(len(places)) < len(order[:n]), "strongest", "random")
    effects, flipped = np.stack(
        [write(patched, site, np.array([place])) for place in places]).T  # [N, place]
    estimates = estimates[:, :, places]
    effect, low, high, _ = mean_and_interval(effects, combination, n_bootstrap, seed)
    table = names.iloc[places].assign(
        chosen=group, **dict(zip(METHODS, means[:, places], strict=True)), effect=effect, low=low,
        high=high, rate=flipped.mean(0), n=len(effects))
    rows = _agreement(site, dict(zip(METHODS, estimates, strict=True)), effects,
                      group == "strongest", combination, n_bootstrap, seed)
    return table, pd.DataFrame(rows)


def _agreement(
    site: str, estimates: Mapping[str, np.ndarray], effects: np.ndarray, strongest: np.ndarray,
    combination: np.ndarray, n_bootstrap: int, seed: int,
) -> list[dict[str, object]]:
    """Return the correlations of estimates by method and effects [N, place], over all places, the
    strongest (bool [place]) and the random ones."""
    return [
        {"site": site, "estimate": method, "among": among, **row, "n_places": int(which.sum()),
         "n": len(effects)}
        for among, which in zip(AMONG, (np.full(len(strongest), True), strongest, ~strongest),
                                strict=True)
        for method, estimate in estimates.items() if which.sum() > 2
        for row in _correlations(
            estimate[:, which], effects[:, which], combination, n_bootstrap, seed)]


def _correlations(
    estimates: np.ndarray, effects: np.ndarray, combination: np.ndarray, n_bootstrap: int,
    seed: int,
) -> Iterator[dict[str, object]]:
    """Yield how the means over instances [N, place] of both go together over places."""
    both, _ = cluster_sums(np.stack([estimates, effects], 1), combination)
    # Sums and means are as correlated.
    weights = resample(len(both), n_bootstrap, np.random.default_rng(seed))
    drawn = np.tensordot(np.concatenate([np.ones((1, len(both))), weights]), both, axes=1)
    for measure, x in (("pearson", drawn), ("spearman", rankdata(drawn, axis=-1))):
        a, b = np.moveaxis(x - x.mean(-1, keepdims=True), 1, 0)
        norm = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
        r = (a * b).sum(-1) / np.where(norm > 0, norm, np.nan)  # NaN where one is constant
        low, high = percentile_interval(r[1:], len(both))
        yield {"measure": measure, "value": float(r[0]), "low": float(low), "high": float(high)}


def _sets(
    patched: Patched, site: str, names: pd.DataFrame, n_ranked: int, n_bootstrap: int, seed: int,
    write: Write,
) -> tuple[dict[str, pd.DataFrame], float]:
    """Return what sets of growing size bring, and a small one that brings most of it; and the
    lower end of the interval of what all places bring, where the set was chosen."""
    searched, held = patched.every_second(0), patched.every_second(1)
    estimates = {method: searched.estimates(method, site).mean(0) for method in METHODS}
    ranked = {method: np.argsort(-x, kind="stable") for method, x in estimates.items()}
    rng, n_places = np.random.default_rng(seed), len(names)
    orders = {**{method: [order] for method, order in ranked.items()},
              "random": [rng.permutation(n_places) for _ in range(RANDOM_ORDERS)]}
    combination = held.combinations()

    def measured(both: np.ndarray) -> dict[str, object]:
        mean, low, high, _ = mean_and_interval(both, combination, n_bootstrap, seed)
        return {"rate": mean[1], "low": low[1], "high": high[1], "step": mean[0],
                "step_low": low[0], "step_high": high[0], "n": len(both)}

    of_sets = {
        (name, size): np.mean([write(held, site, order[:size]) for order in several], axis=0)
        for name, several in orders.items() for size in doublings(n_places)}
    curve = [{"site": site, "order": name, "size": size, **measured(both)}
             for (name, size), both in of_sets.items()]
    contrasts = []
    for (name, size), both in of_sets.items():
        if name != "random" and size < n_places:
            value, low, high, n_clusters = mean_and_interval(
                both - of_sets["random", size], combination, n_bootstrap, seed)
            contrasts += [
                {"site": site, "size": size, "order": name, "quantity": quantity,
                 "against": "random", "value": value[i], "low": low[i], "high": high[i],
                 "n": len(both), "n_clusters": n_clusters}
                for i, quantity in ((1, "rate"), (0, "step"))]

    all_rate, low, _, _ = mean_and_interval(
        write(searched, site, ranked["path"])[:, 1], searched.combinations(), n_bootstrap, seed)

    def rate(places: np.ndarray) -> float:
        return float(write(searched, site, places)[:, 1].mean())

    row: dict[str, object] = {"site": site, "n_places": n_places, "searched_all": float(all_rate),
                              "held_all": curve[-1]["rate"]}
    chosen = names.iloc[:0].assign(path=[])
    smallest = smallest_set(rate, ranked["path"][:n_ranked], SHARE * float(all_rate)) if (
        low > LEAST_RATE) else None
    if smallest is not None:
        kept, size = smallest
        row |= {"size": len(kept), "before_pruning": size, "searched": rate(kept),
                **measured(write(held, site, kept))}
        chosen = names.iloc[kept].assign(path=estimates["path"][kept])
    return {"curve": pd.DataFrame(curve), "smallest": pd.DataFrame([row]), "chosen": chosen,
            "contrasts": pd.DataFrame(contrasts)}, float(low)


def smallest_set(
    rate: Callable[[np.ndarray], float], order: np.ndarray, wanted: float
) -> tuple[np.ndarray, int] | None:
    """Return a set of places whose rate is at least `wanted`, after pruning, and its size before.

    rate   of a set of places
    order  the places that may be in it, the one that attribution ranks first before the others

    None where all of them do not reach it.
    """
    of_first = cache(lambda size: rate(order[:size]))
    size = next((size for size in doublings(len(order)) if of_first(size) >= wanted), None)
    if size is None:
        return None
    low = size // 2  # did not reach it, or is 0
    while size - low > 1:
        middle = (low + size) // 2
        low, size = (low, middle) if of_first(middle) >= wanted else (middle, size)
    kept = order[:size]
    for place in kept[::-1] if size > 1 else ():
        without = kept[kept != place]
        if len(without) and rate(without) >= wanted:
            kept = without
    return kept, size


def doublings(last: int) -> list[int]:
    """Return 1, 2, 4, ... and `last`."""
    return [*(2**i for i in range(last.bit_length()) if 2**i < last), last]


def named(site: str, roles: Sequence[str], layers: Sequence[int]) -> pd.DataFrame:
    """Return `site`, `layer`, `query` and `key` of every place, in order; a value has no query."""
    queries = roles if site == "code" else [""]
    return pd.MultiIndex.from_product([[site], layers, queries, roles], names=PLACE).to_frame(
        index=False)


@dataclass(frozen=True, repr=False)
class AttributionResult(TableResult):
    """Where the codes and values are that the source's answer hangs on.

    Places are named by the roles of query and key. Estimates are in the unit of the step towards
    the source's answer: nats where answers are symbols, the answer's own where they are numbers.

    maps     one row per place, all heads together: the mean estimate over instances by `path`
             and by `gradient`, and the means of their sizes, `path_absolute` and
             `gradient_absolute`
    heads    the same per head
    patches  places that were written singly (`chosen`: as one of the strongest, or at random):
             both estimates, and the real `effect` with its interval; `rate`, the share of answers
             that became the source's
    correlations  of either estimate and the effect over these places
    curve    of sets that grow in the order of either estimate, or in a random one of all places,
             also of those that nothing hangs on: `rate` and `step` with intervals, over the
             instances that took no part in any choice
    smallest one row per site: the rate of writing all places, on the instances that the set was
             chosen on (`searched_`) and on the others (`held_`); the `size` of a small set, and
             `before_pruning`; its rate on the first, `searched`, and on the others, with
             interval. It is found greedily, and a smaller one may do as much. NaN where none was
    chosen   the places of that set, and their estimates by path
    contrasts  of sets of one size: what those in the order of an estimate bring (`rate`, `step`)
             less what those in a `random` order do
    activations  of z, mlp_out and residual, one row per `site`, `layer`, `position` (the token of
             prompts of one template, else its role) and `head` (of z): the estimates `gradient`,
             with its interval, and `path`, that of the control's activations (`control_gradient`);
             of those that were patched (`chosen`: `strongest` or `random`) the real `effect` with
             its interval and `rate`; of the strongest that of the control's activations there,
             `control`, and the `difference` of both, with intervals
    settings everything else that determines the numbers
    """

    FORMAT = "latentcode.attribution"
    CAPTION = "how well linear estimates do, and how few places suffice"
    COLUMNS: ClassVar = {
        "maps": (*PLACE, *ESTIMATES),
        "heads": (*PLACE, "head", *ESTIMATES),
        "patches": (*PLACE, "chosen", "path", "gradient", "effect", "low", "high", "rate", "n"),
        "correlations": ("site", "estimate", "among", "measure", "value", "low", "high",
                         "n_places", "n"),
        "curve": ("site", "order", "size", "rate", "low", "high", "step", "step_low", "step_high",
                  "n"),
        "smallest": ("site", "n_places", "searched_all", "held_all", "size", "before_pruning",
                     "searched", "rate", "low", "high", "step", "step_low", "step_high", "n"),
        "chosen": (*PLACE, "path"),
        "activations": ACTIVATIONS,
        "contrasts": contrast_columns("site", "size", "order")}
    BEST_PER: ClassVar = ("size",)
    HEADLINE_ROWS: ClassVar = {"quantity": ("rate",)}

    maps: pd.DataFrame
    heads: pd.DataFrame
    patches: pd.DataFrame
    correlations: pd.DataFrame
    curve: pd.DataFrame
    smallest: pd.DataFrame
    chosen: pd.DataFrame
    activations: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def sites(self) -> list[str]:
        """Those of codes and values that were asked about."""
        return [site for site in self.settings["sites"] if site in ATTRIBUTED]

    def said(self) -> list[str]:
        return [*(super().said() if self.sites else ()), *sentences(
            self.activations, self.correlations, self.settings["control"])]

    def sought(self, small: Mapping[Any, Any]) -> bool:
        """Say of a row of `smallest` whether a set is looked for: do all places bring enough?"""
        return bool(self.settings["searched_low"][small["site"]] > self.settings["least_rate"])

    @property
    def caveats(self) -> tuple[str, ...]:
        s = self.settings
        notes = [f"{s['n_known']} of {s['n']} instances count, which the model and its sources "
                 f"answer rightly; {s['n_patched']} of them are written into."]
        for row in self.smallest.to_dict("records"):
            everything = (f"All {row['site']}s bring the source's answer in "
                          f"{row['searched_all']:.2f}")
            if not self.sought(row):
                notes.append(f"{everything}, not surely more than {s['least_rate']}: no set is "
                             "looked for.")
            elif np.isnan(row["size"]):
                notes.append(f"{everything}, and the first {min(s['n_ranked'], row['n_places'])} "
                             f"places do not bring {s['share']:.0%} of that.")
        return tuple(notes)

    def summary(self) -> pd.DataFrame:
        """Return per site the correlations, the rate of all places, and a small set's."""
        rows = []
        enough = self.correlations[self.correlations["n_places"] >= LEAST_PLACES]
        for small in self.smallest.to_dict("records"):
            row: dict[str, Any] = {"site": small["site"]}
            for r in where(enough, site=small["site"], among="all", measure="pearson").itertuples():
                row[f"r of {r.estimate}"] = with_interval(r)
            row |= {"places": small["n_places"], "all": f"{small['held_all']:.2f}"}
            if self.sought(small) and not np.isnan(small["size"]):
                # The part of what all places bring that the set brings, where it was not chosen.
                share = small["rate"] / small["held_all"] if small["held_all"] else np.nan
                row |= {"small set": int(small["size"]), "its rate": with_interval(
                    pd.Series(small), "rate"), "of all": f"{share:.0%}"}
            rows.append(row)
        for site, table in self.activations.groupby("site", sort=False):
            rows.append({"site": site, "places": len(table), **summary_row(table), **{
                f"r of {r.estimate}": with_interval(r) for r in where(
                    enough, site=site, among="all", measure="pearson").itertuples()}})
        return pd.DataFrame(rows, dtype=object).fillna("")

    def figure(self) -> Figure:
        """Return the mean attribution by path, signed, a column per layer; of z, mlp_out and
        residual alone `activations_figure`.

        Of roles in a grid: a block per query panel, in it a cell per key panel; first the codes
        from tokens of the feature that is asked about to others of it, then all the rest; values
        below.
        """
        if not self.sites:
            return self.activations_figure()
        maps, settings = self.maps, self.settings
        grid = all(re.fullmatch(IN_GRID, role) for role in settings["roles"])
        rows = [row for site in self.sites
                for row in _rows(where(maps, site=site), site, grid)]
        layers = layers_in(maps)
        with panels(len(rows), len(layers), 2.1 * len(layers) + 1.3, 2.05 * len(rows) + 0.4,
                    f"{settings.get('kind', 'model')}: attribution to the source's answer "
                    f"({settings['source']})") as (figure, axes):
            for (name, table), line in zip(rows, axes, strict=True):
                matrices = {layer: _matrix(where(table, layer=layer), grid) for layer in layers}
                norm = signed_norm(np.concatenate([
                    matrix.to_numpy().ravel() for matrix in matrices.values()]))
                for layer, ax in zip(layers, line, strict=True):
                    drawn = heat_map(ax, matrices[layer], norm, fontsize=6.5)
                    ax.set_box_aspect(1.0 if len(matrices[layer]) > 1 else 0.25)
                    if grid:  # lines between blocks of codes, between cells of values
                        ax.set(xticks=[], yticks=[])
                        n_blocks = table["key"].str.extract(IN_GRID)[0].nunique()
                        size = len(matrices[layer]) // n_blocks
                        for edge in range(size, n_blocks * size, size):
                            ax.axhline(edge - 0.5, color="black", linewidth=0.8)
                            ax.axvline(edge - 0.5, color="black", linewidth=0.8)
                line[0].set_ylabel(name, fontsize=8.0)
                figure.colorbar(drawn, ax=list(line), fraction=0.03, pad=0.01).ax.tick_params(
                    labelsize=6.5)
            for layer, ax in zip(layers, axes[0], strict=True):
                ax.set_title(f"layer {layer}")
        return figure

    def sets_figure(self) -> Figure:
        """Return per site estimates against real effects, and how the rate grows with a set."""
        settings = self.settings
        with panels(len(self.sites), 2, 7.4, 2.7 * len(self.sites),
                    str(settings.get("kind", ""))) as (figure, grid):
            for site, (left, right) in zip(self.sites, grid, strict=True):
                patches = where(self.patches, site=site)
                for method in reversed(METHODS):
                    left.errorbar(patches[method], patches["effect"],
                                  yerr=reach(patches, "effect"), linestyle="", marker="o",
                                  markersize=3.0, elinewidth=0.8, label=method,
                                  color=COLORS[method])
                ends = [patches["effect"].min(), patches["effect"].max()]
                left.plot(ends, ends, color="black", linewidth=0.7)
                left.set(xlabel="estimate", ylabel=f"{site}s: effect of a patch")
                left.legend()
                curve = where(self.curve, site=site)
                for order, rows in curve.groupby("order", sort=False):
                    color = COLORS[str(order)]
                    right.fill_between(rows["size"], rows["low"], rows["high"], alpha=0.2,
                                       color=color, linewidth=0.0)
                    right.plot(rows["size"], rows["rate"], marker=".", color=color,
                               label=f"{order} order")
                small, = where(self.smallest, site=site).to_dict("records")
                right.axhline(settings["share"] * small["held_all"], color="black", linewidth=0.7,
                              linestyle="--")
                right.plot([small["size"] if self.sought(small) else np.nan], [small["rate"]],
                           marker="*", markersize=9, linestyle="", color=PALETTE[3],
                           label="small set")
                right.set(xscale="log", xlabel="places", ylabel=f"rate: {settings['rate']}",
                          ylim=(-0.02, 1.02))
                sizes = np.unique(curve["size"])
                right.set_xticks(sizes[::1 + len(sizes) // 8], minor=False)
                right.xaxis.set_major_formatter(ScalarFormatter())
                right.xaxis.set_minor_locator(NullLocator())
                right.legend(fontsize=7.0)
        return figure

    def figures(self) -> dict[str, Figure]:
        """Return the maps, and how sets grow beside the check by single patches."""
        more = {"sets.png": self.sets_figure()} if self.sites else {}
        if self.sites and len(self.activations):
            more["activations.png"] = self.activations_figure()
        return super().figures() | more

    def activations_figure(self) -> Figure:
        """Return maps of the estimates side by side: layer by position, of z layer by head."""
        return activations_figure(self.activations, f"{self.settings.get('kind', 'model')}: "
                                  f"attribution to the source's answer ({self.settings['source']})")


def _rows(maps: pd.DataFrame, site: str, grid: bool) -> list[tuple[str, pd.DataFrame]]:
    """Return the tables that are drawn of a site, a row of the figure each, by name."""
    if not grid:
        return [(f"{site}s: query, key" if site == "code" else f"{site}s of keys", maps)]
    own = maps["key"].str.endswith(f" {OWN}")
    names = "values, own feature", "values, other features"
    if site == "code":
        own &= maps["query"].str.endswith(f" {OWN}")
        names = "codes, own to own\n(block: query, cell: key)", "codes, all others"
    return [(name, maps[rows]) for name, rows in zip(names, (own, ~own), strict=True) if rows.any()]


def _matrix(table: pd.DataFrame, grid: bool) -> pd.DataFrame:
    """Return the attributions of a layer as they are drawn, summed over what is drawn as one."""
    is_code = (table["site"] == "code").all()
    if not grid:
        return (table.pivot(index="query", columns="key", values="path") if is_code else
                pd.DataFrame([table["path"].to_numpy()], [""], list(table["key"])))
    places = [table[role].str.extract(IN_GRID)[[0, 1]].astype(int).to_numpy()
              for role in (("query", "key") if is_code else ("key",))]
    matrix = pd.crosstab([place[:, 0] for place in places], [place[:, 1] for place in places],
                         table["path"].to_numpy(), aggfunc="sum")
    return pd.DataFrame(matrix.to_numpy(), [""] * len(matrix), [""] * len(matrix))
