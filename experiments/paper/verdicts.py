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
from itertools import product
from typing import Any, Literal

import numpy as np
import pandas as pd

from latentcode.errors import ConfigError, check, check_choice
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
from latentcode.experiments.paper.statistics import (
    exchange_labels,
    mean_interval,
    narrowest_half,
    welch,
)

Verdict = Literal["agrees", "differs", "undecided", "not run"]

FEWEST = 3
"""Runs of a member (for numbers: splits; for `exact`: cells) without which nothing is decided."""
LARGEST_P = 0.05
"""A permutation test is passed up to here, this included."""
COMPARED = "all members"
"""The member of a value that compares all members, of the runs of one seed (rule `bound`)."""
COLUMNS: Mapping[str, str] = {
    "member": "object", "control": "object", "run": "object", "seed": "Int64",
    "split_seed": "Int64", "value": "float64", "low": "float64", "high": "float64",
    "se": "float64", "n": "Int64"}
"""One row per measured value.

member      name of a member of the claim's setting (`Setting.grid.points()`), such as kind=hyla;
            `COMPARED` for a quantity that compares all members; for `excess` it may be followed by
            a colon and an aspect that has to pass by itself (kind=hyla: layer 0, term 1); for
            `exact`: what part of the statement
control     for `excess`: the name of the control that was subtracted; otherwise None
run         the run's name; None where the task alone is measured
seed, split_seed   of the run; None where the task alone is measured
value       the number, in the library's units; for `excess` the paired difference from the
            control; for `exact` 1.0 (holds) or 0.0
low, high   for `excess`: 95 % interval of that difference, clustered by combination; where the task
            alone is measured: over instances; else None
se, n       where the task alone is measured: standard error and number of instances; for `exact`,
            n may be the number of cells that were looked at, fewer than three leaving it undecided;
            else None
"""


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


@dataclass(frozen=True)
class Judgement:
    """The verdict of a claim, and that of each of its tests."""

    claim: str
    """The claim's id."""
    verdict: Verdict
    """`not run` where no member has a value."""
    parts: tuple[Part, ...]
    """In the order of the rule or of the setting's members."""
    why: str
    """One to three sentences for a report."""
    needs: str | None
    """What would decide it; None where it is decided."""


