"""How long does a probe of a label with many values take: the terms of a function?

    python -m latentcode.experiments.benchmarks.labels

times one cross-validated `fit_probe` of the terms of fuzzy logic, from the codes of a model of the
zoo, beside the same folds, penalties, weights and tolerance with scikit-learn, term by term, each
penalty begun where the one before ended. Both are asked for processor time on one thread.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from latentcode.experiments.benchmarks.figures import bars
from latentcode.experiments.benchmarks.harness import Local, Spread, sit, spreads, torch_threads
from latentcode.experiments.benchmarks.report import RESULTS, Report
from latentcode.figures.markdown import markdown_table
from latentcode.probes.common.bootstrap import count_by_cluster, macro_f1
from latentcode.probes.common.labels import combination_clusters, make_target
from latentcode.probes.decoding.logistic import (
    MAX_ITERATIONS,
    N_FOLDS,
    PENALTIES,
    TOLERANCE,
    fit_probe,
)
from latentcode.progress import bar
from latentcode.runs.named import load_run
from latentcode.subjects import extract

QUESTION = "labels"
OURS, THEIRS = "fit_probe", "scikit-learn"
PAIR = "query->query"


def by_scikit_learn(x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the scores [penalty, N, class] of every instance outside its fold.

    The last fit, of the chosen penalty on all instances, is left out: ours has it beside.
    """
    scale = x.std(axis=0)
    z = (x - x.mean(axis=0)) / np.where(scale > 0.0, scale, 1.0)
    scores = np.full((len(PENALTIES), *y.shape), -np.inf)
    for fit, score in GroupKFold(N_FOLDS).split(z, groups=groups):
        scores[:, score] = np.where(y[fit].all(axis=0), np.inf, -np.inf)
        for label in np.flatnonzero(y[fit].any(axis=0) & ~y[fit].all(axis=0)):
            model = LogisticRegression(solver="newton-cg", tol=TOLERANCE, warm_start=True,
                                       max_iter=MAX_ITERATIONS, class_weight="balanced")
            for i, penalty in enumerate(PENALTIES):
                model.set_params(C=1.0 / (penalty * len(fit))).fit(z[fit], y[fit, label])
                scores[i, score, label] = model.decision_function(z[score])
    return scores


def measure(x: np.ndarray, y: np.ndarray, groups: np.ndarray, name: str, rounds: int
            ) -> dict[str, Any]:
    """Return one case as plain data."""
    probe = fit_probe(x, y, groups, multilabel=True)
    theirs = [float(macro_f1(count_by_cluster(y, scores > 0.0, np.zeros(len(y), np.int64)).total()))
              for scores in by_scikit_learn(x, y, groups)]
    sitting = sit([Local(OURS, partial(fit_probe, x, y, groups, multilabel=True),
                         clock=time.process_time),
                   Local(THEIRS, partial(by_scikit_learn, x, y, groups),
                         clock=time.process_time)],
                  rounds=rounds, units=1, warmup=0, progress=bar(name))
    return {"name": name, "n": len(x), "d": x.shape[1], "n_labels": y.shape[1],
            "converged": probe.converged,
            "macro_f1_outside_folds": {OURS: [probe.selection[penalty] for penalty in PENALTIES],
                                       THEIRS: theirs}, "times": sitting.record(THEIRS)}


def main(model: str = "logic-hyla", n: int = 2_000, rounds: int = 5, smoke: bool = False,
         out: Path = RESULTS / QUESTION) -> None:
    """Time one probe of all terms, of codes and of residual streams; write JSON, table, figure.

    Args:
        model: Model of the zoo, or a run's folder; of fuzzy logic.
        n: Training instances.
        rounds: How often each is timed.
        smoke: Few instances, of codes alone, to see that it works.
        out: Folder of the result.
    """
    if smoke:
        n, rounds = 400, 2
    with torch_threads(1):
        report = Report(QUESTION, torch.device("cpu"), {
            "model": model, "n": n, "rounds": rounds, "smoke": smoke, "folds": N_FOLDS,
            "penalties": list(PENALTIES), "pair": PAIR})
        run = load_run(model)
        layer = run.config.model.n_layers - 1
        codes = extract(run, split="train", n=n, pairs=[PAIR], layers=[layer], residuals=True)
        y, groups = make_target(codes, codes, "terms", PAIR).train, combination_clusters(codes)
        features = {"codes": codes.select(layer=layer, pair=PAIR)}
        if not smoke:
            features["residual streams"] = codes.select_residual(layer=layer, pair=PAIR)
        cases = [measure(np.asarray(x, np.float64), y, groups, name, rounds)
                 for name, x in features.items()]
        report.finish(out, cases, table(cases), figure(cases))


def table(cases: list[dict[str, Any]]) -> str:
    """Return the markdown table: a row for what the probe reads."""
    rows = []
    for case in cases:
        took = spreads(case["times"]["milliseconds"])
        rows.append([case["name"], str(case["d"]), str(case["n_labels"]), str(case["n"]),
                     *(took[name].scaled(1e-3).text() for name in (OURS, THEIRS)),
                     Spread(**case["times"]["speedup"][OURS]).text()])
    return markdown_table(["probe of", "features", "labels", "instances", f"{OURS}, s",
                           f"{THEIRS}, s", "times faster"], rows)


def figure(cases: list[dict[str, Any]]) -> Any:
    """Return bars of seconds."""
    return bars([case["name"] for case in cases],
                [{name: spread.scaled(1e-3) for name, spread in
                  spreads(case["times"]["milliseconds"]).items()} for case in cases],
                "seconds of a cross-validated probe (median, quartiles)")


if __name__ == "__main__":
    tyro.cli(main)
