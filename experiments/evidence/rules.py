"""How does a test come out? The rules of every verdict, on measured values.

    number       a number is that which was published
    difference   a paired difference is above 0, and enough
    ordering     the mean of some values is above that of others
    separate     all values of one side are above all of the other
    everywhere   a quantity is on one side of a bound in every run
    same         a number is equal to another
    together     the verdict of several of these

`statements` gives them tables of studies with a row per run, `claim_rules` the values that claims
of the paper are judged by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from latentcode.experiments.evidence.statistics import exchange_labels, narrowest_half, welch

Verdict = Literal["agrees", "differs", "undecided", "not run"]

FEWEST = 3
"""Runs of a member (for numbers: splits; for `exact`: cells) without which nothing is decided."""
LARGEST_P = 0.05
"""A permutation test is passed up to here, this included."""


@dataclass(frozen=True)
class Part:
    """One test of a claim: of a member, a pair of members, or a member and a control."""

    name: str
    """The member; `A > B`; or the member and the control below which it may not be."""
    verdict: Verdict
    """How this test comes out; the claim's verdict is another matter, see `judge`."""
    estimate: float | None
    """For numbers ours - published, in the unit printed; for permutations mean(higher) -
    mean(lower); for bounds and excesses the mean over runs; for `exact` 1.0 or 0.0."""
    low: float | None
    """Lower end of its interval; for excesses the lowest of any run."""
    high: float | None
    """Upper end of its interval; for excesses the highest of any run."""
    p: float | None
    """One-sided for permutations, two-sided for numbers; None for other rules."""
    n: tuple[int, ...]
    """How many values each side has: runs, for numbers splits, for the task alone instances."""
    why: str
    """The numbers in words."""
    needs: tuple[str, ...] = ()
    """What would decide it; empty where it is decided."""


def number(
    name: str, mean: float, error: float, n: int, published: float, published_error: float,
    published_n: int, margin: float, *, kind: str = "run",
) -> Part:
    """Is a number of ours that which was published? Welch's t interval of the difference.

    mean, error, n  ours: the mean of n values and its standard error
    margin          the largest difference that is no disagreement
    kind            what a value of ours is of

    agrees     the whole interval of mean - published lies within +- margin
    differs    it does not, and excludes 0
    undecided  otherwise
    """
    if not n:
        return not_run(name, [name], kind)
    printed = f"published {published:g} +- {published_error:g} ({published_n})"
    if n < FEWEST:
        return too_few(name, {name: n}, kind,
                        f"ours {mean:.4g} ({counted(n, kind)}), {printed}",
                        estimate=float(mean) - published)
    found = welch(mean, error, n, published, published_error, published_n)
    estimate, low, high, p = map(float, (found.estimate, found.low, found.high, found.p))
    needs: tuple[str, ...] = ()
    if -margin <= low and high <= margin:
        verdict: Verdict = "agrees"
        outcome = f"lies within the margin of {margin:g}"
    elif low > 0.0 or high < 0.0:
        verdict, outcome = "differs", f"excludes 0 and exceeds the margin of {margin:g}"
    else:
        verdict = "undecided"
        outcome = f"includes 0 and exceeds the margin of {margin:g}"
        hopeless = narrowest_half(float("inf"), published_n) * published_error > margin
        needs = (f"more {kind}s of {name}" + hopeless * ", which can only tell a difference: the "
                 "published error is too wide for an interval within the margin",)
    return Part(name, verdict, estimate, low, high, p, (n,),
                f"ours {mean:.4g} +- {error:.2g} ({counted(n, kind)}), {printed}: the interval of "
                f"the difference, {low:.3g} to {high:.3g}, {outcome}", needs)


@dataclass(frozen=True)
class Side:
    """Values that a permutation test compares."""

    name: str
    values: pd.Series
    """By the seed of their split."""
    measured: bool
    """Whether there is any value of its members, even one that has no counterpart."""


def ordering(above: str, higher: pd.Series, below: str, lower: pd.Series) -> Part:
    """Is mean(higher) > mean(lower)? The exact permutation test over values, p one-sided.

    agrees     p <= 0.05
    differs    p <= 0.05 in the opposite direction
    undecided  otherwise, or with fewer than three values of either
    """
    missing = int(higher.isna().sum() + lower.isna().sum())
    if missing:
        return unknown(f"{above} > {below}", (len(higher), len(lower)), missing)
    one, other = (Side(name, values.set_axis([0] * len(values)), not values.empty)
                  for name, values in ((above, higher), (below, lower)))
    return compare([(one, other)])


