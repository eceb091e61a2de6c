"""How long do the probes take: one fit for every layer x pair x label?

    python -m latentcode.experiments.benchmarks.probes [--run RUN | --codes CODES]

fits `fit_probe` with a single penalty, so without cross-validation and controls, to the codes of
every layer and every named pair of SRAVEN (M = 4: 4 layers x 23 pairs x the rule label), 51,200
training instances, and times the whole set. Codes come from a trained run, or from a model
with its initial weights, whose fits are easier: its codes hold next to nothing of the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from sklearn.utils.parallel import Parallel, delayed

from latentcode.codes import LatentCodes
from latentcode.config.presets import preset
from latentcode.devices import available_cores
from latentcode.errors import check
from latentcode.experiments.benchmarks.figures import bars
from latentcode.experiments.benchmarks.harness import (
    Local,
    Spread,
    peak_memory,
    reset_peak_memory,
    sit,
    torch_threads,
)
from latentcode.experiments.benchmarks.report import RESULTS, Report
from latentcode.figures.markdown import markdown_table
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.common.labels import combination_clusters, make_target
from latentcode.probes.decoding.logistic import LogisticProbe, fit_probe
from latentcode.progress import bar
from latentcode.runs import Run
from latentcode.subjects import extract
from latentcode.tasks import make_task

QUESTION = "probes"
TARGET_SECONDS = 10.0
"""What the whole set may take, on two cores."""


@dataclass(frozen=True)
class Fits:
    """Every fit of a set of codes, on `jobs` threads."""

    codes: LatentCodes
    label: str
    penalty: float
    jobs: int

    @property
    def places(self) -> list[tuple[int, str]]:
        """Every (layer, pair)."""
        return list(product(self.codes.layers, (pair.name for pair in self.codes.pairs)))

    def __call__(self) -> list[LogisticProbe]:
        """Fit all, in the order of `places`."""
        groups = combination_clusters(self.codes)
        targets = {pair.name: make_target(self.codes, self.codes, self.label, pair.name).train
                   for pair in self.codes.pairs}
        fit: Callable[..., Any] = delayed(fit_probe)
        return list(Parallel(self.jobs, prefer="threads")(
            fit(self.codes.select(layer=layer, pair=pair), targets[pair], groups,
                multilabel=False, penalties=[self.penalty])
            for layer, pair in self.places))


def training_codes(codes: Path | None, run: Path | None, n: int, batch_size: int,
                   smoke: bool) -> LatentCodes:
    """Return codes of n training instances at every layer and named pair."""
    if codes is not None:
        return LatentCodes.load(codes)
    show = bar("extract codes")
    if run is not None:
        opened = Run.open(run)
        names = tuple(make_task(opened.config.task).pairs)
        return extract(opened, split="train", n=n, pairs=names, batch_size=batch_size,
                       progress=show)
    config = preset("smoke" if smoke else "paper", "sraven", "hyla")
    task = make_task(config.task)
    model = HookedTransformer(config.model, seed=config.training.seed).eval()
    return extract(model, task, split="train", n=n, pairs="all", batch_size=batch_size,
                   progress=show)


def main(
    codes: Path | None = None,
    run: Path | None = None,
    n: int = 51_200,
    label: str = "rule",
    penalties: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4),
    jobs: int | None = None,
    rounds: int = 3,
    batch_size: int = 512,
    out: Path = RESULTS / QUESTION,
    smoke: bool = False,
) -> None:
    """Time one fit for every layer, pair and label; write JSON, a table and a figure.

    Args:
        codes: Saved codes that are decoded, all of them.
        run: A trained run, whose codes are extracted and decoded; default: the paper's SRAVEN
            model with its initial weights.
        n: Training instances, where they are extracted.
        label: The label that every pair's codes are decoded into.
        penalties: Penalties per instance; the whole set is timed with each.
        jobs: Fits side by side; default: one per core.
        rounds: How often each is timed.
        batch_size: Instances per forward pass of the extraction, which is not timed.
        out: Folder of the result.
        smoke: A tiny model and few instances, to see that it works.
    """
    jobs = jobs or available_cores()
    check(len(set(penalties)) == len(penalties) > 0,
          f"penalties is {penalties}; expected at least one, each once")
    if smoke:
        n, rounds, penalties = 512, 2, penalties[:1]
    with torch_threads(available_cores()):
        decoded = training_codes(codes, run, n, batch_size, smoke)
    # The matrix products of a fit are too small for two threads; the fits themselves are not.
    with torch_threads(1):
        report = Report(QUESTION, torch.device("cpu"), {
            "codes": dict(decoded.meta), "n": len(decoded), "label": label, "jobs": jobs,
            "rounds": rounds, "smoke": smoke, "layers": list(decoded.layers),
            "n_heads": decoded.n_heads, "pairs": [pair.name for pair in decoded.pairs],
            "target_seconds": TARGET_SECONDS})
        cases = [measure(Fits(decoded, label, penalty, jobs), rounds) for penalty in penalties]
        report.finish(out, cases, table(cases), figure(cases))


def measure(fits: Fits, rounds: int) -> dict[str, Any]:
    """Return one case, every fit with one penalty, as plain data."""
    reset_peak_memory(torch.device("cpu"))
    name = f"penalty {fits.penalty:g}"
    probes = fits()
    memory = peak_memory(torch.device("cpu"))
    sitting = sit([Local("fit_probe", fits)], rounds=rounds, units=1, warmup=0,
                  progress=bar(name))
    return {
        "name": name, "n_fits": len(probes), "penalty": fits.penalty,
        "all_converged": all(probe.converged for probe in probes),
        "training_accuracy": _accuracies(fits, probes),
        "fits": sitting.record("fit_probe"), "peak_memory_mib": memory}


def _accuracies(fits: Fits, probes: Sequence[LogisticProbe]) -> dict[str, float]:
    """Return the least, median and greatest share of training instances that a fit gets right:
    how hard the problems were, not what the codes say."""
    right = []
    for (layer, pair), probe in zip(fits.places, probes, strict=True):
        wanted = make_target(fits.codes, fits.codes, fits.label, pair).train
        given = probe.predict(fits.codes.select(layer=layer, pair=pair))
        right.append(float((given == wanted).all(axis=1).mean()))
    return {"least": min(right), "median": float(np.median(right)), "most": max(right)}


def table(cases: Sequence[dict[str, Any]]) -> str:
    """Return the markdown table: a row per penalty."""
    rows = []
    for case in cases:
        spread = Spread(**case["fits"]["milliseconds"]["fit_probe"])
        rows.append([
            f"{case['penalty']:g}", str(case["n_fits"]), spread.scaled(1e-3).text(),
            f"{spread.median / case['n_fits']:.0f}", "yes" if case["all_converged"] else "NO",
            f"{case['training_accuracy']['median']:.2f}", f"{case['peak_memory_mib']:,.0f}"])
    return markdown_table(
        ["penalty per instance", "fits", f"all fits, s (target {TARGET_SECONDS:g})", "per fit, ms",
         "all converged", "median training accuracy", "peak memory, MiB"], rows)


def figure(cases: Sequence[dict[str, Any]]) -> Any:
    """Return bars of seconds for the whole set, per penalty."""
    measured = [{"fit_probe": Spread(**case["fits"]["milliseconds"]["fit_probe"]).scaled(1e-3)}
                for case in cases]
    return bars([case["name"] for case in cases], measured,
                f"seconds for {cases[0]['n_fits']} fits (median, quartiles)")


if __name__ == "__main__":
    tyro.cli(main)
