"""Write what the first page of the explorer shows: `experiments/results/moves.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tyro

from latentcode.experiments.moves.problems import problem
from latentcode.experiments.moves.states import KINDS, MOVES, TASKS
from latentcode.experiments.moves.stored import RESULTS, criterion, model_of, states, weights_of
from latentcode.files.storage import write_text

STORED = 4
"""Problems of each task whose answers are stored."""


def made() -> dict[str, Any]:
    """Return what is written."""
    return {
        "written by": "python -m latentcode.experiments.moves",
        "weights": {name: weights_of(name) for name in (
            model_of(task, kind) for task in TASKS for kind in KINDS)},
        "moves": [{"task": move.task, "name": move.name, "site": move.site, "place": move.place,
                   "layers": move.written, "brings": move.brings, "statement": move.statement,
                   "criterion": criterion(move)} for move in MOVES],
        "states": states(),
        "problems": {task: [problem(task, number) for number in range(STORED)] for task in TASKS}}


def main(out: Path = RESULTS / "moves.json") -> None:
    """Ask the zoo's models, read the tables, and write both into one file.

    Args:
        out: The file.
    """
    write_text(out, json.dumps(made(), ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{out}: {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    tyro.cli(main)
