"""What can be written into the codes of one instance, and whose answers can come of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentcode.arguments import as_tuple
from latentcode.tasks.counterfactuals import OTHERS

WHAT: dict[str, str] = {
    "interchange": "the codes of its minimal pair, which has the target in place of the base's",
    "instance": "the codes of another instance",
    "mean": "the mean codes of training instances that have the target",
    "hand": "numbers set by hand, one per head",
    # Any other problem can be written as `instance`.
    **{name: f"the codes of a source with {what}" for name, what in OTHERS.items()
       if name != "unrelated"},
}
"""What can be written, for people."""
ANSWERS: dict[str, str] = {"base": "A(x)", "operation": "B(x)", "operands": "A(x')",
                           "answer": "B(x')"}
"""The answer of each class, of operations A and B (the source's) and operands x and x' (its)."""
HOW: dict[str, str] = {"set": "a_h becomes v_h", "add": "a_h becomes a_h + v_h",
                       "scale": "a_h becomes a_h v_h"}
"""What the numbers v_h set by hand do to every code of the scope."""
CONTROLS: dict[str, str] = {
    "control": "same constituents, fresh values",
    "unrelated": "unrelated instances",
    "random": "random codes of equal norm",
    "identity": "its own codes",
}
"""What is written beside it, from which nothing should come, for people."""


@dataclass(frozen=True)
class Patch:
    """What is written into which codes of which instance.

    instance   its number, the row of its codes in `LatentCodes`
    target     the constituent that its source has in place of one of its own
    which      which of its own that is: a response token of SRAVEN, a term of a function (from 0)
    what       a key of `WHAT`
    scope      at which queries and keys, one of `SCOPES` that the task offers
    layers     in which layers, all in one pass
    heads      of which heads alone; None: all
    other      for `instance`: the number of the one whose codes are written
    numbers    for `hand`: one number per head
    how        for `hand`: a key of `HOW`
    renormalize  bring what was written back to the constraint of the model's codes
    keys       of which keys alone, by the numbers of their tokens; None: all of the scope
    """

    instance: int
    target: str
    which: int = 0
    what: str = "interchange"
    scope: str = "row"
    layers: tuple[int, ...] = (0,)
    heads: tuple[int, ...] | None = None
    other: int | None = None
    numbers: tuple[float, ...] | None = None
    how: str = "set"
    renormalize: bool = False
    keys: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", as_tuple(self.layers))
        for name in ("heads", "keys"):
            some = getattr(self, name)
            object.__setattr__(self, name, None if some is None else as_tuple(some))

    @property
    def of_source(self) -> bool:
        """Whether the codes of a source are written that is made for the base."""
        return self.what == "interchange" or self.what in OTHERS

    @property
    def key(self) -> int | None:
        """The key whose code is shown; None: the response itself."""
        return self.keys[0] if self.keys else None

    @property
    def source(self) -> str:
        """The batch of `MinimalPairs` that is written; that of the minimal pair where it is none.
        """
        return self.what if self.what in OTHERS else "sources"


def possible(patch: Patch) -> tuple[str, ...]:
    """Return the classes of answers that what is written can bring, of `ANSWERS`.

    What comes from no source is taken for the target's, on the operands of the base.
    """
    differs = patch.what if patch.what in OTHERS else "operation"
    return tuple(name for name, needs in (
        ("base", ()), ("operation", ("operation",)), ("operands", ("operands",)),
        ("answer", ("operation", "operands"))) if all(need in differs for need in needs))


def answer_of(output: np.ndarray) -> float:
    """Return the answer of an output [n]: the most probable symbol, or the number itself."""
    return float(output.argmax()) if len(output) > 1 else float(output[0])
