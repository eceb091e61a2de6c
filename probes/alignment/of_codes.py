"""Do models that differ in their seed, layer or attention kind have the same codes?

Compared on the same instances: linear CKA and the Procrustes distance of all layers, heads matched
one to one, and whether a probe that was fitted on one model's codes reads another's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy import stats

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check
from latentcode.figures.style import Figure
from latentcode.probes.alignment.figures import layers_figure, transfer_figure
from latentcode.probes.alignment.matching import (
    Moments,
    cka,
    head_correlations,
    match_heads,
    procrustes,
)
from latentcode.probes.alignment.transfer import ALIGNMENTS, N_RANDOM, Transfer
from latentcode.probes.common.controls import check_pair_of_codes
from latentcode.probes.common.labels import combination_clusters
from latentcode.probes.common.results import TableResult
from latentcode.probes.common.sources import (
    Source,
    check_distinct,
    check_same_instances,
    chosen,
    origin,
    sources_of,
)
from latentcode.probes.similarity.of_codes import LEVEL

N_GROUPS = 10
"""Groups of combinations that are left out in turn for the intervals of CKA and Procrustes."""
MEASURES: Mapping[str, Callable[[Moments], np.ndarray]] = {"cka": cka, "procrustes": procrustes}

Models = Sequence[tuple[LatentCodes, LatentCodes]]
"""(training, held-out) codes of each model."""
Progress = Callable[[int, int], None]
"""Called with (comparisons done, in all)."""


@dataclass(frozen=True, repr=False)
class AlignmentResult(TableResult):
    """How far the codes of several models agree.

    layers    one row per two runs (or one with itself), pair, source, layer of each and measure
              (`cka`, `procrustes`): `value` with its 95 % interval, and `null`, what instances
              of one model that were shuffled give
    heads     one row per two runs, pair, source, layer and head of A: the matched head of B, the
              sign, and their correlation on the instances that the matching was fitted on
              (`fitted`) and on held-out combinations (`heldout`); `by_chance` is the held-out
              correlation, in size, with the other heads on average, NaN of a single head
    transfer  one row per two runs, pair, layer, label, source and alignment: the `metric` of
              A's probe on B's held-out codes
    settings  everything else that determines the numbers

    Sources: `code`, `residual`, and `untrained`, the initial weights of both models.
    """

    FORMAT = "latentcode.alignment"
    COLUMNS: ClassVar = {
        "layers": ("run_a", "run_b", "kind_a", "kind_b", "pair", "source", "layer_a", "layer_b",
                   "measure", "value", "low", "high", "null"),
        "heads": ("run_a", "run_b", "kind_a", "kind_b", "pair", "source", "layer", "head_a",
                  "head_b", "sign", "fitted", "heldout", "by_chance"),
        "transfer": ("run_a", "run_b", "kind_a", "kind_b", "pair", "label", "source", "layer",
                     "alignment", "metric", "value", "low", "high", "chance", "n_heldout",
                     "n_heldout_combinations")}
    TEXT: ClassVar = ("label", "run_a", "run_b", "kind_a", "kind_b", "alignment")

    layers: pd.DataFrame
    heads: pd.DataFrame
    transfer: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def title(self) -> str:
        """One line that says what the summary shows."""
        return ("AlignmentResult: CKA, correlation of matched heads, and A's probe on B's held-out "
                "codes, means over pairs of runs")

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader of these numbers must know, one sentence each."""
        notes = []
        if len(self.settings["controls"]) < 2:
            notes.append("Without controls: residual, untrained.")
        for run, (trained, total) in self.settings["heldout_trained_on"].items():
            if trained:
                notes.append(f"Run {run} was trained on {trained} of the {total} combinations that "
                             "are held out here; its split has another seed.")
        alike, every = self._alike(), {*self._couples()}
        if alike == every:
            notes.append("All runs began with the same seed, and so with equal weights wherever "
                         "their kinds have the same: how far they agree may be no more than that, "
                         "and the untrained models are no control.")
        elif alike:
            notes.append("Left out of the summary and the figures, because they began with the "
                         "same seed, and so with equal weights wherever their kinds have the same: "
                         f"{', '.join(f'{a} and {b}' for a, b in sorted(alike))}.")
        return tuple(notes)

    def _couples(self) -> list[tuple[str, str]]:
        table = self.heads[["run_a", "run_b"]].drop_duplicates()
        return list(table.itertuples(index=False, name=None))

    def _alike(self) -> set[tuple[str, str]]:
        """Return the pairs of runs whose initial weights were drawn with one seed."""
        seeds = self.settings.get("initial_seeds", {})
        return {(a, b) for a, b in self._couples()
                if a in seeds and b in seeds and seeds[a] == seeds[b]}

    def _independent(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of two runs of different seeds; of all two runs where none differ."""
        alike = self._alike()
        if alike == {*self._couples()}:
            alike = set()
        couples = zip(table["run_a"], table["run_b"], strict=True)
        return table[[a != b and (a, b) not in alike and (b, a) not in alike for a, b in couples]]

    def summary(self) -> pd.DataFrame:
        """Return one row per two kinds, pair, layer and source, means over pairs of runs whose
        initial weights were drawn with different seeds."""
        place = ["kind_a", "kind_b", "pair", "layer", "source"]
        same = self.layers[self.layers["layer_a"] == self.layers["layer_b"]]
        same, heads = (_both_ways(self._independent(table)) for table in (same, self.heads))
        measured = same.rename(columns={"layer_a": "layer"}).pivot_table(
            index=place, columns="measure", values="value", dropna=False, observed=True)
        matched = heads.groupby(place, sort=False)[["heldout", "by_chance"]].mean()
        matched.columns = pd.Index(["matched heads", "other heads"])
        label = self.settings["labels"][0]
        read = self._independent(self.transfer[self.transfer["label"] == label]).pivot_table(
            index=place, columns="alignment", values="value", dropna=False)
        read = read[[a for a in ALIGNMENTS if a in read.columns]]
        read.columns = pd.Index([f"{label}: {a}" for a in read.columns])
        joined = measured.join(matched, how="inner").join(read, how="inner")
        return joined.round(2).reset_index()

    def figure(self, *, pair: str | None = None, measure: str = "cka") -> Figure:
        """Return a measure of all layers against all: a row per source, a column per two kinds."""
        pair = self.settings["pairs"][0] if pair is None else pair
        table = self.layers[(self.layers["pair"] == pair) & (self.layers["measure"] == measure)]
        return layers_figure(self._independent(table), f"{measure}, {pair}, mean over pairs of "
                             "runs", measure)

    def transfer_figure(self, *, pair: str | None = None, label: str | None = None) -> Figure:
        """Return the score of transferred probes per layer, a row per source, two kinds across."""
        pair = self.settings["pairs"][0] if pair is None else pair
        label = self.settings["labels"][0] if label is None else label
        table = self.transfer[(self.transfer["pair"] == pair) & (self.transfer["label"] == label)]
        return transfer_figure(self._independent(table), ALIGNMENTS, f"probe for {label} of one "
                               f"run on the codes of another, {pair}")

    def figures(self) -> dict[str, Figure]:
        """Return all pictures of the first pair, by file name."""
        return super().figures() | {"procrustes.png": self.figure(measure="procrustes"),
                                    "transfer.png": self.transfer_figure()}


def align_codes(
    models: Models,
    labels: Sequence[str],
    *,
    untrained: Models | None = None,
    controls: bool = True,
    layers: Sequence[int] | None = None,
    pairs: Sequence[str] | None = None,
    n_bootstrap: int = 1000,
    seed: int = 0,
    heldout_trained_on: Mapping[str, tuple[int, int]] | None = None,
    initial_seeds: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> AlignmentResult:
    """Are the codes of several models the same up to a reordering of heads, or a rotation?

    models     (training, held-out) codes of each model, all of the same instances
    labels     what the transferred probes decode; see `probes.labels`
    untrained  the same of each model with its initial weights
    controls   False leaves out the untrained models and the residual streams and marks the result
    layers, pairs  which to compare; all by default
    n_bootstrap  replicates of the intervals of transferred probes, which resample the held-out
               combinations
    heldout_trained_on  run -> (how many of the held-out combinations it was trained on, of how
               many), which the result then says
    initial_seeds  run -> seed of its initial weights. One seed gives models of different kinds
               equal weights, too, so that summary and figures are of runs with different ones

    CKA and Procrustes are measured on the held-out codes. Their intervals are jackknife intervals
    over groups of combinations: a bootstrap would compare an instance with its own copy, the very
    bias that the debiased CKA takes out.

    Probes and matchings are fitted on the training codes and scored on the held-out ones; see
    `transfer` for what A's probe is given of B's codes.

    Raises `ProbeError` for fewer than two models, other instances or another number of heads, and
    what `decode` raises.
    """
    check(len(models) >= 2, f"there are {len(models)} models; expected at least two to align",
          ProbeError)
    check(len(labels) > 0, "labels is empty; expected at least one", ProbeError)
    check_distinct("labels", labels)
    check(n_bootstrap >= 100, f"n_bootstrap is {n_bootstrap}; expected at least 100", ProbeError)
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
    layers = chosen("layer", layers, first[0].layers)
    pairs = chosen("pair", pairs, [p.name for p in first[0].pairs])
    sources = tuple(compared[0].sources)
    groups = combination_clusters(first[1]) % N_GROUPS
    couples = list(combinations_with_replacement(compared, 2))
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in AlignmentResult.COLUMNS}
    for done, (pair, source, (a, b)) in enumerate(product(pairs, sources, couples)):
        place = {"pair": pair, "source": source}
        tables["layers"] += [a.beside(b) | place | row for row in _compare_layers(
            a, b, source, pair, layers, groups, seed)]
        for layer in layers if a is not b else ():
            x, y = a.points(source, layer, pair), b.points(source, layer, pair)
            tables["heads"] += [a.beside(b) | place | {"layer": layer} | row
                                for row in _matched_heads(x, y)]
        if progress is not None:
            progress(done + 1, len(pairs) * len(sources) * len(couples))
    for pair, label in product(pairs, labels):
        scorer = Transfer.of(first, label, pair, n_bootstrap, seed)
        for source, layer, a in product(sources, layers, compared):
            x = a.points(source, layer, pair)
            probe = scorer.fit(x[0])
            for b in compared:
                if a is not b:
                    tables["transfer"] += [
                        a.beside(b) | {"pair": pair, "label": label, "source": source,
                                       "layer": layer} | row
                        for row in scorer.scores(probe, x, b.points(source, layer, pair))]
    settings = {
        "labels": list(labels), "layers": list(layers), "pairs": list(pairs),
        "controls": list(sources[1:]), "n_bootstrap": n_bootstrap, "level": LEVEL, "seed": seed,
        "n_groups": N_GROUPS, "n_random": N_RANDOM, "n_train": len(first[0]),
        "n_heldout": len(first[1]), "initial_seeds": dict(initial_seeds or {}),
        "heldout_trained_on": {k: list(v) for k, v in (heldout_trained_on or {}).items()},
        "codes": [[origin(codes) for codes in pair] for pair in models]}
    frames = {name: pd.DataFrame(rows)[list(AlignmentResult.COLUMNS[name])]
              for name, rows in tables.items()}
    return AlignmentResult(**frames, settings=settings)


@dataclass(frozen=True)
class _Model:
    """The points of one model: source -> (training, held-out)."""

    name: str
    kind: str
    sources: Mapping[str, tuple[Source, Source]]

    @classmethod
    def of(
        cls, codes: tuple[LatentCodes, LatentCodes],
        untrained: tuple[LatentCodes, LatentCodes] | None, controls: bool,
    ) -> _Model:
        check_pair_of_codes(*codes, f"codes of {codes[0].meta.get('run')}")
        train, heldout = (sources_of(codes[i], untrained[i] if untrained else None, controls)
                          for i in range(2))
        return cls(str(codes[0].meta.get("run", "?")), str(codes[0].meta.get("kind", "?")),
                   {a.name: (a, b) for a, b in zip(train, heldout, strict=True)})

    def points(self, source: str, layer: int, pair: str) -> tuple[np.ndarray, np.ndarray]:
        train, heldout = self.sources[source]
        return train.points(layer, pair), heldout.points(layer, pair)

    def beside(self, other: _Model) -> dict[str, Any]:
        return {"run_a": self.name, "run_b": other.name, "kind_a": self.kind,
                "kind_b": other.kind}


def _check_same_axes(first: LatentCodes, other: LatentCodes) -> None:
    names = [str(codes.meta.get("run", "?")) for codes in (first, other)]
    for what, ours, theirs in (
            ("layers", first.layers, other.layers),
            ("pairs", [p.name for p in first.pairs], [p.name for p in other.pairs]),
            ("numbers of heads", first.n_heads, other.n_heads)):
        check(ours == theirs, f"the {what} of runs {names[0]} and {names[1]} differ: {ours} and "
              f"{theirs}; expected the same", ProbeError)


def _both_ways(table: pd.DataFrame) -> pd.DataFrame:
    """Return a symmetric table of A and B with B and A beside it."""
    swap = {"kind_a": "kind_b", "kind_b": "kind_a", "run_a": "run_b", "run_b": "run_a"}
    return pd.concat([table, table.rename(columns=swap)], ignore_index=True)


def _compare_layers(
    a: _Model, b: _Model, source: str, pair: str, layers: Sequence[int], groups: np.ndarray,
    seed: int,
) -> list[dict[str, Any]]:
    """Return CKA and Procrustes of the held-out points of all layers of A and B."""
    rows = []
    shuffled = np.random.default_rng(seed).permutation(len(groups))
    n_groups = int(groups.max()) + 1
    quantile = stats.t.ppf((1.0 + LEVEL) / 2.0, n_groups - 1) if n_groups > 1 else np.nan
    for layer_a, layer_b in product(layers, layers):
        if a is b and layer_a >= layer_b:
            continue
        x, y = a.points(source, layer_a, pair)[1], b.points(source, layer_b, pair)[1]
        moments = Moments.of(x, y, groups)
        unrelated = Moments.of(x, y[shuffled], groups).whole()
        for name, measure in MEASURES.items():
            value = float(measure(moments.whole()))
            half = np.nan
            if n_groups > 1:
                left_out = measure(moments.without_each())
                # The jackknife's standard error (Efron and Tibshirani 1993, Eq. 11.5).
                half = quantile * np.sqrt((n_groups - 1) * left_out.var())
            rows.append({"layer_a": layer_a, "layer_b": layer_b, "measure": name, "value": value,
                         "low": value - half, "high": value + half,
                         "null": float(measure(unrelated))})
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
