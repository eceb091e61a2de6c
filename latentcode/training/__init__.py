"""Training: one model, one run folder, reproducible bit for bit on the CPU."""

from __future__ import annotations

from latentcode.training.loop import train, train_ensemble
from latentcode.training.state import evaluate, learning_rate, make_optimizer, training_step

__all__ = ["evaluate", "learning_rate", "make_optimizer", "train", "train_ensemble",
           "training_step"]
