"""Former names of passes in which z of some heads is written (`latentcode.models.patched`)."""

from __future__ import annotations

from latentcode.models.patched.heads import NUMBERS as NUMBERS
from latentcode.models.patched.heads import TOKENS as TOKENS
from latentcode.models.patched.heads import HeadPass as CleanPass
from latentcode.models.patched.heads import Write as Write
from latentcode.models.patched.heads import check_shown as check_shown
from latentcode.models.patched.heads import clean_heads as clean_pass
from latentcode.models.patched.heads import unshared as unshared
from latentcode.models.patched.heads import z_hook as z_hook
from latentcode.models.patched.passes import logits_at as logits_at

__all__ = ["CleanPass", "clean_pass"]
