"""Everything that was reproduced on one page: each claim with its verdict, our number and theirs.

First the paper's claims about trained models, then definitions and counts of its tasks; what has
not been run is folded away. Results without verdicts, of other presets, follow with their figures.
The page holds no times: a reproduction that was interrupted and one that was not write the same.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.errors import ArtifactError, check
from latentcode.experiments.paper.claims import RESULTS, load_claims
from latentcode.experiments.paper.verdicts import can_agree, verb
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
Row = dict[str, Any]
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
    """Write `README.md` and `verdicts.csv`, a row per claim that was judged; return their paths."""
    by_preset = {preset: results_in(results, preset) for preset in N_SPLITS}
    check(any(by_preset.values()), f"{results} holds no result; expected a folder that `latentcode "
          "reproduce` wrote to", ArtifactError)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / README, page(by_preset, results, out))
    table = pd.DataFrame(verdict_rows(by_preset["paper"]), columns=list(COLUMNS))
    write_text(out / VERDICT_TABLE, table.to_csv(index=False))
    return [out / README, out / VERDICT_TABLE]


def verdict_rows(results: Results) -> list[Row]:
    """Return a row per claim that was judged, in the order of the paper.

    Beside `COLUMNS`: `result`, the name of its figure or table, and what it is on a page: `claim`,
    `printed_verdict`, and `lacks_runs`, whether it is undecided because a part has no number.
    """
    known = {claim.id: claim for claim in load_claims()}
    rows = []
    for name, judged in ((name, judged) for name, result in results.items()
                         for judged in result["claims"]):
        claim, verdict, published = known[judged["id"]], judged["verdict"], judged["published"]
        error = (f" ± {published['error']:g}" if published and published["error"] is not None
                 else "")
        rows.append({
            **{key: judged[key] for key in ("id", "source", "kind", "verdict", "why", "needs")},
            "result": name, "group": "task" if name in DEFINITIONS else "empirical",
            "rule": rule_in_words(judged), "ours": ours(judged),
            "published": f"{published['value']:g}{error}" if published else "",
            "observation": claim.observation, "questioned": claim.questioned,
            "erratum_like": claim.printing,
            "lacks_runs": verdict == "undecided" and any(
                part["estimate"] is None for part in judged["parts"]),
            "claim": f"{judged['claim']} ({judged['source']}; `{judged['id']}`)".replace(
                "|", "\\|"),
            "printed_verdict": PRINTED if claim.printing and verdict == "differs" else verdict})
    return rows


def page(by_preset: Mapping[str, Results], results: Path, out: Path) -> str:
    """Return the page of every result as Markdown, for a file in `out`."""
    to = Path(os.path.relpath(results, out)).as_posix()
    rows = verdict_rows(by_preset.get("paper", {}))
    groups = {title: [row for row in rows if row["group"] == key] for key, title in GROUPS.items()}
    numbers = [claim for claim in load_claims() if claim.kind == "number"]
    parts = [HEAD, READING.format(
        counts="\n".join(_counts(title, group) for title, group in groups.items() if group),
        numbers=len(numbers), can_agree=sum(map(can_agree, numbers)), table=VERDICT_TABLE)
        if rows else "\nNo claim is judged here: verdicts need `--preset paper`.\n"]
    if (out / "pairs").exists():
        parts.append(PAIRS)
    for title, group in groups.items():
        run, unrun = ([row for row in group if (row["verdict"] == "not run") == missing]
                      for missing in (False, True))
        if run:
            table = markdown_table(["claim", "verdict", "ours", "theirs", "result"], [
                (row["claim"],
                 VERDICTS[row["printed_verdict"]]
                 + " (*threshold questioned*)" * bool(row["questioned"])
                 + " (runs missing)" * row["lacks_runs"],
                 row["ours"], row["published"],
                 f"[{row['result']}]({to}/paper/{row['result']})") for row in run])
            parts.append(f"\n## {title}\n\n{table}\n")
        if unrun:
            table = markdown_table(["claim", "needed"], [
                (row["claim"], row["needs"]) for row in unrun])
            parts.append(f"\n<details markdown>\n<summary>{len(unrun)} not run at this size"
                         f"</summary>\n\n{table}\n\n</details>\n")
    for preset, of_preset in by_preset.items():
        for name, result in of_preset.items():
            if result["claims"]:
                continue
            folder = f"{to}/{preset}/{name}"
            figures = "".join(f"\n![{result['title']}]({folder}/{figure}.png)\n"
                              for figure in result["figures"])
            parts.append(
                f"\n## {name}, {preset}\n\n`latentcode reproduce {name} --preset {preset}` "
                f"([all numbers]({folder}/{RESULT})): {result['summary']}\n{figures}")
    return "".join(parts)


def _counts(title: str, rows: Sequence[Row]) -> str:
    """Return the sentence that counts the verdicts of a group."""
    counts = counted(rows)
    unrun = counted(row for row in rows if row["lacks_runs"]).total()
    merged = (f", {counts.total()} where those on one observation with one verdict count once"
              * (counts.total() < len(rows)))
    verdicts = ", ".join(f"{counts[name]} {verb(printed.strip('*'), counts[name])}"
                         for name, printed in VERDICTS.items() if counts[name])
    return (f"{title}: {len(rows)} entries{merged}: {verdicts}"
            + f" ({unrun} of the undecided for want of runs)" * (unrun > 0) + ".")


def counted(rows: Iterable[Row]) -> Counter[str]:
    """Return verdict -> how many claims have it, those of one observation once."""
    return Counter(verdict for _, verdict in {
        (row["observation"] or row["id"], row["printed_verdict"]) for row in rows})


def ours(claim: Mapping[str, Any]) -> str:
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
            return outcome + " so far" * (claim["verdict"] == "undecided")
        case "welch":
            value, low, high = (f"{claim['parts'][0][key]:+.2g}"
                                for key in ("estimate", "low", "high"))
            return (f"{claim['published']['value'] + estimates[0]:.4g} "
                    f"({value} [{low}, {high}])")
        case name:
            digits = ".3g" if name == "bound" else "+.2g"
    return " to ".join(dict.fromkeys(
        f"{value:{digits}}" for value in (min(estimates), max(estimates))))


def rule_in_words(claim: Mapping[str, Any]) -> str:
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
