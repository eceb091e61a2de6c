"""The problems of a run: fuzzy logic, SRAVEN, a user's own, or the text of a language model."""

from __future__ import annotations

import operator
import re
from dataclasses import Field, dataclass
from math import comb
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from latentcode.config.fields import (
    check_choices,
    check_fields,
    check_seed,
    filled_in,
    is_number,
    later,
)
from latentcode.errors import ConfigError, check
from latentcode.registry import Registry

MOST_COMBINATIONS = 5_000_000
"""The most combinations of constituents that a split lists."""


@runtime_checkable
class TaskConfig(Protocol):
    """What every task's configuration has: a frozen dataclass, its name, and the sizes of a model.

    name      what the task is registered under
    d_input   width of a token, d_output: width of the read-out
    n_tokens  tokens of an instance
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def name(self) -> str: ...

    @property
    def d_input(self) -> int: ...

    @property
    def d_output(self) -> int: ...

    @property
    def n_tokens(self) -> int: ...


@dataclass(frozen=True)
class LogicConfig:
    """Fuzzy-logic functions in disjunctive normal form, learned in context (paper, section 3)."""

    name: Literal["logic"] = "logic"
    """Which task this is; fixed."""
    n_variables: int = 4
    """Number of variables L; there are 2^L possible terms."""
    n_terms: int = 2
    """Number of terms K that are joined by OR."""
    n_examples: int = 32
    """Length of the sequence: n_examples - 1 examples in context and the query ("sequence
    length" in Fig. 2C)."""
    ood_fraction: float = 0.7
    """Share of the combinations of known terms that is held out of training (Fig. 2C)."""
    unknown_fraction: float = 0.25
    """Share of the 2^L terms, the last ones, that are never trained on (Fig. A3C; official)."""
    inputs: Literal["uniform", "fixed_context", "fixed_query"] = "uniform"
    """`uniform`: all inputs fresh per instance; `fixed_context`: all instances share the
    inputs shown in context, the query varies (paper 3.2); `fixed_query`: the reverse."""
    split_seed: int = 0
    """Seed of the split and of the fixed inputs."""
    held_out: tuple[tuple[int, ...], ...] | None = None
    """Explicit held-out combinations, as tuples of term indices, in place of the random split
    of `ood_fraction` and `split_seed`."""

    def __post_init__(self) -> None:
        check_choices("task", self)
        check_fields("task", self, 1, "n_variables", "n_terms")
        check_fields("task", self, 2, "n_examples")
        _check_fraction("task.ood_fraction", self.ood_fraction)
        _check_fraction("task.unknown_fraction", self.unknown_fraction)
        check(self.n_variables <= 16,
              f"task.n_variables is {self.n_variables}; expected at most 16 (65,536 terms)")
        check(self.n_terms <= self.n_known_terms,
              f"task.n_terms is {self.n_terms}; expected at most the {self.n_known_terms} known "
              f"terms of {self.n_variables} variables")
        n = max(self.n_known_terms, 2**self.n_variables - self.n_known_terms)
        check(comb(n, self.n_terms) <= MOST_COMBINATIONS,
              f"task.n_terms is {self.n_terms}; sets of that many out of {n} terms are more "
              f"than the {MOST_COMBINATIONS:,} combinations that can be listed")
        check_seed("task", self, "split_seed")
        _check_held_out(self)

    @property
    def n_known_terms(self) -> int:
        """Number of terms that may occur in training."""
        n: int = 2**self.n_variables
        return n - int(n * self.unknown_fraction)

    @property
    def d_input(self) -> int:
        """Width of a token: the variables and the target."""
        return self.n_variables + 1

    @property
    def d_output(self) -> int:
        """Width of the read-out: one number."""
        return 1

    @property
    def n_tokens(self) -> int:
        """Tokens per instance."""
        return self.n_examples


@dataclass(frozen=True)
class SravenConfig:
    """Symbolic Raven matrices (paper, section 4)."""

    name: Literal["sraven"] = "sraven"
    """Which task this is; fixed."""
    n_features: int = 4
    """Features per panel M, each governed by its own rule."""
    n_values: int = 8
    """Symbols K; arithmetic is modulo K."""
    grid_size: int = 3
    """Panels per row and column G."""
    permuted: bool = True
    """Permute the features, one permutation per column and instance (paper 4.3)."""
    rule_order: Literal["random", "sorted"] = "random"
    """How the rules of a combination are dealt to the features: at random, or in rising order
    as the official code does (which biases the last feature to high rule indices)."""
    ood_fraction: float = 0.25
    """Share of the rule combinations that is held out of training (paper 4.2)."""
    split_seed: int = 0
    """Seed of the split."""
    held_out: tuple[tuple[int, ...], ...] | None = None
    """Explicit held-out combinations, as tuples of rule indices, in place of the random split
    of `ood_fraction` and `split_seed`."""

    N_RULES: ClassVar[int] = 8

    def __post_init__(self) -> None:
        check_choices("task", self)
        check_fields("task", self, 1, "n_features")
        check_fields("task", self, 2, "n_values", "grid_size")
        _check_fraction("task.ood_fraction", self.ood_fraction)
        check(self.n_values >= self.grid_size,
              f"task.n_values is {self.n_values}; expected at least grid_size = {self.grid_size} "
              "(distribute-three needs that many different symbols)")
        check(self.n_features <= 8,
              f"task.n_features is {self.n_features}; expected at most 8 (6,435 combinations)")
        check_seed("task", self, "split_seed")
        _check_held_out(self)

    @property
    def d_input(self) -> int:
        """Width of a token: a one-hot symbol."""
        return self.n_values

    @property
    def d_output(self) -> int:
        """Width of the read-out: one logit per symbol."""
        return self.n_values

    @property
    def n_tokens(self) -> int:
        """Tokens per instance: M for each of the G x G panels, the last M being the response."""
        return self.grid_size**2 * self.n_features


@dataclass(frozen=True)
class LanguageConfig:
    """Text, token by token: token ids in, logits of the next token out (paper, section 5).

    Without `text`, as in runs that were imported, no instance can be drawn: the run can be opened
    and its model be given tokens, but it can be neither trained nor sampled from.
    """

    name: Literal["language"] = "language"
    """Which task this is; fixed."""
    n_vocabulary: int = 2_048
    """Number of token ids (paper: 32,000; official wikitext-2: 2,048)."""
    n_tokens: int = 128
    """Length of the sequences trained on (official: 128)."""
    text: str = later("")
    """Where the text is: a folder or file (text, JSONL, parquet), or a dataset on the Hugging Face
    hub, such as `allenai/c4`, which is streamed."""
    subset: str = later("")
    """Part of a dataset on the hub, such as `en`."""
    column: str = later("text")
    """Column of JSONL, parquet and datasets that holds the text."""
    tokenizer: str = later("")
    """A tokenizer's file (tokenizer.json), folder or name on the hub; empty: byte-level BPE of
    n_vocabulary tokens, trained on the text."""
    held_out_sources: tuple[str, ...] = later(())
    """Sources that are never trained on, the split `ood`: values of a column `source`, or the
    first folder below `text`. Empty: `ood` is of held-out documents, like `test`."""
    revision: str = filled_in()
    """Which state of the text and tokenizer: filled in when training begins."""

    def __post_init__(self) -> None:
        check_choices("task", self)
        check_fields("task", self, 1, "n_vocabulary", "n_tokens")
        for name in ("text", "subset", "column", "tokenizer", "revision"):
            value = getattr(self, name)
            check(isinstance(value, str), f"task.{name} is {value!r}; expected text")
        check(re.fullmatch(r"[\w-]*", self.revision, re.ASCII) is not None, f"task.revision is "
              f"{self.revision!r}; expected what an earlier run of the text says")
        sources = self.held_out_sources
        check(isinstance(sources, (list, tuple)) and all(isinstance(x, str) for x in sources),
              f"task.held_out_sources is {sources!r}; expected a list of names")
        object.__setattr__(self, "held_out_sources", tuple(sources))

    @property
    def d_input(self) -> int:
        """Size of the embedding table."""
        return self.n_vocabulary

    @property
    def d_output(self) -> int:
        """Width of the read-out: one logit per token id."""
        return self.n_vocabulary


TASKS: Registry[type[TaskConfig]] = Registry("task", "lc.register_task", {
    LogicConfig.name: LogicConfig, SravenConfig.name: SravenConfig,
    LanguageConfig.name: LanguageConfig})
"""The class of each task's configuration, by name.

Apart from the tasks themselves (`latentcode.tasks.registry`), so that a configuration is read, and
help shown, without importing torch.
"""


def _check_fraction(name: str, value: float) -> None:
    check(is_number(value) and 0.0 <= value < 1.0,
          f"{name} is {value!r}; expected 0 <= fraction < 1")


def _check_held_out(config: LogicConfig | SravenConfig) -> None:
    """Make tuples of the lists or arrays that a caller gave, so that configurations compare."""
    if config.held_out is None:
        return
    try:
        held_out = tuple(tuple(operator.index(c) for c in row) for row in config.held_out)
    except TypeError:
        raise ConfigError(f"task.held_out is {config.held_out!r}; expected a list of lists of "
                          f"whole numbers, or null") from None
    object.__setattr__(config, "held_out", held_out)
