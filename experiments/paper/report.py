"""Everything that was reproduced on one page: each claim with its verdict, our number and theirs.

First the paper's claims about trained models, then definitions and counts of its tasks; what has
not been run is folded away. Results without verdicts, of other presets, follow with their figures.
The page holds no times: a reproduction that was interrupted and one that was not write the same.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.errors import ArtifactError, check
from latentcode.experiments.paper.claims import RESULTS, Claim, load_claims
from latentcode.experiments.paper.verdicts import can_agree
from latentcode.figures.text import markdown_table
from latentcode.files.provenance import check_format
from latentcode.files.storage import read_json, write_text

FORMAT = "latentcode.reproduction"
RESULT = "result.json"
"""What a figure or table that was reproduced has in its folder, OUT/PRESET/NAME."""
KEYS = ("name", "title", "preset", "summary", "notes", "claims", "tables", "figures", "runs",
        "missing", "minutes", "environment")
"""What it holds, beside its format."""
N_SPLITS: Mapping[str, int] = {"paper": 3, "small": 1, "smoke": 1}
"""On how many splits a member should have a run; the paper has three seeds."""
README, VERDICT_TABLE = "README.md", "verdicts.csv"
DEFINITIONS: tuple[str, ...] = ("tabA2", "figA9", "tabA3", "figA1")
"""Results about the tasks, the settings and the equations, and not about what models learn."""
GROUPS: Mapping[str, str] = {
    "empirical": "Empirical claims of the paper", "task": "Definitions and counts of the task"}
PRINTED = "as printed"
"""The verdict of a claim that differs by how something is printed, like an erratum."""
VERDICTS: Mapping[str, str] = {
    "agrees": "agrees", "differs": "**differs**", PRINTED: "erratum-like",
    "undecided": "undecided", "not run": "not run at this size"}
"""Verdicts as they are printed, in the order of the counts."""
COLUMNS = ("id", "source", "kind", "verdict", "rule", "ours", "published", "why", "needs",
           "group", "observation", "questioned", "erratum_like")
"""Columns of the table of verdicts."""
HEAD = """# What the paper claims, and what we find

<!-- Written by `latentcode reproduce --report`. -->
"""
READING = """
{counts}

