"""What every task offers: batches with known constituents, splits, a loss, metrics, pairs, labels.

A task never loops over instances in Python and never leaves the device of the generator that
it is given. A combination is a sorted tuple of constituents (terms or rules); splits divide the
combinations, and every constituent of a held-out one is trained on.
"""

from __future__ import annotations

import html
import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.config import TaskConfig
from latentcode.errors import SplitError, check, check_choice
from latentcode.metrics import Metric, mean_metric
from latentcode.tasks.pairs import Pair

SPLITS: tuple[str, ...] = ("train", "test", "ood", "unknown")
"""`train`; `test`: fresh instances of training combinations; `ood`: held-out combinations of
known constituents; `unknown`: combinations of constituents that are never trained on."""
DRAW = 4096
"""Instances drawn at once where many are read. It is fixed, so that the batch size of the forward
pass does not change which instances are drawn."""
SKETCHED = 5
"""Most labels that a sketch lists where a task does not say how it is drawn."""

Combination = tuple[int, ...]


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
        check(rest == 0, f"a batch of {len(self)} instances is split into {n} parts")
        return [self[i * size:(i + 1) * size] for i in range(n)]

    def to(self, device: torch.device | str) -> Batch:
        return self._map(lambda t: t.to(device))

    def __repr__(self) -> str:
        """Say what it holds: shapes and names, and no numbers."""
        info = f", info {', '.join(self.info)}" if self.info else ""
        return (f"Batch({len(self)} instances of {self.split}: inputs {list(self.inputs.shape)}, "
                f"targets {list(self.targets.shape)}{info}; {self.inputs.device})")

    def _map(self, function: Any) -> Batch:
        return Batch(function(self.inputs), function(self.targets), function(self.combination),
                     {k: function(v) for k, v in self.info.items()}, self.split, self.one_hot)

    @staticmethod
    def cat(batches: Sequence[Batch]) -> Batch:
        """Concatenate batches of one split along the instances."""
        splits = sorted({b.split for b in batches})
        check(len(splits) == 1, f"batches are of splits {', '.join(splits)}; expected a single "
              "one, whose combinations their rows count", SplitError)
        inputs, targets, combination = (
            torch.cat([getattr(b, name) for b in batches])
            for name in ("inputs", "targets", "combination"))
        info = {name: torch.cat([b.info[name] for b in batches]) for name in batches[0].info}
        return Batch(inputs, targets, combination, info, splits[0], all(b.one_hot for b in batches))


def at(values: Tensor, where: Tensor) -> Tensor:
    """Return values[b, where_b] of values [B, N, ...], [B, ...]."""
    return values[torch.arange(len(where), device=where.device), where]


