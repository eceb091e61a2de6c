"""What every task offers: batches with known constituents, a loss, metrics, pairs, labels.

A task never loops over instances in Python and never leaves the device of the generator that
it is given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.config import TaskConfig
from latentcode.errors import ConfigError, SplitError, UnknownNameError, check, check_choice
from latentcode.metrics import Metric, mean_metric
from latentcode.tasks.pairs import Pair

if TYPE_CHECKING:
    from latentcode.tasks.counterfactuals import Counterfactuals
    from latentcode.tasks.distances import Distances

SPLITS: tuple[str, ...] = ("train", "test", "ood", "unknown")
"""`train`; `test`: fresh instances of training combinations; `ood`: held-out combinations of
known constituents; `unknown`: combinations of constituents that are never trained on."""


@dataclass(frozen=True)
class Batch:
    """B instances of a task on one device.

    inputs       [B, T, d_input]  token vectors, float32
    targets      [B, n_targets]   float32 (fuzzy logic) or int64 (SRAVEN)
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

    def to(self, device: torch.device | str) -> Batch:
        return self._map(lambda t: t.to(device))

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


class Task(ABC):
    """One family of problems whose constituents (terms, rules) are known."""

    name: ClassVar[str]
    constituent: ClassVar[str]
    """What a combination is made of: "term" or "rule"."""
    headline: ClassVar[str]
    """The metric that is quoted first: "r2" or "accuracy"."""
    config: TaskConfig

    @property
    def counterfactuals(self) -> Counterfactuals:
        """The minimal pairs of this task; `ConfigError` for a task that has none."""
        raise ConfigError(f"task {self.name!r} offers no minimal pairs, which interventions need; "
                          "expected logic or sraven")

    @property
    def probe_config(self) -> TaskConfig:
        """The task to draw from when codes are probed: this one, unless the task says other."""
        return self.config

    @property
    @abstractmethod
    def probe_labels(self) -> tuple[str, ...]:
        """The labels that probes decode where nothing else is asked for."""

    @property
    @abstractmethod
    def pairs(self) -> Mapping[str, Pair]:
        """The named pairs worth reading, the paper's first."""

    @abstractmethod
    def positions(self, names: Sequence[str], batch: Batch) -> tuple[Tensor, Tensor]:
        """Return query and key token positions of the named pairs, each int64 [B, P]."""

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The splits that this configuration offers, out of `SPLITS`."""

    @abstractmethod
    def combinations(self, split: str) -> Tensor:
        """Return the combinations of a split, int64 [N, n_constituents], each row sorted."""

    @abstractmethod
    def sample(self, split: str, n: int, generator: torch.Generator) -> Batch:
        """Draw n instances on the device of `generator`; `SplitError` if there is no split."""

    @property
    def n_read(self) -> int | None:
        """How many tokens, the last ones, losses and scores read; None: all of them.

        What leads to the logits of the others alone is not computed in training and evaluation.
        """
        return None

    @abstractmethod
    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the training loss of each instance, [B].

        logits [B, T, d_output] of all tokens, or of the last `n_read`, which give the same
        """

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the training loss, the mean of `losses` over a batch."""
        return self.losses(logits, batch.targets).mean()

    @abstractmethod
    def scores(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return per-instance scores, each float [B], that `summarize` turns into metrics.

        logits [B, T, d_output] of all tokens, or of the last `n_read`, which give the same
        """

    def constituent_scores(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return what else `summarize` needs to measure each constituent, tensors [B, ...].

        Unlike `scores`, they describe the parts of an instance, and need `batch.info`.
        """
        return {}

    def summarize(self, scores: Mapping[str, np.ndarray]) -> dict[str, Metric]:
        """Return exact means with standard errors over all instances.

        Of `constituent_scores` come metrics of single constituents, named `metric[constituent]`.
        """
        return {name: mean_metric(values) for name, values in scores.items()}

    @abstractmethod
    def labels(self, batch: Batch) -> pd.DataFrame:
        """Return one row per instance: constituents, target, split, combination, ..."""

    def distances(self, label: str, split: str) -> Distances:
        """How far apart are the values of a label? Name of a distance -> [N, N].

        label  a constituent (`rule`, `term_1`, `terms`) or `combination`, those of `split`

        The frames' rows and columns are named as in `labels`. `UnknownNameError` for other labels,
        `ConfigError` for a task that compares nothing.
        """
        raise ConfigError(f"task {self.name!r} defines no distance between its constituents; "
                          "expected logic or sraven")

    @abstractmethod
    def render(self, batch: Batch, index: int, format: Literal["text", "html"] = "text") -> str:
        """Return instance `index` of `batch` as a person would want to see it."""

    def check_split(self, split: str) -> None:
        """Raise `UnknownNameError` or `SplitError` unless this task offers `split`."""
        check_choice("split", split, SPLITS)
        if split not in self.splits:
            raise SplitError(f"task {self.name!r} has no split {split!r} "
                             f"({self.why_no_split(split)}); it offers: {', '.join(self.splits)}")

    def check_n_read(self) -> int | None:
        """Return `n_read`; `ConfigError` unless it is None or one of 1, ..., T."""
        n, most = self.n_read, self.config.n_tokens
        check(n is None or (type(n) is int and 1 <= n <= most), f"task {self.name!r} reads {n!r} "
              f"tokens (n_read); expected 1 to {most}, the number of tokens, or None for all")
        return n

    def why_no_split(self, split: str) -> str:
        """Return why this configuration lacks one of `SPLITS`, and what would be possible."""
        return "not defined for this task"

    def check_pairs(self, names: Sequence[str]) -> None:
        """Raise `UnknownNameError` unless every name is one of `pairs`."""
        for name in names:
            if name not in self.pairs:
                raise UnknownNameError("pair", name, self.pairs)