def compare(pairs: Sequence[tuple[Side, Side]]) -> Part:
    sides = [side for pair in pairs for side in pair]
    name = " > ".join(" + ".join(dict.fromkeys(side.name for side in half))
                      for half in zip(*pairs, strict=True))
    if not any(side.measured for side in sides):
        return not_run(name, (side.name for side in sides), "run")
    counts = {side.name: len(side.values) for side in sides}
    means = ", ".join(mean_of(side.name, side.values) for side in sides)
    if min(counts.values()) < FEWEST:
        return too_few(name, counts, "run", means)
    difference, above, below, total = exchange_labels([(a.values, b.values) for a, b in pairs])
    verdict: Verdict = ("agrees" if above / total <= LARGEST_P else
                        "differs" if below / total <= LARGEST_P else "undecided")
    needs = () if verdict != "undecided" else (f"more runs of {' and '.join(counts)}",)
    opposite = f"; in the opposite direction {below} do" if verdict == "differs" else ""
    return Part(name, verdict, difference, None, None, above / total, tuple(counts.values()),
                f"{means}: {above} of {total} exchanges of labels give as large a difference, "
                f"p = {above / total:.3g}{opposite}", needs)


def difference(
    name: str, rows: pd.DataFrame, least: float, *, of: str | None = None, fewest: int = FEWEST,
    differs: Literal["everywhere below least", "nowhere above 0"] = "everywhere below least",
) -> Part:
    """Is a quantity above what it is compared with, and by enough? Paired differences of runs.

    rows     a row per run (or per model, seed, direction): the difference `value` and the ends of
             its interval, `low` and `high`
    least    the smallest mean difference that is enough
    of       what is short of runs where there are fewer than `fewest`; default: `name`
    differs  what speaks against it

    agrees     low > 0 in every row, and mean(value) >= least
    differs    high < least in every row; or, where `differs` says so, low > 0 in none
    undecided  otherwise, and where a run has no difference or no interval
    """
    of = name if of is None else of
    if rows.empty:
        return not_run(name, [of], "run")
    missing = int(rows[["value", "low", "high"]].isna().any(axis=1).sum())
    if missing:
        return unknown(name, (len(rows),), missing)
    mean, low, high = (float(rows["value"].mean()), float(rows["low"].min()),
                       float(rows["high"].max()))
    n, positive = len(rows), int((rows["low"] > 0.0).sum())
    said = f"{name}, by {mean:.3g} ({counted(n, 'run')})"
    if n < fewest:
        return too_few(name, {of: n}, "run", said, estimate=mean, fewest=fewest)
    against = positive == 0 if differs == "nowhere above 0" else high < least
    verdict: Verdict = ("agrees" if positive == n and mean >= least else
                        "differs" if against else "undecided")
    n_below = int((rows["high"] < least).sum())
    return Part(name, verdict, mean, low, high, None, (n,),
                f"{said}, {least:g} being asked for: the interval is above 0 in {positive} "
                f"and below {least:g} in {n_below} of them",
                () if verdict != "undecided" else (f"more runs of {of}",))


