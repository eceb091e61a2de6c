"""Several models that one question is asked of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from latentcode.errors import ProbeError, as_tuple, check
from latentcode.progress import Progress
from latentcode.runs import Run
from latentcode.subjects import Subject, subject
from latentcode.subjects.tasks import ModelSubject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems


def subjects_of(
    models: Sequence[Model] | Model, problems: Problems, *, least: int = 1, step: Any = None,
    device: str | None = None,
) -> list[Subject]:
    """Open one model or several, at least so many, of which each has a name of its own.

    step  the checkpoint of each; several of one run make a subject each

    Raises what `subject` raises, and `ProbeError` for too few and for a name that is repeated.
    """
    given = as_tuple(models)
    if isinstance(models, Run):
        given = (models,)
    steps = (None,) if step is None else as_tuple(step)
    check(len(steps) == 1 or len(given) == 1, f"{len(steps)} steps of {len(given)} models are "
          "given; expected one step, or one model", ProbeError)
    asked = [(model, one) for model in given for one in steps]
    check(len(asked) >= least, f"{len(asked)} {'model is' if len(asked) == 1 else 'models are'} "
          f"given: {', '.join(str(getattr(of, 'name', of)) for of, _ in asked) or 'none'}; "
          f"expected at least {least}", ProbeError)
    opened = [subject(model, problems, step=one, device=device) for model, one in asked]
    in_hand = [of for of in opened if isinstance(of, ModelSubject)]
    for number, of in enumerate(in_hand if len(in_hand) > 1 else [], 1):
        of.called(f"{of.name} {number}")
    repeated = [name for name, n in Counter(of.name for of in opened).items() if n > 1]
    check(not repeated, f"several models are called {', '.join(repeated)}; expected different "
          "names, by which results tell them apart", ProbeError)
    return opened


def part_of(progress: Progress | None, index: int, parts: int) -> Progress | None:
    """Return a callback for one of several equal parts of the work."""
    if progress is None:
        return None
    told = progress
    return lambda done, total: told(index * total + done, parts * total)
