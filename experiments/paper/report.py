"""Everything that was reproduced on one page: each claim with its number, verdict and command.

First what the abstract says, then the paper's claims about trained models, then definitions and
counts of its tasks, then our own claims, counted apart (`grouping`).

`README.md` holds results alone and no times: a reproduction that was interrupted and one that was
not write the same page. `report.html` is the same with the pictures inside.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.errors import ArtifactError, check
from latentcode.experiments.demo.report import Html, Section, Table, Text, write_report
from latentcode.experiments.evidence.claim import RESULTS, load_claims
from latentcode.experiments.evidence.verdicts import can_agree, expected_false_differs
from latentcode.experiments.paper import cost
from latentcode.experiments.paper.grouping import (
    DEFINITIONS,
    GROUPS,
    VERDICTS,
    counted,
    group,
    in_words,
    known,
    observations,
    said,
    verdict,
)
from latentcode.experiments.paper.reproduction import KIND_TITLES
from latentcode.experiments.paper.results import N_SPLITS, answers, central, remarks, results_in
from latentcode.experiments.paper.wording import by_test, least, ours, published, rule
from latentcode.figures.markdown import markdown_of, markdown_table
from latentcode.files.storage import write_text

README, HTML, VERDICT_TABLE = "README.md", "report.html", "verdicts.csv"
TITLE = "What the paper claims, and what we find"
OURS = ("causal",)
"""Results that hold claims of ours alone."""
ORDER: tuple[str, ...] = (
    *(name for name in RESULTS if name not in DEFINITIONS and name not in OURS),
    *(name for name in RESULTS if name in DEFINITIONS), *OURS)
"""In which results stand on the page."""
ABOUT: Mapping[str, str] = {
    "ours": " *Differs* says here that a hypothesis of ours fell, and none of the paper's. Claims "
            "kind by kind were written after those of all kinds had been judged, from the same "
            "evidence."}
"""What is to be known of a group of claims."""
COLUMNS = ("by", "id", "source", "kind", "verdict", "why", "needs", "group", "observation",
           "questioned", "superseded_by", "erratum_like")
"""Of the table of verdicts."""
Results = Mapping[str, Mapping[str, Any]]


def write_pages(results: Path, out: Path) -> list[Path]:
    """Write `README.md`, `report.html` and `verdicts.csv` of the results; return their paths.

    The table of verdicts has a row per claim that was judged.

    `ArtifactError` where there is none.
    """
    found = {preset: results_in(results, preset) for preset in N_SPLITS}
    check(any(found.values()), f"{results} holds no result; expected a folder that `latentcode "
          "reproduce` wrote to", ArtifactError)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / README, page(found, results, out))
    sections = [_section(name, found, results) for name in ORDER if _newest(name, found)]
    html = write_report(out / HTML, TITLE, [
        Section("Verdicts", [Text(_plain(_lead(found))),
                             Table(_central(found).map(_plain), index=False),
                             *(Table(block, title, index=False) for key, title in GROUPS.items()
                               if len(block := _counted(found, key)))]),
        *sections])
    rows = [_verdict_row(name, claim) for name, claim in _claims(found)]
    write_text(out / VERDICT_TABLE, pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(index=False))
    return [out / README, html, out / VERDICT_TABLE]


def _verdict_row(name: str, judged: Mapping[str, Any]) -> dict[str, Any]:
    claim = known(judged)
    return {"by": "ours" if group(judged, name) == "ours" else "paper",
            **{key: judged[key] for key in ("id", "source", "kind", "verdict", "why", "needs")},
            "group": group(judged, name),
            **({} if claim is None else {
                "observation": claim.observation, "questioned": claim.questioned,
                "superseded_by": " ".join(claim.superseded_by),
                "erratum_like": claim.printing})}


def page(found: Mapping[str, Results], results: Path, out: Path) -> str:
    """Return the page of every result as Markdown, for a file in `out`."""
    to = Path(os.path.relpath(results, out)).as_posix()
    parts = [f"# {TITLE}\n", "<!-- Written by `latentcode reproduce --report`. -->\n", _lead(found)]
    if _claims(found):
        parts += ["\n## What the abstract says\n\n" + markdown_of(_central(found)) + "\n",
                  *_observed(found)]
    for key, title in GROUPS.items():
        block = _counted(found, key)
        if len(block):
            parts.append(f"\n## {title}\n\n{_of_group(key, found)}" + markdown_table(
                list(block.columns), [(f"[{row[0]}](#{row[0].lower()})", *row[1:])
                                      for row in block.itertuples(index=False, name=None)]))
            parts += [_chapter(name, found, to) for name in block["result"] if _home(name) == key]
    others = list(_other_pages(out, to))
    if others:
        parts.append("\n## Further evidence\n\n" + "\n".join(
            f"- [{title}]({path})" for path, title in others))
    return "\n".join(parts) + "\n"


def _central(found: Mapping[str, Results]) -> pd.DataFrame:
    """Return a row per sentence of the abstract: its verdict, and the claims it rests on."""
    judged = {claim["id"]: claim for _, claim in _claims(found)}
    rows = []
    for entry in central():
        of_it = [judged[name] for name in entry["claims"] if name in judged]
        counts = counted(of_it)
        rows.append({
            "the abstract": entry["sentence"],
            "verdict": (VERDICTS[next(iter(counts))] if len(counts) == 1 else
                        in_words(counts) or "not judged"),
            "rests on": "; ".join(
                f"{words}: " + ", ".join(f"`{claim['id']}`" for claim in of_it
                                         if verdict(claim) == key)
                for key, words in VERDICTS.items()
                if any(verdict(claim) == key for claim in of_it))})
    return pd.DataFrame(rows)


def _observed(found: Mapping[str, Results]) -> Iterator[str]:
    """Yield the paper's claims of each observation that several share, where one is decided."""
    for name, claims in observations(claim for _, claim in _claims(found)).items():
        if all(claim["verdict"] == "not run" or str(claim["source"]).startswith("ours")
               for claim in claims):
            continue
        rows = [(f"`{claim['id']}`", claim["claim"], said(claim), ours(claim), least(claim))
                for claim in claims]
        yield (f"\n## One observation: {name}\n\n{len(claims)} claims rest on the same codes; "
               "those with the same verdict are counted once.\n\n" + markdown_table(
                   ["claim", "says", "verdict", "ours, over tests", "asked for"], rows) + "\n")


