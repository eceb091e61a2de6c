"""`latentcode attribute`: which codes does the answer hang on?"""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from latentcode.cli.options import RunName, Sampling, Seeded


@dataclass(frozen=True, kw_only=True)
class Attribute(Seeded, Sampling):
    """Which codes does the answer hang on?

    Example: latentcode attribute runs/sraven --out results/attribution

    Estimates for every layer, query, key and head what the source's code would do there, by
    gradients, and checks the estimates by writing single codes. Then looks for few places that do
    most of what all do: adds them in that order until the answer becomes the source's nearly as
    often as with all of them, and takes out again those that are not needed.
    """

    path: tyro.conf.Positional[RunName]
    n: int = 2_000
    """Number of instances; only those that the model answers correctly are counted."""
    n_patched: int = 200
    """How many of the counted instances are really written into."""
    source: str = "operation+operands"
    """What the source has that the instance has not: interchange (another operation), operands,
    operation+operands; or operation+rest, operands+rest, operation+operands+rest."""
    sites: tuple[str, ...] = ("code", "value")
    """What is attributed to: code, value or both."""

    def run(self) -> None:
        from latentcode.probes.attribution import AttributionResult, attribute

        self.save_result(AttributionResult, "passes", lambda progress: attribute(
            self.path, self.source, sites=self.sites, split=self.split, n=self.n,
            n_patched=self.n_patched, seed=self.seed, device=self.device, progress=progress))
