"""Does a probe of a user's do what it has to? A few made-up problems tell, when it is registered.

What is read of them, six numbers, tells a label of two values in layer 1, and nothing in layer 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.codes.rows import Rows
from latentcode.errors import ConfigError, LatentCodeError
from latentcode.probes.registered.asking import ask
from latentcode.probes.registered.figure import own_figure
from latentcode.probes.registered.registry import Probe
from latentcode.probes.registered.result import ProbeResult
from latentcode.subjects.of_codes import CodesSubject
from latentcode.tasks.pairs import Pair

N_TRAIN, N_HELDOUT, HEADS = 48, 36, 6
"""Problems of each kind, so that none is taken for the other, and numbers of a code."""
PER_COMBINATION = 6
"""Problems of a combination."""


def try_probe(probe: Probe) -> None:
    """Ask a probe about made-up problems: scores, picture and sentence.

    `ConfigError` says what went wrong.
    """
    def asked() -> ProbeResult:
        return ask(probe, of, labels="label", n_shuffles=1, n_bootstrap=100, progress=_silent)

    trained, initial = ([_made_up(n, seed, strength) for seed, n in enumerate(
        (N_TRAIN, N_HELDOUT)[-2 if probe.fitted else -1:])] for strength in (4.0, 0.0))
    of = _MadeUp(trained, initial)
    try:
        result, again = asked(), asked()
        if probe.figure is not None:
            own_figure(probe, result)
    except LatentCodeError as error:
        known = f"; the columns of a result's table are {', '.join(ProbeResult.COLUMNS['table'])}, "
        known += f"and a quantity is one of {', '.join(probe.columns)}"
        raise ConfigError(f"{error}, for {N_HELDOUT} made-up problems"
                          f"{known if isinstance(error.__cause__, KeyError) else ''}") from error
    if not result.table.equals(again.table):
        raise ConfigError(f"probe {probe.name!r}: its function returned other numbers when it was "
                          "given equal points again; expected random numbers of its argument "
                          "`seed` alone, and none of a global state")


class _MadeUp(CodesSubject):
    """Codes that stand for whatever features a probe reads."""

    def rows(
        self, split: str, *, n: int, pair: str, features: Sequence[str],
        layers: Sequence[int] | int | None = None, untrained: bool = False, seed: int = 0,
    ) -> Rows:
        codes = self.codes(split, n=n, pairs=pair, layers=layers, untrained=untrained)
        return Rows({(name, str(layer)): codes.select(layer=layer, pair=pair)
                     for name in features for layer in codes.layers}, {}, codes.labels, codes.meta)


def _made_up(n: int, seed: int, strength: float) -> LatentCodes:
    """strength  by which the label moves all numbers of layer 1"""
    rng = np.random.default_rng([7, seed, int(strength)])
    y = np.arange(n) // (PER_COMBINATION // 2) % 2
    scores = rng.normal(size=(n, 2, 1, HEADS))
    scores[:, 1, 0] += strength * y[:, None]
    labels = pd.DataFrame({
        "label": np.where(y == 1, "yes", "no"),
        "combination": [f"{seed}-{i // PER_COMBINATION}" for i in range(n)]})
    return LatentCodes(
        scores.astype(np.float32), labels, (Pair("query->key", "made up"),), (0, 1),
        {"run": "made-up problems"}, rng.normal(size=(n, 2, 1, HEADS)).astype(np.float32), (0,))


def _silent(done: int, total: int) -> None:
    """Draw no bar."""


__all__ = ["try_probe"]
