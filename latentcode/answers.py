"""Whose answer is an answer? The classes of a factorial of sources (`tasks.counterfactuals`)."""

from __future__ import annotations

CLASSES: dict[str, str] = {
    "instance": "A(x), the instance's own answer",
    "operation": "B(x), the source's operation on the instance's operands",
    "operands": "A(x'), the instance's operation on the source's operands",
    "copied": "B(x'), the source's operation on the source's operands",
    "else": "none of these",
}
"""Whose answer an answer is, in the order of `MinimalPairs.candidates`."""

__all__ = ["CLASSES"]
