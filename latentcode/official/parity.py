"""Do our models give the official implementation's numbers? From its weights, step by step.

A file is an `.npz` of the official code's inputs, parameters and outputs: `param/...`, `x`,
`logits`, `attn_weights_{l}`, `attn_bias_{l}`, `config_json` and perhaps `y` with `loss`; or, for
N optimiser steps, `param0/...`, `grad0/...`, `paramN/...`, `x`, `y`, `losses`, `grad_norms`,
`lr_schedule...` and `config_json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentcode.config import LogicConfig, SravenConfig, TrainingConfig
from latentcode.errors import ArtifactError, LatentCodeError, check
from latentcode.models.flax import (
    OPTIMIZER,
    TRAINING_FIELDS,
    check_params,
    model_from_flax,
    params_to_flax,
)
from latentcode.models.positions import relative_bias
from latentcode.models.transformer import HookedTransformer
from latentcode.official.files import OfficialFile, read_official
from latentcode.tasks import Batch, Task, make_task
from latentcode.training.optimizer import BETAS, learning_rate, make_optimizer
from latentcode.training.state import training_step

PRECISIONS: dict[str, torch.dtype] = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True)
class Tolerance:
    """|ours - official| <= absolute + relative * |official| for every element."""

    absolute: float
    relative: float = 0.0

    def excess(self, ours: np.ndarray, official: np.ndarray) -> float:
        """Return the largest error in units of what is allowed; NaN counts as infinite."""
        allowed = self.absolute + self.relative * np.abs(official)
        ratio = np.abs(ours - official) / allowed
        return float(np.nan_to_num(ratio, nan=np.inf).max(initial=0.0))


FORWARD: dict[str, Tolerance] = {
    "float64": Tolerance(5e-5), "float32": Tolerance(1e-4, 1e-4)}
"""Of logits, attention weights and bias. The official numbers are float32 themselves."""

SCORED: tuple[str, ...] = ("logits", "attention", "bias", "loss", "r2", "accuracy")
"""What is compared in a file of outputs, where the file holds it."""

TRAINING: dict[str, dict[str, Tolerance]] = {
    "losses": {"float64": Tolerance(0.0, 2e-5), "float32": Tolerance(0.0, 5e-5)},
    "gradients": {"float64": Tolerance(1e-5, 1e-4), "float32": Tolerance(1e-5, 1e-3)},
    "norms": {"float64": Tolerance(0.0, 1e-3), "float32": Tolerance(0.0, 1e-3)},
    "schedule": {"float64": Tolerance(1e-9, 1e-6), "float32": Tolerance(1e-9, 1e-6)},
    "parameters": {"float64": Tolerance(1e-5), "float32": Tolerance(1e-4)},
}
"""Of the optimiser steps. Adam divides by the size of a gradient, so that rounding noise in small
gradients is amplified: float32 is allowed up to ten times what float64 is.

The updates are those of optax, with its rounded bias corrections (`optax_corrections`): in the
golden files the losses of eight steps then differ by 6e-7 of themselves in float64 and the norms
by 2e-6, where exact corrections give 3e-5 and 4e-4. What is left is the rounding of the official
float32, which grows from step to step. In float64, 34 of 36 files made with the official models
in other dimensions (six mixers, one to three layers, 8 to 24 steps) hold 2e-5 in their losses. In
the other two, of HYLA over 12 steps and of HYLA without its nonlinearity over 24, the official
losses differ from ours by 4.3e-5 and 2.3e-5, and by as much from those of the official model run
in float64 with these corrections, with which ours agree to 2e-7.

