"""May a run that was trained elsewhere stand beside ours? Checked before it is published."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from latentcode.devices import evaluation_batch, resolve_device
from latentcode.errors import RunError, check
from latentcode.experiments.paper.queue import QUEUE, is_member, members
from latentcode.metrics import Metric
from latentcode.runs import Run
from latentcode.tasks import make_task
from latentcode.training import evaluate
from latentcode.training.session import TRAINING_LOSS

MOST_APART = 5.0
"""Standard errors of the difference that a recorded metric may be from the recomputed one. A GPU
draws other instances than a CPU, so the two are independent means; one in two million honest
metrics is further away."""


def place_of(run: Run, out: Path) -> Path:
    """Return where in `out` a run belongs: GRID/MEMBER, whatever its folder is called.

    `RunError` unless the long trainings have a member of its configuration (device and precision
    apart), and it is complete.
    """
    grids = list(dict.fromkeys(stage.grid for stage in QUEUE))
    found = [path for stage in QUEUE for path, config in members(stage, out).items()
             if is_member(run, config)]
    check(bool(found), f"{run.path} has a configuration that no grid has; expected a member of "
          f"{', '.join(grids)}, but for device and precision", RunError)
    check(run.is_complete and run.has_weights, f"{run.path} has checkpoints of "
          f"{run.checkpoints()}; expected that of its last step, {run.config.training.steps}, with "
          "weights", RunError)
    return found[0]


def recomputed(run: Run, device: str = "cpu") -> pd.DataFrame:
    """Return the evaluations of a run beside those of its weights, in float32 on this machine.

    Those of every checkpoint that was evaluated, the last one among them: columns step, split,
    metric, recorded, recomputed and apart, |a - b| in standard errors of the difference (at least
    1 / n: one instance). The weights that a seed begins with are left out: they are others before
    torch 2.13, whose `trunc_normal_` draws in another way. `RunError` where what was recorded has
    other metrics.
    """
    config, table = run.config, run.metrics()
    task, target = make_task(config.task), resolve_device(device)
    settings = config.training
    size = evaluation_batch(
        settings.batch_size, target,
        (task.n_read or task.config.n_tokens) * task.config.d_output)
    rows = []
    evaluated = table[table["metric"] != TRAINING_LOSS]
    with_weights = {*run.checkpoints()} & {*evaluated["step"]}
    for step in sorted({settings.steps} | with_weights):
        model = run.load_model(step, target)
        for split in task.splits:
            said = evaluated[(evaluated["step"] == step) & (evaluated["split"] == split)]
            found = evaluate(model, task, split, settings.eval_instances, seed=settings.seed,
                             batch_size=size, device=target)
            check(sorted(said["metric"]) == sorted(found), f"{run.path} records "
                  f"{', '.join(sorted(said['metric'])) or 'nothing'} on {split} at step {step}; "
                  f"expected {', '.join(sorted(found))}", RunError)
            for name, mean, se, n in said[["metric", "mean", "se", "n"]].to_numpy():
                recorded = Metric(float(mean), float(se), int(n))
                rows.append({"step": step, "split": split, "metric": name,
                             "recorded": recorded.mean, "recomputed": found[name].mean,
                             "apart": _apart(recorded, found[name])})
    return pd.DataFrame(rows)


def _apart(one: Metric, other: Metric) -> float:
    if math.isnan(one.mean) or math.isnan(other.mean):
        return 0.0 if math.isnan(one.mean) and math.isnan(other.mean) else math.inf
    if math.isnan(one.se) or math.isnan(other.se):
        return math.inf
    error = max(math.hypot(one.se, other.se), 1.0 / max(1, min(one.n, other.n)))
    return abs(one.mean - other.mean) / error


def accept(folder: Path, out: Path, device: str = "cpu") -> tuple[Path, pd.DataFrame]:
    """Publish a run that was trained elsewhere, where runs of its configuration belong in `out`.

    Only if it is `place_of` the long trainings and every metric is within `MOST_APART` of what its
    weights give. Weights are read with their digests; no file can run code. What no check
    can tell is whether the weights came of that training alone. Returns the published folder and
    `recomputed`. `RunError` names what is wrong, and then nothing is written.
    """
    run = Run.open(folder)
    target = place_of(run, out)
    check(not target.exists(), f"{target} is there already; expected a run that is new", RunError)
    table = recomputed(run, device)
    worst = max(table.to_dict("records"), key=lambda row: float(row["apart"]))
    check(worst["apart"] <= MOST_APART, f"{run.path} records {worst['metric']} "
          f"{worst['recorded']:.4f} on {worst['split']} at step {worst['step']}, and its weights "
          f"have {worst['recomputed']:.4f}, {worst['apart']:.1f} standard errors away; expected at "
          f"most {MOST_APART:g}", RunError)
    target.parent.mkdir(parents=True, exist_ok=True)
    run.publish(target, step=[step for step in run.checkpoints() if step in set(table["step"])])
    return target, table
