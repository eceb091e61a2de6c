"""`latentcode intervene`: write codes back, and see what becomes of the answers.

Options that say what is written where are shared with `intervene-prompts`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from latentcode.cli.opening import RunName, open_run
from latentcode.errors import ConfigError, check

if TYPE_CHECKING:
    from latentcode.probes.interventions import Intervention

Split = Literal["train", "test", "ood", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Writes:
    """What is written where: the product of these lists."""

    write: tuple[str, ...] = ()
    """What is written: donor, same, elsewhere, shuffled, transplant, set, set_same, set_shuffled,
    steer, steer_random, zero, mean, erase, erase_shuffled, random, identity."""
    scope: tuple[str, ...] = ("row",)
    """Where: pair, pairs, row, feature, everything."""
    layers: tuple[str, ...] = ("upper",)
    """each, upper, all, or sets such as 2,3."""
    site: tuple[str, ...] = ("code",)
    """code, value or residual."""
    alpha: tuple[float, ...] = (1.0,)
    """How far to steer, in differences of means."""
    heads: tuple[int, ...] = ()
    """Of these heads alone; default: all."""
    renormalize: bool = False
    """Bring what was written back to the constraint of the model's codes."""

    def interventions(self, n_layers: int) -> list[Intervention] | None:
        """Return the product of the lists, or None for the standard ones."""
        from latentcode.probes.interventions import Intervention

        if not self.write:
            others = [f.name for f in fields(Writes)
                      if f.name != "write" and getattr(self, f.name) != f.default]
            check(not others, f"--{' and --'.join(others)} given without --write; expected what is "
                  "written there, or neither for the standard interventions", ConfigError)
            return None
        layers = [place for text in self.layers for place in _layers(text, n_layers)]
        chosen = (
            Intervention(write, scope, place, site, alpha, self.heads or None, self.renormalize)
            for site in self.site for scope in self.scope for place in layers
            for write in self.write
            for alpha in (self.alpha if write.startswith("steer") else (1.0,)))
        return list(dict.fromkeys(chosen))  # `each` and `upper` may be the same layer


@dataclass(frozen=True, kw_only=True)
class Intervene(Writes):
    """Write other codes into a trained model, and see whether its answers follow.

    Without --write: all ways to write with their controls, over layers and scopes. The rate
    `switch` says how often the answer becomes the donor's, not whether its operation or its answer
    arrived: in a minimal pair they are the same. Example:
    latentcode intervene runs/sraven --out results/switch --write donor same --scope row
    --layers upper
    """

    path: tyro.conf.Positional[RunName]
    out: Path
    """Folder of the tables and the figure."""
    split: Split = "ood"
    """Which instances."""
    n: int = 2_000
    """Number of instances drawn; those count that the model answers rightly."""
    seed: int = 0
    """Seed of the instances."""
    device: str = "cpu"
    """cpu or cuda."""
    overwrite: bool = False
    """Replace results that the folder already holds."""

    def run(self) -> None:
        from latentcode.files.storage import check_free
        from latentcode.probes.interventions import InterventionResult, intervene
        from latentcode.progress import bar

        run = open_run(self.path)
        check_free(self.out, overwrite=self.overwrite, marker=InterventionResult.marker())
        result = intervene(
            run, self.interventions(run.config.model.n_layers), split=self.split, n=self.n,
            seed=self.seed, device=self.device, progress=bar("forward passes"))
        print(result)
        print(f"wrote result {result.save(self.out, overwrite=self.overwrite)}")


def _layers(text: str, n_layers: int) -> list[tuple[int, ...]]:
    every = tuple(range(n_layers))
    if text == "each":
        return [(layer,) for layer in every]
    if text in ("upper", "all"):
        return [every[n_layers // 2:] if text == "upper" else every]
    parts = text.split(",")
    check(all(part.isdecimal() for part in parts),
          f"layers is {text!r}; expected each, upper, all, or numbers such as 2,3", ConfigError)
    return [tuple(int(part) for part in parts)]
