"""Everything that was reproduced on one page: each claim with its number, verdict and command.

First what the abstract says, then the paper's claims about trained models, then definitions and
counts of its tasks. Claims of one observation that have the same verdict are counted once. The text
of the page is in `verdicts.md.jinja2`; here are its tables. It holds results alone and no times: a
reproduction that was interrupted and one that was not write the same page.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from latentcode.config import parse_yaml
from latentcode.errors import ArtifactError, check
from latentcode.experiments.paper.claims import RESULTS, Claim, load_claims
from latentcode.experiments.paper.verdicts import can_agree, expected_false_differs
from latentcode.figures.markdown import markdown_of, markdown_table
from latentcode.files.formats import check_format
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
TEMPLATE = "verdicts.md.jinja2"
DEFINITIONS: tuple[str, ...] = ("tabA2", "figA9", "tabA3", "figA1")
"""Results about the tasks, the settings and the equations, and not about what models learn."""
ORDER: tuple[str, ...] = (
    *(name for name in RESULTS if name not in DEFINITIONS),
    *(name for name in RESULTS if name in DEFINITIONS))
"""In which results stand on the page."""
GROUPS: Mapping[str, str] = {
    "empirical": "Empirical claims of the paper", "task": "Definitions and counts of the task"}
PRINTED = "as printed"
"""The verdict of a claim that differs by how something is printed, like an erratum."""
VERDICTS: Mapping[str, str] = {
    "agrees": "agrees", "differs": "**differs**", PRINTED: "erratum-like",
    "undecided": "undecided", "not run": "not run at this size"}
"""Verdicts as they are printed, in the order of the counts."""
COLUMNS = ("by", "id", "source", "kind", "verdict", "why", "needs", "group", "observation",
           "questioned", "erratum_like")
"""Columns of the table of verdicts."""
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


def remarks() -> Mapping[str, str]:
    """Return claim -> what was tried, for claims that differ."""
    entries: dict[str, str] = _read("remarks.yaml") or {}
    return entries


def answers() -> Mapping[str, Mapping[str, str]]:
    """Return claim -> `under`, the reading under which it differs, and `answer`, what the authors
    could say to that; for claims of the paper that differ."""
    entries: list[dict[str, Any]] = _read("answers.yaml") or []
    return {claim: entry for entry in entries for claim in entry["claims"]}


def central() -> list[Mapping[str, Any]]:
    """Return what the paper's abstract says: a `sentence` each, and the `claims` it rests on."""
    entries: list[Mapping[str, Any]] = _read("central.yaml")
    return entries


def _read(name: str) -> Any:
    text = files("latentcode.experiments.paper").joinpath(name).read_text("utf-8")
    return parse_yaml(text, name)


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
    judged, every = _judged(by_preset), load_claims()
    numbers = [claim for claim in every if claim.kind == "number"]
    claims_of = {key: [claim for name, claim in judged if group(name) == key] for key in GROUPS}
    counts = {key: _counts_by_result(by_preset, key) for key in GROUPS}
    decided = [(name, claim) for name, claim in judged if claim["verdict"] in ("agrees", "differs")]
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                              loader=FileSystemLoader(Path(__file__).parent))
    text = environment.get_template(TEMPLATE).render(
        entries=len(every), entries_judged=len(judged), groups=GROUPS, of_group=claims_of.get,
        counted=counted, in_words=in_words, decided=decided,
        predicted=[claim["id"] for _, claim in decided if not claim["seen"]],
        false_differs=f"{expected_false_differs(every):.2f}",
        can_agree=sum(map(can_agree, numbers)), numbers=len(numbers),
        central=markdown_of(_central(judged)),
        observed=observations(claim for _, claim in judged), observation=_observation,
        shown=lambda key: len(counts[key]), unrun=_unrun,
        counts=lambda key: markdown_table(list(counts[key].columns), [
            (f"[{row[0]}](#{row[0].lower()})", *row[1:])
            for row in counts[key].itertuples(index=False, name=None)]),
        chapters=lambda key: [name for name in counts[key]["result"] if group(name) == key],
        at_presets=lambda name: [(preset, by_preset[preset][name]) for preset in N_SPLITS
                                 if name in by_preset.get(preset, {})],
        to=to, judged_by=_judged_by, discussed=_discussed, known=known, answers=answers(),
        remarks=remarks(), others=list(_other_pages(out, to)))
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


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
    return VERDICTS[verdict(judged)] + " (*threshold questioned*)" * questioned


def counted(claims: Iterable[Judged]) -> Counter[str]:
    """Return verdict -> how many claims have it, those of one observation once."""
    units = set()
    for judged in claims:
        claim = known(judged)
        observation = claim.observation if claim is not None else None
        units.add((observation or judged["id"], verdict(judged)))
    return Counter(name for _, name in units)


def observations(claims: Iterable[Judged]) -> dict[str, list[Judged]]:
    """Return observation -> its claims, of those that several claims share and one decides."""
    shared: dict[str, list[Judged]] = {}
    for judged in claims:
        claim = known(judged)
        if claim is not None and claim.observation:
            shared.setdefault(claim.observation, []).append(judged)
    return {name: judged for name, judged in shared.items() if len(judged) > 1
            and any(claim["verdict"] != "not run" for claim in judged)}


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
            return f"{claim['published']['value'] + estimates[0]:.4g}"
        case "bound":
            least, most = f"{min(estimates):.3g}", f"{max(estimates):.3g}"
        case _:
            least, most = f"{min(estimates):+.2g}", f"{max(estimates):+.2g}"
    return least if least == most else f"{least} to {most}"


