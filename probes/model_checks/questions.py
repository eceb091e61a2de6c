"""What is asked of a bridge, how far it may be off, and what cannot be trusted otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

READING = "extract, decode"
RESIDUAL = "residual streams"
WRITING = "intervene"
RENORMALIZING = "renormalize"
GENERATING = "value_network"
VERBS: tuple[str, ...] = (READING, RESIDUAL, WRITING, RENORMALIZING, GENERATING)
"""What a user does with a model."""

TOLERANCES: Mapping[str, float] = {"float64": 1e-6, "float32": 1e-4}
"""Largest difference over the largest number compared. The bridge and `transformers` add the same
products in another order: over all architectures of docs/architectures.md that gave at most 1e-6 in
float32. In float64 it gives 1e-15 where all is float64, and up to 4e-7 where an architecture
computes its norms, its rotations or its softmax in float32 whatever its weights are."""


@dataclass(frozen=True)
class Question:
    """One thing that has to hold.

    asks     the question
    verbs    what cannot be trusted where the answer is no
    exact    whether nothing may differ at all, rather than no more than rounding
    changes  whether the number has to be above the tolerance, not below
    """

    asks: str
    verbs: tuple[str, ...]
    exact: bool = False
    changes: bool = False

    def bound(self, tolerance: float) -> float:
        return 0.0 if self.exact else tolerance

    def holds(self, value: float, tolerance: float) -> bool:
        bound = self.bound(tolerance)
        # False for NaN; a change that is not finite breaks the model.
        return bound < value < float("inf") if self.changes else value <= bound


QUESTIONS: Mapping[str, Question] = {
    "logits": Question("are the logits those of transformers?", VERBS),
    "padding": Question("and of prompts of several lengths in one batch?", (READING, RESIDUAL)),
    "residual": Question("is hook_resid_pre the hidden state of transformers?", (RESIDUAL,)),
    "codes": Question("are the codes the attention weights of transformers?", VERBS),
    "rows": Question("do the codes of a query sum to 1?", (RENORMALIZING,)),
    "masked": Question("are codes of later keys zero?", VERBS, exact=True),
    "values": Question("do codes times values give z?", (GENERATING,)),
    "value networks": Question("does sum_k W_qk x_k + b_O give attention's output?",
                               (GENERATING,)),
    "identity": Question("do codes written back leave every bit of the logits?",
                         (WRITING, RENORMALIZING), exact=True),
    "patch": Question("do random codes change the logits?", (WRITING, RENORMALIZING),
                      changes=True),
}
"""Every question by its name, in the order in which they are asked."""