def one_of(possible: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one of those that are possible, bool [B, n]: int64 [B], uniform."""
    chance = torch.rand(possible.shape, generator=generator, device=possible.device)
    return torch.where(possible, chance, -1.0).argmax(1)


class InOrder(Protocol):
    """The training instances of a task that reads them in an order, such as those of a text."""

    def read(self, first: int, n: int, device: torch.device) -> Batch:
        """Return instances `first` to `first` + n - 1, the same whatever was read before."""

    def cursor(self, first: int) -> Mapping[str, Any]:
        """Return, as plain JSON, what a later process needs to go on at an instance without reading
        all before it."""

    def go_to(self, cursor: Mapping[str, Any]) -> None:
        """Take the cursor of an earlier process; `ArtifactError` for one of another text."""


def random_cover(
    n_constituents: int, size: int, distinct: bool, rng: np.random.Generator
) -> list[Combination]:
    """Return ceil(n / size) combinations in which every constituent occurs.

    No smaller set of combinations can cover n constituents. The last one is filled up with
    random constituents, all different where `distinct` asks for it.
    """
    order = rng.permutation(n_constituents).tolist()
    cover = [order[start:start + size] for start in range(0, n_constituents, size)]
    if missing := size - len(cover[-1]):
        pool = [c for c in range(n_constituents) if not (distinct and c in cover[-1])]
        cover[-1] += rng.choice(pool, size=missing, replace=not distinct).tolist()
    return [tuple(sorted(chunk)) for chunk in cover]


def fraction_of(count: int, total: int) -> float:
    """Return a short decimal fraction f with int(total * f) == count, for 0 <= count < total.

    count / total itself need not be one: int(100 * 0.29) is 28.
    """
    unit: int = 10 ** len(str(total))
    fractions = (n / unit for n in itertools.count(count * unit // total))
    return next(f for f in fractions if int(total * f) >= count)


def split_combinations(
    combinations: Sequence[Combination],
    n_constituents: int,
    ood_fraction: float,
    seed: int,
    distinct: bool,
) -> tuple[list[Combination], list[Combination]]:
    """Split combinations into (train, ood), both in sorted order.

    `int(len(combinations) * ood_fraction)` of them are held out, as in the official code, and every
    constituent occurs in `train`. `SplitError` names the largest fraction that leaves room for
    that.
    """
    check(0.0 <= ood_fraction < 1.0,
          f"ood_fraction is {ood_fraction!r}; expected 0 <= fraction < 1", SplitError)
    rng = np.random.default_rng(seed)
    total = len(combinations)
    n_ood = int(total * ood_fraction)
    cover = set(random_cover(n_constituents, len(combinations[0]), distinct, rng))
    most = total - len(cover)
    check(n_ood <= most,
          f"ood_fraction {ood_fraction} holds out {n_ood} of {total} combinations and leaves "
          f"{total - n_ood}, but {len(cover)} are needed for every constituent to occur in "
          f"training; the largest possible fraction here is {fraction_of(most, total)}, which "
          f"holds out {most}", SplitError)
    rest = [c for c in combinations if c not in cover]
    held_out = {rest[i] for i in rng.permutation(len(rest))[:n_ood]}
    train = [c for c in combinations if c not in held_out]
    return train, [c for c in combinations if c in held_out]


def explicit_split(
    combinations: Sequence[Combination], held_out: Sequence[Sequence[int]]
) -> tuple[list[Combination], list[Combination]]:
    """Split by a list of held-out combinations; `SplitError` when one of them does not exist, or
    holds a constituent that no training combination has."""
    known = set(combinations)
    held = {tuple(sorted(int(c) for c in h)) for h in held_out}
    for combination in sorted(held):
        check(combination in known, f"held-out combination {combination} does not exist in this "
              f"task, which has {len(known)} combinations of known constituents", SplitError)
    train = [c for c in combinations if c not in held]
    lost = {c for h in held for c in h} - {c for t in train for c in t}
    check(not lost, f"constituents {sorted(lost)} of the held-out combinations occur in no "
          "training combination", SplitError)
    return train, [c for c in combinations if c in held]


class Task(ABC):
    """A family of problems whose constituents (terms, rules) are known; see `register_task`."""

    name: ClassVar[str]
    constituent: ClassVar[str]
    """What a combination is made of: "term" or "rule"."""
    headline: ClassVar[str]
    """The metric that is quoted first: "r2" or "accuracy"."""
    lower_is_better: ClassVar[bool] = False
    """Whether of two headlines the lower is the better, as of losses."""
    config: TaskConfig
    """The configuration, with whatever it leaves to be filled in: the `revision` of a text."""

    def __init__(self, config: Any) -> None:
        self.config = config

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

    def key_sets(self, batch: Batch) -> dict[str, Tensor]:
        """Return named sets of keys, int64 [B, n] each, over which codes are read together."""
        return {}

    def places(self, batch: Batch) -> dict[str, Tensor]:
        """Return the tokens of places (`counterfactuals.PLACES`), int64 [B, n] each."""
        return {}

    def row_labels(self, labels: pd.DataFrame, token: int | None) -> pd.DataFrame:
        """Return what one response is asked and what it answers, a column each.

        Columns called `operand...` hold what is operated on, `answer` what comes out, and the
        others the operation. By default they are the labels for probing alone, of that response.

        labels  what `labels` returns
        token   the response token of the pair that is read (`Pair.token`)
        """
        columns = {name: column for name in self.probe_labels
                   for column in (name, f"{name}_{token}") if column in labels}
        return pd.DataFrame({name: labels[column] for name, column in columns.items()})

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

    def in_order(self, seed: int) -> InOrder | None:
        """Return the training instances where they come in an order; None: `sample` draws them."""
        return None

    @property
    def n_read(self) -> int | None:
        """How many tokens, the last ones, losses and measures read; None: all of them."""
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
    def measures(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return what each instance scores, such as `loss` and `accuracy`, each float [B]; of
        logits as in `losses`."""

    def constituent_measures(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return what else `summarize` needs to measure each constituent, tensors [B, ...]."""
        return {}

    def summarize(self, measures: Mapping[str, np.ndarray]) -> dict[str, Metric]:
        """Return exact means with standard errors over all instances.

        Of `constituent_measures` come metrics of single constituents, named `metric[constituent]`.
        """
        return {name: mean_metric(values) for name, values in measures.items()}

    @abstractmethod
    def labels(self, batch: Batch) -> pd.DataFrame:
        """Return one row per instance: constituents, target, split, combination, ..."""

    def answers(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return what a model answers, to be compared with `targets` [B, n_targets].

        By default the last n_targets tokens answer: with the symbol of the largest logit where
        targets are whole numbers, otherwise with the number that is their first output.

        logits [B, T, d_output]
        """
        last = logits[:, -targets.shape[1]:]
        return last[..., 0] if targets.is_floating_point() else last.argmax(-1)

    def format_answers(self, answers: Tensor, batch: Batch) -> list[tuple[int | float | str, ...]]:
        """Return of `answers`, or of targets, what a person is told of each instance.

        answers [B, n_targets]. By default all of them.
        """
        return [tuple(row) for row in answers.tolist()]

    @property
    def token_names(self) -> tuple[str, ...]:
        """What each token of an instance shows, for people."""
        return tuple(f"token {t}" for t in range(self.config.n_tokens))

    def names_of(self, batch: Batch, index: int) -> tuple[str, ...]:
        """What each token of instance `index` shows; by default the same in every instance."""
        return self.token_names

    def render(self, batch: Batch, index: int, format: Literal["text", "html"] = "text") -> str:
        """Return instance `index` for people, by default its labels; raises as `check_render`."""
        self.check_render(batch, index, format)
        labels = self.labels(batch[index:index + 1].to("cpu")).iloc[0]
        if format == "text":
            return "\n".join(f"{name}: {value}" for name, value in labels.items())
        return self._html(labels)

    def sketch(self, batch: Batch, index: int) -> str:
        """Return instance `index` in small, as HTML for a card of about 260 x 150 px.

        Whatever shows a token has its position in the input as `data-token`. By default the names
        of the tokens, and the first labels.
        """
        self.check_render(batch, index, "html")
        labels = self.labels(batch[index:index + 1].to("cpu")).iloc[0]
        return (f'<div style="font:11px system-ui,sans-serif;color:inherit;max-width:250px">'
                f'{self._html(labels.drop("split", errors="ignore")[:SKETCHED])}</div>')

    def _html(self, labels: pd.Series) -> str:
        """Return the names of the tokens, each with its position, and a table of labels."""
        tokens = "".join(
            f'<span data-token="{position}" style="display:inline-block;margin:1px 2px;'
            f'padding:1px 4px;border-radius:4px;background:rgba(128,128,128,.25)">'
            f"{html.escape(name)}</span>" for position, name in enumerate(self.token_names))
        rows = "".join(f"<tr><th style='text-align:left;padding-right:1em'>"
                       f"{html.escape(str(name))}</th><td>{html.escape(str(value))}</td></tr>"
                       for name, value in labels.items())
        return (f'<div style="margin-bottom:4px;max-height:70px;overflow:auto">{tokens}</div>'
                f'<table style="color:inherit;font:inherit;background:none">{rows}</table>')

    def check_render(self, batch: Batch, index: int, format: str) -> None:
        """Raise `UnknownNameError` for another format, `ConfigError` for another index."""
        check_choice("format", format, ("text", "html"))
        check(0 <= index < len(batch), f"index is {index!r}; expected 0 <= index < {len(batch)}, "
              "the number of instances")

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
            check_choice("pair", name, self.pairs)
