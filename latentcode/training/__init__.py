"""Training: one model, one run folder, reproducible bit for bit on the CPU."""

from __future__ import annotations

from latentcode.training.ensemble import train_ensemble
from latentcode.training.evaluation import evaluate
from latentcode.training.loop import train
from latentcode.training.optimizer import learning_rate, make_optimizer
from latentcode.training.side_by_side import train_side_by_side
from latentcode.training.state import training_step

__all__ = ["evaluate", "learning_rate", "make_optimizer", "train", "train_ensemble",
           "train_side_by_side", "training_step"]
