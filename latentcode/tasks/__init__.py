"""Problems whose constituents are known: fuzzy logic and SRAVEN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.registry import lazy_module

if TYPE_CHECKING:
    from latentcode.tasks.base import SPLITS as SPLITS
    from latentcode.tasks.base import Batch as Batch
    from latentcode.tasks.base import Task as Task
    from latentcode.tasks.pairs import Pair as Pair
    from latentcode.tasks.registry import as_task as as_task
    from latentcode.tasks.registry import make_counterfactuals as make_counterfactuals
    from latentcode.tasks.registry import make_task as make_task
    from latentcode.tasks.registry import register_task as register_task
    from latentcode.tasks.registry import task_class as task_class
    from latentcode.tasks.registry import task_distances as task_distances
    from latentcode.tasks.registry import try_task as try_task

__getattr__, __dir__, __all__ = lazy_module(__name__)
