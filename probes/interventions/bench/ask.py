"""What is asked of the bench: a patch, the problem it is put into, and whose answers can come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentcode.probes.interventions.patch import Patch
from latentcode.tasks.counterfactuals import OTHERS

ANSWERS: dict[str, str] = {"base": "A(x)", "operation": "B(x)", "operands": "A(x')",
                           "answer": "B(x')"}
"""The answer of each class, of operations A and B (the source's) and operands x and x' (its)."""
CONTROLS: dict[str, str] = {
    "control": "same constituents, fresh values",
    "unrelated": "unrelated instances",
    "random": "random codes of equal norm",
    "identity": "its own codes",
}
"""What is put beside it, from which nothing should come, for people."""


@dataclass(frozen=True)
class Ask:
    """A patch, and the base and source of one minimal pair.

    patch      what is put where
    instance   the base's number, the row of its codes in `LatentCodes`
    target     the constituent that the source has in place of one of the base's own
    which      which of these that is: a response token of SRAVEN, a term of a function (from 0)
    other      the number of another instance that is the source in place of the minimal pair's
    """

    patch: Patch
    instance: int
    target: str
    which: int = 0
    other: int | None = None

    @property
    def of_source(self) -> bool:
        """Whether the activations of a source are put that is made for the base."""
        kind = self.patch.kind
        return self.other is None and bool(kind.source) and not kind.control

    @property
    def source(self) -> str:
        """The batch of `MinimalPairs` that is put; that of the minimal pair where it is none."""
        source = self.patch.kind.source
        return source if source in OTHERS else "sources"

    @property
    def key(self) -> int | None:
        """The key whose code is shown; None: the response itself."""
        return next(iter(self.keys), None)

    @property
    def keys(self) -> tuple[int, ...]:
        """The keys that alone are written, where they are given by their numbers."""
        return self.patch.keys if isinstance(self.patch.keys, tuple) else ()

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of answers that what is put can bring, of `ANSWERS`.

        What comes from no source is taken for the target's, on the operands of the base.
        """
        differs = self.source if self.source in OTHERS else "operation"
        return tuple(name for name, needs in (
            ("base", ()), ("operation", ("operation",)), ("operands", ("operands",)),
            ("answer", ("operation", "operands"))) if all(need in differs for need in needs))


def answer_of(output: np.ndarray) -> float:
    """Return the answer of an output [n]: the most probable symbol, or the number itself."""
    return float(output.argmax()) if len(output) > 1 else float(output[0])
