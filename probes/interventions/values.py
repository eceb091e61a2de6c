"""What is put by hand, or by a function of a user's, which is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentcode.arguments import as_tuple
from latentcode.errors import ConfigError, ProbeError, called, check, check_choice
from latentcode.probes.interventions.problem import Problem, Value


@dataclass(frozen=True)
class ByHand:
    """Numbers v_h that are set by hand, one per head, for every code of the scope.

    how  `set`: a_h becomes v_h; `add`: a_h + v_h; `scale`: a_h v_h
    """

    numbers: tuple[float, ...]
    how: str = "set"

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "numbers", tuple(map(float, plain(self.numbers))))
        except (TypeError, ValueError):
            raise ConfigError(f"numbers are {self.numbers!r}; expected finite ones, one per head"
                              ) from None
        check_choice("how", self.how, HOW)
        check(bool(np.isfinite(self.numbers).all()), f"numbers are {self.numbers}; expected "
              "finite ones, one per head")

    def check(self, n_heads: int) -> None:
        """Raise `ConfigError` unless there is one for each head."""
        check(len(self.numbers) == n_heads, f"numbers are {self.numbers}; expected {n_heads}, one "
              "per head")

    def __call__(self, base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
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

    It is a tensor of the shape of `base`, finite, and neither `base` nor `source` is changed: it is
    given copies of these.
    """
    at = "site {!r} of layer {}".format(*problem.place)
    given = {"base": (base, base.clone())} | (
        {} if source is None else {"source": (source, source.clone())})
    found = called(f"the patch {name!r} at {at}", ProbeError, value, given["base"][1],
                   None if source is None else given["source"][1], problem)
    check(isinstance(found, Tensor) and found.shape == base.shape,
          f"the patch {name!r} returned {_described(found)} at {at}; expected a tensor "
          f"{list(base.shape)}, the shape of base", ProbeError)
    changed = [of for of, both in given.items() if not torch.equal(*both)]
    check(not changed, f"the patch {name!r} changes {' and '.join(changed)} in place at "
          f"{at}; expected a new tensor, which is put where the patch says and nowhere "
          "else", ProbeError)
    check(bool(found.isfinite().all()), f"the patch {name!r} returned values that are not finite "
          f"at {at}; expected finite ones", ProbeError)
    return found


def _described(found: object) -> str:
    return (f"a tensor {list(found.shape)}" if isinstance(found, Tensor)
            else f"a {type(found).__name__}")


def name_of(value: object) -> str:
    """Return what tables call a value, or a function that chooses where."""
    if isinstance(value, ByHand):
        return f"{value.how} " + ",".join(f"{number:g}" for number in value.numbers)
    return str(getattr(value, "__name__", type(value).__name__))


def plain(numbers: Any) -> tuple[Any, ...]:
    """Return one or several numbers, also those of an array or a tensor, as Python's own."""
    return as_tuple(numbers.tolist() if hasattr(numbers, "tolist") else [
        n.item() if hasattr(n, "item") else n for n in as_tuple(numbers)])
