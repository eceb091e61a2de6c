"""Training: one model, one run folder, reproducible bit for bit on the CPU."""

from __future__ import annotations

from latentcode.training.ensemble import train_ensemble
from latentcode.training.evaluation import evaluate
from latentcode.training.loop import train
from latentcode.training.optimizer import learning_rate, make_optimizer
from latentcode.training.state import training_step

__all__ = ["evaluate", "learning_rate", "make_optimizer", "train", "train_ensemble",
           "training_step"]
