"""Training: one model, one run folder, reproducible bit for bit on the CPU."""

from __future__ import annotations

from latentcode.training.evaluation import evaluate
from latentcode.training.loop import train, training_step
from latentcode.training.optimizer import learning_rate, make_optimizer
from latentcode.training.side_by_side import train_side_by_side

__all__ = ["evaluate", "learning_rate", "make_optimizer", "train", "train_side_by_side",
           "training_step"]
