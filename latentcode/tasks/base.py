"""What every task offers: batches with known constituents, a loss, metrics, pairs, labels.

A task never loops over instances in Python and never leaves the device of the generator that
it is given.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.config import TaskConfig
from latentcode.errors import SplitError, check, check_choice
from latentcode.metrics import Metric, mean_metric
from latentcode.tasks.batch import Batch, InOrder
from latentcode.tasks.pairs import Pair

SPLITS: tuple[str, ...] = ("train", "test", "ood", "unknown")
"""`train`; `test`: fresh instances of training combinations; `ood`: held-out combinations of
known constituents; `unknown`: combinations of constituents that are never trained on."""
DRAW = 4096
"""Instances drawn at once where many are read. It is fixed, so that the batch size of the forward
pass does not change which instances are drawn."""
SKETCHED = 5
"""Most labels that a sketch lists where a task does not say how it is drawn."""


class Task(ABC):
    """One family of problems whose constituents (terms, rules) are known.

    What is abstract here is what a task of one's own has to say; `register_task` makes it known.
    """

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
        """Return named sets of keys over which a query's codes are worth reading together.

        Each int64 [B, n], token positions; by default none.
        """
        return {}

    def places(self, batch: Batch) -> dict[str, Tensor]:
        """Return the tokens of the places that instances have (`counterfactuals.PLACES`).

        Each int64 [B, n], token positions; by default none.
        """
        return {}

    def row_labels(self, labels: pd.DataFrame, token: int | None) -> pd.DataFrame:
        """Return what one response is asked and what it answers, a column each.

        Columns called `operand...` hold what is operated on, `answer` what comes out, and the
        others the operation; measurements are put into bins by who decodes them. By default
        they are the labels for probing alone, of that response.

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
        """How many tokens, the last ones, losses and measures read; None: all of them.

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
    def measures(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return what each instance scores, such as `loss` and `accuracy`, each float [B].

        `summarize` turns them into metrics.

        logits [B, T, d_output] of all tokens, or of the last `n_read`, which give the same
        """

    def constituent_measures(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return what else `summarize` needs to measure each constituent, tensors [B, ...].

        Unlike `measures`, they describe the parts of an instance, and need `batch.info`.
        """
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
        """Return instance `index` of `batch` as a person would want to see it.

        By default its labels, one a line. `UnknownNameError` for another format, `ConfigError`
        for an index out of range.
        """
        self.check_render(batch, index, format)
        labels = self.labels(batch[index:index + 1].to("cpu")).iloc[0]
        if format == "text":
            return "\n".join(f"{name}: {value}" for name, value in labels.items())
        return f"{self._tokens_html()}{_table_html(labels)}"

    def sketch(self, batch: Batch, index: int) -> str:
        """Return instance `index` in small, as HTML for a card of about 260 x 150 px.

        Whatever shows a token has its position in the input as `data-token`. By default the names
        of the tokens, and the constituents. Raises what `render` raises.
        """
        self.check_render(batch, index, "html")
        labels = self.labels(batch[index:index + 1].to("cpu")).iloc[0]
        known = [name for name in labels.index if name != "split"][:SKETCHED]
        return (f'<div style="font:11px system-ui,sans-serif;color:inherit;max-width:250px">'
                f"{self._tokens_html()}{_table_html(labels[known])}</div>")

    def _tokens_html(self) -> str:
        """Return the names of the tokens in their order, each with its position."""
        shown = "".join(
            f'<span data-token="{position}" style="display:inline-block;margin:1px 2px;'
            f'padding:1px 4px;border-radius:4px;background:rgba(128,128,128,.25)">'
            f"{html.escape(name)}</span>" for position, name in enumerate(self.token_names))
        return f'<div style="margin-bottom:4px;max-height:70px;overflow:auto">{shown}</div>'

    def check_render(self, batch: Batch, index: int, format: str) -> None:
        """Raise an error unless `render` can draw an instance in a format."""
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


def _table_html(labels: pd.Series) -> str:
    rows = "".join(f"<tr><th style='text-align:left;padding-right:1em'>{html.escape(str(name))}"
                   f"</th><td>{html.escape(str(value))}</td></tr>"
                   for name, value in labels.items())
    return f'<table style="color:inherit;font:inherit;background:none">{rows}</table>'