def _of_group(key: str, found: Mapping[str, Results]) -> str:
    """Say how the claims of a group are judged, in a few sentences."""
    of_it = [claim for name, claim in _claims(found) if group(claim, name) == key]
    if not of_it:
        return ""
    counts = counted(of_it)
    unrun = sum(counted(claim for claim in of_it if claim["verdict"] == "undecided"
                        and any(part["estimate"] is None for part in claim["parts"])).values())
    of_these = f" ({unrun} of the undecided for want of runs)" if unrun else ""
    return (f"{len(of_it)} entries, {counts.total()} where an observation counts once per verdict: "
            f"{in_words(counts)}{of_these}. In the table an observation that spans several results "
            f"is in the row of each.{ABOUT.get(key, '')}\n\n")


def _home(name: str) -> str:
    """Return the group under which a result stands, whichever its claims belong to."""
    return "ours" if name in OURS else "task" if name in DEFINITIONS else "empirical"


def _newest(name: str, found: Mapping[str, Results]) -> Mapping[str, Any] | None:
    """Return a result at the most telling preset that it was reproduced at."""
    return next((found[preset][name] for preset in N_SPLITS if name in found.get(preset, {})), None)


def _claims(found: Mapping[str, Results]) -> list[tuple[str, dict[str, Any]]]:
    """Return (result, claim) of every claim that was judged, in the order of the paper."""
    return [(name, claim) for name, result in found.get("paper", {}).items()
            for claim in result["claims"]]


