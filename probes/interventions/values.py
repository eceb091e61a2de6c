"""What is put by hand, or by a function of a user's, which is checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from latentcode.arguments import as_tuple
from latentcode.errors import ProbeError, check, check_choice
from latentcode.probes.interventions.problem import Problem, Value


@dataclass(frozen=True)
class ByHand:
    """Numbers v_h that are set by hand, one per head, for every code of the scope.

    how  `set`: a_h becomes v_h; `add`: a_h + v_h; `scale`: a_h v_h
    """

    numbers: tuple[float, ...]
    how: str = "set"

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", as_tuple(self.numbers))
        check_choice("how", self.how, HOW)
        check(bool(np.isfinite(self.numbers).all()), f"numbers are {self.numbers}; expected "
              "finite ones, one per head")

    def __call__(self, base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
        check(problem.place[0] == "code" and len(self.numbers) == base.shape[1],
              f"numbers are {self.numbers} at site {problem.place[0]!r}; expected {base.shape[1]}, "
              "one per head, at site 'code'")
        numbers = base.new_tensor(self.numbers)[None, :, None, None]
        if self.how == "set":
            return numbers.expand_as(base)
        return base + numbers if self.how == "add" else base * numbers


HOW: dict[str, str] = {"set": "a_h becomes v_h", "add": "a_h becomes a_h + v_h",
                       "scale": "a_h becomes a_h v_h"}
"""What the numbers v_h set by hand do to every code of the scope."""


def checked_value(
    name: str, value: Value, base: Tensor, source: Tensor | None, problem: Problem
) -> Tensor:
    """Return what a user's function returns; `ProbeError` unless it can be put at the place.

    It is a tensor of the shape of `base`, finite, and neither `base` nor `source` is changed.
    """
    given = {"base": base, "source": source}
    versions = {of: x._version for of, x in given.items() if x is not None}
    try:
        found = value(base, source, problem)
    except Exception as error:
        raise ProbeError(f"patch {name!r} raised {type(error).__name__} at {problem.place}: {error}"
                         "; expected a tensor of the shape of base") from error
    check(isinstance(found, Tensor) and found.shape == base.shape,
          f"patch {name!r} returned {_described(found)} at {problem.place}; expected a tensor "
          f"{list(base.shape)}, the shape of base", ProbeError)
    changed = [of for of, x in given.items() if x is not None and x._version != versions[of]]
    check(not changed, f"patch {name!r} changes {' and '.join(changed)} in place at "
          f"{problem.place}; expected a new tensor, which is put where the patch says and nowhere "
          "else", ProbeError)
    check(bool(found.isfinite().all()), f"patch {name!r} returned values that are not finite at "
          f"{problem.place}; expected finite ones", ProbeError)
    return found


def _described(found: object) -> str:
    return (f"a tensor {list(found.shape)}" if isinstance(found, Tensor)
            else f"a {type(found).__name__}")


def name_of(value: object) -> str:
    """Return what tables call a value, or a function that chooses where."""
    return "by_hand" if isinstance(value, ByHand) else str(
        getattr(value, "__name__", type(value).__name__))
