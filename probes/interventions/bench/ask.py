"""What is asked of one instance: what is put where, and which of its codes are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from latentcode.errors import check
from latentcode.probes.interventions.patch import Added, Patch
from latentcode.probes.interventions.sites import Place
from latentcode.tasks.counterfactuals import OTHERS, Counterfactuals, MinimalPairs

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

    patch      what is put where: one patch, or several that are put in the same pass
    instance   the base's number, the row of its codes in `LatentCodes`
    target     the constituent that the source has in place of one of the base's own
    which      which of these that is: a response token of SRAVEN, a term of a function (from 0)
    other      the number of another instance that is the source in place of the minimal pair's
    """

    patch: Added
    instance: int
    target: str
    which: int = 0
    other: int | None = None

    @property
    def first(self) -> Patch:
        """The part of whose source it is asked whose answer comes: the first that comes from one;
        else the first of all."""
        parts = self.patch.parts
        return next((part for part in parts if part.kind.source not in ("", "bases")), parts[0])

    @property
    def named(self) -> str:
        """What tables call what is put."""
        return str(self.patch.row()["patch"])

    @property
    def of_source(self) -> bool:
        """Whether the activations of a source are put that is made for the base."""
        kind = self.first.kind
        return self.other is None and kind.source not in ("", "bases") and not kind.control

    @property
    def source(self) -> str:
        """The batch of `MinimalPairs` that is put; that of the minimal pair where it is none."""
        source = self.first.kind.source
        return source if source in OTHERS else "sources"

    @property
    def measured(self) -> tuple[str, ...]:
        """The sites of which means are put."""
        return tuple(dict.fromkeys(site for part in self.patch.parts
                                   if part.kind.needs == "means" for site in part.sites))

    @property
    def key(self) -> int | None:
        """The key whose code is shown; None: the response itself."""
        return next(iter(self.keys), None)

    @property
    def keys(self) -> tuple[int, ...]:
        """The keys that alone are written, where they are given by their numbers."""
        return self.first.keys if isinstance(self.first.keys, tuple) else ()

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


def answer_text(answer: float, *, symbolic: bool, symbols: Sequence[str]) -> str:
    """Return an answer as people write it: a symbol, its number where it has no name, or a number.
    """
    if not symbolic:
        return f"{answer:.3f}"
    return symbols[int(answer)] if symbols else f"{answer:.0f}"


def checked_key(key: int, one: MinimalPairs) -> int:
    """Return the number of a key; `ConfigError` unless an instance has such a token."""
    n_tokens = one.bases.inputs.shape[1]
    check(key in range(-n_tokens, n_tokens), f"key is {key}; expected 0 to {n_tokens - 1}")
    return key % n_tokens


def response(task: Counterfactuals, one: MinimalPairs) -> tuple[int, int]:
    """Return the query and the key of scope `pair`; without one the token that answers, twice."""
    if "pair" not in task.scopes:
        query = int(task.answer_token(one)[0]) % one.bases.inputs.shape[1]
        return query, query
    query, key = task.scope("pair", one)[0].nonzero()[0].tolist()
    return query, key


def code_at(
    codes: Mapping[Place, Tensor], task: Counterfactuals, one: MinimalPairs, key: int | None
) -> np.ndarray:
    """Return the code a[:, q, k] of the response q and a key k, float [L, H].

    codes  place -> [H, Q, K], a layer after the other
    key    None: that of scope `pair`, the response itself
    """
    query, own = response(task, one)
    key = own if key is None else checked_key(key, one)
    return np.stack([code[:, query, key].float().cpu().numpy() for code in codes.values()])