def asked_for(claim: Judged) -> str:
    """Return what a rule asks for, as a number; empty where it asks for none."""
    asked = claim["rule"].get("least", claim["rule"].get("bound"))
    return "" if asked is None else f"{asked:g}"


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


def _by_test(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return what was measured for each of several tests."""
    measured = [part for part in parts if part["estimate"] is not None]
    if len(parts) < 2 or not measured:
        return ""
    return " By test: " + "; ".join(
        f"{part['name'].removeprefix('kind=')} {part['estimate']:.3g}" for part in measured) + "."


def _judged(by_preset: Mapping[str, Results]) -> list[tuple[str, dict[str, Any]]]:
    """Return (result, claim) of every claim that was judged, in the order of the paper."""
    return [(name, claim) for name, result in by_preset.get("paper", {}).items()
            for claim in result["claims"]]


def _verdict_row(name: str, judged: Judged) -> dict[str, Any]:
    claim = known(judged)
    return {"by": "paper", "group": group(name),
            **{key: judged[key] for key in ("id", "source", "kind", "verdict", "why", "needs")},
            **({} if claim is None else {
                "observation": claim.observation, "questioned": claim.questioned,
                "erratum_like": claim.printing})}


def _central(judged: Sequence[tuple[str, Judged]]) -> pd.DataFrame:
    """Return a row per sentence of the abstract: its verdict, and the claims it rests on."""
    by_id = {claim["id"]: claim for _, claim in judged}
    rows = []
    for entry in central():
        claims = [by_id[name] for name in entry["claims"] if name in by_id]
        counts = counted(claims)
        rows.append({
            "the abstract": entry["sentence"],
            "verdict": (VERDICTS[next(iter(counts))] if len(counts) == 1 else
                        in_words(counts) or "not judged"),
            "rests on": "; ".join(
                f"{words}: " + ", ".join(f"`{claim['id']}`" for claim in claims
                                         if verdict(claim) == key)
                for key, words in VERDICTS.items()
                if any(verdict(claim) == key for claim in claims))})
    return pd.DataFrame(rows)


def _observation(claims: Sequence[Judged]) -> str:
    return markdown_table(["claim", "says", "verdict", "ours, over tests", "asked for"], [
        (f"`{claim['id']}`", claim["claim"], verdict_in_words(claim), ours(claim), asked_for(claim))
        for claim in claims])


def _unrun(claims: Sequence[Judged]) -> int:
    """Return how many are undecided for want of runs, an observation counted once."""
    return sum(counted(claim for claim in claims if claim["verdict"] == "undecided"
                       and any(part["estimate"] is None for part in claim["parts"])).values())


def _counts_by_result(by_preset: Mapping[str, Results], key: str) -> pd.DataFrame:
    """Return a row per result of a group: what it shows, its verdicts, its runs."""
    rows = []
    for name in ORDER:
        # At the most telling preset that it was reproduced at.
        result = next((by_preset[preset][name] for preset in N_SPLITS
                       if name in by_preset.get(preset, {})), None)
        if result is None or group(name) != key:
            continue
        at_paper = by_preset.get("paper", {}).get(name, {})
        counts = counted(at_paper.get("claims", []))
        rows.append({"result": name, "shows": result["title"],
                     **{words.strip("*"): counts[one] or "" for one, words in VERDICTS.items()},
                     "runs": "" if set(counts) == {"not run"} else len(at_paper.get("runs", []))})
    return pd.DataFrame(rows)


def _discussed(judged: Judged) -> bool:
    """Whether something is to be told of a claim below its table: under which reading it differs,
    what the authors could answer, what was tried, why its threshold is questioned."""
    claim = known(judged)
    return (judged["verdict"] == "differs" and judged["id"] in (*answers(), *remarks())) or (
        claim is not None and bool(claim.questioned))


def _judged_by(claims: Sequence[Judged]) -> str:
    rows: list[tuple[str, ...]] = []
    for claim in claims:
        why = claim["why"] + _by_test(claim["parts"])
        if claim["needs"]:
            why += f" Needed: {claim['needs']}."
        text = f"{claim['claim']} ({claim['source']}; `{claim['id']}`)"
        if claim["reading"]:
            text += f" *Our reading: {claim['reading']}*"
        cells = text, rule_in_words(claim), published(claim), verdict_in_words(claim), why
        rows.append(tuple(cell.replace("|", "\\|") for cell in cells))
    return markdown_table(["claim", "judged by", "published", "verdict", "what we have"], rows)


def _other_pages(out: Path, to: str) -> Iterator[tuple[str, str]]:
    """Yield (path, title) of pages in folders beside the results."""
    for path in sorted(out.glob("*/README.md")) + sorted(out.glob("*/*/README.md")):
        relative = path.relative_to(out).as_posix()
        if not relative.startswith(f"{to}/"):
            title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ").strip()
            yield relative, title
