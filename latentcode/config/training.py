"""The optimisation of a run, its evaluations and its checkpoints."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from latentcode.config.fields import check_choices, check_fields, check_seed, is_number, later
from latentcode.errors import check

Precision = Literal["float32", "tf32", "bf16_mlp", "bf16"]
HOW_FIELDS = ("accumulate", "checkpoint_activations", "compile")
"""Fields of the training that decide on memory and speed, and on results by rounding alone."""


@dataclass(frozen=True)
class TrainingConfig:
    """Optimisation, evaluation and checkpoints of one run."""

    steps: int = 50_000
    """Number of updates (fuzzy logic: 50,000; SRAVEN: 20 M instances / batch size)."""
    batch_size: int = 128
    """Instances per update (Table A3)."""
    learning_rate: float = 1e-3
    """Peak learning rate (Table A3)."""
    weight_decay: float = 0.1
    """Decoupled weight decay (Table A3), on every tensor that is not one-dimensional."""
    warmup_steps: int = 100
    """Updates of linear warm-up, 100 or a twentieth of no more than 200 steps; the cosine then
    falls to a tenth of the peak at `steps - warmup_steps` (official schedule)."""
    grad_clip: float | None = None
    """Largest global gradient norm; None, as official, does not clip."""
    seed: int = 0
    """Seed of the initial weights, the data streams and the dropout masks."""
    device: str = "cpu"
    """`cpu`, `cuda` or `cuda:N`."""
    precision: Precision = "float32"
    """float32; tf32: float32 whose matrix products round their factors to 10 bits (CUDA only);
    bf16_mlp: bfloat16 autocast in the feed-forward layers, which do most of the arithmetic; or
    bf16: bfloat16 autocast everywhere, in which logits of HYLA are off by 3 %. Weights and losses
    are float32 always. Training in bfloat16 is refused where the processor or GPU could only
    emulate it."""
    eval_every: int = 10_000
    """Steps between evaluations; the last step is always evaluated."""
    eval_instances: int = 16_000
    """Instances per split and evaluation."""
    log_every: int = 100
    """Steps between records of the training loss."""
    checkpoint_every: int = 10_000
    """Steps between checkpoints; the last step always has one."""
    keep_checkpoints: int | None = 2
    """How many of the newest checkpoints stay on disk; None keeps all."""
    milestones: tuple[int, ...] = later(())
    """Further steps with an evaluation and a checkpoint, which stays."""

    accumulate: int = later(1)
    """Micro-batches into which each process divides its share of a batch, to save memory."""
    checkpoint_activations: bool = later(False)
    """Keep only what enters each block, and compute the rest again in the backward pass."""
    compile: bool = later(False)
    """Compile the step with torch.compile; hooks are then refused."""

    def __post_init__(self) -> None:
        check_choices("training", self)
        check_fields("training", self, 1, "steps", "batch_size", "eval_every", "eval_instances",
                     "log_every", "checkpoint_every", "accumulate")
        for name in ("checkpoint_activations", "compile"):
            value = getattr(self, name)
            check(type(value) is bool, f"training.{name} is {value!r}; expected True or False")
        if self.warmup_steps == TrainingConfig.warmup_steps and self.steps <= 2 * self.warmup_steps:
            object.__setattr__(self, "warmup_steps", self.steps // 20)
        check_fields("training", self, 0, "warmup_steps")
        check_seed("training", self, "seed")
        if self.keep_checkpoints is not None:
            check_fields("training", self, 1, "keep_checkpoints")
        self._check_milestones()
        for name in ("learning_rate", "weight_decay"):
            value = getattr(self, name)
            check(is_number(value) and 0.0 <= value < float("inf"),
                  f"training.{name} is {value!r}; expected a number of at least 0")
        check(self.grad_clip is None
              or (is_number(self.grad_clip) and 0.0 < self.grad_clip < float("inf")),
              f"training.grad_clip is {self.grad_clip!r}; expected a number above 0, or null")
        check(2 * self.warmup_steps < self.steps or self.warmup_steps == 0,
              f"training.warmup_steps is {self.warmup_steps}; expected less than half of steps "
              f"= {self.steps}")
        check(re.fullmatch(r"cpu|cuda(:[0-9]+)?", str(self.device)) is not None,
              f"training.device is {self.device!r}; expected cpu, cuda or cuda:N")
        check(self.precision != "tf32" or self.device != "cpu", "training.precision is 'tf32'; "
              "expected float32, bf16_mlp or bf16 on the cpu")

    def _check_milestones(self) -> None:
        steps = self.milestones
        rising = isinstance(steps, (list, tuple)) and all(
            type(step) is int and before < step <= self.steps
            for before, step in zip((0, *steps), steps, strict=False))
        check(rising, f"training.milestones is {steps!r}; expected rising whole numbers from 1 to "
              f"steps = {self.steps}")
        object.__setattr__(self, "milestones", tuple(steps))
