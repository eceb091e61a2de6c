"""Which codes of a model does the answer hang on? Attribution, checked by patches; a small set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.arguments import as_tuple
from latentcode.errors import ConfigError, ProbeError, check, check_choice, check_count
from latentcode.models.layers import attention_layers
from latentcode.models.modes import locked
from latentcode.models.patched.passes import unshared
from latentcode.models.patched.sites import check_written
from latentcode.probes.attribution.checking import LEAST_RATE, SHARE, Search, checked, doublings
from latentcode.probes.attribution.instances import Known, Patched, Setting
from latentcode.probes.attribution.result import METHODS, AttributionResult
from latentcode.probes.attribution.steps import ATTRIBUTED, default_source, named, rate_of
from latentcode.probes.common.bootstrap import mean_and_interval
from latentcode.probes.common.contrasts import Contrasts
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed, make_generator
from latentcode.subjects import subject
from latentcode.tasks.counterfactuals import Counterfactuals

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

RANDOM_ORDERS = 3
"""Orders of places that the rates of random sets are means over."""


@watched("passes")
def attribute_model(
    model: Any,
    task: Counterfactuals,
    source: str | None = None,
    *,
    sites: Sequence[str] | str = ATTRIBUTED,
    split: str = "ood",
    n: int = 2_000,
    n_patched: int = 200,
    n_points: int = 4,
    n_checked: int = 40,
    n_ranked: int = 200,
    seed: int = 0,
    batch_size: int = 250,
    n_bootstrap: int = 1_000,
    meta: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> AttributionResult:
    """Which codes does it hang on that the answer becomes the source's?

    The attribution to codes is (d step / d a) (a_source - a), what writing the source's codes there
    would do to `step` (`latentcode.probes.attribution.steps`) if that were linear, for all codes
    at once. The derivative is taken at the base, and as a mean along the way to the source.

    model   anything with `cfg` and `run_with_hooks`: ours, or one of TransformerLens
    task    the bases, sources and answers: `make_counterfactuals(make_task(...))`
    source  which source: one of a factorial with an answer of its own, or `interchange`, the
            minimal pair's; default: `operation+operands` of a factorial, else `interchange`
    sites   `code`, a place being a layer, query and key, and `value`, a layer and key
    n       instances drawn; those count that `intervene_model` would count
    n_patched  how many of them single places and sets are written into
    n_points   on the way to the source at which the gradient is taken
    n_checked  places that are written singly: so many of the largest estimates, and random others
    n_ranked   of how many places, by attribution, a small set is made
    progress   called with (passes through the model done, most that there can be)

    Intervals are 95 %, clustered by combination. Raises `ConfigError` (with the choices) for what
    does not fit the task or the model, `ProbeError` when fewer than four instances count.
    """
    seed, sites = checked_seed(seed), as_tuple(sites)
    source = default_source(task) if source is None else source
    _check(task, source, sites, n=n, n_patched=n_patched, n_points=n_points,
           n_checked=n_checked, n_ranked=n_ranked, batch_size=batch_size, n_bootstrap=n_bootstrap)
    layers = attention_layers(model)
    setting = Setting(model, task, source, [(s, layer) for s in sites for layer in layers],
                      n_points, shared=not unshared(model))
    n_batches = -(-n // batch_size)
    passes = iter(range(1, 10**9))

    def advance() -> None:
        if progress is not None:
            progress(min(next(passes), total), total)

    total = n_batches + len(sites) * (2 * n_checked + 2 * n_ranked + 64)
    found: dict[str, list[pd.DataFrame]] = {name: [] for name in AttributionResult.COLUMNS}
    with locked(model), task.reading(model):
        kept, sums, roles = _attributed(setting, split, n, n_patched, batch_size, seed, advance)
        patched = Patched(setting, kept)
        for site in sites:
            names = named(site, roles, layers)
            for name, table in _means({m: sums[m, site] for m in METHODS}, names).items():
                found[name].append(table)
            patches, correlations = checked(patched, site, names, n=n_checked,
                                            n_bootstrap=n_bootstrap, seed=seed, advance=advance)
            found["patches"].append(patches)
            found["correlations"].append(correlations)
            for name, table in _sets(patched, site, names, n_ranked, n_bootstrap, seed,
                                     advance).items():
                found[name].append(table)
    if progress is not None:
        progress(total, total)
    settings = {
        **(dict(meta) if meta else {}), "source": source, "rate": rate_of(task, source),
        "symbolic": task.symbolic, "sites": list(sites), "split": split, "n": n,
        "n_known": next(iter(sums.values())).n, "n_patched": len(patched), "n_points": n_points,
        "n_checked": n_checked, "n_ranked": n_ranked, "seed": seed, "batch_size": batch_size,
        "n_bootstrap": n_bootstrap, "level": 0.95, "share": SHARE, "least_rate": LEAST_RATE,
        "searched_low": {t["site"].iloc[0]: t["searched_low"].iloc[0] for t in found["smallest"]},
        "roles": list(roles), "n_layers": len(layers)}
    tables = {name: pd.concat([t for t in parts if len(t)] or parts, ignore_index=True)
              .reindex(columns=list(AttributionResult.COLUMNS[name]))
              for name, parts in found.items()}
    contrasts = Contrasts(tables.pop("contrasts"))
    return AttributionResult(**tables, contrasts=contrasts, settings=settings)


def _check(
    task: Counterfactuals, source: str, sites: Sequence[str], *, n_bootstrap: int, **numbers: int
) -> None:
    """Raise `ConfigError` for what cannot be asked, before anything is computed."""
    check(task.symbolic is not None, f"the pairs are {type(task).__name__}, which do not say what "
          "a model answers; expected symbolic and answer_token, as other Counterfactuals have them",
          ConfigError)
    rate_of(task, source)
    check(len(sites) > 0, "there are no sites; expected code, value or both", ConfigError)
    for site in sites:
        check_choice("site", site, ATTRIBUTED)
        check(sites.count(site) == 1, f"sites has {site} more than once; expected it once",
              ConfigError)
    for name, value in numbers.items():
        least = 4 if name in ("n", "n_patched", "batch_size") else 1
        check_count(name, value, least)
    check_count("n_bootstrap", n_bootstrap, 100)


class _Sums:
    """Means of attributions over instances, added up batch by batch."""

    def __init__(self) -> None:
        self.n = 0
        self.signed = self.absolute = self.absolute_place = torch.zeros(())

    def add(self, x: Tensor) -> None:
        """Add estimates [B, layer, head, cell]."""
        x = x.double().cpu()
        self.n += len(x)
        self.signed = self.signed + x.sum(0)
        self.absolute = self.absolute + x.abs().sum(0)
        self.absolute_place = self.absolute_place + x.sum(2).abs().sum(0)

    def of_places(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the means of estimates and of their sizes, [place] each."""
        return self._mean(self.signed, 1), self._mean(self.absolute_place)

    def of_heads(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the same of each head's part, [place, head] in one row."""
        return (self._mean(self.signed.transpose(1, 2)),
                self._mean(self.absolute.transpose(1, 2)))

    def _mean(self, x: Tensor, *summed: int) -> np.ndarray:
        return np.asarray((x.sum(summed) if summed else x).flatten() / self.n)


def _means(sums: Mapping[str, _Sums], names: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the mean estimates of every method by place, and by place and head."""
    columns: dict[str, dict[str, np.ndarray]] = {"maps": {}, "heads": {}}
    for method, of_method in sums.items():
        for table, both in (("maps", of_method.of_places()), ("heads", of_method.of_heads())):
            columns[table] |= dict(zip((method, f"{method}_absolute"), both, strict=True))
    n_heads = len(columns["heads"]["path"]) // len(names)
    each = names.loc[names.index.repeat(n_heads)].reset_index(drop=True)
    # A number per head, of which there are many, is kept with seven digits.
    heads = {name: x.astype(np.float32) for name, x in columns["heads"].items()}
    return {"maps": names.assign(**columns["maps"]),
            "heads": each.assign(head=np.tile(np.arange(n_heads), len(names)), **heads)}


def _attributed(
    setting: Setting, split: str, n: int, n_patched: int, batch_size: int, seed: int,
    advance: Callable[[], None],
) -> tuple[list[Known], dict[tuple[str, str], _Sums], tuple[str, ...]]:
    """Return the first instances that count, the sums of all, and the names of the roles."""
    device = next(setting.model.parameters()).device
    sums = {(method, site): _Sums() for method in METHODS for site, _ in setting.places}
    kept: list[Known] = []
    roles: tuple[str, ...] = ()
    generator = make_generator(seed, f"interventions {split}", device)
    for index, pairs in enumerate(setting.task.batches(split, n, batch_size, generator)):
        if index == 0:
            check_written(setting.model, pairs.bases.inputs[:2], setting.places)
            roles, _ = setting.task.roles(pairs)
        known = setting.known(pairs)
        if known is not None:
            for (method, site), total in sums.items():
                total.add(known.estimates(method, site))
            wanted = n_patched - sum(map(len, kept))
            if wanted > 0:
                kept.append(known[:wanted])
        advance()
    n_known = sum(map(len, kept))
    check(n_known >= 4, f"of {n} instances of {split}, the model answers {n_known} and their "
          "sources rightly; expected at least four. Is it trained, and n large enough?"
          f"{setting.task.doubt}", ProbeError)
    return kept, sums, roles


def _sets(
    patched: Patched, site: str, names: pd.DataFrame, n_ranked: int, n_bootstrap: int, seed: int,
    advance: Callable[[], None],
) -> dict[str, pd.DataFrame]:
    """Return what sets of growing size bring, and a small one that brings most of it."""
    searched, held = patched.every_second(0), patched.every_second(1)
    estimates = {method: searched.estimates(method, site).mean(0) for method in METHODS}
    ranked = {method: np.argsort(-x, kind="stable") for method, x in estimates.items()}
    rng, n_places = np.random.default_rng(seed), len(names)
    orders = {**{method: [order] for method, order in ranked.items()},
              "random": [rng.permutation(n_places) for _ in range(RANDOM_ORDERS)]}
    combination = held.combinations()

    def brought(sets: Sequence[np.ndarray]) -> np.ndarray:
        """Return the step and whether the answer became the source's, [instance, 2]."""
        both = np.mean([np.stack(held.written(site, places), 1) for places in sets], axis=0)
        advance()
        return np.asarray(both)

    def measured(both: np.ndarray) -> dict[str, object]:
        mean, low, high, _ = mean_and_interval(both, combination, n_bootstrap, seed)
        return {"rate": mean[1], "low": low[1], "high": high[1], "step": mean[0],
                "step_low": low[0], "step_high": high[0], "n": len(both)}

    of_sets = {(name, size): brought([order[:size] for order in several])
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
    search = Search(searched, site, ranked["path"], advance)
    _, flipped = searched.written(site, ranked["path"])
    advance()
    all_rate, low, _, _ = mean_and_interval(flipped, searched.combinations(), n_bootstrap, seed)
    smallest = search.smallest(n_ranked, float(all_rate)) if low > LEAST_RATE else None
    row: dict[str, object] = {"site": site, "n_places": n_places, "searched_all": float(all_rate),
                              "searched_low": float(low), "held_all": curve[-1]["rate"]}
    chosen = names.iloc[:0].assign(path=[])
    if smallest is not None:
        kept, size = smallest
        row |= {"size": len(kept), "before_pruning": size, "searched": search.rate(kept),
                **measured(brought([kept]))}
        chosen = names.iloc[kept].assign(path=estimates["path"][kept])
    return {"curve": pd.DataFrame(curve), "smallest": pd.DataFrame([row]), "chosen": chosen,
            "contrasts": pd.DataFrame(contrasts)}


@watched("passes")
def attribute(
    model: Model,
    problems: Problems = None,
    source: str | None = None,
    *,
    sites: Sequence[str] | str = ATTRIBUTED,
    split: Split = "ood",
    n: int | None = None,
    n_patched: int = 200,
    n_points: int = 4,
    n_checked: int = 40,
    n_ranked: int = 200,
    among: str = "vocabulary",
    step: int | None = None,
    batch_size: int | None = None,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> AttributionResult:
    """Attribute the source's answer to codes and values.

    See `latentcode.probes.attribution.attribute_model` for the equation.

    Args:
        model: See `subject`.
        problems: See `subject`; of prompts minimal pairs, or a factorial, with the columns that
            `PromptCounterfactuals` lists; default: the run's own task.
        source: Whose activations would be put in: `operation+operands`, another source of a
            factorial (`latentcode.tasks.counterfactuals`), or `interchange`, the minimal pair's;
            default: operation+operands, without a factorial interchange.
        sites: `code`, `value` or both.
        split: Problems that the attributions are means over.
        n: Problems drawn; those count which the model answers rightly, sources included; default:
            2,000, of prompts all, each of which is a base at most once.
        n_patched: How many of them single places and sets are patched in.
        n_points: Points on the way to the source at which the gradient is taken.
        n_checked: Places that are patched singly: so many of the largest estimates, and random
            others.
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
        LatentCodeError: What `subject` and `attribute_model` raise, and `ConfigError` for problems
            without minimal pairs.
    """
    seed = checked_seed(seed)
    of = subject(model, problems, step=step, device=device, batch_size=batch_size)
    task = of.counterfactuals(among=among)
    return attribute_model(
        of.model(), task, source, sites=sites, split=of.split_name(split),
        n=of.n_of("n", n, 2_000, split), n_patched=n_patched, n_points=n_points,
        n_checked=n_checked, n_ranked=n_ranked, seed=seed,
        batch_size=of.patched_at_once(batch_size), n_bootstrap=n_bootstrap,
        meta={**of.settings, **({} if among == "vocabulary" else {"among": among})},
        progress=progress)
