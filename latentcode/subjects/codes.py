"""Codes in hand, of which those questions can be asked that need no model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from latentcode.codes import LatentCodes
from latentcode.codes.rows import Rows
from latentcode.errors import ProbeError, check, check_choice, chosen
from latentcode.progress import Progress
from latentcode.subjects.base import Subject, check_n, pair_names
from latentcode.tasks.base import SPLITS, Batch
from latentcode.tasks.pairs import Pair


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
        there = len(self._part(split, self.parts))
        return there if n is None else min(check_n(name, n), there)

    def codes(
        self, split: str, *, n: int, pairs: Sequence[str] | str | None = None,
        layers: Sequence[int] | int | None = None, residuals: bool = False,
        untrained: bool = False, seed: int = 0, progress: Progress | None = None,
    ) -> LatentCodes:
        part = self._part(split, self.initial if untrained else self.parts)
        return restricted(part[:n] if n < len(part) else part, layers,
                          pair_names(pairs, self.pairs))

    def read(self, split: str, *, n: int, **how: Any) -> Iterator[Rows]:
        part = self._part(split, self.initial if how.get("untrained") else self.parts)
        # All layers and pairs tell instances apart that few do not.
        whole = part[:n] if n < len(part) else part
        for rows in super().read(split, n=n, **how):
            yield replace(rows, codes=whole)

    def divided(self, heldout: float, seed: int, label: str) -> Subject:
        check(len(self.parts) == 2, "a single set of codes is given; expected codes of training "
              "combinations as the model, and of held-out ones as the problems", ProbeError)
        return self

    def with_untrained(
        self, split: str, further: Mapping[str, Any], *, n: int,
        pairs: Sequence[str] | str | None, layers: Sequence[int] | int | None, seed: int,
        controls: bool = True,
    ) -> tuple[LatentCodes, LatentCodes | None]:
        return (self.codes(split, n=n, pairs=pairs, layers=layers, seed=seed),
                self.codes(split, n=n, pairs=pairs, layers=layers, untrained=True, seed=seed)
                if self.initial else None)

    def instances(self, split: str, n: int, *, seed: int) -> Batch:
        raise ProbeError("labels are functions, which need the problems; of codes in hand expected "
                         "names, and labels of your own by codes.with_labels(name=values)")

    def known_labels(self, split: str, *, seed: int) -> list[str]:
        return [str(name) for name in self._part(split, self.parts).labels]

    def _part(self, split: str, parts: Sequence[LatentCodes]) -> LatentCodes:
        """Return the codes of `train`, the first, of `ood`, the second, or those of a number.

        Of a single set it is that, whatever it is called.
        """
        if split.isdecimal():
            return parts[int(split)]
        check_choice("split", split, SPLITS)
        return parts[0] if split == "train" or len(parts) == 1 else parts[1]


def restricted(
    codes: LatentCodes, layers: Sequence[int] | int | None, pairs: Sequence[str] | str | None
) -> LatentCodes:
    """Return the codes of some layers and pairs; `UnknownNameError` for those there are not."""
    if layers is None and pairs is None:
        return codes
    kept = [codes.layers.index(layer) for layer in chosen("layer", layers, codes.layers)]
    names = [pair.name for pair in codes.pairs]
    places = [names.index(name) for name in chosen("pair", pairs, names)]
    return replace(
        codes, scores=codes.scores[:, kept][:, :, places],
        layers=tuple(codes.layers[i] for i in kept), pairs=tuple(codes.pairs[p] for p in places),
        residuals=None if codes.residuals is None else codes.residuals[:, kept],
        query_of_pair=tuple(codes.query_of_pair[p] for p in places) if codes.query_of_pair else ())
