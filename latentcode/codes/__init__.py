"""The data set of codes, and how it is read out of a model."""

from __future__ import annotations

from latentcode.codes.latent_codes import LatentCodes

__all__ = ["LatentCodes"]