def _lead(found: Mapping[str, Results]) -> str:
    claims = _claims(found)
    every = load_claims()
    numbers = [claim for claim in every if claim.kind == "number"]
    of_groups = []
    for key, title in GROUPS.items():
        of_it = [claim for name, claim in claims if group(claim, name) == key]
        if of_it:
            of_groups.append(f"{title} ({len(of_it)} entries): {in_words(counted(of_it))}.")
    twice = " ".join(of_groups)
    return (
        f"{len(every)} entries: claims and numbers of the paper and its reviews, and some of ours, "
        "each with a rule of its verdict (`experiments/evidence/claims/paper.yaml`, which says "
        "when it was written; rules of the paper's numbers before the long runs). What is one "
        "observation counts once, and a claim that others took the place of is not counted; every "
        f"verdict is listed. {twice}{_decided(found)}\n\n"
        "*Agrees* and *differs* take evidence: a difference that is merely not significant, or of "
        "which a part has not been run, is *undecided*, and says what would decide it. "
        "*Erratum-like* is a difference in how something is printed, and none from a finding. "
        "*Threshold questioned* marks verdicts of "
        "pictures whose threshold, fixed beforehand, proved stricter than what an eye calls "
        "clumps: the verdict stays as the rule has it, and a second measure stands beside. If "
        "every published number were right and "
        f"ours were drawn alike, about {expected_false_differs(every):.2f} of them would still be "
        f"called different once all are run, and {sum(map(can_agree, numbers))} of the "
        f"{len(numbers)} numbers can agree at all with three splits, so wide are the published "
        "errors. The paper takes the best of a grid of settings for each row; ours is "
        "*one setting*, that of the preset, unless a table says otherwise: a row of ours below "
        "the paper's may be that and nothing else, and so may a gap between kinds. Of trainings "
        "with the same seeds, whatever their precision, one counts, in float32 where there is one. "
        "*No prediction* marks claims of which a number of ours was known before.\n\n"
        "Claims of the paper are judged at `paper`, the published setting; claims of our own may "
        "be of smaller models, as is said beside them. What is headed `--preset small` is scaled "
        "down, or measured on stored runs, and draws no verdict.\n\n"
        "Words: the *code* of query and key is the attention scores over heads; *query->query* "
        "the code of a token that attends to itself; a *row* all codes of one query. A *source* is "
        "another instance whose activations are *written* in place of an instance's own. *Reach* "
        "is how well places in a plane tell a label, 0 by chance and 1 always "
        "([how it was chosen](clumps/README.md)).\n")


def _decided(found: Mapping[str, Results]) -> str:
    """Say which results have claims that are decided, and how far these were predictions."""
    decided = [(name, claim) for name, claim in _claims(found)
               if claim["verdict"] in ("agrees", "differs")
               and ((entry := known(claim)) is None or not entry.superseded_by)]
    if not decided:
        return ""
    names = list(dict.fromkeys(name for name, _ in decided))
    predicted = [claim["id"] for _, claim in decided if not claim["seen"]]
    return (f" Those that are decided belong to {', '.join(names)}; of "
            f"{len(decided) - len(predicted)} of these {len(decided)} a number of ours was known "
            "when the rule was written"
            + (f", of {', '.join(f'`{name}`' for name in predicted)} none" if predicted else "")
            + ".")


def _counted(found: Mapping[str, Results], key: str) -> pd.DataFrame:
    """Return a row per result with claims of a group: what it shows, their verdicts (an observation
    once), its runs."""
    rows = []
    for name in ORDER:
        result = _newest(name, found)
        every = found.get("paper", {}).get(name, {}).get("claims", [])
        claims = [claim for claim in every if group(claim, name) == key]
        if result is None or not (claims or _home(name) == key):
            continue
        counts = counted(claims)
        rows.append({"result": name, "shows": result["title"],
                     **{words.strip("*"): counts[one] or "" for one, words in VERDICTS.items()},
                     "runs": ("" if set(counts) == {"not run"} else
                              len(found.get("paper", {}).get(name, {}).get("runs", [])))})
    return pd.DataFrame(rows)


