"""A model on problems, as every question sees it; and codes in hand, which need no model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.codes.reader import is_code
from latentcode.errors import ProbeError, check, check_choice, check_count, chosen
from latentcode.models.hooks import attention_layers
from latentcode.progress import Progress
from latentcode.tasks.base import SPLITS, Batch
from latentcode.tasks.pairs import Pair

if TYPE_CHECKING:
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
    whole_texts   whether the problems are whole texts, of which `tokens_of` says the tokens

    What needs a model is refused here, for subjects that have none (`CodesSubject`).
    """

    name: str
    settings: Mapping[str, Any]
    whole_texts: bool = False

    @property
    @abstractmethod
    def pairs(self) -> Mapping[str, Pair]: ...

    @property
    @abstractmethod
    def probe_labels(self) -> tuple[str, ...]: ...

    @abstractmethod
    def n_of(self, name: str, n: int | None, default: int, split: str) -> int:
        """Return the number of problems that an argument means; None is `default`, or all where
        there are only so many."""

    @abstractmethod
    def reader(
        self, split: str, *, n: int, pairs: Sequence[str] | str | None = None,
        layers: Sequence[int] | int | None = None, residuals: bool = False,
        features: Sequence[str] = ("code",), untrained: bool = False, seed: int = 0,
    ) -> Any:
        """Return the `Reader` of n problems of a split, of which nothing is read yet: of codes,
        with their residual streams if wanted, or other features of a single pair
        (`read_features`). Of codes in hand it is `StoredCodes`."""

    @abstractmethod
    def instances(self, split: str, n: int, *, seed: int) -> Batch:
        """Return the problems that `codes` reads, on the CPU; `ProbeError` where they are none
        that a function of a batch could be asked about."""

    @abstractmethod
    def known_labels(self, split: str, *, seed: int) -> list[str]:
        """Return the names of the labels that codes of a split have."""

    @property
    def default_pairs(self) -> tuple[str, ...]:
        """The pairs that a probe reads where none is named."""
        return tuple(self.pairs)

    @property
    def probing(self) -> Subject:
        """The same model on the problems that probes draw where nothing else is asked for."""
        return self

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers of the model that have attention."""
        return attention_layers(self.model())

    def about(self, labels: Sequence[str]) -> Subject:
        """Return the same model on the problems that have these labels: where they are those of
        texts, and not of tokens in them, whole texts."""
        return self

    def divided(self, heldout: float, seed: int, label: str) -> Subject:
        """Return a subject with the splits `train` and `ood`.

        heldout  share of the combinations that become `ood`, of problems that have no splits yet
        label    every value of it stays in training
        """
        return self

    def split_name(self, split: str) -> str:
        """Return what a split is called of these problems, which may have none."""
        return split

    def codes(self, split: str, *, progress: Progress | None = None, **reading: Any) -> LatentCodes:
        """Return the codes of problems of a split, with the arguments of `reader`."""
        return self.reader(split, **reading).read(progress=progress)

    def without_model(self) -> ProbeError:
        """Return the error of a question that needs a model."""
        return ProbeError(f"a model is needed, and {self.name!r} stands for codes; expected a run, "
                          "the name of a model, or a model in hand")

    def model(self, *, untrained: bool = False, seed: int = 0) -> Any:
        """Return the model: anything with `cfg` and `run_with_hooks`.

        untrained  the same with its initial weights or, where these are not known, with fresh ones
                   that are drawn from `seed`
        """
        raise self.without_model()

    def row_labels(self, labels: pd.DataFrame, pair: str) -> pd.DataFrame:
        """Return operation, operands and answer of problems that have these labels, as
        `Task.row_labels` names them."""
        raise self.without_model()

    def counted(self, n: int, seed: int) -> pd.DataFrame:
        """Return the labels of training problems by which it is counted what goes with what: n
        others than those that are read, where there are others."""
        raise self.without_model()

    def counterfactuals(
        self, *, factorial: bool = True, among: str = "vocabulary"
    ) -> Counterfactuals:
        """Return the pairs of bases and sources, and what their answers are."""
        raise self.without_model()

    def patched_at_once(self, batch_size: int | None) -> int:
        """Return how many problems are patched in one forward pass."""
        raise self.without_model()

    def tokens_of(self, split: str, *, n: int) -> Sequence[Sequence[int]]:
        """Return the tokens of the first n problems of a split, where these are whole texts."""
        raise ProbeError("tokens alone are a control of whole texts, and the problems are none")


@dataclass(frozen=True)
class StoredCodes:
    """Codes in hand, in the place of a `Reader`."""

    codes: LatentCodes

    def read(
        self, out: str | Path | None = None, *, overwrite: bool = False,
        progress: Progress | None = None,
    ) -> LatentCodes:
        """Return the codes, also written to `out`."""
        if out is not None:
            self.codes.save(out, overwrite=overwrite)
        return self.codes


class CodesSubject(Subject):
    """Codes that were read before: of training combinations and, for some questions, held-out ones.

    untrained  the same of an untrained model, one for each; the controls need them
    """

    def __init__(
        self, codes: Sequence[LatentCodes], untrained: Sequence[LatentCodes] = ()
    ) -> None:
        check(len(untrained) in (0, len(codes)), f"{len(untrained)} codes of the untrained model "
              f"are given; expected {len(codes)}, as many as of the trained one", ProbeError)
        self.parts, self.initial = tuple(codes), tuple(untrained)
        self.name = str(codes[0].meta.get("run", "codes"))
        self.settings = dict(codes[0].meta)

    @property
    def pairs(self) -> Mapping[str, Pair]:
        return {pair.name: pair for pair in self.parts[0].pairs}

    @property
    def layers(self) -> tuple[int, ...]:
        return self.parts[0].layers

    @property
    def probe_labels(self) -> tuple[str, ...]:
        return ()

    def n_of(self, name: str, n: int | None, default: int, split: str) -> int:
        there = len(self.part(split))
        return there if n is None else min(check_n(name, n), there)

    def reader(
        self, split: str, *, n: int, pairs: Sequence[str] | str | None = None,
        layers: Sequence[int] | int | None = None, residuals: bool = False,
        features: Sequence[str] = ("code",), untrained: bool = False, seed: int = 0,
    ) -> StoredCodes:
        if not is_code(features):
            raise self.without_model()
        codes = self.part(split, untrained=untrained)
        codes = codes[:n] if n < len(codes) else codes
        if pairs is not None or layers is not None:
            kept = [codes.layers.index(layer) for layer in chosen("layer", layers, codes.layers)]
            names = [pair.name for pair in codes.pairs]
            places = [names.index(name)
                      for name in chosen("pair", pair_names(pairs, self.pairs), names)]
            codes = replace(
                codes, scores=codes.scores[:, kept][:, :, places],
                layers=tuple(codes.layers[layer] for layer in kept),
                pairs=tuple(codes.pairs[place] for place in places),
                residuals=None if codes.residuals is None else codes.residuals[:, kept],
                query_of_pair=tuple(codes.query_of_pair[place] for place in places)
                if codes.query_of_pair else ())
        return StoredCodes(codes)

    def divided(self, heldout: float, seed: int, label: str) -> Subject:
        check(len(self.parts) == 2, "a single set of codes is given; expected codes of training "
              "combinations as the model, and of held-out ones as the problems", ProbeError)
        return self

    def instances(self, split: str, n: int, *, seed: int) -> Batch:
        raise ProbeError("labels are functions, which need the problems; of codes in hand expected "
                         "names, and labels of your own by codes.with_labels(name=values)")

    def known_labels(self, split: str, *, seed: int) -> list[str]:
        return [str(name) for name in self.part(split).labels]

    def part(self, split: str, *, untrained: bool = False) -> LatentCodes:
        """Return the codes of `train`, the first, of `ood`, the second, or those of a number.

        Of a single set it is that, whatever it is called.
        """
        parts = self.initial if untrained else self.parts
        if split.isdecimal():
            return parts[int(split)]
        check_choice("split", split, SPLITS)
        return parts[0] if split == "train" or len(parts) == 1 else parts[1]


def check_n(name: str, n: int) -> int:
    """Return a number of problems; `ConfigError` for less than one."""
    check_count(name, n)
    return int(n)


def pair_names(pairs: Sequence[str] | str | None, known: Mapping[str, Pair]) -> Any:
    """Return `pairs`, or the names of all where that says `all`."""
    return tuple(known) if pairs in (ALL, (ALL,), [ALL]) else pairs


def check_nothing(what: str, **given: Any) -> None:
    """Raise `ProbeError` for options that a subject does not have."""
    for name, value in given.items():
        check(value is None, f"{name} is {value!r}, but {what}; expected no {name}", ProbeError)
