"""SRAVEN: symbolic Raven matrices, their counts, their ambiguity and the best possible solver."""

from __future__ import annotations

from latentcode.tasks.sraven.ambiguity import (
    AnswerPosterior,
    ambiguous,
    answer_posterior,
    bayes_accuracy,
    bayes_scores,
    official_ambiguous,
)
from latentcode.tasks.sraven.counting import SravenCounts, count_sraven, distinct_instances
from latentcode.tasks.sraven.rules import RULES, complete, rules_that_hold
from latentcode.tasks.sraven.task import Sraven, aligned, permute_features, tokenize

__all__ = [
    "RULES",
    "AnswerPosterior",
    "Sraven",
    "SravenCounts",
    "aligned",
    "ambiguous",
    "answer_posterior",
    "bayes_accuracy",
    "bayes_scores",
    "complete",
    "count_sraven",
    "distinct_instances",
    "official_ambiguous",
    "permute_features",
    "rules_that_hold",
    "tokenize",
]
