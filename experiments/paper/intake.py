"""May a run that was trained elsewhere stand beside ours? Checked before it is published."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from latentcode.devices import evaluation_batch, resolve_device
from latentcode.errors import RunError, check
from latentcode.experiments.paper.queue import QUEUE, is_member, members, publish_run
from latentcode.metrics import Metric, is_by_constituent
from latentcode.runs import Run
from latentcode.tasks import make_task
from latentcode.training import evaluate
from latentcode.training.session import TRAINING_LOSS

MOST_APART = 5.0
"""Standard errors of the difference that a recorded metric may be from the recomputed one. A GPU
draws other instances than a CPU, so the two are independent means; one in two million honest
metrics is further away."""
MOST_SPREAD = 10.0
"""How many times the recomputed standard error the recorded one may be, and the reverse."""
FEWEST = 20
"""Instances below which the metric of a single rule or term is no number to compare."""


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


def evaluations(run: Run) -> pd.DataFrame:
    """Return what a run recorded of its weights, as `Run.metrics` does, without training losses.

    `RunError` where a step, split and metric has two rows, steps fall, or a split is none of the
    task's: what is read of such a file may be a row that nobody has checked.
    """
    table, known = run.metrics(), {*make_task(run.config.task).splits, "train"}
    where = f"{run.path}/metrics.jsonl"
    twice = table[table.duplicated(["step", "split", "metric"])]
    check(twice.empty, f"{where} has two rows of {_named(twice)}; expected one", RunError)
    check(bool(table["step"].is_monotonic_increasing), f"{where} has steps that fall; expected the "
          "order of training", RunError)
    foreign = sorted({*table["split"]} - known)
    check(not foreign, f"{where} has the splits {', '.join(foreign)}; expected "
          f"{', '.join(sorted(known))}", RunError)
    return table[table["metric"] != TRAINING_LOSS]


def recomputed(run: Run, device: str = "cpu") -> pd.DataFrame:
    """Return the evaluations of a run beside those of its weights, in float32 on this machine.

    device  where they are computed

    Those of every checkpoint that was evaluated, the last one among them: columns step, split,
    metric, recorded, recomputed and apart (`_apart`; infinite where the standard errors are not
    `_alike`). Metrics of single rules or terms that have fewer than `FEWEST` instances on a side
    are left out. `RunError` where the others are not those that were recorded. Weights that were
    not kept, such as those that a seed begins with, cannot be asked; before torch 2.13 these are
    others, for `trunc_normal_` draws in another way.
    """
    task, target, said = make_task(run.config.task), resolve_device(device), evaluations(run)
    settings = run.config.training
    size = evaluation_batch(settings.batch_size, target,
                            (task.n_read or task.config.n_tokens) * task.config.d_output)
    rows = []
    for step in sorted({settings.steps} | ({*run.checkpoints()} & {*said["step"]})):
        model = run.load_model(step, target)
        for split in task.splits:
            of_split = said[(said["step"] == step) & (said["split"] == split)]
            old = {name: Metric(float(mean), float(se), int(n)) for name, mean, se, n
                   in of_split[["metric", "mean", "se", "n"]].to_numpy()}
            new = evaluate(model, task, split, settings.eval_instances, seed=settings.seed,
                           batch_size=size, device=target)
            whole = [sorted(name for name in found if not is_by_constituent(name))
                     for found in (old, new)]
            check(whole[0] == whole[1], f"{run.path} records {', '.join(whole[0]) or 'nothing'} on "
                  f"{split} at step {step}; expected {', '.join(whole[1])}", RunError)
            rows += [{"step": step, "split": split, "metric": name, "recorded": old[name].mean,
                      "recomputed": new[name].mean,
                      "apart": _apart(old[name], new[name]) if is_by_constituent(name) or _alike(
                          old[name], new[name]) else math.inf}
                     for name in new if name in old and not (is_by_constituent(name) and (
                         min(old[name].n, new[name].n) < FEWEST))]
    return pd.DataFrame(rows)


def _apart(recorded: Metric, now: Metric) -> float:
    """Return |a - b| / (sqrt(2) se), with the recomputed standard error, at least 1 / n.

    That of the file would be the word of who is checked.
    """
    if math.isnan(recorded.mean) and math.isnan(now.mean):
        return 0.0
    apart = abs(recorded.mean - now.mean) / (math.sqrt(2) * max(now.se, 1.0 / max(now.n, 1)))
    return math.inf if math.isnan(apart) else apart


def _alike(recorded: Metric, now: Metric) -> bool:
    """Whether two standard errors are within `MOST_SPREAD` of each other, give or take 1 / n."""
    one, other = (se + 1.0 / max(now.n, 1) for se in (recorded.se, now.se))
    return max(one, other) <= MOST_SPREAD * min(one, other) or math.isnan(one + other)


def accept(folder: Path, out: Path, device: str = "cpu") -> tuple[Path, pd.DataFrame]:
    """Publish a run that was trained elsewhere, where runs of its configuration belong in `out`.

    device  where its metrics are computed again

    Only if it is `place_of` the long trainings and every metric is within `MOST_APART` of what its
    weights give. Weights are read with their digests; no file can run code. Between the checkpoints
    what it records is taken as it stands, and no check can tell whether the weights came of that
    training alone. Returns the published folder and `recomputed`. `RunError` names what is wrong,
    and then nothing is written; what `Run.open` and `Run.load_model` raise passes through.
    """
    run = Run.open(folder)
    target = place_of(run, out)
    check(not target.exists(), f"{target} is there already; expected a run that is new", RunError)
    table = recomputed(run, device)
    worst = max(table.to_dict("records"), key=lambda row: float(row["apart"]))
    check(worst["apart"] <= MOST_APART, f"{run.path} records {worst['metric']} "
          f"{worst['recorded']:.4f} on {worst['split']} at step {worst['step']}, and its weights "
          f"have {worst['recomputed']:.4f}, {worst['apart']:.1f} standard errors away; expected at "
          f"most {MOST_APART:g}, and the standard error that they have", RunError)
    publish_run(run, target)
    return target, table


def _named(rows: pd.DataFrame) -> str:
    return ", ".join(f"{row.metric} on {row.split} at step {row.step}"
                     for row in rows.head(1).itertuples())
