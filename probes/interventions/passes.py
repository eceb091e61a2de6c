"""Former names of `latentcode.models.patched.passes`."""

from __future__ import annotations

from latentcode.models.patched.passes import CleanPass as Unpatched
from latentcode.models.patched.passes import clean_pass as unpatched_pass
from latentcode.models.patched.passes import computed as computed
from latentcode.models.patched.passes import computed_by_layers as computed_by_layers
from latentcode.models.patched.passes import run_from as run_from

__all__ = ["Unpatched", "unpatched_pass"]
