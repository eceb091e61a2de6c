"""B instances of a task, drawn at once and moved as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from latentcode.errors import SplitError, check


@dataclass(frozen=True)
class Batch:
    """B instances of a task on one device.

    inputs       [B, T, d_input]  token vectors, float32; or [B, T], token ids, int64
    targets      [B, n_targets]   float32 (fuzzy logic) or int64 (SRAVEN, text)
    combination  [B]              row of `task.combinations(split)` that each instance uses
    info         name -> [B, ...] whatever else the task needs for labels, metrics, rendering
    split        the split that the batch was drawn from
    one_hot      whether every input vector is known to be a unit vector or zero; `ConfigError`
                 where one is not (on a GPU nobody waits to see)
    """

    inputs: Tensor
    targets: Tensor
    combination: Tensor
    info: Mapping[str, Tensor] = field(default_factory=dict)
    split: str = "train"
    one_hot: bool = False

    def __post_init__(self) -> None:
        if self.one_hot and self.inputs.device.type == "cpu":
            x = self.inputs
            check(bool(((x == 0) | (x == 1)).all() and (x.sum(-1) <= 1).all()),
                  "one_hot is True, but an input vector is neither a unit vector nor zero")

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: slice | Tensor) -> Batch:
        """Return the sub-batch of a slice, an index tensor or a boolean mask."""
        return self._map(lambda t: t[index])

    def divided(self, n: int) -> list[Batch]:
        """Return n sub-batches of equally many instances, in their order."""
        size, rest = divmod(len(self), n)
        check(rest == 0, f"a batch of {len(self)} instances is split into {n} parts; expected a "
              "number that divides it")
        return [self[i * size:(i + 1) * size] for i in range(n)]

    def to(self, device: torch.device | str) -> Batch:
        return self._map(lambda t: t.to(device))

    def __repr__(self) -> str:
        """Say what it holds: shapes and names, and no numbers."""
        shapes = ", ".join(f"{name} {list(values.shape)}" for name, values in (
            ("inputs", self.inputs), ("targets", self.targets)))
        info = f", info {', '.join(self.info)}" if self.info else ""
        return f"Batch({len(self)} instances of {self.split}: {shapes}{info}; {self.inputs.device})"

    def _map(self, function: Any) -> Batch:
        return Batch(function(self.inputs), function(self.targets), function(self.combination),
                     {k: function(v) for k, v in self.info.items()}, self.split, self.one_hot)

    @staticmethod
    def cat(batches: Sequence[Batch]) -> Batch:
        """Concatenate batches of one split along the instances."""
        first = batches[0]
        splits = sorted({b.split for b in batches})
        check(len(splits) == 1, f"batches are of splits {', '.join(splits)}; expected a single "
              "one, whose combinations their rows count", SplitError)
        return Batch(torch.cat([b.inputs for b in batches]),
                     torch.cat([b.targets for b in batches]),
                     torch.cat([b.combination for b in batches]),
                     {k: torch.cat([b.info[k] for b in batches]) for k in first.info},
                     first.split, all(b.one_hot for b in batches))


class InOrder(Protocol):
    """The training instances of a task that reads them in an order, such as those of a text."""

    def read(self, first: int, n: int, device: torch.device) -> Batch:
        """Return instances `first` to `first` + n - 1, the same whatever was read before."""

    def cursor(self, first: int) -> Mapping[str, Any]:
        """Return what a later process needs to go on at an instance without reading all before it,
        as plain JSON."""

    def go_to(self, cursor: Mapping[str, Any]) -> None:
        """Take the cursor of an earlier process; `ArtifactError` for one of another text."""
