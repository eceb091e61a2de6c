"""A registered probe is tried on made-up points: a finite number for each that is scored."""

from __future__ import annotations

import numpy as np

from latentcode.errors import ConfigError, ProbeError, called
from latentcode.probes.registered.asking import scores_of
from latentcode.probes.registered.points import Points
from latentcode.probes.registered.registry import Probe

N_TRAIN, N_HELDOUT, WIDTH = 48, 36, 6
"""Points of each kind, so that none is taken for the other, and numbers of each."""
WHERE = f"{N_HELDOUT} made-up problems"


def try_probe(probe: Probe) -> None:
    """Raise `ConfigError` unless a probe gives a finite number to each point that is scored."""
    points = [_points(n, seed) for seed, n in enumerate((N_TRAIN, N_HELDOUT))]
    seed = {"seed": 0} if probe.seeded else {}
    try:
        scores = called(f"probe {probe.name!r}: for {WHERE}, its function", ProbeError,
                        probe.function, *points[0 if probe.fitted else 1:], **probe.options, **seed)
        scores_of(probe, scores, N_HELDOUT, WHERE)
    except ProbeError as error:
        raise ConfigError(str(error)) from error


def _points(n: int, seed: int) -> Points:
    """Return points of two classes, three to a combination."""
    y = np.arange(n) // 3 % 2
    x = np.random.default_rng([7, seed]).normal(size=(n, WIDTH)) + 4.0 * y[:, None]
    return Points(x, y, np.arange(n) // 6, ("no", "yes"))