Gradients are compared where the file holds them, at the first step; their norms at every step,
where the weights have drifted apart by rounding already (up to 2e-4 of the norm in those files in
float64, and 4e-4 in float32)."""


@dataclass(frozen=True)
class Comparison:
    """The largest error of one quantity in one precision."""

    quantity: str
    precision: str
    largest_error: float
    excess: float
    """Largest error in units of the tolerance; at most 1 where the numbers agree."""

    @property
    def agrees(self) -> bool:
        return self.excess <= 1.0


@dataclass(frozen=True)
class Report:
    """What one file gave.

    comparisons  one per quantity and precision; none for a file that cannot be run
    unread       names of arrays that nothing was compared with
    damage       why the file cannot be run, or None
    """

    file: str
    comparisons: tuple[Comparison, ...] = ()
    unread: tuple[str, ...] = ()
    damage: str | None = None

    @property
    def agrees(self) -> bool:
        """Whether the file could be run and every number is within its tolerance."""
        return self.damage is None and all(c.agrees for c in self.comparisons)

    @property
    def problems(self) -> list[str]:
        """One line per thing that is wrong, each naming the file."""
        if self.damage is not None:
            return [self.damage]
        return [f"{self.file}: {c.quantity} differ by {c.largest_error:.2g} in {c.precision}, "
                f"{c.excess:.3g} times the tolerance" for c in self.comparisons if not c.agrees]


def compare(path: str | Path) -> Report:
    """Import the file's weights, run our model, and compare everything that it holds.

    Raises `ArtifactError` saying what is wrong with a file that cannot be run.
    """
    file = read_official(path)
    run = _compare_steps if "losses" in file.arrays else _compare_forward
    try:
        comparisons = [c for precision in PRECISIONS for c in run(file, precision)]
    except LatentCodeError as error:
        raise ArtifactError(f"{path}: {error}") from None
    return Report(str(path), tuple(comparisons), tuple(file.unread))


def compare_all(paths: Sequence[str | Path]) -> list[Report]:
    """`compare` every file; one that cannot be run does not keep the others from being run."""
    reports = []
    for path in paths:
        try:
            reports.append(compare(path))
        except ArtifactError as error:
            reports.append(Report(str(path), damage=str(error)))
    return reports


def _compare_forward(file: OfficialFile, precision: str) -> list[Comparison]:
    dtype, tolerance = PRECISIONS[precision], FORWARD[precision]
    model = model_from_flax(file.config, file.params()).eval().to(dtype)
    x = _inputs(file, model, dtype)
    n, length, heads = x.shape[0], x.shape[1], model.cfg.n_heads
    official_logits = file.array("logits", (n, length, model.cfg.d_output))
    with torch.no_grad():
        logits, cache = model.run_with_cache(x)
    patterns, biases = [], []
    for layer in range(model.cfg.n_layers):
        wanted = file.array(f"attn_weights_{layer}", (None, heads, length, length))
        # Large attention matrices are stored for the first instances only.
        check(len(wanted) <= n, f"attn_weights_{layer} has {len(wanted)} instances; expected at "
              f"most {n}, as many as x", ArtifactError)
        patterns.append((cache[f"blocks.{layer}.attn.hook_pattern"][:len(wanted)], wanted))
        table = model.layer(layer).attn.rel_pos_bias
        if table is not None:
            biases.append((
                relative_bias(table, length, length, model.cfg.max_distance).detach(),
                file.array(f"attn_bias_{layer}", (1, heads, length, length))))
    comparisons = [_comparison("logits", precision, tolerance, [(logits, official_logits)]),
                   _comparison("attention", precision, tolerance, patterns)]
    if biases:
        comparisons.append(_comparison("bias", precision, tolerance, biases))
    if "loss" in file.arrays and "y" in file.arrays and model.cfg.embedding == "dense":
        slack = tolerance.absolute + tolerance.relative * float(np.abs(official_logits).max())
        comparisons += _compare_scores(file, logits, precision, slack)
    return comparisons


def _compare_scores(
    file: OfficialFile, logits: Tensor, precision: str, slack: float
) -> list[Comparison]:
    """Compare the loss and other measures of the task; `slack` is what a logit may be off by."""
    task, y = _task(file, len(logits), logits.shape[-1], logits.dtype)
    # (d + slack)^2 - d^2 <= slack (1 + d^2) up to slack^2, and a cross-entropy changes by no
    # more than twice what its logits do. An answer that flips is no matter of rounding.
    if task.name == "sraven":
        info = {}
        wanted = {"loss": (Tolerance(2 * slack), {"loss": "loss"}),
                  "accuracy": (Tolerance(1e-6), {"accuracy": "acc",
                                                 "feature_accuracy": "acc_per_feature"})}
    else:
        base = np.ones((len(y), 1))
        if "r2" in file.arrays:
            base = file.array("base_mse", (len(y), 1))
            check(bool((base > 0).all()), "base_mse is not above 0 everywhere", ArtifactError)
        info = {"base_mse": torch.from_numpy(base[:, 0]).to(logits.dtype)}
        wanted = {"loss": (Tolerance(slack, slack), {"loss": "loss"}),
                  "r2": (Tolerance(slack * (1 + float((1 / base).mean())), slack), {"r2": "r2"})}
    batch = Batch(logits, y, torch.zeros(len(y), dtype=torch.long), info)
    measured = {name: values.double().mean()
                for name, values in task.measures(logits, batch).items()}
    comparisons = []
    for quantity, (tolerance, names) in wanted.items():
        found = [(measured[ours], file.array(theirs, ()))
                 for ours, theirs in names.items() if theirs in file.arrays]
        if found:
            comparisons.append(_comparison(quantity, precision, tolerance, found))
    return comparisons


def _task(
    file: OfficialFile, n: int, d_output: int, dtype: torch.dtype
) -> tuple[Task, Tensor]:
    """Return the task whose loss the targets `y` [n, ...] are for, and the targets.

    Only the loss and the measures of the task are used, which do not depend on its dimensions.
    """
    y = file.array("y", kinds="fiu")
    if y.dtype.kind == "f":
        check(d_output == 1, f"y is real-valued, but the model has {d_output} outputs; expected "
              "1, as for fuzzy logic", ArtifactError)
        file.array("y", (*y.shape[:-2], n, 1))
        return make_task(LogicConfig()), torch.from_numpy(np.array(y, np.float64)).to(dtype)
    file.array("y", (*y.shape[:-2], n, None), "iu")
    check(bool((y >= 0).all() and (y < d_output).all()),
          f"y holds {y.min()} to {y.max()}; expected symbols from 0 to {d_output - 1}",
          ArtifactError)
    return make_task(SravenConfig(n_features=y.shape[-1])), torch.from_numpy(y.astype(np.int64))


def _inputs(file: OfficialFile, model: HookedTransformer, dtype: torch.dtype, steps: int = 0
            ) -> Tensor:
    """Return `x`, [steps, B, T, d_input] or [B, T], in the type that the model takes."""
    leading: tuple[int | None, ...] = (steps, None) if steps else (None,)
    if model.cfg.embedding == "dense":
        x = file.array("x", (*leading, None, model.cfg.d_input))
        return torch.from_numpy(np.array(x, np.float64)).to(dtype)
    x = file.array("x", (*leading, None), "iu")
    check(bool((x >= 0).all() and (x < model.cfg.d_input).all()),
          f"x holds {x.min()} to {x.max()}; expected token ids from 0 to {model.cfg.d_input - 1}",
          ArtifactError)
    return torch.from_numpy(x.astype(np.int64))


def _comparison(
    quantity: str, precision: str, tolerance: Tolerance,
    pairs: Sequence[tuple[Tensor | np.ndarray, np.ndarray]],
) -> Comparison:
    """Compare pairs (ours, official) of arrays of equal shape."""
    arrays = [(np.asarray(ours, np.float64), np.asarray(official, np.float64))
              for ours, official in pairs]
    errors = [float(np.nan_to_num(np.abs(a - b), nan=np.inf).max()) for a, b in arrays]
    return Comparison(quantity, precision, max(errors),
                      max(tolerance.excess(a, b) for a, b in arrays))


def _compare_steps(file: OfficialFile, precision: str) -> list[Comparison]:
    """Run the recorded optimiser steps from the recorded weights on the recorded batches."""
    dtype, settings = PRECISIONS[precision], _settings(file.config)
    model = model_from_flax(file.config, file.below("param0/")).to(dtype).train()
    check(model.cfg.attention_dropout == 0.0, "attention_dropout_rate is "
          f"{model.cfg.attention_dropout}; expected 0, so that the steps are deterministic")
    losses = file.array("losses", (None,))
    steps = len(losses)
    norms = file.array("grad_norms", (steps,))
    x = _inputs(file, model, dtype, steps)
    task, y = _task(file, x.shape[1], model.cfg.d_output, dtype)
    check(len(y) == steps and y.ndim == 3, f"y has shape {tuple(y.shape)}; expected "
          f"({steps}, {x.shape[1]}, ...)", ArtifactError)
    optimizer = make_optimizer(model, settings)
    pairs: dict[str, list[tuple[Any, np.ndarray]]] = {name: [] for name in TRAINING}
    for step in range(steps):
        _set_rates(optimizer, step, settings)
        batch = Batch(x[step], y[step], torch.zeros(x.shape[1], dtype=torch.long))
        loss = training_step(model, task, batch, optimizer)
        pairs["losses"].append((loss, losses[step]))
        # The update leaves the gradients as they were.
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        pairs["norms"].append((torch.nn.utils.get_total_norm(grads), norms[step]))
        pairs["gradients"] += _parameters(file, f"grad{step}/", _gradients(model), model,
                                          required=step == 0)
        pairs["parameters"] += _parameters(file, f"param{step + 1}/", model, model,
                                           required=step + 1 == steps)
    schedules = [key for key in file.arrays if key.startswith("lr_schedule")]
    check(bool(schedules), "lr_schedule is missing", ArtifactError)
    for key in schedules:
        rates = file.array(key, (None,))
        named = re.search(r"steps(\d+)_", key)
        first = int(named[1]) if named else 0
        ours = [learning_rate(first + index, settings) for index in range(len(rates))]
        pairs["schedule"].append((np.array(ours), rates))
    return [_comparison(name, precision, TRAINING[name][precision], found)
            for name, found in pairs.items()]


def optax_corrections(count: int) -> tuple[float, float]:
    """1 - beta^t for both betas at update t, from 1, as optax has it: rounded to float32.

    Its `tree_bias_correction` takes `1 - decay**count` of a Python float and an int32; compiled,
    that is a power and a difference of float32 numbers. The difference cancels: for 0.999 it is
    off by 1.3e-5 of itself at t = 1 and by 2e-5 at t = 2. XLA's power is the float32 nearest to
    the true one of float32(beta): checked on a CPU (jax 0.10.2, optax 0.2.8) for t up to 4,000,
    where two of 0.999, 2958 and 3606, are one unit in the last place off.
    """
    first, second = (float(np.float32(1) - np.float32(float(np.float32(beta)) ** count))
                     for beta in BETAS)
    return first, second


def _set_rates(optimizer: torch.optim.Optimizer, step: int, settings: TrainingConfig) -> None:
    """Make the coming update of our AdamW, the `step`-th from 0, that of optax.

    Training corrects exactly, by c, and optax by c'. With s = sqrt(c2' / c2),
    lr / c1' m / (sqrt(v / c2') + eps) = (lr s c1 / c1') / c1 m / (sqrt(v / c2) + eps s):
    the same update with another learning rate (eps, off by 1e-5 of itself, can stay). The weight
    decay, which the learning rate multiplies, makes up for it.
    """
    first, second = (theirs / (1.0 - beta ** (step + 1))
                     for theirs, beta in zip(optax_corrections(step + 1), BETAS, strict=True))
    scale = sqrt(second) / first
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, settings) * scale
        if group["weight_decay"]:  # not masked
            group["weight_decay"] = settings.weight_decay / scale


def _settings(official: Mapping[str, Any]) -> TrainingConfig:
    """Return the recorded training settings."""
    missing = [name for name in (*TRAINING_FIELDS, *OPTIMIZER) if name not in official]
    check(not missing, f"official configuration lacks {', '.join(missing)}")
    for name, value in OPTIMIZER.items():
        check(official[name] == value, f"official {name} is {official[name]!r}; expected {value}")
    return TrainingConfig(**{ours: official[name] for name, ours in TRAINING_FIELDS.items()})


def _gradients(model: HookedTransformer) -> HookedTransformer:
    """Return a model that holds the gradients in place of the weights."""
    holder = HookedTransformer(model.cfg).to(next(model.parameters()).dtype)
    for target, parameter in zip(holder.parameters(), model.parameters(), strict=True):
        assert parameter.grad is not None
        target.data.copy_(parameter.grad)
    return holder


def _parameters(
    file: OfficialFile, prefix: str, ours: HookedTransformer, model: HookedTransformer, *,
    required: bool,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (ours, official) for all parameters below a prefix, if the file has it.

    Under softmax the key bias shifts all scores of a query alike: its true gradient is zero,
    Adam amplifies what rounding leaves of it, and it is not compared.
    """
    official = file.below(prefix)
    if not official and not required:
        return []
    check_params(model.cfg, official, f"arrays {prefix.rstrip('/')}")
    softmax = model.cfg.normalization == "softmax"
    return [(value, official[path]) for path, value in params_to_flax(ours).items()
            if not (softmax and path.endswith("sequence_mixer/key/bias"))]


def table(reports: Sequence[Report]) -> str:
    """Return text tables of the largest absolute errors, a line per file and precision.

    Files with the same quantities stand in one table.
    """
    groups: dict[tuple[str, ...], list[Report]] = {}
    for report in reports:
        steps = any(c.quantity in TRAINING for c in report.comparisons)
        quantities = (() if report.damage else tuple(TRAINING) if steps else tuple(
            q for q in SCORED if any(c.quantity == q for r in reports for c in r.comparisons)))
        groups.setdefault(quantities, []).append(report)
    return "\n\n".join(_table(quantities, group) for quantities, group in groups.items())


def _table(quantities: Sequence[str], reports: Sequence[Report]) -> str:
    rows = [["file", "precision", *quantities, "verdict"]]
    for report in reports:
        name = Path(report.file).name
        if report.damage is not None:
            rows.append([name, "-", "damaged"])
            continue
        for precision in PRECISIONS:
            found = {c.quantity: c for c in report.comparisons if c.precision == precision}
            wrong = [q for q, c in found.items() if not c.agrees]
            rows.append([name, precision, *(_cell(found.get(q)) for q in quantities),
                         f"differs in {', '.join(wrong)}" if wrong else "agrees"])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
                     .rstrip() for row in rows)


def _cell(comparison: Comparison | None) -> str:
    if comparison is None:
        return "-"
    error = comparison.largest_error
    return f"{error:.1e}" if isfinite(error) else str(error)


__all__ = ["FORWARD", "SCORED", "TRAINING", "Comparison", "Report", "Tolerance", "compare",
           "compare_all", "optax_corrections", "table"]