def apart(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Return differences of two scores whose intervals were not paired: these reach from the low
    end of one less the high end of the other to the reverse, so that they hold more than 95 %."""
    return pd.DataFrame({"value": one["value"] - other["value"], "low": one["low"] - other["high"],
                         "high": one["high"] - other["low"]})


def everywhere(
    name: str, values: pd.Series, side: Literal["above", "below"], bound: float, *,
    fewest: int = FEWEST,
) -> Part:
    """Is a quantity on one side of a bound in every run? The bound itself is on the claimed side.

    agrees     every value is
    differs    none is
    undecided  otherwise, and where a run has no value
    """
    if values.empty:
        return not_run(name, [name], "run")
    if values.isna().any():
        return unknown(name, (len(values),), int(values.isna().sum()))
    mean, low, high, n = (float(values.mean()), float(values.min()), float(values.max()),
                          len(values))
    said = f"{name} {mean:.4g} ({counted(n, 'run')})"
    if n < fewest:
        return too_few(name, {name: n}, "run", said, estimate=mean, fewest=fewest)
    met = int(((values >= bound) if side == "above" else (values <= bound)).sum())
    verdict: Verdict = "agrees" if met == n else "undecided" if met else "differs"
    return Part(name, verdict, mean, low, high, None, (n,),
                f"{said}: {side} {bound:g} in {met} of them",
                () if verdict != "undecided" else (f"more runs of {name}",))


def separate(
    name: str, higher: pd.Series, lower: pd.Series, least: float = 0.0, *, fewest: int = FEWEST
) -> Part:
    """Is every value of one side above every value of the other, and the means apart by enough?

    Of two sides of n values that are alike, this happens in 1 of C(2n, n) in either direction.

    agrees     the smallest of `higher` is above the largest of `lower`, the means `least` apart
    differs    the reverse
    undecided  otherwise, and where a run has no value
    """
    missing = int(higher.isna().sum() + lower.isna().sum())
    if missing:
        return unknown(name, (len(higher), len(lower)), missing)
    counts = {f"{name} ({side})": len(values)
              for side, values in (("higher", higher), ("lower", lower))}
    if not any(counts.values()):
        return not_run(name, counts, "run")
    mean = float(higher.mean() - lower.mean())
    said = f"{name}: means differ by {mean:.3g}"
    if min(counts.values()) < fewest:
        return too_few(name, counts, "run", said, estimate=mean, fewest=fewest)
    enough = abs(mean) >= least
    verdict: Verdict = ("agrees" if enough and higher.min() > lower.max() else
                        "differs" if enough and lower.min() > higher.max() else "undecided")
    return Part(name, verdict, mean, float(higher.min() - lower.max()),
                float(higher.max() - lower.min()), None, tuple(counts.values()),
                f"{said}, {least:g} being asked for, and the sides "
                f"{'overlap' if verdict == 'undecided' else 'do not overlap'}",
                () if verdict != "undecided" else (f"more runs of {name}",))


def same(name: str, values: pd.Series, equals: float, within: float = 0.0) -> Part:
    """Is every number what it has to be? agrees where |value - equals| <= within, differs where one
    is not; undecided where one is missing. An identity needs no number of runs."""
    if values.empty:
        return not_run(name, [name], "run")
    if values.isna().any():
        return unknown(name, (len(values),), int(values.isna().sum()))
    distance = float((values - equals).abs().max())
    holds = distance <= within
    return Part(name, "agrees" if holds else "differs", float(holds), None, None, None,
                (len(values),), f"{name}: at most {distance:.3g} from {equals:g}, {within:g} being "
                "allowed")


def together(parts: Iterable[Part]) -> Verdict:
    """Return the verdict of a claim that asks for all of its parts.

    agrees where all agree, differs where one does, not run where none has a value.
    """
    verdicts = {part.verdict for part in parts}
    if verdicts <= {"agrees"} and verdicts:
        return "agrees"
    if verdicts <= {"not run"}:
        return "not run"
    return "differs" if "differs" in verdicts else "undecided"


def not_run(name: str, members: Iterable[str], kind: str) -> Part:
    members = list(dict.fromkeys(members))
    return Part(name, "not run", None, None, None, None, (0,) * len(members), f"{name}: no value",
                tuple(wanted(member, 0, kind) for member in members))


def unknown(name: str, n: tuple[int, ...], missing: int) -> Part:
    """Return a test of values of which some are no number: what they would say is not known."""
    return Part(name, "undecided", None, None, None, None, n,
                f"{name}: no number in {missing} of {counted(sum(n), 'run')}",
                (f"what is missing of {name}",))


def too_few(
    name: str, counts: dict[str, int], kind: str, said: str, estimate: float | None = None,
    fewest: int = FEWEST,
) -> Part:
    least = "three" if fewest == FEWEST else str(fewest)
    return Part(name, "undecided", estimate, None, None, None, tuple(counts.values()),
                f"{said}: at least {least} {kind}s{' of each' * (len(counts) > 1)} are needed",
                tuple(wanted(member, n, kind, fewest) for member, n in counts.items()
                      if n < fewest))


def wanted(member: str, n: int, kind: str, fewest: int = FEWEST) -> str:
    if kind == "instance":
        return f"instances of {member}"
    return f"{counted(fewest - n, kind, 'more ' * (n > 0))} of {member}"


def counted(n: int, kind: str, more: str = "") -> str:
    return f"{n} {more}{kind}{'s' * (n != 1)}"


def mean_of(name: str, values: pd.Series) -> str:
    mean = f" {values.mean():.4g}" if len(values) else ""
    return f"{name}{mean} ({counted(len(values), 'run')})"
