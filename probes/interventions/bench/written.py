"""What does a model answer when codes of one layer are others, which nobody's source has?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latentcode.errors import check
from latentcode.probes.interventions.bench.ask import answer_of
from latentcode.probes.interventions.bench.instances import Instances
from latentcode.probes.interventions.sites import capture, run_patched


@dataclass(frozen=True)
class Cells:
    """The codes a[:, q, k] of some queries q and keys k in one layer.

    queries, keys  numbers of tokens
    """

    layer: int
    queries: tuple[int, ...]
    keys: tuple[int, ...]

    def of(self, codes: Tensor) -> Tensor:
        """Return these of codes [B, H, Q, K]: [B, H, q, k]."""
        return codes[:, :, list(self.queries)][..., list(self.keys)]


@dataclass(frozen=True)
class Answers:
    """What became of one answer when others in turn took the place of a problem's own codes.

    which    the constituent whose answer it is (`Ask`)
    truth    the right answer; NaN where it is not defined
    before   float [n], the probabilities of n symbols as the problem is; or the number (n = 1)
    outputs  float [N, n], the same with each of N
    least    numbers that are no farther apart are not told apart; 0 of symbols
    """

    which: int
    truth: float
    before: np.ndarray
    outputs: np.ndarray
    least: float

    def answer(self, row: int | None = None) -> float:
        """Return the answer with one of them; None: as the problem is."""
        return answer_of(self.before if row is None else self.outputs[row])

    def same(self, one: float, other: float) -> bool:
        """Whether two answers are the same, or not told apart."""
        return abs(one - other) <= self.least / 2

    def alike(self, row: int) -> list[int]:
        """Return the others with which the answer is that of one of them."""
        return [i for i in range(len(self.outputs))
                if i != row and self.same(self.answer(i), self.answer(row))]


def codes_at(bench: Instances, instances: Sequence[int], cells: Cells) -> Tensor:
    """Return the codes of instances, float [B, H, q, k]."""
    _check_cells(bench, cells)
    place = ("code", cells.layer)
    _, found = capture(bench.model, bench.rows([*instances]).inputs, [place])
    return cells.of(found[place])


def written(bench: Instances, instance: int, cells: Cells, codes: Tensor) -> Answers:
    """Write each of N codes [N, H, q, k] into an instance, one at a time.

    Where an instance has several answers it is that of the query or, if not a single query is
    written or it answers nothing, the one that the first of them moves most.
    """
    _check_cells(bench, cells)
    shape = [bench.model.cfg.n_heads, len(cells.queries), len(cells.keys)]
    check(list(codes.shape[1:]) == shape and len(codes) > 0, f"codes have shape "
          f"{list(codes.shape)}; expected [N, {', '.join(map(str, shape))}], at least one")
    check(bool(codes.isfinite().all()), "codes are not finite; expected finite numbers")
    base = bench.rows([instance])
    # The instance as it is has a row of the same pass: last digits depend on how many there are.
    inputs = base.inputs.expand(len(codes) + 1, *base.inputs.shape[1:])
    queries = torch.tensor(cells.queries, device=bench.device)[:, None]
    keys = torch.tensor(cells.keys, device=bench.device)

    def put(live: Tensor) -> Tensor:
        changed = live.clone()
        changed[1:, :, queries, keys] = codes.to(live)
        return changed

    logits = run_patched(bench.model, inputs, {("code", cells.layer): put})
    found = [_answers(bench, instance, which, logits) for which in range(
        bench.task.held(base).shape[1])]
    return next((answers for answers, token in found if (token,) == cells.queries), max(
        (answers for answers, _ in found), key=_moved))


def _check_cells(bench: Instances, cells: Cells) -> None:
    """Raise `ConfigError` for a layer without codes, and for tokens that no instance has."""
    layers, n_tokens = [layer for _, layer in bench.places], bench.batch.inputs.shape[1]
    check(cells.layer in layers, f"layer is {cells.layer}; expected one of {layers}")
    for name, tokens in (("queries", cells.queries), ("keys", cells.keys)):
        check(len(tokens) > 0 and all(token in range(n_tokens) for token in tokens),
              f"{name} are {tokens}; expected at least one, from 0 to {n_tokens - 1}")


def _moved(answers: Answers) -> float:
    return float(np.abs(answers.outputs[0] - answers.before).sum())


def _answers(
    bench: Instances, instance: int, which: int, logits: Tensor
) -> tuple[Answers, int]:
    """Return what became of the answer of a constituent, and at which token it is read."""
    task = bench.task
    one = bench.pairs(instance, which, bench.targets(instance, which)[0], 1)
    token = task.answer_token(one)
    outputs = task.outputs(token.expand(len(logits)), logits).cpu().numpy()
    truth = float(task.answers(one)[0, int(one.base_label)])
    least = 0.0 if task.symbolic else task.least_difference
    return (Answers(which, truth, outputs[0], outputs[1:], least),
            int(token) % bench.batch.inputs.shape[1])
