"""The run folder: configuration, checkpoints, metrics, provenance."""

from __future__ import annotations

from latentcode.runs.run import Run

__all__ = ["Run"]
