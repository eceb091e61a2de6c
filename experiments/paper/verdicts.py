"""Verdicts: does a claim hold by the rule that was fixed beforehand, from measured values?

    judge(claim, evidence([{"member": "kind=hyla", "run": "a", "seed": 0, "split_seed": 0,
                            "value": 0.90}, ...]))

`claims.yaml` and the rules in `claims` say what counts; nothing is decided here. Where they leave
room, it is read as follows.

 - Too few runs of one member leave the whole claim undecided, even where another member differs
   already, except under `exact`; the verdict of each part stands beside.
 - Splits are told apart by the seed of the split alone, also where the held-out share differs.
 - Changes are taken between the means of the runs of the same two seeds.
 - A bound is met where the interval does not touch it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from latentcode.errors import check, check_choice
from latentcode.experiments.paper.claims import (
    Bound,
    Claim,
    Exact,
    Excess,
    Permutation,
    PermutationOfChanges,
    Published,
    Welch,
)

Verdict = Literal["agrees", "differs", "undecided", "not run"]

FEWEST = 3
"""Runs of a member (for numbers: splits; for `exact`: cells) without which nothing is decided."""
LARGEST_P = 0.05
"""A permutation test is passed up to here, this included."""
UPPER = 0.975
"""Quantile at the upper end of a 95 % interval."""
COMPARED = "all members"
"""The member of a value that compares all members, of the runs of one seed (rule `bound`)."""
COLUMNS: Mapping[str, str] = {
    "member": "object", "control": "object", "run": "object", "seed": "Int64",
    "split_seed": "Int64", "value": "float64", "low": "float64", "high": "float64",
    "se": "float64", "n": "Int64"}
"""One row per measured value; what is of runs is None where the task alone is measured.

member      of the claim's setting (`Setting.grid.points()`), such as kind=hyla; `COMPARED` for a
            quantity that compares all members; for `excess` with an aspect that has to pass by
            itself (kind=hyla: layer 0, term 1); for `exact` a part of the statement
control     for `excess`: the control that was subtracted
run, seed, split_seed   of the run
value       in the library's units; for `excess` the paired difference from the control; for
            `exact` 1.0 (holds) or 0.0
low, high   for `excess`: 95 % interval of that difference, clustered by combination; of the task:
            over instances
se, n       of the task: standard error and number of instances; for `exact`: n may be the number of
            cells that were looked at, fewer than three leaving it undecided
