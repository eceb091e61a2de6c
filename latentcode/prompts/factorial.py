"""Every operation with every operands: which prompts of a frame are each other's sources?

    {"prompt": "the capital of Peru is", "operation": "capital", "operands": "Peru",
     "template": "the {} of {} is", "answer": " Lima", "query": -1, "key": "capital"}

Prompts that a template gives when it is filled with every operation and every operands. The base
has operation A and operands x. Its source in the same template has another operation B, other
operands x', or both; the control and the sources with another rest have another template.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from latentcode.errors import check
from latentcode.tasks.counterfactuals import OTHERS

FACTORS = ("operation", "operands")
"""Columns of prompts that are a factorial."""
TEMPLATE = "template"
"""The column that names the rest of a prompt; without it there is a single one."""


@dataclass(frozen=True)
class Grid:
    """The prompts of a split by template, operation and operands.

    rows       int64 [T, A, X], the number of the prompt
    cells      int64 [N, 3], of each prompt the template, operation and operands; -1 of other splits
    alike      bool [T, T], which other templates have prompts of the same layout
    factorial  whether sources differ in their operands, too
    """

    rows: np.ndarray
    cells: np.ndarray
    alike: np.ndarray
    factorial: bool

    @classmethod
    def of(
        cls, frame: pd.DataFrame, ids: Sequence[Sequence[int]], rows: np.ndarray,
        layouts: np.ndarray, names: Sequence[str], factorial: bool,
    ) -> Grid:
        """Arrange the prompts `rows` of a frame.

        ids      the tokens of each prompt of the frame
        layouts  int64 [N], equal where prompts have as many tokens with query and key in the same
                 places
        names    what errors call the rows

        `ConfigError` names a combination that is missing or given twice, a prompt whose layout is
        another than that of its template, and a factor with a single value.
        """
        told = frame.iloc[rows].assign(**({} if TEMPLATE in frame else {TEMPLATE: ""}))
        found = [pd.factorize(told[column]) for column in (TEMPLATE, *FACTORS)]
        values = [list(of) for _, of in found]
        split = f" of split {frame['split'].iloc[rows[0]]!r}" if "split" in frame else ""
        for column, of in zip(FACTORS, values[1:], strict=True):
            check(len(of) > 1 or (column == "operands" and not factorial), f"prompts{split} have "
                  f"the single {column} {of[0]!r}; expected at least two")

        def called(cell: Sequence[int]) -> str:
            template, operation, operands = (of[i] for of, i in zip(values, cell, strict=True))
            where = f" in template {template!r}" if TEMPLATE in frame else ""
            return f"operation {operation!r} and operands {operands!r}{where}"

        grid = np.full([len(of) for of in values], -1, dtype=np.int64)
        cells = np.full((len(frame), 3), -1, dtype=np.int64)
        cells[rows] = np.stack([codes for codes, _ in found], 1)
        for row in rows[pd.DataFrame(cells[rows]).duplicated().to_numpy()]:
            first = rows[(cells[rows] == cells[row]).all(1)][0]
            check(False, f"{names[first]} and {names[row]} both have "
                  f"{called(cells[row].tolist())}, with answers {frame['answer'].iloc[first]!r} "
                  f"and {frame['answer'].iloc[row]!r}; expected each once{split} (a column "
                  f"{TEMPLATE} tells wordings apart)")
        first_of: dict[tuple[int, ...], int] = {}
        for row in rows:
            first = first_of.setdefault(tuple(ids[row]), row)
            check(first == row, f"{names[first]}, of {called(cells[first].tolist())}, is the same "
                  "tokens as "
                  f"{names[row]}, of {called(cells[row].tolist())}; expected two that differ")
        grid[tuple(cells[rows].T)] = rows
        for cell in np.argwhere(grid < 0).tolist():
            check(False, f"no prompt{split} has {called(cell)}; expected every operation with "
                  "every operands")
        of_template = layouts[grid[:, 0, 0]]
        for row in rows[layouts[rows] != of_template[cells[rows, 0]]]:
            first = grid[cells[row, 0], 0, 0]
            check(False, f"{names[row]} has another number of tokens than {names[first]}, or its "
                  "query or key in another place; expected prompts of one "
                  f"{'template' if TEMPLATE in frame else 'layout'} to differ in words of as many "
                  "tokens")
        alike = (of_template[:, None] == of_template) & ~np.eye(len(of_template), dtype=bool)
        return cls(grid, cells, alike, factorial)

    @property
    def per_base(self) -> int:
        """How many pairs of a base and its source there are for each base."""
        _, n_operations, n_operands = self.rows.shape
        return (n_operations - 1) * (n_operands - 1 if self.factorial else 1)

    @property
    def lacks(self) -> dict[str, str]:
        """The sources that no base, or not every one, has, and why."""
        found = {}
        if not self.alike.any(1).all():
            reason = (f"a prompt has no other {TEMPLATE} (column {TEMPLATE}) of as many tokens, "
                      "with query and key in the same places")
            found = dict.fromkeys(["control", *(name for name in OTHERS if "rest" in name)], reason)
        if self.rows.shape[1] < 3:
            found["unrelated"] = "the prompts have no third operation"
        return found

    def starts(self, generator: torch.Generator) -> np.ndarray:
        """Draw for each prompt which of its sources is its first: int64 [N]."""
        return torch.randint(self.per_base, (len(self.cells),), generator=generator,
                             device=generator.device).cpu().numpy()

    def sources(
        self, bases: np.ndarray, turn: np.ndarray, starts: np.ndarray, generator: torch.Generator
    ) -> dict[str, np.ndarray]:
        """Return the rows of the sources of bases [B] by their name, int64 [B] each.

        turn    int64 [B], how often the same base was there before: it has another source then
        starts  of `starts`

        `sources`, `control` and those of `OTHERS`, but what the grid lacks.
        """
        template, operation, operands = self.cells[bases].T
        _, n_operations, n_operands = self.rows.shape
        number = (starts[bases] + turn) % self.per_base
        target = (operation + 1 + number % (n_operations - 1)) % n_operations
        found = {"sources": self.rows[template, target, operands]}
        if "control" not in self.lacks:
            fits = self.alike[template]
            found["control"] = self.rows[_one_of(fits, generator), operation, operands]
        if not self.factorial:
            return found
        other = (operands + 1 + number // (n_operations - 1)) % n_operands
        elsewhere = _one_of(self.alike[template], generator)
        for name in OTHERS:
            if name in self.lacks:
                continue
            if name == "unrelated":
                third = _one_of(_all_but(n_operations, operation, target), generator)
                free = _all_but(n_operands, operands, *([other] if n_operands > 2 else []))
                found[name] = self.rows[template, third, _one_of(free, generator)]
                continue
            found[name] = self.rows[elsewhere if "rest" in name else template,
                                    target if "operation" in name else operation,
                                    other if "operands" in name else operands]
        return found


def _all_but(n: int, *taken: np.ndarray) -> np.ndarray:
    """Return which of n are none of those taken [B] each: bool [B, n]."""
    free = np.ones((len(taken[0]), n), dtype=bool)
    for one in taken:
        free[np.arange(len(one)), one] = False
    return free


def _one_of(free: np.ndarray, generator: torch.Generator) -> np.ndarray:
    """Draw one of those that are free, bool [B, n]: int64 [B], uniform."""
    chance = torch.rand(free.shape, generator=generator, device=generator.device).cpu().numpy()
    return np.where(free, chance, -1.0).argmax(1)
