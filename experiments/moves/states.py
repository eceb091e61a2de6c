"""The moves of the first page: what of a source is put where, and what the criteria say of it."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("hyla", "linear", "softmax")
BOTH = "operation+operands"
"""The source whose operation and operands both differ, so that they can be told apart."""


@dataclass(frozen=True)
class Move:
    """One thing that a visitor can put into a problem.

    site, scope, layers  of the patch (`lc.Patch`)
    place      the handle's name; of text, of what is told by it
    brings     the class of answers that the statement is about (`latentcode.answers.CLASSES`)
    statement  of the criteria; empty where none was written
    against    the sources that its rate is compared with, as tables call them
    beside     another source for which the statement is made, too; empty where there is none
    """

    task: str
    site: str
    place: str
    scope: str
    layers: tuple[int, ...]
    brings: str
    statement: str = ""
    against: tuple[str, ...] = ()
    beside: str = ""

    @property
    def name(self) -> str:
        """How it is called in addresses and files."""
        return f"{self.site} {self.place}"

    @property
    def written(self) -> str:
        """The layers, as tables have them."""
        return ",".join(map(str, self.layers))


CONTEXT = ("operands", "unrelated")
MOVES: tuple[Move, ...] = (
    Move("sraven", "code", "context", "context", (0, 1), "operation",
         "codes at the context carry the operation", CONTEXT, "operation+operands+rest"),
    Move("sraven", "code", "operands", "operands", (0,), "operands",
         "codes at the operands carry the operands", ("interchange", "unrelated")),
    Move("sraven", "code", "response", "response", (0, 1, 2, 3), "answer",
         "codes at the response carry the answer", ("interchange", "operands", "unrelated")),
    Move("sraven", "value", "context", "within context", (2, 3), "operation",
         "values at the context carry the operation", CONTEXT),
    Move("sraven", "value", "operands", "within operands", (2, 3), "operands"),
    Move("sraven", "value", "response", "within response", (2, 3), "answer"),
    Move("logic", "code", "context", "context", (0,), "operation",
         "codes at the context carry the operation", CONTEXT, "operation+operands+rest"),
    Move("logic", "code", "response", "response", (0,), "operands",
         against=("interchange", "unrelated")),
    Move("logic", "value", "context", "within context", (1,), "operation",
         "values at the context carry the operation", CONTEXT),
    Move("logic", "value", "response", "within response", (1,), "operands"),
    Move("text", "code", "from where", "row", (1,), "operation", "says where to copy from",
         CONTEXT),
    Move("text", "value", "what", "everything", (1,), "operands", "carries what stands there",
         ("interchange", "unrelated")),
    Move("text", "code+value", "both", "everything", (0, 1), "answer", "carries the answer",
         ("interchange", "operands", "unrelated")),
)
"""Every move; places and layers are those of which the studies' pages tell."""
TASKS = tuple(dict.fromkeys(move.task for move in MOVES))


def moves_of(task: str) -> tuple[Move, ...]:
    """Return the moves of a task."""
    return tuple(move for move in MOVES if move.task == task)