"""


@dataclass(frozen=True)
class Part:
    """One test of a claim: of a member, a pair of members, or a member and a control.

    Attributes:
        name: The member; `A > B`; or the member and the control below which it may not be.
        verdict: Of this test; the claim's verdict is another matter, see `judge`.
        estimate: For numbers ours - published, in the unit printed; for permutations mean(higher) -
            mean(lower); for bounds and excesses the mean over runs; for `exact` 1.0 or 0.0.
        low: Lower end of its interval; for excesses the lowest of any run.
        high: Upper end of its interval; for excesses the highest of any run.
        p: One-sided for permutations, two-sided for numbers; None for other rules.
        n: Values of each side: runs, for numbers splits, for the task alone instances.
        why: The numbers in words.
        needs: What would decide it; empty where it is decided.
    """

    name: str
    verdict: Verdict
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    n: tuple[int, ...] = ()
    why: str = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """The verdict of a claim, by its id, and that of each of its tests.

    `not run` where no member has a value; `needs` is None where it is decided.
    """

    claim: str
    verdict: Verdict
    parts: tuple[Part, ...]
    why: str
    needs: str | None


def evidence(rows: Iterable[Mapping[Any, Any]], **more: str) -> pd.DataFrame:
    """Return measured values as a table of `COLUMNS`; what a row lacks is missing.

    Rows may have other columns, too; `more` are columns that all rows have, such as the control.
    `ConfigError` where a row has no member or no finite value, and for a row given twice.
    """
    table = pd.DataFrame([{**row, **more} for row in rows], columns=list(COLUMNS))
    table = table.astype(dict(COLUMNS))
    for name in ("member", "control", "run"):
        table[name] = table[name].where(table[name].notna(), None)
    for wrong, problem in (
            (table["member"].isna(), "has no member; expected a name"),
            (~np.isfinite(table["value"]), "has no finite value; expected one"),
            (table.duplicated(["member", "control", "run", "seed", "split_seed"]),
             "has two values of the same member, control, run and seeds; expected one")):
        check(not wrong.any(), f"evidence of {table[wrong]['member'].tolist()!r} {problem}")
    return table


def judge(claim: Claim, values: pd.DataFrame) -> Judgement:
    """Judge a claim by its rule, from a table of `evidence`, which may be empty.

    A claim that asks for several things agrees where all of its parts agree, differs where one
    does, and is not run where none has a value. `ConfigError` names the claim and a member or
    control that is not the claim's.
    """
    members, rule = tuple(claim.setting.grid.points()), claim.rule
    if COMPARED in set(values["member"]) and isinstance(rule, Bound):
        members = (COMPARED,)
    for row in values.to_dict("records"):
        member = row["member"]
        if isinstance(rule, Excess):
            check_choice(f"control in values of claim {claim.id}", row["control"], rule.controls)
            member = member.partition(": ")[0]
        if not isinstance(rule, Exact):  # whose parts have any names
            check_choice(f"member in values of claim {claim.id}", member, members)
    match rule:
        case Welch():
            parts = [_number(claim, values)]
        case Permutation() | PermutationOfChanges():
            parts = list(_comparisons(rule, values))
        case Bound():
            parts = [_bounded(rule, member, values[values["member"] == member])
                     for member in members]
        case Excess():
            parts = list(_excesses(rule, members, values))
        case Exact():
            parts = list(_statements(members, values))

    verdicts = {part.verdict for part in parts}
    verdict: Verdict = "undecided"
    if len(verdicts) == 1:
        verdict, = verdicts
    elif "differs" in verdicts:
        verdict = "differs"
    # Where the task alone is measured n counts instances.
    enough = isinstance(rule, Exact) or all(min(part.n) >= FEWEST for part in parts)
    if verdict == "differs" and not enough:
        verdict = "undecided"
    needs = dict.fromkeys(need for part in parts for need in part.needs
                          if verdict in ("undecided", "not run"))
    return Judgement(claim.id, verdict, tuple(parts), _why(claim, verdict, parts),
                     "; ".join(needs) or None)


def can_agree(claim: Claim, splits: float = FEWEST) -> bool:
    """Return whether a number could agree, however alike ours are: an interval fits its margin.

    With that many splits of ours, whatever their error; of Table A2, with any number of instances.
    Claims that are no numbers can.
    """
    if not isinstance(claim.rule, Welch):
        return True
    published, error, n, margin = _printed(claim)
    return narrowest_half(
        math.inf if published.over_instances else splits, n) * error <= margin


def _printed(claim: Claim) -> tuple[Published, float, int, float]:
    """Return the number of a claim that is one, its error, what that is over, and the margin."""
    published = claim.published
    assert published is not None
    assert published.error is not None
    assert published.n is not None
    assert claim.margin is not None
    return published, published.error, published.n, claim.margin


# Numbers: the interval of Welch's t


class Difference(NamedTuple):
    """A difference of two means with its interval and two-sided p; arrays if its parts are."""

    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray


def welch(
    mean: Any, error: Any, n: Any, other_mean: Any, other_error: Any, other_n: Any
) -> Difference:
    """(mean - mean') +- t(df) sqrt(e^2 + e'^2), df = (e^2 + e'^2)^2 / (e^4/(n-1) + e'^4/(n'-1)).

    Of means of n values with their standard errors e; the other one, e', is above 0.
    """
    difference, e, other = (np.asarray(value, dtype=np.float64)
                            for value in (mean - other_mean, error, other_error))
    variance = e**2 + other**2
    df = variance**2 / (e**4 / (n - 1.0) + other**4 / (other_n - 1.0))
    half = stdtrit(df, UPPER) * np.sqrt(variance)
    p = 2.0 * stdtr(df, -np.abs(difference) / np.sqrt(variance))
    return Difference(difference, difference - half, difference + half, p)


def narrowest_half(n: float, other_n: int) -> float:
    """Return half of the narrowest interval of `welch`, in units of the other group's error.

    The narrowest over all errors that n values may have, up to three times that error; n may be
    infinite.
    """
    return float(welch(0.0, np.linspace(0.0, 3.0, 3_001), n, 0.0, 1.0, other_n).high.min())


def _number(claim: Claim, rows: pd.DataFrame) -> Part:
    """Does mean(ours) - published lie within the margin? See `Welch`."""
    (name,), (published, error_of_theirs, n_of_theirs, margin) = (
        claim.setting.grid.points(), _printed(claim))
    kind = "instance" if published.over_instances else "split"
    if rows.empty:
        return _not_run(name, [name], kind)
    scale = 100.0 if published.unit == "points" else 1.0
    if published.over_instances:
        row, = rows.to_dict("records")
        mean, error, n = scale * row["value"], scale * row["se"], int(row["n"])
    else:
        # The published seed draws the split too: runs that share one are one value.
        splits = scale * rows.groupby("split_seed")["value"].mean()
        mean, error, n = splits.mean(), splits.sem(), len(splits)
    printed = f"published {published.value:g} +- {error_of_theirs:g} ({n_of_theirs})"
    if n < FEWEST:
        return _too_few(name, {name: n}, kind, f"ours {mean:.4g} ({_counted(n, kind)}), {printed}",
                        estimate=float(mean) - published.value)
    estimate, low, high, p = map(float, welch(
        mean, error, n, published.value, error_of_theirs, n_of_theirs))
    needs: tuple[str, ...] = ()
    if -margin <= low and high <= margin:
        verdict: Verdict = "agrees"
        outcome = f"lies within the margin of {margin:g}"
    elif low > 0.0 or high < 0.0:
        verdict, outcome = "differs", f"excludes 0 and exceeds the margin of {margin:g}"
    else:
        verdict = "undecided"
        outcome = f"includes 0 and exceeds the margin of {margin:g}"
        hopeless = narrowest_half(math.inf, n_of_theirs) * error_of_theirs > margin
        needs = (f"more {kind}s of {name}" + hopeless * ", which can only tell a difference: the "
                 "published error is too wide for an interval within the margin",)
    return Part(name, verdict, estimate, low, high, p, (n,),
                f"ours {mean:.4g} +- {error:.2g} ({_counted(n, kind)}), {printed}: the interval of "
                f"the difference, {low:.3g} to {high:.3g}, {outcome}", needs)


# Comparisons: exact permutation tests


def _comparisons(rule: Permutation | PermutationOfChanges, rows: pd.DataFrame) -> Iterator[Part]:
    """Is mean(higher) > mean(lower), of values or of their changes? See the rules.

    A side is a member, or a member and the one that its change begins at.
    """
    pairs: list[tuple[tuple[str, ...], ...]]
    if isinstance(rule, Permutation):
        pairs = [((above,), (below,)) for above, below in zip(rule.higher, rule.lower, strict=True)]
    else:
        pairs = list(zip(zip(rule.higher, rule.higher_from, strict=True),
                         zip(rule.lower, rule.lower_from, strict=True), strict=True))
    together = isinstance(rule, Permutation) and rule.over == "together"
    # Runs of the same seeds are not independent: in changes they count as their mean.
    means = rows.groupby(["member", "split_seed", "seed"])["value"].mean()

    def values_of(side: tuple[str, ...]) -> pd.Series:
        if len(side) == 1:
            return rows[rows["member"] == side[0]].set_index("split_seed")["value"]
        end, begin = (means[means.index.get_level_values("member") == member].droplevel("member")
                      for member in side)
        return (end - begin).dropna().droplevel("seed")

    for test in [pairs] if together else [[pair] for pair in pairs]:
        sides = {" minus ".join(side): values_of(side) for pair in test for side in pair}
        name = " > ".join(" + ".join(dict.fromkeys(map(" minus ".join, half)))
                          for half in zip(*test, strict=True))
        if not rows["member"].isin([name for pair in test for side in pair for name in side]).any():
            yield _not_run(name, sides, "run")
            continue
        counts = {side: len(values) for side, values in sides.items()}
        in_words = ", ".join(_mean_in_words(side, values) for side, values in sides.items())
        if min(counts.values()) < FEWEST:
            yield _too_few(name, counts, "run", in_words)
            continue
        difference, n_above, n_below, total = exchange_labels(
            [(values_of(above), values_of(below)) for above, below in test])
        verdict: Verdict = ("agrees" if n_above / total <= LARGEST_P else
                            "differs" if n_below / total <= LARGEST_P else "undecided")
        needs = () if verdict != "undecided" else (f"more runs of {' and '.join(counts)}",)
        opposite = f"; in the opposite direction {n_below} do" if verdict == "differs" else ""
        yield Part(name, verdict, difference, p=n_above / total, n=tuple(counts.values()),
                   why=f"{in_words}: {n_above} of {total} exchanges of labels give as large a "
                       f"difference, p = {n_above / total:.3g}{opposite}", needs=needs)


class Exchanges(NamedTuple):
    """mean(higher) - mean(lower), and how many of `total` exchanges of labels have a difference at
    least (`above`) or at most (`below`) as large."""

    difference: float
    above: int
    below: int
    total: int


def exchange_labels(pairs: Sequence[tuple[pd.Series, pd.Series]]) -> Exchanges:
    """Is mean(higher) > mean(lower)? Every exchange of labels within each pair, counted.

    Labels are exchanged among the values of one split where every split has two or more of either
    side, otherwise among all values of the pair. Of several pairs (higher, lower), values with the
    seed of their split as index, the mean over pairs is compared.
    """
    # The difference is a sum of independent parts, one for each group within which labels are
    # exchanged. The sums of half of the parts are sorted, those of the others looked up in them.
    parts = sorted((part for higher, lower in pairs for part in _exchanged(higher, lower)), key=len)
    left, right = np.zeros(1), np.zeros(1)
    for part in reversed(parts):
        if len(left) > len(right):
            left, right = right, left
        left = np.add.outer(left, part).ravel()
    right.sort()
    total = len(left) * len(right)
    observed = sum(float(part[0]) for part in parts)
    # Equal differences may be sums of the same numbers in another order.
    slack = 1e-12 * max(float(side.abs().max()) for pair in pairs for side in pair)
    above = total - int(np.searchsorted(right, observed - slack - left).sum())
    below = int(np.searchsorted(right, observed + slack - left, side="right").sum())
    return Exchanges(observed / len(pairs), above, below, total)


def _exchanged(higher: pd.Series, lower: pd.Series) -> Iterator[np.ndarray]:
    """Yield what each group adds to mean(higher) - mean(lower), for every exchange within it.

    The first number of each is what was observed.
    """
    splits = sorted({*higher.index, *lower.index})
    groups = [(higher[higher.index == split].tolist(), lower[lower.index == split].tolist())
              for split in splits]
    if any(min(len(above), len(below)) < 2 for above, below in groups):
        groups = [(higher.tolist(), lower.tolist())]
    for above, below in groups:
        taken = np.array([sum(chosen) for chosen in combinations(above + below, len(above))])
        yield taken / len(higher) - (sum(above + below) - taken) / len(lower)


# Bounds, differences from controls, statements


def mean_interval(values: pd.Series) -> tuple[float, float, float]:
    """Return the mean of at least two values and its t interval, mean +- t(n - 1) s / sqrt(n)."""
    mean, half = float(values.mean()), float(stdtrit(len(values) - 1, UPPER) * values.sem())
    return mean, mean - half, mean + half


def _bounded(rule: Bound, member: str, rows: pd.DataFrame) -> Part:
    """Is the quantity above, or below, a number? See `Bound`."""
    if rows.empty:
        return _not_run(member, [member], "run")
    values = rows["value"]
    if rows["split_seed"].isna().any():
        row, = rows.to_dict("records")
        mean, low, high, n, kind = row["value"], row["low"], row["high"], int(row["n"]), "instance"
    elif len(values) < FEWEST:
        return _too_few(member, {member: len(values)}, "run", _mean_in_words(member, values),
                        estimate=float(values.mean()))
    else:
        (mean, low, high), n, kind = mean_interval(values), len(values), "run"
    above, below = low > rule.bound, high < rule.bound
    claimed, opposite = (above, below) if rule.side == "above" else (below, above)
    verdict: Verdict = "agrees" if claimed else "differs" if opposite else "undecided"
    lies = "above" if above else "below" if below else "on both sides of"
    as_claimed = ", as claimed" if claimed else f"; {rule.side} is claimed"
    return Part(member, verdict, float(mean), float(low), float(high), None, (n,),
                f"{member} {mean:.4g} ({_counted(n, kind)}): the interval {low:.3g} to {high:.3g} "
                f"lies {lies} {rule.bound:g}{as_claimed}",
                () if verdict != "undecided" else (f"more {kind}s of {member}",))


def _excesses(rule: Excess, members: Sequence[str], rows: pd.DataFrame) -> Iterator[Part]:
    """Are the paired differences of runs from their controls above 0, and by enough?"""
    # An aspect that has to pass by itself for one member has to for all.
    aspects = dict.fromkeys(name.partition(": ")[2] for name in rows["member"]) or {"": None}
    for member, aspect, control in product(members, aspects, rule.controls):
        place = f"{member}: {aspect}" if aspect else member
        name = f"{place}, above {control}"
        differences = rows[(rows["member"] == place) & (rows["control"] == control)]
        n = len(differences)
        if not n:
            yield _not_run(name, [place], "run")
            continue
        mean, low, high = (float(differences["value"].mean()), float(differences["low"].min()),
                           float(differences["high"].max()))
        estimate = f"{name}, by {mean:.3g} ({_counted(n, 'run')})"
        if n < FEWEST:
            yield _too_few(name, {member: n}, "run", estimate, estimate=mean)
            continue
        positive = int((differences["low"] > 0.0).sum())
        n_below = int((differences["high"] < rule.least).sum())
        verdict: Verdict = ("agrees" if positive == n and mean >= rule.least else
                            "differs" if n_below == n else "undecided")
        yield Part(name, verdict, mean, low, high, None, (n,),
                   f"{estimate}, {rule.least:g} being asked for: the interval is above 0 in "
                   f"{positive} and below {rule.least:g} in {n_below} of them",
                   () if verdict != "undecided" else (f"more runs of {member}",))


def _statements(members: Sequence[str], rows: pd.DataFrame) -> Iterator[Part]:
    """Does it hold? See `Exact`."""
    named = list(dict.fromkeys(rows["member"])) or ["the statement"]
    # Named by members, it has a part for each of them; otherwise those that are given.
    for part in members if set(named) <= set(members) else named:
        values = rows[rows["member"] == part]
        if values.empty:
            yield Part(part, "not run", n=(0,), why=f"{part}: no value",
                       needs=(f"whether it holds for {part}",))
            continue
        holds = float(values["value"].min())
        outcome = f"{part}: it {'holds' if holds else 'does not hold'}"
        cells = values["n"].dropna().tolist()
        if cells and min(cells) < FEWEST:
            # A statement about cells names at least three of them.
            yield Part(part, "undecided", holds, n=(len(values),),
                       why=f"{outcome}, in {_counted(min(cells), 'cell')}: at least three are "
                           "needed",
                       needs=(_wanted(part, min(cells), "cell"),))
        else:
            yield Part(part, "agrees" if holds else "differs", holds, n=(len(values),),
                       why=outcome)


# Words


def _not_run(name: str, members: Iterable[str], kind: str) -> Part:
    members = list(dict.fromkeys(members))
    return Part(name, "not run", n=(0,) * len(members), why=f"{name}: no value",
                needs=tuple(_wanted(member, 0, kind) for member in members))


def _too_few(
    name: str, counts: Mapping[str, int], kind: str, values: str, estimate: float | None = None
) -> Part:
    return Part(name, "undecided", estimate, n=tuple(counts.values()),
                why=f"{values}: at least three {kind}s{' of each' * (len(counts) > 1)} are needed",
                needs=tuple(_wanted(member, n, kind) for member, n in counts.items() if n < FEWEST))


def _wanted(member: str, n: int, kind: str) -> str:
    if kind == "instance":
        return f"instances of {member}"
    return f"{_counted(FEWEST - n, kind, 'more ' * (n > 0))} of {member}"


def _counted(n: int, kind: str, more: str = "") -> str:
    return f"{n} {more}{kind}{'s' * (n != 1)}"


def _mean_in_words(name: str, values: pd.Series) -> str:
    mean = f" {values.mean():.4g}" if len(values) else ""
    return f"{name}{mean} ({_counted(len(values), 'run')})"


def verb(verdict: str, n: int) -> str:
    """Return a verdict as the verb of n tests or claims: 1 agrees, 2 agree, 2 are undecided."""
    return verdict.removesuffix("s") if n > 1 and verdict in ("agrees", "differs") else verdict


def _why(claim: Claim, verdict: Verdict, parts: Sequence[Part]) -> str:
    sentences = []
    if len(parts) > 1:
        counts = Counter(part.verdict for part in parts)
        tests = ", ".join(
            f"{n} {('is ' if n == 1 else 'are ') * (name in ('undecided', 'not run'))}"
            f"{verb(name, n)}" for name, n in counts.items())
        sentences.append({"not run": "No value of any member.",
                          "agrees": f"All {len(parts)} tests agree."}.get(
                              verdict, f"Of {len(parts)} tests {tests}."))
    if len(parts) == 1 or verdict in ("differs", "undecided"):
        # The part that decided it, or did not.
        why = next((part for part in parts if part.verdict == verdict), parts[0]).why
        # Names of members stay as they are.
        sentences.append(f"Ours{why[4:]}." if why.startswith("ours ") else f"{why}.")
    if claim.seen is not None and verdict != "not run":
        sentences.append("No prediction: some of our own numbers were known when the rule was "
                         "fixed.")
    return " ".join(sentences)
