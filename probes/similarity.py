"""Which labels have similar codes, and how many heads does a code use? (Fig. 5E and A8)

    cos(m_a, m_b),    m_a = mean of the codes whose label is a
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm

from latentcode import subjects
from latentcode.devices import checked_seed
from latentcode.errors import ProbeError, check, check_count
from latentcode.figures.panels import signed_norm
from latentcode.figures.style import FEATURE_STYLES, Figure
from latentcode.probes.common.figures import features_in, heat_maps, layers_in, scores_figure
from latentcode.probes.common.labels import LabelFunction, asked_labels, groups_of, names_of
from latentcode.probes.common.results import TableResult, blocks, where, with_interval
from latentcode.probes.common.statistics import (
    LEVEL,
    NONE,
    ROUNDING,
    Contrasts,
    LabelSums,
    Resampled,
    check_bootstrap,
    contrast_columns,
    has_null,
    resample,
    shuffled_labels,
)
from latentcode.progress import Progress, reported, watched

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

MOST_CLASSES = 64
"""A matrix of more labels than this is neither readable nor quick to resample."""
CENTRINGS = ("raw", "centred")
N_SHUFFLES = 20
"""Times that labels are shuffled."""
LARGEST_OTHER = "largest other"
"""The largest cosine of either of two classes with a third."""
ONE_HOT = 0.9
"""A code is one-hot when its largest head holds at least this share of sum_h |a_h|."""
ALL = "(all)"
"""The class that stands for all instances."""
MEASURE_NAMES = {
    "participation_ratio": "participation ratio", "sparsity": "sparsity (Hoyer)",
    "largest_share": "share of the\nlargest head", "one_hot": "one-hot codes\n(share)",
    "same_head": "commonest head\nis the largest (share)"}


@watched("comparing codes")
def similarity(
    model: Model,
    problems: Problems = None,
    label: str | Mapping[str, LabelFunction] | None = None,
    *,
    split: Split = "ood",
    n: int | None = None,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    controls: bool = True,
    n_samples: int = 16,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> SimilarityResult:
    """Compare the mean codes of a label's values, and count the heads that a code uses.

    cos(m_a, m_b), where m_a is the mean of the codes whose label is a; of a group such as `terms`
    the mean over all instances in which a occurs. `centred` cosines are those of m_a minus the mean
    over the *classes*, all of which count the same: the mean over instances would depend on how
    often each class was drawn. Raw cosines of codes without negative entries are large whatever the
    labels are; compare with `shuffled`. By how much two classes are more alike than either is with
    a third, and than in a control, is in `SimilarityResult.contrasts`.

    Args:
        model: See `subject`; or codes.
        problems: See `subject`; default: what the run's task chooses for probing.
        label: Default: the last that the task names for probing, `rule` or `terms`; or a function
            of a batch, `{name: function}`, as in `decode`.
        split: Which combinations; the held-out ones, as in the paper's Fig. 5E and A8.
        n: Number of problems; default: 4,096, of prompts and codes all.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        n_samples: Codes that are shown one by one (Fig. A8A), drawn at random.
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of the problems, samples and bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (layers and pairs done, in all).

    Raises:
        LatentCodeError: What `subject`, `custom_labels` and `extract` raise.
        ProbeError: Controls are missing, the label has one class, missing values or more than 64
            classes, or codes are zero.
    """
    # It imports torch, and the explorer opens results before that is there.
    from latentcode.probes.common.harness import origin, read

    seed = checked_seed(seed)
    check_count("n_samples", n_samples, 1, ProbeError)  # before any code is read
    check_bootstrap(n_bootstrap)
    subject = subjects.subject(model, problems, device=device).probing
    labels = names_of(asked_labels(None, subject))[-1] if label is None else label
    names = names_of(labels)
    check(len(names) == 1, f"label is {', '.join(map(str, names)) or 'empty'}; expected a single "
          "one", ProbeError)
    label, = names
    parts = [(split, subject.n_of("n", n, 4_096, split))]
    reads = read(subject, parts, ("code",), pairs=pairs, layers=layers, controls=controls,
                 seed=seed, labels=labels)
    clusters = groups_of(reads.rows[0].labels)
    # The first stream was that of shuffles: others draw what they drew before.
    drawing, resampling = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3)[1:])
    weights = resample(int(clusters.max()) + 1, n_bootstrap, resampling)
    sampled = np.sort(drawing.permutation(len(clusters))[:n_samples])
    targets = reads.targets(label, subject.pairs)
    for target in targets.values():
        check(len(target.classes) <= MOST_CLASSES, f"label {label!r} has {len(target.classes)} "
              f"classes; expected at most {MOST_CLASSES}", ProbeError)
    tables: dict[str, list[pd.DataFrame]] = {name: [] for name in SimilarityResult.COLUMNS}
    places = reads.places()
    for pair, layer, readings in reported(places, len(places), progress):
        classes, truth = [*map(str, targets[pair].classes)], targets[pair].train
        place = {"layer": layer, "pair": pair, "label": label}
        cosines: dict[str, dict[str, Resampled]] = {}
        for features, reading in readings.items():
            x = reading.x()
            here = {**place, "features": features}
            sums = LabelSums.of(x, truth, clusters)
            cosines[features] = _cosines(sums, weights)
            if features == "code":
                rng = np.random.default_rng(seed)
                shuffles = [_cosines(LabelSums.of(x, shuffled, clusters), weights)
                            for shuffled in shuffled_labels(truth, clusters, rng, N_SHUFFLES)]
                if shuffles:  # else there is no null
                    cosines["shuffled"] = {
                        centring: Resampled.of_shuffles(
                            [shuffle[centring] for shuffle in shuffles], rng)
                        for centring in CENTRINGS}
            tables["means"].append(_by_component(sums.means(), classes).assign(
                n=np.tile(truth.sum(axis=0), x.shape[1]), **here))
            shown = [" + ".join(np.array(classes)[row]) for row in truth[sampled]]
            tables["samples"].append(_by_component(x[sampled], shown).assign(
                instance=np.tile(sampled, x.shape[1]), **here))
            tables["concentration"].append(
                _concentrations(x, truth, clusters, weights, classes, here).assign(**here))
        matrix = pd.MultiIndex.from_product([classes, classes], names=["row", "column"])
        tables["cosines"] += [
            _with_intervals(cosine, matrix).assign(**place, features=features, centring=centring)
            for features, by_centring in cosines.items()
            for centring, cosine in by_centring.items()]
        tables["contrasts"] += [table.assign(**place, n=len(clusters), n_clusters=weights.shape[1])
                                for table in _contrasts(cosines, classes)]
    return SimilarityResult.from_rows(tables, {
        "label": label, "layers": reads.layers, "pairs": list(reads.labels),
        "classes": sorted({str(c) for target in targets.values() for c in target.classes}),
        "controls": list(readings)[1:],
        "no_null": [label] if not all(has_null(target.train, clusters)
                                      for target in targets.values()) else [],
        "n_samples": n_samples, "n_bootstrap": n_bootstrap, "level": LEVEL, "one_hot": ONE_HOT,
        "seed": seed, "codes": origin(reads.rows[0])})


def _cosines(sums: LabelSums, weights: np.ndarray) -> dict[str, Resampled]:
    """Return cosines [class, class] by centring."""
    means, replicates = sums.means(), sums.resampled(weights)
    return {centring: Resampled(cosine_matrix(means, centring),
                                cosine_matrix(replicates, centring),
                                int(sums.counts.sum()), weights.shape[1])
            for centring in CENTRINGS}


def _with_intervals(score: Resampled, index: pd.MultiIndex) -> pd.DataFrame:
    """Return the entries of a score with their intervals, a row each, as an index names them."""
    low, high = score.interval()
    return pd.DataFrame({"value": score.value.ravel(), "low": low.ravel(), "high": high.ravel()},
                        index).reset_index()


def _contrasts(
    cosines: Mapping[str, Mapping[str, Resampled]], names: Sequence[str]
) -> Iterator[pd.DataFrame]:
    """Yield cos(a, b) less the largest cosine of a or b with a third class, and that of the code
    less those of the controls, for each two classes."""
    i, j = np.triu_indices(len(names), k=1)
    couples = pd.MultiIndex.from_arrays([np.array(names)[i], np.array(names)[j]],
                                        names=["row", "column"])

    def of_couples(cosine: Resampled) -> Resampled:
        return replace(cosine, value=cosine.value[i, j], replicates=cosine.replicates[:, i, j])

    def largest_others(cosine: Resampled) -> Resampled:
        value, replicates = (np.stack([
            np.delete(matrix[..., [a, b], :], [a, b], axis=-1).max(axis=(-2, -1))
            for a, b in zip(i, j, strict=True)], axis=-1)
            for matrix in (cosine.value, cosine.replicates))
        return replace(cosine, value=value, replicates=replicates)

    for centring in CENTRINGS:
        scores = {features: by_centring[centring] for features, by_centring in cosines.items()}
        compared = [("code", control, of_couples(scores[control]))
                    for control in scores if control != "code"]
        compared += [(features, LARGEST_OTHER, largest_others(scores[features]))
                     for features in scores if features != "shuffled" and len(names) > 2]
        for features, against, other in compared:
            table = _with_intervals(of_couples(scores[features]) - other, couples)
            yield table.dropna(subset="value").assign(
                centring=centring, features=features, quantity="cosine", against=against)


def _concentrations(
    x: np.ndarray, truth: np.ndarray, clusters: np.ndarray, weights: np.ndarray,
    names: Sequence[str], place: Mapping[str, Any],
) -> pd.DataFrame:
    """Return the measures of all instances and of each class, with `same_head`: the share of
    instances whose largest head is the commonest largest one.

    Where a control is zero it does not count. `ProbeError` where the code is.
    """
    counted: np.ndarray = (x != 0.0).any(axis=1)
    check(place["features"] != "code" or bool(counted.all()), f"code of layer {place['layer']}, "
          f"pair {place['pair']!r}: {int((~counted).sum())} of {len(x)} codes are zero in all "
          "heads; expected some score in each", ProbeError)
    measures = concentration(np.where(counted[:, None], x, 1.0))
    truth = np.column_stack([np.ones(len(x), dtype=bool), truth]) & counted[:, None]
    sums = LabelSums.of(np.column_stack(list(measures.values())), truth, clusters)
    heads = LabelSums.of(np.eye(x.shape[1])[np.abs(x).argmax(axis=1)], truth, clusters)
    table = _with_intervals(Resampled(
        np.column_stack([sums.means(), heads.means().max(axis=1)]),  # [class, measure]
        np.dstack([sums.resampled(weights), heads.resampled(weights).max(axis=2)]),
        len(x), weights.shape[1]),
        pd.MultiIndex.from_product([[ALL, *names], [*measures, "same_head"]],
                                   names=["class", "measure"]))
    n_measures = len(measures) + 1
    return table.assign(n=np.repeat(truth.sum(axis=0), n_measures),
                        n_combinations=np.repeat((sums.counts > 0).sum(axis=0), n_measures))


def _by_component(points: np.ndarray, names: Sequence[str]) -> pd.DataFrame:
    """Return points [row, component] as one row per component, the rows named in order."""
    table = pd.DataFrame(points.astype(np.float32), index=pd.Index(names, name="class"))
    return table.melt(var_name="component", ignore_index=False).reset_index()


def cosine_matrix(means: np.ndarray, centring: str = "raw") -> np.ndarray:
    """Return m_a . m_b / (|m_a| |m_b|) of means [..., class, d], [..., class, class].

    `centred` first takes away the mean over the classes. NaN where a mean is zero, or differs
    from that of the classes by rounding only: the code does not vary then, such as that of a
    token to itself in the first layer.
    """
    least = ROUNDING * np.linalg.norm(means, axis=-1, keepdims=True)
    if centring == "centred":
        # nanmean would warn of a class that a replicate lacks in all components.
        present = np.isfinite(means)
        total = np.where(present, means, 0.0).sum(axis=-2, keepdims=True)
        means = means - total / present.sum(axis=-2, keepdims=True)
    length = np.linalg.norm(means, axis=-1, keepdims=True)
    unit = means / np.where((length > least) & (length > 0), length, np.nan)
    return np.asarray(unit @ np.swapaxes(unit, -1, -2))


def cluster_order(cosines: np.ndarray) -> np.ndarray:
    """Return the order of classes in which similar ones stand together, int [class].

    Average linkage on 1 - cosine, with the optimal ordering of leaves (Bar-Joseph et al. 2001).
    Undefined cosines count as 0.
    """
    # Whoever opens a saved result imports this module, and most never order anything.
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    distance = 1.0 - np.nan_to_num(cosines)
    np.fill_diagonal(distance, 0.0)
    condensed = squareform(np.clip((distance + distance.T) / 2.0, 0.0, None), checks=False)
    return np.asarray(leaves_list(linkage(condensed, "average", optimal_ordering=True)))


def concentration(x: np.ndarray) -> dict[str, np.ndarray]:
    """How many heads does each code use? Measures per instance, each [N], of codes x [N, H].

    participation_ratio  (sum_h |a_h|)^2 / (H sum_h a_h^2): 1 / H when one head does it all, 1 when
                         all heads are equal in size, 2 / pi = 0.64 for independent Gaussian heads
                         (Treves and Rolls 1991)
    sparsity             (sqrt(H) - sum|a| / sqrt(sum a^2)) / (sqrt(H) - 1): from 0, all equal, to
                         1, one head (Hoyer 2004); 0 for a single head
    largest_share        max_h |a_h| / sum_h |a_h|
    one_hot              1 where the largest share is at least 0.9, else 0

    Of codes that are zero there are none: NaN.
    """
    size = np.abs(x)
    total, largest = size.sum(axis=1), size.max(axis=1)
    n_heads = x.shape[1]
    # Scaled by the largest head, because the squares of tiny codes would vanish.
    ratio = (total / largest) ** 2 / np.square(size / largest[:, None]).sum(axis=1)
    spread = np.sqrt(n_heads) - 1.0
    return {"participation_ratio": ratio / n_heads,
            "sparsity": (np.sqrt(n_heads) - np.sqrt(ratio)) / (spread or 1.0),
            "largest_share": largest / total,
            "one_hot": (largest / total >= ONE_HOT).astype(np.float64)}


@dataclass(frozen=True, repr=False)
class SimilarityResult(TableResult):
    """How the codes of a label's values compare, and how many heads they use.

    cosines        one row per layer, pair, features, centring (`raw`, `centred`) and two classes
                   `row`, `column`: the cosine `value` of their mean points with its interval
    means          the mean point of each class, one row per component (the head, of a code)
    samples        some instances, likewise
    concentration  one row per layer, pair, features, class ("(all)" for all instances) and measure,
                   see `concentration`
    contrasts      one row per layer, pair, centring, two classes and features: their cosine less
                   the `largest other` of either of them, and of the code also less that of the
                   residual stream, of the untrained model, and of `shuffled` labels
    settings       everything else that determines the numbers

    Features: `code`, `residual`, `untrained`, and `shuffled`, the code with shuffled labels (a mean
    over 20 shuffles). Intervals are 95 % bootstrap intervals (percentiles) clustered by
    combination. Resampled means are noisier than the means themselves and their cosines nearer to
    0: of classes that are almost alike an interval can lie below its own cosine.
    """

    FORMAT = "latentcode.similarity"
    CAPTION = "heads that a code uses, and the most similar classes of a label"
    COLUMNS: ClassVar = {
        "cosines": ("layer", "pair", "label", "features", "centring", "row", "column", "value",
                    "low", "high"),
        "means": ("layer", "pair", "label", "features", "class", "component", "value", "n"),
        "samples": ("layer", "pair", "label", "features", "instance", "class", "component",
                    "value"),
        "concentration": ("layer", "pair", "label", "features", "class", "measure", "value", "low",
                          "high", "n", "n_combinations"),
        "contrasts": contrast_columns("layer", "pair", "label", "centring", "row", "column",
                                      "features")}
    BEST_PER: ClassVar = ("layer", "row", "column")
    HEADLINE_ROWS: ClassVar = {"features": ("code",), "centring": ("centred",)}

    cosines: pd.DataFrame
    means: pd.DataFrame
    samples: pd.DataFrame
    concentration: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def caveats(self) -> tuple[str, ...]:
        n = len(self.settings["classes"])
        notes = [f"Centred cosines of {n} unrelated classes are {-1.0 / (n - 1):.2f} on average, "
                 "not 0, because centred means add up to zero.", *self.controls_caveat()]
        whole = where(self.concentration, **{"class": ALL})
        total = whole["n"].max()  # of the code, of which none is zero
        zero = whole[whole["n"] < total].drop_duplicates(["features", "layer", "pair"])
        notes += [f"The {row.features} of layer {row.layer}, {row.pair} is zero in {total - row.n} "
                  f"of {total} instances, of which there is no concentration."
                  for row in zero.itertuples()]
        return tuple(notes)

    def matrix(
        self, *, layer: int, pair: str, features: str = "code", centring: str = "centred"
    ) -> pd.DataFrame:
        """Return the cosines [class, class] of a layer, pair and features, in clustering order."""
        block = where(self.cosines, layer=layer, pair=pair, features=features, centring=centring)
        check(len(block) > 0, f"there are no {centring} cosines of features {features!r}, layer "
              f"{layer!r}, pair {pair!r}", ProbeError)
        frame = block.pivot(index="row", columns="column", values="value")
        names = frame.index[cluster_order(frame.to_numpy())]
        return frame.loc[names, names]

    def summary(self) -> pd.DataFrame:
        """Return, per layer, pair and features, measures of all codes and the closest classes."""
        rows = []
        for place, block in blocks(where(self.concentration, **{"class": ALL}),
                                   ("pair", "layer", "features")):
            measures = {str(row.measure): with_interval(row) for row in block.itertuples()}
            matrix = self.matrix(**place)
            above = matrix.where(np.triu(np.ones(matrix.shape, dtype=bool), k=1)).stack().dropna()
            closest = "the mean does not vary"
            if len(above):
                couple: Any = above.idxmax()
                closest = f"{' ~ '.join(couple)} {above.max():.2f}"
            rows.append(place | measures | {"closest classes": closest})
        return pd.DataFrame(rows)

    def figure(self, *, pair: str | None = None, centring: str = "centred") -> Figure:
        """Return the cosine matrices, features down and layers across (Fig. 5E, A8C).

        All matrices have the order in which the code of the last layer clusters.
        """
        pair = self.first_pair(pair)
        table = where(self.cosines, pair=pair, centring=centring)
        layers = layers_in(table)
        matrices = {(features, layer): self.matrix(
            layer=layer, pair=pair, features=features, centring=centring)
            for features in features_in(table) for layer in layers}
        order = list(matrices["code", layers[-1]].index)
        return heat_maps({
            (FEATURE_STYLES[features][2], f"layer {layer}"): matrix.loc[order, order]
            for (features, layer), matrix in matrices.items()}, TwoSlopeNorm(0.0, -1.0, 1.0),
            label="cosine", title=f"{centring} cosine of mean points per "
            f"{self.settings['label']}, {pair}")

    def codes_figure(self, *, pair: str | None = None, features: str = "code") -> Figure:
        """Return sampled points above and mean points per class below, per layer (A8A, B).

        On one scale: a mean that is paler than its instances shows that they cancel.
        """
        place = {"pair": self.first_pair(pair), "features": features}
        matrices = {}
        for name, table in (("sampled", self.samples), ("mean", self.means)):
            for layer, points in where(table, **place).groupby("layer"):
                rows = ["class", "instance"] if name == "sampled" else ["class"]
                matrix = points.pivot(index=rows, columns="component", values="value")
                matrices[name, f"layer {layer}"] = matrix.set_axis(
                    matrix.index.get_level_values("class"))
        check(len(matrices) > 0, f"there are no points of features {features!r}, pair "
              f"{place['pair']!r}", ProbeError)
        values = np.concatenate([matrix.to_numpy() for matrix in matrices.values()])
        return heat_maps(matrices, signed_norm(values), title=f"{features}, {place['pair']}",
                         label="score" if features != "residual" else "value",
                         xlabels="head" if values.shape[1] <= 64 else "component")

    def concentration_figure(self, *, pair: str | None = None) -> Figure:
        """Return the measures of concentration per layer, features side by side."""
        pair = self.first_pair(pair)
        table = where(self.concentration, pair=pair, **{"class": ALL})
        figure = scores_figure(table.replace({"measure": MEASURE_NAMES}), ("measure",), sharey=True)
        figure.axes[0].set_ylim(-0.03, 1.03)
        return figure

    def figures(self) -> dict[str, Figure]:
        """Return all pictures of the first pair, by file name."""
        named = {f"points_{features}.png": self.codes_figure(features=features)
                 for features in self.samples["features"].unique()}
        return super().figures() | named | {"concentration.png": self.concentration_figure()}
