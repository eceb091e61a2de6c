"""Former names of passes in which z of some heads is written (`latentcode.models.patched`)."""

from __future__ import annotations

from latentcode.models.patched.passes import NUMBERS as NUMBERS
from latentcode.models.patched.passes import TOKENS as TOKENS
from latentcode.models.patched.passes import CleanPass as CleanPass
from latentcode.models.patched.passes import Output as Output
from latentcode.models.patched.passes import Write as Write
from latentcode.models.patched.passes import agrees as agrees
from latentcode.models.patched.passes import check_shown as check_shown
from latentcode.models.patched.passes import clean_heads as clean_pass
from latentcode.models.patched.passes import logits_at as logits_at
from latentcode.models.patched.passes import unshared as unshared
from latentcode.models.patched.passes import z_hook as z_hook

__all__ = ["clean_pass"]
