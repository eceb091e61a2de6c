"""Which tests make up a claim of the paper, and how does each come out? One function per rule of
`claim`, from a table of `values`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import pandas as pd

from latentcode.errors import check
from latentcode.experiments.evidence.claim import (
    Bound,
    Claim,
    Excess,
    Permutation,
    PermutationOfChanges,
    Published,
)
from latentcode.experiments.evidence.rules import (
    FEWEST,
    Part,
    Side,
    Verdict,
    compare,
    counted,
    difference,
    mean_of,
    not_run,
    number,
    too_few,
    wanted,
)
from latentcode.experiments.evidence.statistics import mean_interval
from latentcode.experiments.evidence.values import COMPARED


def over_instances(published: Published | None) -> bool:
    """Whether an instance is a value: Table A2, where the task alone is measured."""
    return published is not None and "instances" in (published.error_of or "")


def part_of_number(claim: Claim, rows: pd.DataFrame) -> Part:
    """Does mean(ours) - published lie within the margin? See `Welch`."""
    (member,), published = claim.setting.grid.points(), claim.published
    assert published is not None
    assert published.error is not None
    assert published.n is not None
    assert claim.margin is not None
    kind = "instance" if over_instances(published) else "split"
    if rows.empty:
        return not_run(member, [member], kind)
    scale = 100.0 if published.unit == "points" else 1.0
    if over_instances(published):
        row = _the_only(rows)
        mean, error, n = scale * row["value"], scale * row["se"], int(row["n"])
    else:
        # The published seed draws the split too: runs that share one are one value.
        splits = scale * rows.groupby("split_seed")["value"].mean()
        mean, error, n = splits.mean(), splits.sem(), len(splits)
    return number(member, float(mean), float(error), n, published.value, published.error,
                  published.n, claim.margin, kind=kind)


def parts_of_permutation(rule: Permutation, rows: pd.DataFrame) -> Iterator[Part]:
    """Is mean(higher) > mean(lower)? See `Permutation`."""
    def side(member: str) -> Side:
        own = rows[rows["member"] == member]
        return Side(member, own.set_index("split_seed")["value"], not own.empty)

    pairs = [(side(above), side(below))
             for above, below in zip(rule.higher, rule.lower, strict=True)]
    for tested in [pairs] if rule.over == "together" else [[pair] for pair in pairs]:
        yield compare(tested)


def parts_of_changes(rule: PermutationOfChanges, rows: pd.DataFrame) -> Iterator[Part]:
    """Is higher - higher_from > lower - lower_from? See `PermutationOfChanges`."""
    # Runs of the same seeds are not independent: they count as their mean.
    means = rows.groupby(["member", "split_seed", "seed"])["value"].mean()

    def side(member: str, start: str) -> Side:
        of, since = (means[means.index.get_level_values("member") == name].droplevel("member")
                     for name in (member, start))
        changes = (of - since).dropna().droplevel("seed")
        return Side(f"{member} minus {start}", changes, not (of.empty and since.empty))

    for above, above_from, below, below_from in zip(
            rule.higher, rule.higher_from, rule.lower, rule.lower_from, strict=True):
        yield compare([(side(above, above_from), side(below, below_from))])


def parts_of_bound(
    rule: Bound, members: Sequence[str], rows: pd.DataFrame
) -> Iterator[Part]:
    """Is the quantity above, or below, a number? See `Bound`."""
    compared = COMPARED in set(rows["member"])
    for member in (COMPARED,) if compared else members:
        yield _bounded(rule, member, rows[rows["member"] == member])


def _bounded(rule: Bound, member: str, rows: pd.DataFrame) -> Part:
    if rows.empty:
        return not_run(member, [member], "run")
    values = rows["value"]
    if rows["split_seed"].isna().any():
        row = _the_only(rows)
        mean, low, high, n, kind = row["value"], row["low"], row["high"], int(row["n"]), "instance"
    elif len(values) < FEWEST:
        return too_few(member, {member: len(values)}, "run", mean_of(member, values),
                        estimate=float(values.mean()))
    else:
        (mean, low, high), n, kind = mean_interval(values.tolist()), len(values), "run"
    above, below = low > rule.bound, high < rule.bound
    claimed, opposite = (above, below) if rule.side == "above" else (below, above)
    verdict: Verdict = "agrees" if claimed else "differs" if opposite else "undecided"
    lies = "above" if above else "below" if below else "on both sides of"
    as_claimed = ", as claimed" if claimed else f"; {rule.side} is claimed"
    return Part(member, verdict, float(mean), float(low), float(high), None, (n,),
                f"{member} {mean:.4g} ({counted(n, kind)}): the interval {low:.3g} to {high:.3g} "
                f"lies {lies} {rule.bound:g}{as_claimed}",
                () if verdict != "undecided" else (f"more {kind}s of {member}",))


def parts_of_excess(
    rule: Excess, members: Sequence[str], rows: pd.DataFrame
) -> Iterator[Part]:
    """Is the quantity above its controls? See `Excess`."""
    # What has to pass by itself for one member has to for all.
    aspects = dict.fromkeys(aspect_of(name) for name in rows["member"]) or {"": None}
    for member, aspect, control in product(members, aspects, rule.controls):
        name = f"{member}: {aspect}" if aspect else member
        own = rows[(rows["member"] == name) & (rows["control"] == control)]
        yield _exceeding(rule, name, control, own)


def _exceeding(rule: Excess, member: str, control: str, rows: pd.DataFrame) -> Part:
    name = f"{member}, above {control}"
    if rows.empty:
        return not_run(name, [member], "run")
    return difference(name, rows, rule.least,
                      of=member.removesuffix(f": {aspect_of(member)}"))


def parts_of_statement(members: Sequence[str], rows: pd.DataFrame) -> Iterator[Part]:
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
        said = f"{part}: it {'holds' if holds else 'does not hold'}"
        cells = own["n"].dropna().tolist()
        if cells and min(cells) < FEWEST:
            # A statement about cells names at least three of them.
            yield Part(part, "undecided", holds, None, None, None, (len(own),),
                       f"{said}, in {counted(min(cells), 'cell')}: at least three are needed",
                       (f"{wanted(part, min(cells), 'cell')}",))
        else:
            yield Part(part, verdict, holds, None, None, None, (len(own),), said)


def aspect_of(name: str) -> str:
    """Return what follows the member in `kind=hyla: layer 0, term 1`; see `COLUMNS`."""
    return name.partition(": ")[2]


def _the_only(rows: pd.DataFrame) -> pd.Series:
    """Return the one row of a member for which the task alone is measured."""
    check(len(rows) == 1, f"evidence of {rows.iloc[0]['member']!r}, of which the task alone is "
          f"measured, has {len(rows)} rows; expected one, over all instances")
    return rows.iloc[0]
