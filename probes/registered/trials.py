"""Does a probe of a user's do what it has to? A few made-up problems tell, when it is registered.

Their code, of six numbers, tells a label of two values in layer 1, and nothing in layer 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.errors import ConfigError, LatentCodeError
from latentcode.probes.registered.asking import ask
from latentcode.probes.registered.figure import own_figure
from latentcode.probes.registered.registry import Probe
from latentcode.probes.registered.result import ProbeResult
from latentcode.tasks.pairs import Pair

N_TRAIN, N_HELDOUT, HEADS = 48, 36, 6
"""Problems of each kind, so that none is taken for the other, and numbers of a code."""
PER_COMBINATION = 6
"""Problems of a combination."""


def try_probe(probe: Probe) -> None:
    """Ask a probe about made-up codes: scores, picture and sentence.

    Whatever it reads of a model, here it is the code. `ConfigError` says what went wrong.
    """
    train, heldout = (_made_up(n, seed) for seed, n in enumerate((N_TRAIN, N_HELDOUT)))
    tried = replace(probe, features=("code",))
    of = (train, heldout) if probe.fitted else (heldout,)

    def asked() -> Any:
        return ask(tried, *of, labels="label", controls=False, n_shuffles=1, n_bootstrap=100,
                   progress=_silent)

    try:
        result, again = asked(), asked()
        if probe.figure is not None:
            own_figure(probe, result)
    except LatentCodeError as error:
        known = f"; the columns of a result's table are {', '.join(ProbeResult.COLUMNS['table'])}, "
        known += f"and a quantity is one of {', '.join(probe.columns)}"
        raise ConfigError(f"{error}, for {len(of[-1])} made-up problems"
                          f"{known if isinstance(error.__cause__, KeyError) else ''}") from error
    if not result.table.equals(again.table):
        raise ConfigError(f"probe {probe.name!r}: its function returned other numbers when it was "
                          "given equal points again; expected random numbers of its argument "
                          "`seed` alone, and none of a global state")


def _made_up(n: int, seed: int) -> LatentCodes:
    rng = np.random.default_rng([7, seed])
    y = np.arange(n) // (PER_COMBINATION // 2) % 2
    scores = rng.normal(size=(n, 2, 1, HEADS))
    scores[:, 1, 0] += 4.0 * y[:, None]
    labels = pd.DataFrame({
        "label": np.where(y == 1, "yes", "no"),
        "combination": [f"{seed}-{i // PER_COMBINATION}" for i in range(n)]})
    return LatentCodes(scores.astype(np.float32), labels, (Pair("query->key", "made up"),), (0, 1),
                       {"run": "made-up problems"})


def _silent(done: int, total: int) -> None:
    """Draw no bar."""


__all__ = ["try_probe"]
