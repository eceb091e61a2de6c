"""Former names of `latentcode.models.patched.sites`."""

from __future__ import annotations

from latentcode.models.patched.sites import SITES as SITES
from latentcode.models.patched.sites import Edit as Edit
from latentcode.models.patched.sites import InScope as InScope
from latentcode.models.patched.sites import InScope as in_scope
from latentcode.models.patched.sites import Place as Place
from latentcode.models.patched.sites import Put as Put
from latentcode.models.patched.sites import capture as capture
from latentcode.models.patched.sites import check_constraint as check_constraint
from latentcode.models.patched.sites import check_written as check_written
from latentcode.models.patched.sites import constrained as constrained
from latentcode.models.patched.sites import has_constraint as has_constraint
from latentcode.models.patched.sites import normalization_of as normalization_of
from latentcode.models.patched.sites import run_patched as run_patched

__all__ = ["in_scope"]
