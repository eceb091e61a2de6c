"""What do the codes of SRAVEN's last layer cluster by, and does the answer depend on the pair?

The paper reads the code of the response token attending to itself (its section 4.3); the released
code stores that of the response token attending to the two given panels of the last row. Both are
read here, on permuted problems of held-out combinations, with the panels' tokens of the response
token's own feature, beside the residual stream that enters the layer at the response token.

    python -m latentcode.experiments.findings.pairs RUN [RUN ...] --out FOLDER

writes `pairs.csv`, one row per run, features and measure with its 95 % interval (bootstrap over
combinations), and `pairs.png`, each run a dot. The criteria are in `messages.yaml`.

neighbours  share of the 15 nearest neighbours (Euclidean, among problems of other combinations)
            that have the same label, less what labels drawn at random would give, of the distance
            between that and 1; label: the token's rule, or its answer
decoded     accuracy on held-out combinations of a multinomial logistic probe for the rule, fitted
            on training combinations, its penalty chosen on fresh problems of these; also with
            answers of sum for difference, which these models confuse, counted as right
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import tyro
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

import latentcode as lc
from latentcode.experiments.findings.figures import KINDS, dots
from latentcode.figures.style import Figure, style
from latentcode.models.config import kind_of
from latentcode.probes.common.statistics import mean_and_interval

N_NEIGHBOURS = 15
INVERSE_PENALTIES = (0.01, 0.1, 1.0)
MERGED = {"sum": "sum or difference", "difference": "sum or difference"}
N_BOOTSTRAP = 1_000
FEATURES = ("response->panels of its row", "response->itself", "residual stream")


@dataclass(frozen=True)
class Tokens:
    """The response tokens of problems, several of each problem; labels are str or int [tokens]."""

    features: dict[str, np.ndarray]
    """Name -> float [tokens, d]."""
    rule: np.ndarray
    answer: np.ndarray
    combination: np.ndarray


def read(run: lc.Run, split: str, n: int, seed: int) -> Tokens:
    """Read codes of both pairs and the residual stream in a run's last layer, token by token."""
    task, last = run.config.task, run.config.model.n_layers - 1
    assert isinstance(task, lc.SravenConfig)
    n_features, row = task.n_features, task.grid_size
    panels = [[f"response.{j}->row{row}.panel{p}.same" for p in range(1, row)]
              for j in range(n_features)]
    itself = [f"response.{j}->response.{j}" for j in range(n_features)]
    pairs = [*itself, *(name for names in panels for name in names)]
    codes = lc.extract(run, split=split, n=n, pairs=pairs, layers=last, residuals=True, seed=seed)
    assert codes.residuals is not None
    query = {pair.name: codes.query_of_pair[i] for i, pair in enumerate(codes.pairs)}

    return Tokens(
        features={
            FEATURES[0]: np.concatenate([
                np.hstack([codes.select(layer=last, pair=name) for name in names])
                for names in panels]),
            FEATURES[1]: np.concatenate([codes.select(layer=last, pair=name) for name in itself]),
            FEATURES[2]: np.concatenate([codes.residuals[:, 0, query[name]] for name in itself])},
        rule=np.concatenate([codes.labels[f"rule_{j}"].to_numpy(str) for j in range(n_features)]),
        answer=np.concatenate([codes.labels[f"target_{j}"].to_numpy() for j in range(n_features)]),
        combination=np.tile(codes.labels["combination"].to_numpy(str), n_features))


def neighbours(points: np.ndarray, label: np.ndarray, combination: np.ndarray) -> np.ndarray:
    """(share of neighbours with the label - chance) / (1 - mean chance), per point: float [N].

    Neighbours and chance are those among points of other combinations.
    """
    excess, chance = np.empty(len(points)), np.empty(len(points))
    for name in np.unique(combination):
        inside = combination == name
        index = NearestNeighbors(n_neighbors=N_NEIGHBOURS).fit(points[~inside])
        nearest = index.kneighbors(points[inside], return_distance=False)
        excess[inside] = (label[~inside][nearest] == label[inside][:, None]).mean(axis=1)
        values, counts = np.unique(label[~inside], return_counts=True)
        share = dict(zip(values, counts / counts.sum(), strict=True))
        chance[inside] = [share.get(value, 0.0) for value in label[inside]]
    return np.asarray((excess - chance) / (1.0 - chance.mean()))


