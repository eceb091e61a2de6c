"""Claims of the paper and the rules by which our runs are judged: `claims.yaml`.

The file was committed before the runs that it judges; its head says how. A claim names the runs
that count by a preset and axes, in the language of grids (`latentcode/sweep`), without seeds:
every run of such a setting counts, whatever its seeds. `verdicts` judges by these rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Literal

from latentcode.config import from_dict, parse_yaml
from latentcode.presets import preset
from latentcode.sweep.grid import Grid, parse_axis

RESULTS: tuple[str, ...] = (
    "fig2b", "fig2c", "figA3", "fig2d", "figA2", "fig4", "figA4", "fig5ab", "figA6", "figA7",
    "fig5c", "fig5d", "fig5e", "figA8", "fig5f", "figA5", "figA1", "tabA1", "nonlinearity",
    "tabA2", "figA9", "tabA3", "fig6")
"""Figures and tables of the paper, and one of its reviews."""


@dataclass(frozen=True)
class Published:
    """A number that is printed in the paper or its reviews."""

    value: float
    """The number as printed."""
    unit: Literal["points", "fraction"]
    """`points`: hundredths of R2 or accuracy, as Table A1 prints them; `fraction`: up to 1."""
    error: float | None
    """The error as printed, in the same unit."""
    error_of: str | None
    """What the error is."""
    n: int | None
    """What it was taken over: seeds, or instances."""

    @property
    def over_instances(self) -> bool:
        """Whether an instance is a value: Table A2, where the task alone is measured."""
        return "instances" in (self.error_of or "")


@dataclass(frozen=True)
class Setting:
    """Which runs count: a preset with its task, and the values of axes; see `parse_axis`."""

    preset: str
    """`paper`, `small` or `smoke`."""
    task: str
    """`logic`, `sraven` or `language`."""
    axes: tuple[str, ...]
    """Such as `kind=hyla,softmax` or `training.steps=9000`."""

    @cached_property
    def grid(self) -> Grid:
        """The configurations that the setting names, whatever their seeds."""
        axes = dict(parse_axis(axis, "setting.axes") for axis in self.axes)
        return Grid(preset(self.preset, self.task), axes)


@dataclass(frozen=True, kw_only=True)
class Welch:
    """Does mean(ours) - published lie within the margin? The 95 % interval of Welch's t.

    agrees     the whole interval lies within +- margin
    differs    it does not, and excludes 0
    undecided  otherwise
    """

    name: Literal["welch"] = "welch"
    quantity: str
    """What is measured of each run of the setting."""


@dataclass(frozen=True, kw_only=True)
class Permutation:
    """Is mean(higher) > mean(lower)? The exact permutation test over runs, p one-sided.

    agrees     p <= 0.05
    differs    p <= 0.05 in the opposite direction
    undecided  otherwise

    The smallest p is 1 / C(a + b, a) for a runs against b: 0.05 for three against three.
    """

    name: Literal["permutation"] = "permutation"
    quantity: str
    """What is measured of each run."""
    higher: tuple[str, ...]
    """Members of the setting that the claim puts above..."""
    lower: tuple[str, ...]
    """...these, one by one."""
    over: Literal["each", "together"]
    """`each`: every pair is a test, and the claim agrees where all do and differs where one does;
    `together`: one test of the mean over pairs, labels exchanged within each pair."""


@dataclass(frozen=True, kw_only=True)
class PermutationOfChanges:
    """Is higher - higher_from > lower - lower_from? `Permutation` of differences taken by seed."""

    name: Literal["permutation_of_changes"] = "permutation_of_changes"
    quantity: str
    """What is measured of each run."""
    higher: tuple[str, ...]
    """Members of the setting whose change the claim puts above..."""
    higher_from: tuple[str, ...]
    """...and where each change begins: the run of the same seeds."""
    lower: tuple[str, ...]
    """...that of these, one by one, every pair a test, as in `Permutation`."""
    lower_from: tuple[str, ...]
    """Where these changes begin."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Is the quantity above, or below, a number? The 95 % t interval of its mean over runs.

    agrees     the interval of every member of the setting lies on the claimed side
    differs    that of some member lies on the other side
    undecided  otherwise
    """

    name: Literal["bound"] = "bound"
    quantity: str
    """What is measured of each run; where it compares members, of the runs of one seed."""
    side: Literal["above", "below"]
    """On which side of the bound the claim puts it."""
    bound: float
    """In the library's units: R2 and accuracy are at most 1."""


@dataclass(frozen=True, kw_only=True)
class Excess:
    """Is the quantity above its controls? Paired differences, 95 % intervals by combination.

    agrees     for every member and control: the interval is above 0 in every run, and the mean
               over runs is at least `least`
    differs    for some member and control, the interval lies below `least` in every run (where
               `least` is 0: below 0)
    undecided  otherwise
    """

    name: Literal["excess"] = "excess"
    quantity: str
    """What is measured of each run."""
    controls: tuple[str, ...]
    """What is subtracted from it, one by one."""
    least: float
    """The smallest mean difference that meets the claim."""


@dataclass(frozen=True, kw_only=True)
class Exact:
    """Does it hold? A statement without an error: agrees where it holds, differs where not."""

    name: Literal["exact"] = "exact"
    holds: str
    """The statement."""


Rule = Welch | Permutation | PermutationOfChanges | Bound | Excess | Exact


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim and the rule of its verdict."""

    id: str
    """Its name, which no other claim has."""
    result: str
    """Where it belongs: one of `RESULTS`."""
    source: str
    """Section, figure or table of the paper."""
    claim: str
    """What is claimed, in one sentence."""
    kind: Literal["number", "comparison", "picture"]
    """`picture`: judged by a number that the picture stands for."""
    published: Published | None = None
    """The printed number; None where none is printed."""
    setting: Setting
    """Which runs count."""
    rule: Rule
    """How ours will be judged."""
    margin: float | None = None
    """For numbers: the largest difference that is no disagreement, in the unit of `published`."""
    reading: str | None = None
    """What ours does where the paper leaves room, or its code does something else."""
    seen: str | None
    """What of our own numbers was known when the rule was fixed; None: nothing."""
    observation: str | None = None
    """What several claims say in other words: those of one observation that have the same verdict
    are counted once."""
    questioned: str | None = None
    """Why the threshold of the rule is in doubt; the verdict stays that of the rule."""
    printing: bool = False
    """Whether a difference would be one of how something is printed, like an erratum, and not one
    from a finding."""


@cache
def load_claims() -> tuple[Claim, ...]:
    """Return the claims that come with the library, in the order of the file."""
    rules = {rule.name: rule for rule in (
        Welch, Permutation, PermutationOfChanges, Bound, Excess, Exact)}
    text = files("latentcode.experiments.paper").joinpath("claims.yaml").read_text("utf-8")
    claims = []
    for entry in parse_yaml(text, "claims.yaml"):
        where, published, rule = f"claim {entry['id']}", entry.get("published"), entry["rule"]
        claims.append(Claim(**entry | {
            "published": published and from_dict(Published, published, f"{where}.published"),
            "setting": from_dict(Setting, entry["setting"], f"{where}.setting"),
            "rule": from_dict(rules[rule["name"]], rule, f"{where}.rule")}))
    return tuple(claims)


def printed(result: str) -> tuple[Claim, ...]:
    """Return the claims of a figure or table that are numbers, in the order of the file."""
    return tuple(claim for claim in load_claims()
                 if claim.result == result and claim.kind == "number")
