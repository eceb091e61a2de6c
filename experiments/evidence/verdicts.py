"""Does a claim hold? Its verdict by the rule that was fixed beforehand, from measured values.

    judge(claim, evidence([{"member": "kind=hyla", "run": "a", "seed": 0, "split_seed": 0,
                            "value": 0.90}, ...]))

`claims.yaml` and the rules in `claim` say what counts; nothing is decided here. Where they
leave room, it is read as follows.

 - Too few runs of one member leave the whole claim undecided, even where another member differs
   already, except under `exact`; the verdict of each part stands beside.
 - Splits are told apart by the seed of the split alone, also where the held-out share differs.
 - Changes are taken between the means of the runs of the same two seeds.
 - A bound is met where the interval does not touch it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from latentcode.errors import check, check_choice
from latentcode.experiments.evidence.claim import (
    Bound,
    Claim,
    Exact,
    Excess,
    Permutation,
    PermutationOfChanges,
    Welch,
)
from latentcode.experiments.evidence.claim_rules import (
    aspect_of,
    over_instances,
    part_of_number,
    parts_of_bound,
    parts_of_changes,
    parts_of_excess,
    parts_of_permutation,
    parts_of_statement,
)
from latentcode.experiments.evidence.rules import (
    FEWEST,
    Part,
    Verdict,
    together,
)
from latentcode.experiments.evidence.statistics import LEVEL, narrowest_half
from latentcode.experiments.evidence.values import COLUMNS, COMPARED, evidence


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


def judge(claim: Claim, values: pd.DataFrame) -> Judgement:
    """Does the claim hold, by its rule? From a table of `evidence`, which may be empty.

    `ConfigError` names the claim and what its rule cannot use: a column that is missing, a member
    or control that is not the claim's, seeds or intervals that are not there.
    """
    missing = [name for name in COLUMNS if name not in values]
    check(not missing, f"values of claim {claim.id} lack column(s) {', '.join(missing)}")
    rows = evidence({str(key): value for key, value in row.items()}
                    for row in values.to_dict("records"))
    _check_names(claim, rows)
    _check_numbers(claim, rows)
    parts = _parts(claim, rows)
    verdict = _verdict(claim, parts)
    open_parts = (part for part in parts if verdict in ("undecided", "not run"))
    needs = dict.fromkeys(need for part in open_parts for need in part.needs)
    return Judgement(claim.id, verdict, parts, _why(claim, verdict, parts),
                     "; ".join(needs) or None)


def can_agree(claim: Claim, splits: float = FEWEST) -> bool:
    """Could a number agree, however alike ours are? Whether any interval fits within its margin.

    With that many splits of ours, whatever their error; of Table A2, with any number of instances.
    Claims that are no numbers can.
    """
    published = claim.published
    if not isinstance(claim.rule, Welch) or published is None or claim.margin is None:
        return True
    assert published.error is not None
    assert published.n is not None
    n = float("inf") if over_instances(published) else splits
    return narrowest_half(n, published.n) * published.error <= claim.margin


def expected_false_differs(claims: Sequence[Claim]) -> float:
    """How many numbers would differ by chance, all being right? 0.05 for each that is measured.

    Claims about the same quantity of the same configuration are measured once.
    """
    measured = {(config, claim.rule.quantity) for claim in claims if isinstance(claim.rule, Welch)
                for config in claim.setting.grid.members().values()}
    return (1.0 - LEVEL) * len(measured)


def _parts(claim: Claim, rows: pd.DataFrame) -> tuple[Part, ...]:
    members = tuple(claim.setting.grid.points())
    match claim.rule:
        case Welch():
            return (part_of_number(claim, rows),)
        case Permutation() as rule:
            return tuple(parts_of_permutation(rule, rows))
        case PermutationOfChanges() as rule:
            return tuple(parts_of_changes(rule, rows))
        case Bound() as rule:
            return tuple(parts_of_bound(rule, members, rows))
        case Excess() as rule:
            return tuple(parts_of_excess(rule, members, rows))
        case Exact():
            return tuple(parts_of_statement(members, rows))


def _verdict(claim: Claim, parts: Sequence[Part]) -> Verdict:
    verdict = together(parts)
    # Where the task alone is measured n counts instances.
    enough = isinstance(claim.rule, Exact) or all(min(part.n) >= FEWEST for part in parts)
    return "undecided" if verdict == "differs" and not enough else verdict


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


def _check_names(claim: Claim, rows: pd.DataFrame) -> None:
    """Raise `ConfigError` where a member or a control is not the claim's."""
    rule, where = claim.rule, f"values of claim {claim.id}"
    # Parts of a statement have any names.
    members = [] if isinstance(rule, Exact) else rows["member"].unique().tolist()
    compared = isinstance(rule, Bound) and COMPARED in members
    for name in members:
        member = name.removesuffix(f": {aspect_of(name)}") if isinstance(rule, Excess) else name
        check_choice(f"member in {where}", member,
                     [COMPARED] if compared else claim.setting.grid.points())
    for control in rows["control"].unique():
        if isinstance(rule, Excess):
            check_choice(f"control in {where}", control, rule.controls)
        else:
            check(control is None,
                  f"control in {where} is {control!r}; expected None for rule {rule.name}")


def _check_numbers(claim: Claim, rows: pd.DataFrame) -> None:
    """Raise `ConfigError` where a row lacks the numbers that the rule needs."""
    rule, where = claim.rule, f"values of claim {claim.id}"
    if isinstance(rule, Exact):
        for value in rows["value"]:
            check(value in (0.0, 1.0),
                  f"value in {where} is {value!r}; expected 1.0 (holds) or 0.0")
        return
    alone = rows["split_seed"].isna()
    by_instance = isinstance(rule, Welch) and over_instances(claim.published)
    wrong = [] if isinstance(rule, Bound) else rows.loc[alone != by_instance, "member"].tolist()
    given, expected = (("given", "se and n of the task alone, without a run") if by_instance else
                       ("missing", "those of its run"))
    check(not wrong, f"seeds in {where} are {given} for {', '.join(dict.fromkeys(wrong))}; "
          f"expected {expected}")
    needed = (("low", "high") if isinstance(rule, Excess) else () if not alone.any() else
              ("low", "high", "n") if isinstance(rule, Bound) else ("se", "n"))
    for name in needed:
        missing = rows.loc[rows[name].isna() & (alone | isinstance(rule, Excess)), "member"]
        check(missing.empty, f"{name} in {where} is missing for {', '.join(missing.unique())}; "
              f"expected a number for rule {rule.name}")
