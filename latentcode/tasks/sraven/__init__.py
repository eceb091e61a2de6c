"""SRAVEN: symbolic Raven matrices, their counts, their ambiguity and the best possible solver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.tasks.sraven.ambiguity import AnswerPosterior as AnswerPosterior
    from latentcode.tasks.sraven.ambiguity import ambiguous as ambiguous
    from latentcode.tasks.sraven.ambiguity import answer_posterior as answer_posterior
    from latentcode.tasks.sraven.ambiguity import bayes_accuracy as bayes_accuracy
    from latentcode.tasks.sraven.ambiguity import bayes_scores as bayes_scores
    from latentcode.tasks.sraven.ambiguity import official_ambiguous as official_ambiguous
    from latentcode.tasks.sraven.counting import SravenCounts as SravenCounts
    from latentcode.tasks.sraven.counting import count_sraven as count_sraven
    from latentcode.tasks.sraven.counting import distinct_instances as distinct_instances
    from latentcode.tasks.sraven.rules import RULES as RULES
    from latentcode.tasks.sraven.rules import complete as complete
    from latentcode.tasks.sraven.rules import rules_that_hold as rules_that_hold
    from latentcode.tasks.sraven.task import Sraven as Sraven
    from latentcode.tasks.sraven.task import aligned as aligned
    from latentcode.tasks.sraven.task import permute_features as permute_features
    from latentcode.tasks.sraven.task import tokenize as tokenize

__getattr__, __dir__, __all__ = lazy_module(__name__)
