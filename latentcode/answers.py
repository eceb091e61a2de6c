"""Whose answer is an answer? The classes of a factorial of sources (`tasks.counterfactuals`)."""

from __future__ import annotations

CLASSES: dict[str, str] = {
    "base": "A(x), the base's own answer",
    "operation": "B(x), the source's operation on the base's operands",
    "operands": "A(x'), the base's operation on the source's operands",
    "answer": "B(x'), the source's own answer: its operation on its operands",
    "else": "none of these",
}
"""Whose answer an answer is, in the order of `MinimalPairs.candidates`.

Of interchange patches the rates of `operation`, `operands` and `answer` are the interchange
intervention accuracies (IIA) of these three variables.
"""

IN_WORDS: dict[str, str] = {
    "base": "the problem's own answer",
    "operation": "the source's operation on this problem's operands",
    "operands": "this problem's operation on the source's operands",
    "answer": "the source's own answer",
    "else": "none of these",
}
"""The same for those who know no letters: on pages and in sentences."""