Rule and reason of each verdict: [verdicts.csv]({table}). The paper has the best of a grid of
settings, we have one; of {numbers} printed numbers {can_agree} can agree at all with three splits.
"""
PAIRS = """
Verdicts on Fig. 5 are at the pair of the paper's text, of runs that confuse sums with differences;
the pair of the released code tells [another story](../FINDINGS.md).
"""
Judged = Mapping[str, Any]
"""A claim with its verdict, as `result.json` has it."""
Results = Mapping[str, Mapping[str, Any]]


def read_result(folder: Path) -> dict[str, Any]:
    """Return what `result.json` of a result holds; `ArtifactError` for a damaged one."""
    result = check_format(read_json(folder / RESULT), FORMAT, folder / RESULT)
    lacking = [key for key in KEYS if key not in result]
    check(not lacking, f"{folder / RESULT} lacks {', '.join(lacking)}; expected a result as "
          "`latentcode reproduce` writes it", ArtifactError)
    return result


def results_in(out: Path, preset: str) -> dict[str, dict[str, Any]]:
    """Return every result of a preset that is there, in the order of the paper."""
    return {name: read_result(out / preset / name) for name in RESULTS
            if (out / preset / name / RESULT).exists()}


def write_pages(results: Path, out: Path) -> list[Path]:
    """Write `README.md` and `verdicts.csv` of the results; return their paths.

    The table has a row per claim that was judged. `ArtifactError` where there is no result.
    """
    by_preset = {preset: results_in(results, preset) for preset in N_SPLITS}
    check(any(by_preset.values()), f"{results} holds no result; expected a folder that `latentcode "
          "reproduce` wrote to", ArtifactError)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / README, page(by_preset, results, out))
    rows = [_verdict_row(name, claim) for name, claim in _judged(by_preset)]
    write_text(out / VERDICT_TABLE, pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(index=False))
    return [out / README, out / VERDICT_TABLE]


def page(by_preset: Mapping[str, Results], results: Path, out: Path) -> str:
    """Return the page of every result as Markdown, for a file in `out`."""
    to = Path(os.path.relpath(results, out)).as_posix()
    judged = _judged(by_preset)
    of_group = {key: [(name, claim) for name, claim in judged if group(name) == key]
                for key in GROUPS}
    numbers = [claim for claim in load_claims() if claim.kind == "number"]
    parts = [HEAD, READING.format(
        counts="\n".join(_counts(title, [claim for _, claim in of_group[key]])
                         for key, title in GROUPS.items() if of_group[key]),
        numbers=len(numbers), can_agree=sum(map(can_agree, numbers)), table=VERDICT_TABLE)
        if judged else "\nNo claim is judged here: verdicts need `--preset paper`.\n"]
    if (out / "pairs").exists():
        parts.append(PAIRS)
    for key, title in GROUPS.items():
        run, unrun = ([row for row in of_group[key] if (row[1]["verdict"] == "not run") == missing]
                      for missing in (False, True))
        if run:
            parts.append(f"\n## {title}\n\n{_table(run, to)}\n")
        if unrun:
            table = markdown_table(["claim", "needed"], [
                (_claim(claim), claim["needs"]) for _, claim in unrun])
            parts.append(f"\n<details markdown>\n<summary>{len(unrun)} not run at this size"
                         f"</summary>\n\n{table}\n\n</details>\n")
    parts += [_unjudged(result, f"{to}/{preset}/{name}") for preset in by_preset
              for name, result in by_preset[preset].items() if not result["claims"]]
    return "".join(parts)


def _counts(title: str, claims: Sequence[Judged]) -> str:
    """Return the sentence that counts the verdicts of a group."""
    counts = counted(claims)
    unrun = counted(claim for claim in claims if _lacks_runs(claim)).total()
    merged = (f", {counts.total()} where those on one observation with one verdict count once"
              * (counts.total() < len(claims)))
    return (f"{title}: {len(claims)} entries{merged}: {in_words(counts)}"
            + f" ({unrun} of the undecided for want of runs)" * (unrun > 0) + ".")


def _lacks_runs(judged: Judged) -> bool:
    """Whether a claim is undecided because a part of it has no number."""
    return judged["verdict"] == "undecided" and any(
        part["estimate"] is None for part in judged["parts"])


def _table(claims: Sequence[tuple[str, Judged]], to: str) -> str:
    """Return the table of judged claims, each with a link to the folder of its result."""
    return markdown_table(["claim", "verdict", "ours", "theirs", "result"], [
        (_claim(claim), verdict_in_words(claim), ours(claim), published(claim),
         f"[{name}]({to}/paper/{name})")
        for name, claim in claims])


def _claim(claim: Judged) -> str:
    return f"{claim['claim']} ({claim['source']}; `{claim['id']}`)".replace("|", "\\|")


def _unjudged(result: Mapping[str, Any], folder: str) -> str:
    """Return the section of a result without verdicts: its command, what it shows, its figures."""
    name, preset = result["name"], result["preset"]
    figures = "".join(f"\n![{result['title']}]({folder}/{figure}.png)\n"
                      for figure in result["figures"])
    return (f"\n## {name}, {preset}\n\n`latentcode reproduce {name} --preset {preset}` "
            f"([all numbers]({folder}/{RESULT})): {result['summary']}\n{figures}")


@cache
def _claims() -> Mapping[str, Claim]:
    return {claim.id: claim for claim in load_claims()}


def known(judged: Judged) -> Claim | None:
    """Return a judged claim as the file has it; None for one that it no longer has."""
    return _claims().get(judged["id"])


def group(result: str) -> str:
    """Return which of `GROUPS` the claims of a result belong to."""
    return "task" if result in DEFINITIONS else "empirical"


def verdict(judged: Judged) -> str:
    """Return the verdict of a claim, one of `VERDICTS`."""
    claim = known(judged)
    printing = claim is not None and claim.printing and judged["verdict"] == "differs"
    return PRINTED if printing else str(judged["verdict"])


def verdict_in_words(judged: Judged) -> str:
    """Return the verdict as it stands in a table, with the doubt that is to be told."""
    claim = known(judged)
    questioned = claim is not None and bool(claim.questioned)
    return (VERDICTS[verdict(judged)] + " (*threshold questioned*)" * questioned
            + " (runs missing)" * _lacks_runs(judged))


def counted(claims: Iterable[Judged]) -> Counter[str]:
    """Return verdict -> how many claims have it, those of one observation once."""
    units = set()
    for judged in claims:
        claim = known(judged)
        observation = claim.observation if claim is not None else None
        units.add((observation or judged["id"], verdict(judged)))
    return Counter(name for _, name in units)


def in_words(counts: Mapping[str, int]) -> str:
    """Return counts of verdicts in words, as in `9 agree, 1 differs, 2 undecided`."""
    def verb(name: str, n: int) -> str:
        words = VERDICTS[name].strip("*")
        return words.removesuffix("s") if n > 1 and name in ("agrees", "differs") else words

    return ", ".join(f"{n} {verb(name, n)}" for name in VERDICTS if (n := counts.get(name, 0)))


def published(claim: Judged) -> str:
    """Return the printed number with its error; empty where none is printed."""
    printed = claim["published"]
    if printed is None:
        return ""
    error = "" if printed["error"] is None else f" ± {printed['error']:g}"
    return f"{printed['value']:g}{error}"


def ours(claim: Judged) -> str:
    """Return what we measured, of several tests the least and the most; empty without a value.

    A number stands in the unit printed, a difference has its sign.
    """
    estimates = [part["estimate"] for part in claim["parts"] if part["estimate"] is not None]
    if not estimates:
        return ""
    match claim["rule"]["name"]:
        case "exact":
            held = sum(estimates)
            outcome = ("holds" if held == len(estimates) else "does not hold" if not held
                       else f"holds in {held:g} of {len(estimates)}")
            return outcome + (" so far" if claim["verdict"] == "undecided" else "")
        case "welch":
            value, low, high = (f"{claim['parts'][0][key]:+.2g}"
                                for key in ("estimate", "low", "high"))
            return (f"{claim['published']['value'] + estimates[0]:.4g} "
                    f"({value} [{low}, {high}])")
        case "bound":
            least, most = f"{min(estimates):.3g}", f"{max(estimates):.3g}"
        case _:
            least, most = f"{min(estimates):+.2g}", f"{max(estimates):+.2g}"
    return least if least == most else f"{least} to {most}"


def rule_in_words(claim: Judged) -> str:
    """Return the rule of a verdict in a few words."""
    rule = claim["rule"]
    match rule["name"]:
        case "welch":
            return f"{rule['quantity']}: difference within ±{claim['margin']:g}"
        case "permutation" | "permutation_of_changes":
            return f"{rule['quantity']}: permutation test over runs"
        case "bound":
            return f"{rule['quantity']}: {rule['side']} {rule['bound']:g}"
        case "excess":
            return (f"{rule['quantity']}: in every run above, and by {rule['least']:g} on average, "
                    f"{', '.join(rule['controls'])}")
    return str(rule["holds"])


def _judged(by_preset: Mapping[str, Results]) -> list[tuple[str, dict[str, Any]]]:
    """Return (result, claim) of every claim that was judged, in the order of the paper."""
    return [(name, claim) for name, result in by_preset.get("paper", {}).items()
            for claim in result["claims"]]


def _verdict_row(name: str, judged: Judged) -> dict[str, Any]:
    claim = known(judged)
    return {"group": group(name), "rule": rule_in_words(judged),
            "ours": ours(judged), "published": published(judged),
            **{key: judged[key] for key in ("id", "source", "kind", "verdict", "why", "needs")},
            **({} if claim is None else {
                "observation": claim.observation, "questioned": claim.questioned,
                "erratum_like": claim.printing})}