def evidence(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return measured values as a table with all of `COLUMNS`; what a row lacks is missing.

    `ConfigError` names a row without member or value, a key that is no column, a number that is not
    finite or not whole, an interval or seeds of which half is missing, and a row given twice.
    """
    given = [dict(row) for row in rows]
    for row in given:
        for name in row:
            check_choice(f"column in evidence of {row.get('member')!r}", name, COLUMNS)
    try:
        table = pd.DataFrame(given, columns=list(COLUMNS)).astype(dict(COLUMNS))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"evidence has what is no number, or not a whole one: {error}") from None
    for name in ("member", "control", "run"):
        table[name] = table[name].where(table[name].notna(), None)
    for wrong, what in (
            (table["member"].isna(), "has no member; expected a name"),
            (~np.isfinite(table["value"]), "has no finite value; expected one"),
            (table["low"].isna() != table["high"].isna(), "has half an interval; expected both"),
            (table["low"] > table["high"], "has low above high"),
            (table["seed"].isna() != table["split_seed"].isna(), "has one seed; expected both"),
            (table["run"].notna() & table["seed"].isna(), "has no seed; expected that of the run"),
            (table["se"] < 0, "has se below 0"),
            (table.duplicated(["member", "control", "run", "seed", "split_seed"]),
             "has two values of the same member, control, run and seeds; expected one")):
        check(not wrong.any(), f"evidence of {table[wrong]['member'].tolist()!r} {what}")
    return table


def judge(claim: Claim, values: pd.DataFrame) -> Judgement:
    """Judge a claim by its rule, from a table of `evidence`, which may be empty.

    `ConfigError` names the claim and what its rule cannot use: a member or control that is not the
    claim's, seeds or intervals that are not there.
    """
    _check_rows(claim, values)
    parts = _parts(claim, values)
    verdict = together(parts)
    # Where the task alone is measured n counts instances.
    enough = isinstance(claim.rule, Exact) or all(min(part.n) >= FEWEST for part in parts)
    if verdict == "differs" and not enough:
        verdict = "undecided"
    open_parts = parts if verdict in ("undecided", "not run") else ()
    needs = dict.fromkeys(need for part in open_parts for need in part.needs)
    return Judgement(claim.id, verdict, parts, _why(claim, verdict, parts),
                     "; ".join(needs) or None)


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


def can_agree(claim: Claim, splits: float = FEWEST) -> bool:
    """Return whether a number could agree, however alike ours are: an interval fits its margin.

    With that many splits of ours, whatever their error; of Table A2, with any number of instances.
    Claims that are no numbers can.
    """
    published = claim.published
    if not isinstance(claim.rule, Welch) or published is None or claim.margin is None:
        return True
    assert published.error is not None
    assert published.n is not None
    n = math.inf if over_instances(published) else splits
    return narrowest_half(n, published.n) * published.error <= claim.margin


def over_instances(published: Published | None) -> bool:
    """Whether an instance is a value: Table A2, where the task alone is measured."""
    return published is not None and "instances" in (published.error_of or "")


def _parts(claim: Claim, rows: pd.DataFrame) -> tuple[Part, ...]:
    members = tuple(claim.setting.grid.points())
    match claim.rule:
        case Welch():
            return (_number(claim, rows),)
        case Permutation() as rule:
            return tuple(_permutations(rule, rows))
        case PermutationOfChanges() as rule:
            return tuple(_changes(rule, rows))
        case Bound() as rule:
            compared = COMPARED in set(rows["member"])
            return tuple(_bounded(rule, member, rows[rows["member"] == member])
                         for member in ((COMPARED,) if compared else members))
        case Excess() as rule:
            return tuple(_excesses(rule, members, rows))
        case Exact():
            return tuple(_statements(members, rows))


def _number(claim: Claim, rows: pd.DataFrame) -> Part:
    """Does mean(ours) - published lie within the margin? See `Welch`."""
    (name,), published, margin = claim.setting.grid.points(), claim.published, claim.margin
    assert published is not None
    assert published.error is not None
    assert published.n is not None
    assert margin is not None
    kind = "instance" if over_instances(published) else "split"
    if rows.empty:
        return _not_run(name, [name], kind)
    scale = 100.0 if published.unit == "points" else 1.0
    if over_instances(published):
        row = _the_only(rows)
        mean, error, n = scale * row["value"], scale * row["se"], int(row["n"])
    else:
        # The published seed draws the split too: runs that share one are one value.
        splits = scale * rows.groupby("split_seed")["value"].mean()
        mean, error, n = splits.mean(), splits.sem(), len(splits)
    printed = f"published {published.value:g} +- {published.error:g} ({published.n})"
    if n < FEWEST:
        return _too_few(name, {name: n}, kind, f"ours {mean:.4g} ({_counted(n, kind)}), {printed}",
                        estimate=float(mean) - published.value)
    found = welch(mean, error, n, published.value, published.error, published.n)
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
        hopeless = narrowest_half(math.inf, published.n) * published.error > margin
        needs = (f"more {kind}s of {name}" + hopeless * ", which can only tell a difference: the "
                 "published error is too wide for an interval within the margin",)
    return Part(name, verdict, estimate, low, high, p, (n,),
                f"ours {mean:.4g} +- {error:.2g} ({_counted(n, kind)}), {printed}: the interval of "
                f"the difference, {low:.3g} to {high:.3g}, {outcome}", needs)


@dataclass(frozen=True)
class _Side:
    """Values that a permutation test compares."""

    name: str
    values: pd.Series
    """By the seed of their split."""
    measured: bool
    """Whether there is any value of its members, even one that has no counterpart."""


def _permutations(rule: Permutation, rows: pd.DataFrame) -> Iterator[Part]:
    """Is mean(higher) > mean(lower)? See `Permutation`."""
    def side(member: str) -> _Side:
        own = rows[rows["member"] == member]
        return _Side(member, own.set_index("split_seed")["value"], not own.empty)

    pairs = [(side(above), side(below))
             for above, below in zip(rule.higher, rule.lower, strict=True)]
    for tested in [pairs] if rule.over == "together" else [[pair] for pair in pairs]:
        yield _compare(tested)


def _changes(rule: PermutationOfChanges, rows: pd.DataFrame) -> Iterator[Part]:
    """Is higher - higher_from > lower - lower_from? See `PermutationOfChanges`."""
    # Runs of the same seeds are not independent: they count as their mean.
    means = rows.groupby(["member", "split_seed", "seed"])["value"].mean()

    def side(member: str, start: str) -> _Side:
        end, begin = (means[means.index.get_level_values("member") == name].droplevel("member")
                      for name in (member, start))
        changes = (end - begin).dropna().droplevel("seed")
        return _Side(f"{member} minus {start}", changes, not (end.empty and begin.empty))

    for above, above_from, below, below_from in zip(
            rule.higher, rule.higher_from, rule.lower, rule.lower_from, strict=True):
        yield _compare([(side(above, above_from), side(below, below_from))])


def _compare(pairs: Sequence[tuple[_Side, _Side]]) -> Part:
    """Test whether the mean of the first sides is above that of the second, by permutation."""
    sides = [side for pair in pairs for side in pair]
    name = " > ".join(" + ".join(dict.fromkeys(side.name for side in half))
                      for half in zip(*pairs, strict=True))
    if not any(side.measured for side in sides):
        return _not_run(name, (side.name for side in sides), "run")
    counts = {side.name: len(side.values) for side in sides}
    means = ", ".join(_mean_in_words(side.name, side.values) for side in sides)
    if min(counts.values()) < FEWEST:
        return _too_few(name, counts, "run", means)
    difference, above, below, total = exchange_labels([(a.values, b.values) for a, b in pairs])
    verdict: Verdict = ("agrees" if above / total <= LARGEST_P else
                        "differs" if below / total <= LARGEST_P else "undecided")
    needs = () if verdict != "undecided" else (f"more runs of {' and '.join(counts)}",)
    opposite = f"; in the opposite direction {below} do" if verdict == "differs" else ""
    return Part(name, verdict, difference, None, None, above / total, tuple(counts.values()),
                f"{means}: {above} of {total} exchanges of labels give as large a difference, "
                f"p = {above / total:.3g}{opposite}", needs)


def _bounded(rule: Bound, member: str, rows: pd.DataFrame) -> Part:
    """Is the quantity above, or below, a number? See `Bound`."""
    if rows.empty:
        return _not_run(member, [member], "run")
    values = rows["value"]
    if rows["split_seed"].isna().any():
        row = _the_only(rows)
        mean, low, high, n, kind = row["value"], row["low"], row["high"], int(row["n"]), "instance"
    elif len(values) < FEWEST:
        return _too_few(member, {member: len(values)}, "run", _mean_in_words(member, values),
                        estimate=float(values.mean()))
    else:
        (mean, low, high), n, kind = mean_interval(values.tolist()), len(values), "run"
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
    """Is the quantity above its controls? See `Excess`."""
    # What has to pass by itself for one member has to for all.
    aspects = dict.fromkeys(aspect_of(name) for name in rows["member"]) or {"": None}
    for member, aspect, control in product(members, aspects, rule.controls):
        name = f"{member}: {aspect}" if aspect else member
        own = rows[(rows["member"] == name) & (rows["control"] == control)]
        if own.empty:
            yield _not_run(f"{name}, above {control}", [name], "run")
        else:
            yield _excess(f"{name}, above {control}", member, rule.least, own)


def _excess(name: str, member: str, least: float, rows: pd.DataFrame) -> Part:
    """Are the paired differences of runs above 0, and by enough?"""
    mean, low, high = (float(rows["value"].mean()), float(rows["low"].min()),
                       float(rows["high"].max()))
    n, positive = len(rows), int((rows["low"] > 0.0).sum())
    estimate = f"{name}, by {mean:.3g} ({_counted(n, 'run')})"
    if n < FEWEST:
        return _too_few(name, {member: n}, "run", estimate, estimate=mean)
    verdict: Verdict = ("agrees" if positive == n and mean >= least else
                        "differs" if high < least else "undecided")
    n_below = int((rows["high"] < least).sum())
    return Part(name, verdict, mean, low, high, None, (n,),
                f"{estimate}, {least:g} being asked for: the interval is above 0 in {positive} "
                f"and below {least:g} in {n_below} of them",
                () if verdict != "undecided" else (f"more runs of {member}",))


def _statements(members: Sequence[str], rows: pd.DataFrame) -> Iterator[Part]:
    """Does it hold? See `Exact`."""
    named = list(dict.fromkeys(rows["member"])) or ["the statement"]
    # Named by members, it has a part for each of them; otherwise those that are given.
    for part in members if set(named) <= set(members) else named:
        own = rows[rows["member"] == part]
        if own.empty:
            yield Part(part, "not run", None, None, None, None, (0,), f"{part}: no value",
                       (f"whether it holds for {part}",))
            continue
        holds = float(own["value"].min())
        verdict: Verdict = "agrees" if holds else "differs"
        outcome = f"{part}: it {'holds' if holds else 'does not hold'}"
        cells = own["n"].dropna().tolist()
        if cells and min(cells) < FEWEST:
            # A statement about cells names at least three of them.
            yield Part(part, "undecided", holds, None, None, None, (len(own),),
                       f"{outcome}, in {_counted(min(cells), 'cell')}: at least three are needed",
                       (f"{_wanted(part, min(cells), 'cell')}",))
        else:
            yield Part(part, verdict, holds, None, None, None, (len(own),), outcome)


def aspect_of(name: str) -> str:
    """Return what follows the member in `kind=hyla: layer 0, term 1`; see `COLUMNS`."""
    return name.partition(": ")[2]


def _the_only(rows: pd.DataFrame) -> pd.Series:
    """Return the one row of a member for which the task alone is measured."""
    check(len(rows) == 1, f"evidence of {rows.iloc[0]['member']!r}, of which the task alone is "
          f"measured, has {len(rows)} rows; expected one, over all instances")
    return rows.iloc[0]


def _not_run(name: str, members: Iterable[str], kind: str) -> Part:
    members = list(dict.fromkeys(members))
    return Part(name, "not run", None, None, None, None, (0,) * len(members), f"{name}: no value",
                tuple(_wanted(member, 0, kind) for member in members))


def _too_few(
    name: str, counts: Mapping[str, int], kind: str, values: str, estimate: float | None = None
) -> Part:
    return Part(name, "undecided", estimate, None, None, None, tuple(counts.values()),
                f"{values}: at least three {kind}s{' of each' * (len(counts) > 1)} are needed",
                tuple(_wanted(member, n, kind) for member, n in counts.items() if n < FEWEST))


def _wanted(member: str, n: int, kind: str) -> str:
    if kind == "instance":
        return f"instances of {member}"
    return f"{_counted(FEWEST - n, kind, 'more ' * (n > 0))} of {member}"


def _counted(n: int, kind: str, more: str = "") -> str:
    return f"{n} {more}{kind}{'s' * (n != 1)}"


def _mean_in_words(name: str, values: pd.Series) -> str:
    mean = f" {values.mean():.4g}" if len(values) else ""
    return f"{name}{mean} ({_counted(len(values), 'run')})"


def _why(claim: Claim, verdict: Verdict, parts: Sequence[Part]) -> str:
    sentences = []
    if len(parts) > 1 and verdict == "not run":
        sentences.append("No value of any member.")
    elif len(parts) > 1 and verdict == "agrees":
        sentences.append(f"All {len(parts)} tests agree.")
    elif len(parts) > 1:
        counts = Counter(part.verdict for part in parts)
        sentences.append("Of {} tests {}.".format(len(parts), ", ".join(
            f"{n} {_verb(name, n)}" for name, n in counts.items())))
    if len(parts) == 1 or verdict in ("differs", "undecided"):
        # What decided it, or did not.
        telling = [part for part in parts if part.verdict == verdict] or list(parts)
        why = telling[0].why
        # Names of members stay as they are.
        sentences.append(f"Ours{why[4:]}." if why.startswith("ours ") else f"{why}.")
    if claim.seen is not None and verdict != "not run":
        sentences.append("No prediction: some of our own numbers were known when the rule was "
                         "fixed.")
    return " ".join(sentences)


def _verb(verdict: Verdict, n: int) -> str:
    """Return a verdict as the verb of n tests."""
    if verdict in ("agrees", "differs"):
        return verdict if n == 1 else verdict.removesuffix("s")
    return f"{'is' if n == 1 else 'are'} {verdict}"


def _check_rows(claim: Claim, rows: pd.DataFrame) -> None:
    """Raise `ConfigError` where a row is not the claim's, or lacks what its rule needs."""
    rule, where = claim.rule, f"values of claim {claim.id}"
    members = ([COMPARED] if isinstance(rule, Bound) and COMPARED in set(rows["member"])
               else list(claim.setting.grid.points()))
    controls = rule.controls if isinstance(rule, Excess) else (None,)
    by_instance = isinstance(rule, Welch) and over_instances(claim.published)
    for row in rows.to_dict("records"):
        place = f"{where}, {row['member']},"
        check(row["control"] in controls, f"control in {place} is {row['control']!r}; expected "
              f"{' or '.join(map(str, controls))}")
        if isinstance(rule, Exact):  # whose parts have any names
            check(row["value"] in (0.0, 1.0),
                  f"value in {place} is {row['value']!r}; expected 1.0 (holds) or 0.0")
            continue
        member = row["member"].partition(": ")[0] if isinstance(rule, Excess) else row["member"]
        check_choice(f"member in {where}", member, members)
        alone = pd.isna(row["split_seed"])
        given, expected = (("given", "se and n of the task alone, without a run") if by_instance
                           else ("missing", "those of its run"))
        check(isinstance(rule, Bound) or alone == by_instance,
              f"seeds in {place} are {given}; expected {expected}")
        needed = (("low", "high") if isinstance(rule, Excess) else () if not alone else
                  ("low", "high", "n") if isinstance(rule, Bound) else ("se", "n"))
        for name in needed:
            check(not pd.isna(row[name]),
                  f"{name} in {place} is missing; expected a number for rule {rule.name}")