def _by_kind(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the verdicts of claims that take the place of one of several kinds."""
    judged = {claim["id"]: claim for claim in claims}
    rows = []
    for claim in claims:
        entry = known(claim)
        kinds = {} if entry is None else {
            next(iter(one.setting.grid.points())).partition(",")[0].removeprefix("kind="):
            said(judged[name]) for name in entry.superseded_by
            if name in judged and (one := known(judged[name])) is not None}
        if kinds:
            rows.append((claim["claim"], *(kinds.get(kind, "") for kind in KIND_TITLES)))
    if not rows:
        return ""
    columns = ["kind by kind", *KIND_TITLES.values()]
    return markdown_table(columns, rows) + "\n"


def _chapter(name: str, found: Mapping[str, Results], to: str) -> str:
    parts = [f"\n### {name}\n"]
    for preset in ("paper", "small", "smoke"):
        result = found.get(preset, {}).get(name)
        if result is None:
            continue
        folder = f"{to}/{preset}/{name}"
        head = f"{result['title']}.\n\n" if preset == "paper" or len(parts) == 1 else ""
        parts.append(f"{head}`latentcode reproduce {name} --preset {preset}` "
                     f"([all numbers]({folder}/result.json)): {result['summary']}\n")
        parts += [f"![{result['title']}, {preset}]({folder}/{figure}.png)\n"
                  for figure in result["figures"]]
        if result["claims"]:
            by_kind = _by_kind(result["claims"])
            parts += [by_kind] if by_kind else []
            parts.append(markdown_table(*_claim_rows(result["claims"])) + "\n")
        parts += [f"*{name}*: {text}\n" for name, text in _remarks_of(result).items()]
        if result["selection"]:
            parts.append(markdown_of(_selection(result)) + "\n")
        if result["missing"]:
            parts.append(_missing(result) + "\n")
        parts += [f"- {note}" for note in result["notes"]]
        if result["notes"]:
            parts.append("")
    return "\n".join(parts)


def _remarks_of(result: Mapping[str, Any]) -> dict[str, str]:
    """Return claim -> what is to be said of one that differs: under which reading, what the
    authors could answer, what was tried, and why its threshold is questioned."""
    found = {}
    for judged in result["claims"]:
        name, claim, parts = judged["id"], known(judged), []
        if judged["verdict"] == "differs":
            if name in answers():
                parts += [f"It differs under this reading: {answers()[name]['under']}",
                          f"The authors could answer: {answers()[name]['answer']}"]
            parts += [remarks()[name]] if name in remarks() else []
        if claim is not None and claim.questioned:
            parts.append(f"Threshold questioned: {claim.questioned}")
        if parts:
            found[name] = " ".join(parts)
    return found


def _selection(result: Mapping[str, Any]) -> pd.DataFrame:
    """Return what was chosen from the grid of Table A3 on `test`, beside a choice on `ood`."""
    return pd.DataFrame(result["selection"]).round(3)


def _missing(result: Mapping[str, Any]) -> str:
    under_way = [row for row in result["missing"] if row["under_way"]]
    first = f"Not there yet: {cost.in_words(result['cost'])}."
    return first + "".join(f" One ({row['kind']}) is {row['under_way']}." for row in under_way)


def _claim_rows(claims: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[tuple[str, ...]]]:
    rows: list[tuple[str, ...]] = []
    for claim in claims:
        why = claim["why"] + by_test(claim["parts"])
        if claim["needs"]:
            price = f" ({cost.in_words(claim['cost'])})" if claim["cost"] else ""
            why += f" Needed: {claim['needs']}{price}."
        text = f"{claim['claim']} ({claim['source']}; `{claim['id']}`)"
        if claim["reading"]:
            text += f" *Our reading: {claim['reading']}*"
        entry = known(claim)
        if entry is not None and entry.superseded_by:
            why += f" Superseded by: {', '.join(f'`{name}`' for name in entry.superseded_by)}."
        cells = text, rule(claim), published(claim), said(claim), why
        rows.append(tuple(cell.replace("|", "\\|") for cell in cells))
    return ["claim", "judged by", "published", "verdict", "what we have"], rows


def _section(name: str, found: Mapping[str, Results], results: Path) -> Section:
    blocks: list[Any] = []
    for preset in N_SPLITS:
        result = found.get(preset, {}).get(name)
        if result is None:
            continue
        blocks.append(Text(f"{result['title']}.\n\nlatentcode reproduce {name} --preset {preset}: "
                           f"{result['summary']}"))
        for figure in result["figures"]:
            data = (results / preset / name / f"{figure}.png").read_bytes()
            blocks.append(Html(
                f'<img alt="{escape(result["title"])}" style="max-width: 100%" '
                f'src="data:image/png;base64,{base64.b64encode(data).decode()}">', preset))
        if result["claims"]:
            columns, rows = _claim_rows(result["claims"])
            blocks.append(Table(pd.DataFrame(rows, columns=columns).map(_plain)))
        blocks += [Text(f"{name}: {text}") for name, text in _remarks_of(result).items()]
        if result["selection"]:
            blocks.append(Table(_selection(result), "Chosen from the grid of Table A3."))
        if result["missing"]:
            blocks.append(Text(_missing(result)))
        if result["notes"]:
            blocks.append(Text(_plain("\n\n".join(result["notes"]))))
    return Section(name, blocks)


def _plain(markdown: str) -> str:
    """Return a text without the marks of Markdown, which HTML would show."""
    return markdown.replace("\\|", "|").replace("*", "").replace("`", "")


def _other_pages(out: Path, to: str) -> Iterator[tuple[str, str]]:
    """Yield (path, title) of pages in folders beside the results."""
    for path in sorted(out.glob("*/README.md")) + sorted(out.glob("*/*/README.md")):
        relative = path.relative_to(out).as_posix()
        if not relative.startswith(f"{to}/"):
            title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ").strip()
            yield relative, title
