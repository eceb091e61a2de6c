"""A registered probe is asked of a model: its features and their controls are read, the function
scores each problem, and what is above its controls becomes a result.

    value = 1/N sum_i s_i,    s = function(points) or function(train, heldout)

with s_i what the function gives problem i. Controls are the same function on other points or
labels: every difference is paired over the same problems, and intervals resample combinations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentcode.arguments import as_tuple, check_distinct
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, called, check, check_count, check_whole
from latentcode.probes.common.bootstrap import LEVEL, cluster_sums, resample, resampled_means
from latentcode.probes.common.contrasts import Resampled, table_of
from latentcode.probes.common.features import (
    check_pair_of_codes,
    features_of,
    origin,
    varies,
)
from latentcode.probes.common.labels import combination_clusters, label_columns, make_target
from latentcode.probes.common.own_labels import Labels, asked_labels, names_of, own_labels
from latentcode.probes.common.results import BAG, CONTROLS
from latentcode.probes.common.shared import shared_combinations
from latentcode.probes.common.shuffling import N_SHUFFLES, has_null, shuffled_classes
from latentcode.probes.decoding.features import bag_of_tokens
from latentcode.probes.decoding.result import named
from latentcode.probes.registered.points import Points
from latentcode.probes.registered.registry import Probe
from latentcode.probes.registered.result import ProbeResult
from latentcode.progress import Progress, reported, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import Subject, subject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

HELDOUT = 0.3
"""Share of the combinations of prompts that is held out, where they have no column `split`."""
Place = tuple[int, str]
"""A layer and a pair."""
Scores = dict[tuple[str, str], dict[str, Resampled]]
"""(features, model) -> quantity -> score."""


@watched("asking a probe")
def ask(
    probe: Probe,
    model: Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    features: Sequence[str] | str | None = None,
    split: Split = "ood",
    n: int | None = None,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    step: int | None = None,
    controls: bool = True,
    n_shuffles: int = N_SHUFFLES,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> ProbeResult:
    """Ask a registered probe.

    Scores are means over problems. Beside those of the features stand those of the residual
    stream, of an untrained model's features and of shuffled labels, and what is above each of
    these, over the same problems, is in `ProbeResult.contrasts`. Labels that are columns of texts
    are asked of whole texts, beside the bag of their tokens. A probe that is fitted is fitted on
    `train` combinations and scored on those of the split.

    Args:
        model: See `subject`; or codes, of a probe that is fitted those of training combinations,
            and those of held-out ones as the problems.
        problems: See `subject`; default: what the run's task chooses for probing.
        labels: What is asked about, labels with one class for each problem; default: those that the
            task names. Or functions of a batch, `{name: function}`, as in `decode`.
        features: What it reads: `code`, `row`, `values` and others of `latentcode.codes.rows`, or
            registered ones; default: those that it was registered with.
        split: Which combinations are scored.
        n: Number of problems, and as many to fit on; default: 4,096, of prompts and codes all.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        step: The checkpoint of a run; default: the newest.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        n_shuffles: Times that labels are shuffled (`latentcode.probes.common.shuffling`).
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of the problems, of shuffling and bootstrap, and of the probe where it draws.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (places done, in all).

    Raises:
        LatentCodeError: What `subject`, `own_labels` and `extract` raise, `UnknownNameError` for
            features, a label, layer or pair, and `ProbeError` for a label that is a group or does
            not vary, for what the function raises, and for scores that are not one finite number
            for each problem.
    """
    seed = checked_seed(seed)
    features = probe.features if features is None else as_tuple(features)
    check(len(features) > 0, "features is empty; expected at least one to read", ProbeError)
    check_distinct("features", features)
    check_count("n_bootstrap", n_bootstrap, 100, ProbeError)
    check_whole("n_shuffles", n_shuffles, 1, ProbeError)
    check(not (probe.fitted and split == "train"), f"split is 'train', which probe {probe.name!r} "
          "is fitted on; expected another one", ProbeError)
    of = subject(model, problems, step=step, device=device).probing
    asked = asked_labels(labels, of)
    if labels is not None:
        of = of.about(names_of(asked))
    if probe.fitted:
        of = of.divided(HELDOUT, seed, next(iter(names_of(asked)), "label"))
    parts = [(part, of.n_of("n", n, 4_096, part))
             for part in (("train", split) if probe.fitted else (split,))]
    further = own_labels(asked if labels is not None else None, of, parts, seed=seed)
    both = [of.with_untrained(part, values, n=size, pairs=pairs, layers=layers, seed=seed,
                              controls=controls)
            for (part, size), values in zip(parts, further, strict=True)]
    codes = [trained for trained, _ in both]
    if probe.fitted:
        check_pair_of_codes(codes[0], codes[1], "codes")
        shared_combinations(codes[0], codes[1], "combinations" if split == "test" else "nothing")
    names = _single(codes[0], names_of(asked), chosen=labels is not None)
    asking = _Asking(probe, {**probe.options, **options}, codes, n_shuffles, n_bootstrap, seed)
    found = asking.tables(_readings(of, both, features, parts, controls, seed), names, progress)
    result = ProbeResult(**found, settings={
        "probe": probe.name, "asks": probe.asks, "said": None,
        "options": {name: _plain(value) for name, value in asking.options.items()},
        "columns": list(probe.columns), "fitted": probe.fitted, "features": list(features),
        "labels": list(names), "layers": [int(layer) for layer in codes[0].layers],
        "pairs": [pair.name for pair in codes[0].pairs], "constant": asking.constant,
        "whole_texts": of.whole_texts,
        "controls": [*CONTROLS, *((BAG,) if of.whole_texts else ())] if controls else [],
        "no_null": asking.no_null, "n_shuffles": n_shuffles, "n_bootstrap": n_bootstrap,
        "level": LEVEL, "seed": seed,
        "codes": [origin(part) for part in codes]})
    if probe.sentence is None:
        return result
    said = called(f"probe {probe.name!r}: its sentence", ProbeError, probe.sentence, result)
    check(isinstance(said, str), f"probe {probe.name!r}: its sentence is {said!r}; expected text",
          ProbeError)
    return replace(result, settings={**result.settings, "said": said})


@dataclass(frozen=True)
class _Reading:
    """Points of the problems, of training ones first where there are two sets, float [N, d] each.

    features  what is read, whatever the model
    model     one of `MODELS`; or `residual` or `bag`, controls of all features, which are none
    """

    features: str
    model: str
    place: Place
    points: Sequence[np.ndarray]


def _readings(
    of: Subject, both: Sequence[tuple[LatentCodes, LatentCodes | None]], features: Sequence[str],
    parts: Sequence[tuple[str, int]], controls: bool, seed: int,
) -> Iterator[list[_Reading]]:
    """Yield all features of a layer and pair, with their controls."""
    codes = [trained for trained, _ in both]
    # Of each part: the code, the residual stream and the untrained model's code.
    kinds = list(zip(*[features_of(*one, controls) for one in both], strict=True))
    others = [name for name in features if name != "code"]
    order = [*features, "residual", BAG]
    tokens = [of.tokens_of(part, n=n) for part, n in parts] if controls and of.whole_texts else []
    bag = bag_of_tokens(tokens[0], tokens[-1])[-len(parts):] if tokens else ()
    models = ("trained", "untrained") if controls else ("trained",)
    for pair in (pair.name for pair in codes[0].pairs):
        rows = {model: [of.rows(part, n=n, pair=pair, features=others, layers=codes[0].layers,
                                untrained=model == "untrained", seed=seed) for part, n in parts]
                for model in models if others}
        for layer in codes[0].layers:
            place = layer, pair
            of_codes = {of[0].name: [part.points(layer, pair) for part in of] for of in kinds}
            found = [_Reading("code", model, place, of_codes[name])
                     for model, name in (("trained", "code"), ("untrained", "untrained"))
                     if "code" in features and name in of_codes]
            if "residual" in of_codes and "residual" not in features:
                found.append(_Reading("residual", "residual", place, of_codes["residual"]))
            found += [_Reading(name, model, place, [
                np.asarray(part.values[name, str(layer)], dtype=np.float64) for part in of_parts])
                for name in others for model, of_parts in rows.items()]
            if bag:
                found.append(_Reading(BAG, BAG, place, [x.astype(np.float64) for x in bag]))
            yield sorted(found, key=lambda one: order.index(one.features))


def _single(codes: LatentCodes, names: Sequence[str], *, chosen: bool) -> tuple[str, ...]:
    """Return the labels that have one class for each problem; those that were `chosen` all have to.
    """
    check(len(names) > 0, "labels is empty; expected at least one", ProbeError)
    check_distinct("labels", names)
    pair = codes.pairs[0].name
    groups = [name for name in names if label_columns(codes, name, pair)[1]]
    left = tuple(name for name in names if name not in groups)
    check(not groups or (not chosen and bool(left)), f"labels are {', '.join(groups)}, of which a "
          "problem has several; expected labels with one class for each problem", ProbeError)
    return left


class _Asking:
    """Calls a probe on points, and keeps what does not vary."""

    def __init__(
        self, probe: Probe, options: dict[str, Any], codes: Sequence[LatentCodes],
        n_shuffles: int, n_bootstrap: int, seed: int,
    ) -> None:
        self.probe, self.options, self.codes, self.seed = probe, options, codes, seed
        self.n_shuffles = n_shuffles
        self.constant: list[str] = []
        self.no_null: list[str] = []
        for part in codes:
            combination_clusters(part)  # raises where there are none
        every = pd.concat([part.labels["combination"].astype(str) for part in codes])
        numbers = np.asarray(pd.factorize(every)[0], dtype=np.int64)
        self.combinations = np.split(numbers, np.cumsum([len(part) for part in codes])[:-1])
        self.clusters = np.unique(self.combinations[-1], return_inverse=True)[1]
        self.weights = resample(int(self.clusters.max()) + 1, n_bootstrap,
                                np.random.default_rng([seed, 2]))

    def tables(
        self, readings: Iterator[list[_Reading]], labels: Sequence[str],
        progress: Progress | None,
    ) -> dict[str, Any]:
        """Return the table of scores, and the contrasts."""
        rows: list[dict[str, Any]] = []
        contrasts: list[dict[str, Any]] = []
        pairs = [pair.name for pair in self.codes[0].pairs]
        targets = {(label, pair): make_target(self.codes[0], self.codes[-1], label, pair)
                   for label, pair in product(labels, pairs)}
        self.no_null = [label for label in labels if not all(
            has_null(targets[label, pair].train, self.combinations[0]) for pair in pairs)]
        total, varied = len(pairs) * len(self.codes[0].layers), False
        for found in reported(readings, total, progress):
            for label in labels:
                scores: Scores = {}
                for reading in found:
                    scores |= self._scored(reading, label, targets[label, reading.place[1]])
                varied = varied or any(model == "trained" for _, model in scores)
                layer, pair = found[0].place
                place = {"layer": layer, "pair": pair, "label": label}
                rows += [{**place, "features": _called(*about), "quantity": quantity, **_row(score)}
                         for about, of in scores.items() for quantity, score in of.items()]
                contrasts += [{**place, **row} for row in _contrasts(scores)]
        check(varied, f"the features of probe "
              f"{self.probe.name!r} are the same in all problems, at every layer and pair; there "
              "is nothing to ask about", ProbeError)
        return {"table": pd.DataFrame(rows)[list(ProbeResult.COLUMNS["table"])],
                "contrasts": table_of(contrasts, ProbeResult.COLUMNS["contrasts"])}

    def _scored(
        self, reading: _Reading, label: str, target: Any
    ) -> Scores:
        """Return the scores of what is read, and of shuffled labels; none where it does not vary.
        """
        layer, pair = reading.place
        at = f"{_called(reading.features, reading.model)} of layer {layer}, {pair}"
        for x in reading.points:
            check(bool(np.isfinite(x).all()), f"{at}: the values are not all finite", ProbeError)
        if not varies(reading.points[0]):
            self.constant += [at] if at not in self.constant else []
            return {}
        truths = [target.train, target.heldout][-len(reading.points):]
        ys = [truth.argmax(axis=1) for truth in truths]
        where = f"{at}, label {label!r}"
        found = {(reading.features, reading.model): {
            name: self._resampled(values)
            for name, values in self._values(reading.points, ys, target, where).items()}}
        if reading.model == "trained":
            rng = np.random.default_rng([self.seed, 1])
            shuffles = [self._values(reading.points, [y, *ys[1:]], target, f"{where} (shuffled)")
                        for y in shuffled_classes(ys[0], self.combinations[0], rng,
                                                  self.n_shuffles)]
            if shuffles:
                found[reading.features, "shuffled"] = {
                    name: Resampled.of_shuffles([self._resampled(values[name])
                                                 for values in shuffles], rng)
                    for name in shuffles[0]}
        return found

    def _resampled(self, values: np.ndarray) -> Resampled:
        sums, sizes = cluster_sums(values, self.clusters)
        return Resampled(float(values.mean()), resampled_means(sums, sizes, self.weights),
                         len(values), len(sizes))

    def _values(
        self, x: Sequence[np.ndarray], y: Sequence[np.ndarray], target: Any, where: str
    ) -> dict[str, np.ndarray]:
        """Return what the function gives each problem, column by column."""
        points = [Points(each, kind, combination, target.classes)
                  for each, kind, combination in zip(x, y, self.combinations, strict=True)]
        seed = {"seed": self.seed} if self.probe.seeded else {}
        given = called(f"probe {self.probe.name!r}: for {where}, its function", ProbeError,
                       self.probe.function, *points,
                       **self.options, **seed)
        return scores_of(self.probe, given, len(points[-1]), where)


def scores_of(probe: Probe, given: Any, n: int, where: str) -> dict[str, np.ndarray]:
    """Return the columns that a probe gives n problems, float64 [n] each.

    `ProbeError` that says what was returned and what was expected.
    """
    of = probe.columns
    expected = (f"{n} finite numbers, {of[0]} of each problem that is scored" if len(of) == 1 else
                f"columns {', '.join(of)} of {n} finite numbers each")

    def refused(returned: str) -> ProbeError:
        return ProbeError(f"probe {probe.name!r}: for {where}, its function returned {returned}; "
                          f"expected {expected}")

    columns: Any = given if isinstance(given, Mapping | pd.DataFrame) else {of[0]: given}
    if set(columns) != set(of) or (len(of) > 1 and columns is not given):
        raise refused(f"the columns {', '.join(map(str, columns)) or 'none'}"
                      if columns is given else f"a {type(given).__name__}")
    found = {}
    for name in of:
        try:
            values = np.asarray(columns[name], dtype=np.float64)
        except (TypeError, ValueError):
            raise refused(f"{name} as a {type(columns[name]).__name__} that holds no numbers"
                          ) from None
        if values.shape != (n,):
            raise refused(f"{name} of shape {values.shape}")
        if not np.isfinite(values).all():
            raise refused(f"{name} with NaN or infinite numbers")
        found[name] = values
    return found


def _row(score: Resampled) -> dict[str, Any]:
    row = score.row()
    return {**row, "n_combinations": row["n_clusters"]}


def _contrasts(scores: Scores) -> Iterator[dict[str, Any]]:
    """Yield the scores of the trained model's features less those of their controls."""
    for (features, model), of in scores.items():
        if model != "trained":
            continue
        others = {other: scores[about] for other, about in (
            ("shuffled", (features, "shuffled")), ("untrained", (features, "untrained")),
            ("residual", ("residual", "residual")), (BAG, (BAG, BAG))) if about in scores}
        yield from ({"features": features, "quantity": quantity, "against": other,
                     **(score - control[quantity]).row()}
                    for quantity, score in of.items() for other, control in others.items())


def _plain(value: Any) -> Any:
    """Return the value of an option as settings keep it: what a file can hold, or as it prints."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | int | float | None) else repr(value)


def _called(features: str, model: str) -> str:
    """Return what tables call features of a model."""
    return features if model in ("residual", BAG) else named(features, model)
