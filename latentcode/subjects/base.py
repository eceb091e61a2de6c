"""What every question needs to know of a model and the problems that it is asked about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.codes.reader import Reader
from latentcode.codes.rows import Rows
from latentcode.errors import ProbeError, check, check_count
from latentcode.models.hooks import attention_layers
from latentcode.progress import Progress
from latentcode.tasks.base import Batch
from latentcode.tasks.pairs import Pair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from latentcode.tasks.counterfactuals import Counterfactuals

ALL = "all"
"""The name that stands for all pairs."""


class Subject(ABC):
    """A model on problems, of which `subject` makes one for whatever it is given.

    name          what results call the model
    settings      what results say of model and problems
    pairs         the named pairs that its problems have, the first being the one that is read
                  where none is asked for
    probe_labels  what is asked about where nothing else is; may be empty

    What needs a model is refused here, for subjects that have none (`CodesSubject`).
    """

    name: str
    settings: Mapping[str, Any]
    whole_texts: bool = False
    """Whether the problems are whole texts, of which `tokens_of` says the tokens."""

    @property
    @abstractmethod
    def pairs(self) -> Mapping[str, Pair]: ...

    @property
    def default_pairs(self) -> tuple[str, ...]:
        """The pairs that a probe reads where none is named."""
        return tuple(self.pairs)

    @property
    @abstractmethod
    def probe_labels(self) -> tuple[str, ...]: ...

    def without_model(self) -> ProbeError:
        """Return the error of a question that needs a model."""
        return ProbeError(f"a model is needed, and {self.name!r} stands for codes; expected a run, "
                          "the name of a model, or a model in hand")

    @property
    def probing(self) -> Subject:
        """The same model on the problems that probes draw where nothing else is asked for."""
        return self

    def about(self, labels: Sequence[str]) -> Subject:
        """Return the same model on the problems that have these labels: where they are those of
        texts, and not of tokens in them, whole texts."""
        return self

    def tokens_of(self, split: str, *, n: int) -> Sequence[Sequence[int]]:
        """Return the tokens of the first n problems of a split, where these are whole texts."""
        raise ProbeError("tokens alone are a control of whole texts, and the problems are none")

    def divided(self, heldout: float, seed: int, label: str) -> Subject:
        """Return a subject with the splits `train` and `ood`.

        heldout  share of the combinations that become `ood`, of problems that have no splits yet
        label    every value of it stays in training
        """
        return self

    def model(self, *, untrained: bool = False, seed: int = 0) -> Any:
        """Return the model: anything with `cfg` and `run_with_hooks`.

        untrained  the same with its initial weights or, where these are not known, with fresh ones
                   that are drawn from `seed`
        """
        raise self.without_model()

    @abstractmethod
    def n_of(self, name: str, n: int | None, default: int, split: str) -> int:
        """Return how many problems are meant by an argument.

        None  `default`, or all where there are only so many
        """

    def reader(
        self, split: str, *, n: int, pairs: Sequence[str] | str | None = None,
        layers: Sequence[int] | int | None = None, residuals: bool = False,
        untrained: bool = False, seed: int = 0,
    ) -> Reader:
        """Return what reads the codes of n problems of a split; nothing is read yet."""
        raise self.without_model()

    def codes(
        self, split: str, *, n: int, pairs: Sequence[str] | str | None = None,
        layers: Sequence[int] | int | None = None, residuals: bool = False,
        untrained: bool = False, seed: int = 0, progress: Progress | None = None,
    ) -> LatentCodes:
        """Return the codes of n problems of a split."""
        return self.reader(split, n=n, pairs=pairs, layers=layers, residuals=residuals,
                           untrained=untrained, seed=seed).read(progress=progress)

    def with_untrained(
        self, split: str, further: Mapping[str, Any], *, n: int,
        pairs: Sequence[str] | str | None, layers: Sequence[int] | int | None, seed: int,
        controls: bool = True,
    ) -> tuple[LatentCodes, LatentCodes | None]:
        """Return codes with residual streams, and those of the untrained model beside them.

        further   more labels of these problems, for both
        controls  False leaves out both controls
        """
        codes = self.codes(split, n=n, pairs=pairs, layers=layers, residuals=controls,
                           seed=seed).with_labels(**further)
        if not controls:
            return codes, None
        return codes, self.codes(split, n=n, pairs=pairs, layers=layers, untrained=True,
                                 seed=seed).with_labels(**further)

    def rows(
        self, split: str, *, n: int, pair: str, features: Sequence[str],
        layers: Sequence[int] | int | None = None, untrained: bool = False, seed: int = 0,
    ) -> Rows:
        """Return features of the problems that `codes` reads (`latentcode.codes.rows`)."""
        raise self.without_model()

    def read(
        self, split: str, *, n: int, pairs: Sequence[str], features: Sequence[str],
        layers: Sequence[int] | int | None = None, untrained: bool = False, seed: int = 0,
    ) -> Iterator[Rows]:
        """Yield features of n problems of a split, pair by pair (`latentcode.codes.rows`)."""
        if set(features) <= {"code", "residual"}:
            codes = self.codes(split, n=n, pairs=pairs, layers=layers,
                               residuals="residual" in features, untrained=untrained, seed=seed)
            for pair in pairs:
                yield Rows.of_codes(codes, pair, features)
        else:
            for pair in pairs:
                yield self.rows(split, n=n, pair=pair, features=features, layers=layers,
                                untrained=untrained, seed=seed)

    def row_labels(self, labels: pd.DataFrame, pair: str) -> pd.DataFrame:
        """Return operation, operands and answer of problems, as `Task.row_labels` names them.

        labels  those that `rows` has
        """
        raise self.without_model()

    def counted(self, n: int, seed: int) -> pd.DataFrame:
        """Return the labels of training problems by which it is counted what goes with what: n
        others than those that are read, where there are others."""
        raise self.without_model()

    @abstractmethod
    def instances(self, split: str, n: int, *, seed: int) -> Batch:
        """Return the problems that `codes` reads, on the CPU; `ProbeError` where they are none
        that a function of a batch could be asked about."""

    @abstractmethod
    def known_labels(self, split: str, *, seed: int) -> list[str]:
        """Return the names of the labels that codes of a split have."""

    def counterfactuals(
        self, *, factorial: bool = True, among: str = "vocabulary"
    ) -> Counterfactuals:
        """Return the pairs of bases and sources, and what their answers are."""
        raise self.without_model()

    def split_name(self, split: str) -> str:
        """Return what a split is called of these problems, which may have none."""
        return split

    def patched_at_once(self, batch_size: int | None) -> int:
        """Return how many problems are patched in one forward pass."""
        raise self.without_model()

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers of the model that have attention."""
        return attention_layers(self.model())


def check_n(name: str, n: int) -> int:
    """Return a number of problems; `ConfigError` for less than one."""
    check_count(name, n)
    return int(n)


def pair_names(asked: Sequence[str] | str | None, known: Mapping[str, Pair]) -> Any:
    """Return `asked`, or the names of all pairs where that says `all`."""
    return tuple(known) if asked in (ALL, (ALL,), [ALL]) else asked


def check_nothing(what: str, **given: Any) -> None:
    """Raise `ProbeError` for options that a subject does not have."""
    for name, value in given.items():
        check(value is None, f"{name} is {value!r}, but {what}; expected no {name}", ProbeError)
