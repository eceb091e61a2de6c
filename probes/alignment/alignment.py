"""Do models that differ in their seed, layer or attention kind have the same codes?

Compared on the same instances: linear CKA and the Procrustes distance of all layers, heads matched
one to one, and whether a probe that was fitted on one model's codes reads another's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from latentcode.arguments import check_distinct, chosen
from latentcode.codes import LatentCodes
from latentcode.config import TaskConfig
from latentcode.errors import ProbeError, check, check_count
from latentcode.probes.alignment.matching import (
    N_RANDOM,
    Moments,
    Transfer,
    cka,
    head_correlations,
    match_heads,
    procrustes,
)
from latentcode.probes.alignment.result import AlignmentResult
from latentcode.probes.common.bootstrap import LEVEL
from latentcode.probes.common.contrasts import table_of
from latentcode.probes.common.extraction import subjects_of
from latentcode.probes.common.features import (
    Features,
    check_pair_of_codes,
    check_same_instances,
    features_of,
    origin,
)
from latentcode.probes.common.labels import combination_clusters, label_names
from latentcode.probes.common.own_labels import Labels, asked_labels, names_of, own_labels
from latentcode.probes.common.shared import shared_combinations
from latentcode.probes.common.shuffling import N_SHUFFLES, rows_of_others
from latentcode.progress import Progress, reported, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import Subject
from latentcode.subjects.of_tasks import RunSubject
from latentcode.tasks import Task, make_task

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems

N_GROUPS = 10
"""Groups of combinations that are left out in turn for the intervals of CKA and Procrustes."""
MEASURES: Mapping[str, Callable[[Moments], np.ndarray]] = {"cka": cka, "procrustes": procrustes}
Models = Sequence[tuple[LatentCodes, LatentCodes]]
"""(training, held-out) codes of each model."""


@watched("aligning")
def align_codes(
    models: Models,
    labels: Sequence[str],
    *,
    untrained: Models | None = None,
    controls: bool = True,
    allow_overlap: str = "nothing",
    layers: Sequence[int] | int | None = None,
    pairs: Sequence[str] | None = None,
    n_bootstrap: int = 1000,
    seed: int = 0,
    heldout_trained_on: Mapping[str, tuple[int, int]] | None = None,
    initial_seeds: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> AlignmentResult:
    """Are the codes of several models the same up to a permutation of heads or a rotation?

    models     (training, held-out) codes of each model, all of the same instances
    labels     what the transferred probes decode; see `probes.common.labels`
    untrained  the same of each model with its initial weights
    layers, pairs  which to compare; all by default
    heldout_trained_on  run -> (how many of the held-out combinations it was trained on, of how
               many), which the result then says
    initial_seeds  run -> seed of its initial weights. One seed gives models of different kinds
               equal weights, too, so that summary and figures are of runs with different ones

    Other arguments are those of `align`. CKA and Procrustes are measured on the held-out codes.
    Their intervals are jackknife intervals over groups of combinations: a bootstrap would compare
    an instance with its own copy, the very bias that the debiased CKA takes out.

    Probes and matchings are fitted on the training codes and scored on the held-out ones; see
    `transfer` for what A's probe is given of B's codes.

    Raises `ProbeError` for fewer than two models, other instances or another number of heads, and
    what `decode` raises.
    """
    seed = checked_seed(seed)
    check(len(models) >= 2, f"there are {len(models)} models; expected at least two to align",
          ProbeError)
    labels = label_names(labels)
    check(len(labels) > 0, "labels is empty; expected at least one", ProbeError)
    check_distinct("labels", labels)
    check_count("n_bootstrap", n_bootstrap, 100, ProbeError)
    compared = _models(models, untrained, controls)
    first = models[0]
    shared = shared_combinations(*first, allow_overlap)
    layers = chosen("layer", layers, first[0].layers)
    pairs = chosen("pair", pairs, [p.name for p in first[0].pairs])
    feature_sets = tuple(compared[0].feature_sets)
    groups = combination_clusters(first[1]) % N_GROUPS
    couples = list(combinations_with_replacement(compared, 2))
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in AlignmentResult.COLUMNS}
    for pair, features, (a, b) in reported(
            product(pairs, feature_sets, couples),
            len(pairs) * len(feature_sets) * len(couples), progress):
        place = a.beside(b) | {"pair": pair, "features": features}
        tables["layers"] += [place | row for row in _compare_layers(
            a, b, features, pair, layers, groups, seed)]
        for layer in layers if a is not b else ():
            tables["heads"] += [place | {"layer": layer} | row for row in _matched_heads(
                a.points(features, layer, pair), b.points(features, layer, pair))]
    for pair, label in product(pairs, labels):
        scorer = Transfer.of(first, label, pair, n_bootstrap, seed)
        for features, layer, a in product(feature_sets, layers, compared):
            x = a.points(features, layer, pair)
            probe = scorer.fit(x[0])
            for b in compared:
                if a is not b:
                    place = a.beside(b) | {"pair": pair, "label": label, "features": features,
                                           "layer": layer}
                    scores, contrasts = scorer.scores(probe, x, b.points(features, layer, pair))
                    tables["transfer"] += [place | row for row in scores]
                    tables["contrasts"] += [place | row for row in contrasts]
    of_all = table_of(tables.pop("contrasts"), AlignmentResult.COLUMNS["contrasts"])
    frames = {name: pd.DataFrame(rows)[list(AlignmentResult.COLUMNS[name])]
              for name, rows in tables.items()}
    return AlignmentResult(**frames, contrasts=of_all, settings={
        "labels": list(labels), "layers": list(layers), "pairs": list(pairs),
        "controls": list(feature_sets[1:]), "n_bootstrap": n_bootstrap, "level": LEVEL,
        "seed": seed,
        "allow_overlap": allow_overlap, "shared_combinations": shared,
        "n_groups": N_GROUPS, "n_random": N_RANDOM, "n_train": len(first[0]),
        "n_heldout": len(first[1]), "initial_seeds": dict(initial_seeds or {}),
        "heldout_trained_on": {k: list(v) for k, v in (heldout_trained_on or {}).items()},
        "codes": [[origin(codes) for codes in pair] for pair in models]})


@dataclass(frozen=True)
class _Model:
    """The points of one model: features -> (training, held-out)."""

    name: str
    kind: str
    feature_sets: Mapping[str, tuple[Features, Features]]

    @classmethod
    def of(
        cls, codes: tuple[LatentCodes, LatentCodes],
        untrained: tuple[LatentCodes, LatentCodes] | None, controls: bool,
    ) -> _Model:
        check_pair_of_codes(*codes, f"codes of {codes[0].meta.get('run')}")
        train, heldout = (features_of(codes[i], untrained[i] if untrained else None, controls)
                          for i in range(2))
        return cls(str(codes[0].meta.get("run", "?")), str(codes[0].meta.get("kind", "?")),
                   {a.name: (a, b) for a, b in zip(train, heldout, strict=True)})

    def points(self, features: str, layer: int, pair: str) -> tuple[np.ndarray, np.ndarray]:
        train, heldout = self.feature_sets[features]
        return train.points(layer, pair), heldout.points(layer, pair)

    def beside(self, other: _Model) -> dict[str, Any]:
        return {"run_a": self.name, "run_b": other.name, "kind_a": self.kind,
                "kind_b": other.kind}


def _models(models: Models, untrained: Models | None, controls: bool) -> list[_Model]:
    """Return the models; `ProbeError` unless they can be compared instance by instance."""
    check(untrained is None or len(untrained) == len(models), "untrained codes are needed of each "
          f"model; expected {len(models)} pairs of them", ProbeError)
    compared = [_Model.of(pair, untrained[i] if untrained else None, controls)
                for i, pair in enumerate(models)]
    names = [model.name for model in compared]
    check(len(set(names)) == len(names), f"the runs are called {names}; expected different names",
          ProbeError)
    first = models[0]
    for train, heldout in models[1:]:
        what = f"codes of {train.meta.get('run')}"
        _check_same_axes(first[0], train)
        check_same_instances(first[0], train, what)
        check_same_instances(first[1], heldout, what)
    return compared


def _check_same_axes(first: LatentCodes, other: LatentCodes) -> None:
    names = [str(codes.meta.get("run", "?")) for codes in (first, other)]
    for what, ours, theirs in (
            ("layers", first.layers, other.layers),
            ("pairs", [p.name for p in first.pairs], [p.name for p in other.pairs]),
            ("numbers of heads", first.n_heads, other.n_heads)):
        check(ours == theirs, f"the {what} of runs {names[0]} and {names[1]} differ: {ours} and "
              f"{theirs}; expected the same", ProbeError)


def _compare_layers(
    a: _Model, b: _Model, features: str, pair: str, layers: Sequence[int], groups: np.ndarray,
    seed: int,
) -> list[dict[str, Any]]:
    """Return CKA and Procrustes of the held-out points of all layers of A and B."""
    rows = []
    rng = np.random.default_rng(seed)
    others = [rows_of_others(groups, rng) for _ in range(N_SHUFFLES)]
    n_groups = int(groups.max()) + 1
    quantile = stdtrit(n_groups - 1, (1.0 + LEVEL) / 2.0) if n_groups > 1 else np.nan
    for layer_a, layer_b in product(layers, layers):
        if a is b and layer_a >= layer_b:
            continue
        x, y = a.points(features, layer_a, pair)[1], b.points(features, layer_b, pair)[1]
        moments = Moments.of(x, y, groups)
        unrelated = [Moments.of(x, y[rows], groups).whole() for rows in others]
        for name, measure in MEASURES.items():
            value = float(measure(moments.whole()))
            half = np.nan
            if n_groups > 1:
                left_out = measure(moments.without_each())
                # The jackknife's standard error (Efron and Tibshirani 1993, Eq. 11.5).
                half = quantile * np.sqrt((n_groups - 1) * left_out.var())
            rows.append({"layer_a": layer_a, "layer_b": layer_b, "measure": name, "value": value,
                         "low": value - half, "high": value + half,
                         "null": float(np.mean([measure(one) for one in unrelated]))})
    return rows


def _matched_heads(
    x: tuple[np.ndarray, np.ndarray], y: tuple[np.ndarray, np.ndarray]
) -> list[dict[str, Any]]:
    """Match heads on the training points of A (x) and B (y), and measure on the held-out ones."""
    match = match_heads(x[0], y[0])
    heldout = head_correlations(x[1], y[1])
    rows = []
    for h, (other, sign) in enumerate(zip(match.order, match.sign, strict=True)):
        others = np.abs(np.delete(heldout[h], other))
        rows.append({
            "head_a": h, "head_b": int(other), "sign": int(sign),
            "fitted": match.correlation[h], "heldout": heldout[h, other] * sign,
            "by_chance": float(others.mean()) if len(others) else np.nan})
    return rows


@watched("aligning")
def align(
    models: Sequence[Model] | Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    n_train: int | None = None,
    n_heldout: int | None = None,
    heldout: float = 0.3,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    step: Sequence[int] | int | None = None,
    controls: bool = True,
    allow_overlap: str = "nothing",
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> AlignmentResult:
    """Compare the codes of models, up to a permutation of heads or a rotation.

    Runs of one training seed begin with the same weights, of different kinds too, and are left out
    of the result's summary and figures, which says so.

    Args:
        models: At least two, see `subject`; or one run with several steps.
        problems: What all models see; see `subject`; default: what the first run's task chooses for
            probing, so that "held out" means held out of the *first* run. The result says how many
            of those combinations the others were trained on.
        labels: What the transferred probes decode; default: those that the task names for probing,
            and of prompts the column label; or functions of a batch, as in `decode`.
        n_train: Problems that probes and matchings are fitted on; default: 2,048, of prompts all.
        n_heldout: Problems that probes and matchings are scored on; default: 2,048, of prompts all.
        heldout: Share of the combinations of prompts to hold out, where they have no column
            `split`.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        step: Checkpoints to compare; default: the newest.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        allow_overlap: What training and held-out codes may have in common, as in `decode`.
        n_bootstrap: Replicates of the intervals of transferred probes, which resample the held-out
            combinations.
        seed: Seed of the problems and the bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (comparisons done, in all).

    Raises:
        LatentCodeError: What `subject`, `own_labels`, `extract` and `align_codes` raise,
            `ProbeError` for a single model, for no problems and for models of the same name, and
            `ConfigError` for runs whose tasks differ in more than their split.
    """
    seed = checked_seed(seed)
    opened = subjects_of(models, problems, least=2, step=step, device=device)
    runs = [of for of in opened if isinstance(of, RunSubject)]
    for a, b in pairwise(runs):
        ours, theirs = (_family(of.run.config.task) for of in (a, b))
        check(ours == theirs, f"the tasks of {a.name} and {b.name} differ: {ours} and {theirs}; "
              "expected runs of one task, whose splits may differ")
    first = opened[0].probing
    asked = asked_labels(labels, first)
    names = names_of(asked)
    if isinstance(first, RunSubject):
        opened = [of.on(first.task) if isinstance(of, RunSubject) else of for of in opened]
    opened = [of.divided(heldout, seed, next(iter(names), "label")) for of in opened]
    parts = (("train", opened[0].n_of("n_train", n_train, 2_048, "train")),
             ("ood", opened[0].n_of("n_heldout", n_heldout, 2_048, "ood")))
    further = own_labels(asked if labels is not None else None, opened[0], parts, seed=seed)
    codes = [[of.with_untrained(split, values, n=n, pairs=pairs, layers=layers, seed=seed,
                                controls=controls)
              for (split, n), values in zip(parts, further, strict=True)] for of in opened]
    trained, untrained = ([(train[i], scored[i]) for train, scored in codes] for i in range(2))
    return align_codes(
        trained, names,  # type: ignore[arg-type]
        untrained=untrained if controls else None,  # type: ignore[arg-type]
        controls=controls, allow_overlap=allow_overlap, n_bootstrap=n_bootstrap, seed=seed,
        progress=progress, initial_seeds=_initial_seeds(opened),
        heldout_trained_on=_trained_on(
            [of for of in opened if isinstance(of, RunSubject)]))


def _initial_seeds(opened: Sequence[Subject]) -> dict[str, int]:
    """Return the seed of the initial weights of each model of which it is known."""
    known = {of.name: of.run.config.training.seed if isinstance(of, RunSubject)
             else getattr(getattr(of, "of", None), "seed", None) for of in opened}
    return {name: seed for name, seed in known.items() if seed is not None}


def _trained_on(runs: Sequence[RunSubject]) -> dict[str, tuple[int, int]]:
    """Return how many of the held-out combinations each run was trained on, of how many."""
    if not runs:
        return {}
    heldout = _combinations(runs[0].task, "ood")
    return {of.name: (len(_combinations(make_task(of.run.config.task), "train") & heldout),
                      len(heldout)) for of in runs}


def _combinations(task: Task, split: str) -> set[tuple[int, ...]]:
    return {tuple(row) for row in task.combinations(split).tolist()}


def _family(task: TaskConfig) -> TaskConfig:
    """Return a task configuration without its split."""
    changes: dict[str, Any] = {"split_seed": 0, "held_out": None, "ood_fraction": 0.5}
    return replace(task, **{k: v for k, v in changes.items() if hasattr(task, k)})
