"""What did the library of commit 04995c8 write and compute?

The record of how the folders beside this file and `expected.json` were made, with the code of
that commit and one thread. It is not run again: the names that it uses go, and files that later
code wrote would say nothing about the code of then. From the top of the repository it was run as

    PYTHONPATH=.:tests/helpers python tests/golden/frozen/make.py

The SRAVEN models of the zoo have been replaced since; the numbers of those of today are from 0.2.0.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fingerprints import digests, fingerprint

import latentcode as lc
from latentcode.config import LogicConfig, RunConfig, SravenConfig, TrainingConfig
from latentcode.models.config import with_kind
from latentcode.presets import model_for
from latentcode.probes import align_runs, similarity_of_run, topography_of_runs
from latentcode.probes.value_networks import mean_networks
from latentcode.sweep import Grid, sweep
from latentcode.training.loop import make_learner

HERE = Path(__file__).parent
MODEL: dict[str, Any] = {
    "n_layers": 2, "d_model": 16, "n_heads": 4, "d_head": 4, "d_head_v": 4, "d_mlp": 32,
    "attention_dropout": 0.0}
TRAINING = TrainingConfig(
    steps=1_000, batch_size=64, learning_rate=5e-3, warmup_steps=50, eval_every=1_000,
    eval_instances=500, log_every=100, checkpoint_every=990)
LOGIC = LogicConfig(n_variables=3, n_examples=16, ood_fraction=0.5)
SRAVEN = SravenConfig(n_features=2, n_values=5, permuted=False)
LONGER = {"steps": 3_000, "batch_size": 128, "eval_every": 3_000}
METRIC_INSTANCES = 256
PATCHES: tuple[lc.Intervention, ...] = (
    *(lc.Intervention(patch, scope, layers)
      for patch in ("interchange", "control", "class_mean", "resample", "shuffled", "erase")
      for scope, layers in (("pair", (0, 1)), ("row", (1,)))),
    lc.Intervention("interchange", "row", (1,), "residual"),
    lc.Intervention("interchange", "row", (1,), heads=(0,)),
    lc.Intervention("steer", "row", (1,), alpha=2.0, renormalize=True))


def config(
    task: LogicConfig | SravenConfig, training: dict[str, Any], **model: Any
) -> RunConfig:
    """Return the configuration of a tiny HYLA model."""
    return RunConfig(task, with_kind(model_for(task, **MODEL | model), "hyla"),
                     replace(TRAINING, **training))


def first_losses(configuration: RunConfig) -> list[float]:
    """Return the losses of the first five updates."""
    learner = make_learner(configuration)
    for _ in range(5):
        learner.update()
    return learner.recent_losses()[0]


def metrics(run: lc.Run) -> dict[str, dict[str, list[float]]]:
    """Return mean and number of the metrics of a run on every split, but not by constituent."""
    task, model = lc.make_task(run.config.task), run.load_model()
    return {split: {name: [metric.mean, metric.n] for name, metric in lc.evaluate(
        model, task, split, METRIC_INSTANCES, seed=0).items() if "[" not in name}
        for split in task.splits}


def tables(result: Any) -> dict[str, Any]:
    """Return the fingerprint of each table of a saved result, as it is read again."""
    return {name: fingerprint(table) for name, table in result.tables().items()}


def main() -> None:
    """Write everything anew."""
    torch.set_num_threads(1)
    for old in HERE.glob("*/"):
        shutil.rmtree(old)
    logic = lc.train(config(LOGIC, {}), HERE / "logic", progress=False)
    scratch = HERE / "scratch"
    full = lc.train(config(SRAVEN, LONGER, d_model=24), scratch, progress=False)
    sraven = full.publish(HERE / "sraven")
    shutil.rmtree(scratch)
    shorter = {"steps": 200, "eval_every": 100, "checkpoint_every": 200, "keep_checkpoints": 1}
    grid = Grid(config(LOGIC, shorter, d_model=8, d_head=2, d_head_v=2, d_mlp=16),
                {"kind": ("softmax", "hyla"), "training.seed": (1, 2)})
    swept = sweep(grid, HERE / "sweep", processes=1)
    for run in (logic, *map(lc.Run.open, (HERE / "sweep").glob("*/"))):
        (run.path / "timing.jsonl").unlink(missing_ok=True)
    for lock in HERE.rglob("*.lock"):
        lock.unlink()

    expected: dict[str, Any] = {
        "first_losses": {"logic": first_losses(logic.config),
                         "sraven": first_losses(sraven.config)},
        "metrics": {"logic": metrics(logic), "sraven": metrics(sraven)},
        "rows_of_metrics": {"logic": fingerprint(logic.metrics()),
                            "sraven": fingerprint(sraven.metrics())},
        "sweep": {"table": fingerprint(swept.table), "summary": fingerprint(swept.summary)},
    }

    expected["codes"] = {}
    codes = {}
    for split in ("train", "ood"):
        pairs = list(lc.make_task(LOGIC).pairs)[:2]
        codes[split] = lc.extract(logic, split=split, n=200, pairs=pairs,
                                  out=HERE / f"codes-{split}")
        expected["codes"][split] = {
            "shape": list(codes[split].scores.shape), "pairs": pairs,
            "sum": float(codes[split].scores.sum(dtype=np.float64)),
            "first": codes[split].scores[0, :, 0].tolist(),
            "labels": fingerprint(codes[split].labels)}

    members = [lc.Run.open(path) for path in sorted((HERE / "sweep").glob("*/"))]
    results: dict[str, Any] = {
        "decoding": lc.probe(logic, n_train=500, n_heldout=500),
        "decoding-sraven": lc.probe(sraven, n_train=500, n_heldout=500),
        "decoding-codes": lc.decode(codes["train"], codes["ood"], ["term_1"], controls=False),
        "intervention": lc.intervene(logic, interventions=PATCHES, n=600, n_reference=400,
                                     n_bootstrap=200),
        "intervention-sraven": lc.intervene(sraven, interventions=PATCHES[:4], split="train", n=600,
                                            n_reference=400, n_bootstrap=200),
        "similarity": similarity_of_run(logic, layers=[1], n=400, n_samples=4, n_bootstrap=200),
        "value-networks": mean_networks(logic, labels=["term_1"], n=400, n_inputs=32),
        "projection": lc.project(codes["train"], codes["ood"], ["term_1"], method="pca",
                                    pairs=[pairs[0]], cache=HERE / "scratch"),
        "alignment": align_runs(members[:2], ["term_1"], n_train=300, n_heldout=300,
                                n_bootstrap=200),
        "topography": topography_of_runs(members, ["terms"], n=300, n_instances=200,
                                         n_bootstrap=200),
    }
    shutil.rmtree(HERE / "scratch", ignore_errors=True)
    expected["results"] = {}
    for name, result in results.items():
        result.save(HERE / name, figures=False)
        expected["results"][name] = tables(type(result).load(HERE / name))

    expected["bench"] = {}
    for name, run in (("logic", logic), ("sraven", sraven)):
        bench = lc.Bench.of_run(run, n=40)
        for what in ("interchange", "mean_ablation"):
            patch = lc.Patch(3, bench.targets(3, 0)[0], what=what, layers=(0, 1))
            outcome = bench.patch(patch)
            expected["bench"][f"{name}, {what}"] = {
                "target": patch.target, "source": outcome.base_label, "truth": outcome.truth,
                "before": outcome.before.tolist(), "outputs": outcome.outputs.tolist(),
                "writes": outcome.table["patch"].tolist()}

    expected["zoo"] = {}
    for name in lc.list_models().index:
        expected["zoo"][name] = {"metrics": metrics(lc.load_run(name))}
    for name, label in (("logic-hyla", "term_1"), ("sraven-hyla", "rule")):
        found = lc.probe(lc.load_run(name), labels=[label], layers=[1], n_train=512,
                         n_heldout=512)
        expected["zoo"][name]["decoding"] = json.loads(found.table.to_json(orient="records"))

    expected["files"] = {name: digest for name, digest in digests(HERE).items()
                         if name not in ("make.py", "expected.json")
                         and "__pycache__" not in name}
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