def decode(train: Tokens, test: Tokens, heldout: Tokens, name: str) -> np.ndarray:
    """Return the rule that a logistic probe on the features `name` gives each held-out token."""
    scaler = StandardScaler().fit(train.features[name])
    x, x_test, x_heldout = (scaler.transform(tokens.features[name])
                            for tokens in (train, test, heldout))
    probes = [LogisticRegression(C=c, solver="newton-cholesky").fit(x, train.rule)
              for c in INVERSE_PENALTIES]
    best = max(probes, key=lambda probe: probe.score(x_test, test.rule))
    return np.asarray(best.predict(x_heldout))


def measure(run: lc.Run, n: int, seed: int) -> pd.DataFrame:
    """Measure one run: a row per features and measure, and per difference of the criteria."""
    train, test, heldout = (read(run, split, n, seed) for split in ("train", "test", "ood"))
    scores: dict[tuple[str, str], np.ndarray] = {}
    for name in FEATURES:
        points = StandardScaler(with_std=False).fit_transform(heldout.features[name])
        for label in ("rule", "answer"):
            scores[name, f"neighbours of {label}"] = neighbours(
                points, getattr(heldout, label), heldout.combination)
        given = decode(train, test, heldout, name)
        scores[name, "decoded"] = (given == heldout.rule).astype(np.float64)
        merged, merged_rule = (pd.Series(rules).replace(MERGED) for rules in (given, heldout.rule))
        scores[name, "decoded, sum and difference as one"] = (
            merged == merged_rule).to_numpy(np.float64)
    released, text, residual = FEATURES
    by_rule, by_answer = "neighbours of rule", "neighbours of answer"
    differences = {
        (released, "neighbours of rule - of answer"):
            scores[released, by_rule] - scores[released, by_answer],
        (f"{released} - {text}", "decoded"):
            scores[released, "decoded"] - scores[text, "decoded"],
        (f"{released} - {residual}", "decoded"):
            scores[released, "decoded"] - scores[residual, "decoded"]}
    rows = []
    for (features, name), x in (scores | differences).items():
        mean, low, high, n_combinations = mean_and_interval(
            x, heldout.combination, N_BOOTSTRAP, seed)
        rows.append({"run": run.name, "kind": kind_of(run.config.model), "features": features,
                     "measure": name, "value": float(mean), "low": float(low),
                     "high": float(high), "n_problems": n, "n_combinations": n_combinations})
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw the two kinds of neighbours and what is decoded, each run a dot with its interval."""
    measures = ("neighbours of rule", "neighbours of answer", "decoded")
    with style():
        figure = Figure(figsize=(10.0, 3.2), layout="constrained")
        for axis, measure in zip(figure.subplots(1, len(measures)), measures, strict=True):
            for shift, features in enumerate(FEATURES):
                rows = table[(table["measure"] == measure) & (table["features"] == features)]
                dots(axis, rows, features, step=0.06, shift=0.24 * (shift - 1))
            axis.set_xticks(range(len(KINDS)), KINDS)
            axis.set_title(measure)
            axis.axhline(0.0, color="0.7", linewidth=0.8)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center",
                      ncols=len(FEATURES))
        figure.savefig(path)


def main(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional], /,
    out: Path = Path("results/pairs"), n: int = 1_500, seed: int = 0,
) -> None:
    """Measure runs and write the table and the figure.

    Args:
        runs: folders of SRAVEN runs.
        out: folder for the table and the figure.
        n: problems of each split.
        seed: of the problems and the bootstrap.
    """
    out.mkdir(parents=True, exist_ok=True)
    tables = []
    for path in runs:
        tables.append(measure(lc.load_run(path), n, seed))
        pd.concat(tables).to_csv(out / "pairs.csv", index=False)
        print(tables[-1].to_string(index=False), flush=True)
    draw(pd.concat(tables), out / "pairs.png")


if __name__ == "__main__":
    tyro.cli(main)
