"""A model on problems, as every question sees it; and codes in hand, which need no model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from latentcode.codes import LatentCodes
from latentcode.codes.reader import is_code
from latentcode.errors import ProbeError, as_tuple, check, check_choice, check_count, chosen
from latentcode.models.hooks import attention_layers
from latentcode.progress import Progress
from latentcode.tasks.base import SPLITS
from latentcode.tasks.pairs import Pair

if TYPE_CHECKING:
    from latentcode.tasks.counterfactuals import Counterfactuals

ALL = "all"
"""The name that stands for all pairs."""


class Subject(ABC):
    """A model on problems, of which `subject` makes one for whatever it is given.

    ================= ========================================= ==================================
    method            returns                                   asked by
    ================= ========================================= ==================================
    `n_of`            how many problems an argument means       every probe
    `reader`          what reads activations and labels         `extract`, every probe
    `divided`         the same with splits `train` and `ood`    probes that are fitted
    `model`           the model, trained or untrained           interventions, attribution, DAS
    `counterfactuals` bases and sources, and their answers      the same, interchange of heads
    ================= ========================================= ==================================

    name             what results call the model
    settings         what results say of model and problems
    pairs            the named pairs that its problems have
    default_pairs    those that a probe reads where none is named
    layers           the layers of the model that have attention
    probe_labels     labels that are probed by default; may be empty
    probing          the same model on the problems that probes draw by default
    has_splits       whether the problems have splits by name; else all are one
    whole_texts      whether the problems are whole texts
    patched_at_once  problems that are patched in one forward pass
    """

    name: str
    settings: Mapping[str, Any]
    pairs: Mapping[str, Pair]
    default_pairs: tuple[str, ...]
    probe_labels: tuple[str, ...] = ()
    has_splits: bool = True
    whole_texts: bool = False
    patched_at_once: int

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the layers with attention."""
        return attention_layers(self.model())

    @property
    def probing(self) -> Subject:
        """This subject, where the problems choose no others for probes."""
        return self

    @abstractmethod
    def n_of(self, name: str, n: int | None, default: int, split: str) -> int:
        """Return the number of problems that the argument `name` means; None is `default`, or all
        where there are only so many."""

    @abstractmethod
    def reader(
        self, split: str, *, n: int, pairs: Sequence[str] | str | None = None,
        layers: Sequence[int] | int | None = None, residuals: bool = False,
        features: Sequence[str] = ("code",), untrained: bool = False, seed: int = 0,
    ) -> Any:
        """Return the `Reader` of n problems of a split, of which nothing is read yet: of codes,
        with their residual streams if wanted, or other features of a single pair
        (`read_features`). Of codes in hand it is `StoredCodes`."""

    def divided(self, heldout: float, seed: int, label: str) -> Subject:
        """Return a subject with the splits `train` and `ood`.

        heldout  share of the combinations that become `ood`, of problems that have no splits yet
        label    every value of it stays in training
        """
        return self

    @abstractmethod
    def model(self, *, untrained: bool = False, seed: int = 0) -> Any:
        """Return the model: anything with `cfg` and `run_with_hooks`.

        untrained  the same with its initial weights or, where these are not known, with fresh ones
                   that are drawn from `seed`
        """

    @abstractmethod
    def counterfactuals(
        self, *, factorial: bool = True, among: str = "vocabulary"
    ) -> Counterfactuals:
        """Return the pairs of bases and sources, and what their answers are."""


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
        self.pairs = {pair.name: pair for pair in codes[0].pairs}
        self.default_pairs = tuple(self.pairs)

    @property
    def layers(self) -> tuple[int, ...]:
        return self.parts[0].layers

    def n_of(self, name: str, n: int | None, default: int, split: str) -> int:
        return at_most(name, n, len(self.part(split)))

    def reader(
        self, split: str, *, n: int, pairs: Sequence[str] | str | None = None,
        layers: Sequence[int] | int | None = None, residuals: bool = False,
        features: Sequence[str] = ("code",), untrained: bool = False, seed: int = 0,
    ) -> StoredCodes:
        if not is_code(features):
            self.model()
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

    def model(self, *, untrained: bool = False, seed: int = 0) -> NoReturn:
        raise ProbeError(f"a model is needed, and {self.name!r} stands for codes; expected a run, "
                         "the name of a model, or a model in hand")

    def counterfactuals(
        self, *, factorial: bool = True, among: str = "vocabulary"
    ) -> NoReturn:
        self.model()

    def part(self, split: str, *, untrained: bool = False) -> LatentCodes:
        """Return the codes of `train`, the first, of `ood`, the second, or those of a number.

        Of a single set it is that, whatever it is called.
        """
        parts = self.initial if untrained else self.parts
        if split.isdecimal():
            return parts[int(split)]
        check_choice("split", split, SPLITS)
        return parts[0] if split == "train" or len(parts) == 1 else parts[1]


def at_most(name: str, n: int | None, available: int) -> int:
    """Return n, or all that are available; `ConfigError` for less than one."""
    if n is None:
        return available
    check_count(name, n)
    return min(int(n), available)


def pair_names(pairs: Sequence[str] | str | None, known: Mapping[str, Pair]) -> Any:
    """Return `pairs`, or the names of all where that says `all`."""
    if pairs is None or ALL not in as_tuple(pairs):
        return pairs
    check(set(as_tuple(pairs)) == {ALL}, f"pairs are {', '.join(pairs)}; expected {ALL} alone, or "
          f"some of: {', '.join(known)}")
    return tuple(known)


def check_nothing(what: str, **given: Any) -> None:
    """Raise `ProbeError` for options that a subject does not have."""
    for name, value in given.items():
        check(value is None, f"{name} is {value!r}, but {what}; expected no {name}", ProbeError)
