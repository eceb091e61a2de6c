"""`latentcode value-networks`: which networks do codes generate?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from latentcode.cli.options import OfRun, Sampling, Verb, default_is


@dataclass(frozen=True, kw_only=True)
class ValueNetworks(OfRun, Sampling):
    """Which networks do codes generate?

    Example: latentcode value-networks runs/hyla --labels term_1 --out results/networks

    Compares the value networks that mean codes generate, one for each value of a label. Singular
    values, ranks, cosines between the networks, active units and responses to real inputs, for the
    trained model, the untrained one and shuffled labels.
    """

    n: int = 2_048
    n_inputs: int = 256
    """How many of the instances serve as inputs: their residual streams at the key."""
    labels: Annotated[tuple[str, ...], default_is("every constituent")] = ()
    """Labels whose values have mean codes, such as rule."""

    def verb(self) -> Verb:
        from latentcode.probes.value_networks import ValueNetworksResult, value_networks

        return value_networks, ValueNetworksResult
