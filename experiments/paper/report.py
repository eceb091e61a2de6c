"""Everything that was reproduced on one page: each claim with its number, verdict and command.

`README.md` holds results alone and no times: a reproduction that was interrupted and one that was
not write the same page. `report.html` is the same with the pictures inside.
"""

from __future__ import annotations

import base64
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.errors import ArtifactError, check
from latentcode.experiments.demo.report import Html, Section, Table, Text, write_report
from latentcode.experiments.paper import cost
from latentcode.experiments.paper.claims import RESULTS, load_claims
from latentcode.experiments.paper.judging.verdicts import can_agree, expected_false_differs
from latentcode.experiments.paper.results import N_SPLITS, remarks, results_in
from latentcode.experiments.paper.wording import COUNTED, by_test, published, rule
from latentcode.figures.markdown import markdown_of, markdown_table
from latentcode.files.storage import write_text

README, HTML, VERDICT_TABLE = "README.md", "report.html", "verdicts.csv"
TITLE = "What the paper claims, and what we find"
VERDICTS: Mapping[str, str] = {
    "agrees": "agrees", "differs": "**differs**", "undecided": "undecided",
    "not run": "not run at this size"}
"""Verdicts as they are printed, in the order of the counts."""
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
    sections = [_section(name, found, results) for name in RESULTS if _newest(name, found)]
    html = write_report(out / HTML, TITLE, [
        Section("Verdicts", [Text(_plain(_lead(found))), Table(_counted(found), index=False)]),
        *sections])
    verdicts = pd.DataFrame(
        [{"by": "ours" if claim["source"].startswith("ours") else "paper",
          **{key: claim[key] for key in ("id", "source", "kind", "verdict", "why", "needs")}}
         for claim in _claims(found)],
        columns=["by", "id", "source", "kind", "verdict", "why", "needs"])
    write_text(out / VERDICT_TABLE, verdicts.to_csv(index=False))
    return [out / README, html, out / VERDICT_TABLE]


def page(found: Mapping[str, Results], results: Path, out: Path) -> str:
    """Return the page of every result as Markdown, for a file in `out`."""
    to = Path(os.path.relpath(results, out)).as_posix()
    counted = _counted(found)
    parts = [
        f"# {TITLE}\n", "<!-- Written by `latentcode report`. -->\n", _lead(found),
        "\n" + markdown_table(list(counted.columns), [
            (f"[{row[0]}](#{row[0].lower()})", *row[1:])
            for row in counted.itertuples(index=False, name=None)])]
    parts += [_chapter(name, found, to) for name in RESULTS if _newest(name, found)]
    others = list(_other_pages(out, to))
    if others:
        parts.append("\n## Further evidence\n\n" + "\n".join(
            f"- [{title}]({path})" for path, title in others))
    return "\n".join(parts) + "\n"


def _newest(name: str, found: Mapping[str, Results]) -> Mapping[str, Any] | None:
    """Return a result at the most telling preset that it was reproduced at."""
    return next((found[preset][name] for preset in N_SPLITS if name in found.get(preset, {})), None)


def _claims(found: Mapping[str, Results]) -> list[dict[str, Any]]:
    return [claim for result in found.get("paper", {}).values() for claim in result["claims"]]


def _lead(found: Mapping[str, Results]) -> str:
    claims = _claims(found)
    counts = Counter(claim["verdict"] for claim in claims)
    said = ", ".join(f"{counts[verdict]} {words}" for verdict, words in COUNTED.items())
    every = load_claims()
    numbers = [claim for claim in every if claim.kind == "number"]
    return (
        f"{len(every)} claims and numbers of the paper and its reviews, and some of ours, each "
        "with a rule of its verdict that was written down before the long runs "
        f"(`experiments/paper/claims.yaml`). Of {len(claims)}, {said}.{_decided(found)}\n\n"
        "*Agrees* and *differs* are earned: a difference that is merely not significant is "
        "*undecided*, and says what would decide it. If every published number were right and "
        f"ours were drawn alike, about {expected_false_differs(every):.2f} of them would still be "
        f"called different once all are run, and {sum(map(can_agree, numbers))} of the "
        f"{len(numbers)} numbers can agree at all with three splits, so wide are the published "
        "errors. The paper takes the best of a grid of settings for each row; ours is "
        "*one setting*, that of the preset, unless a table says otherwise: a row of ours below "
        "the paper's may be that and nothing else. Of trainings with the same seeds, whatever "
        "their precision, one counts, in float32 where there is one. *No prediction* marks "
        "claims of which a number of ours was known before.\n\n"
        "`paper` is the published setting. `small` is scaled down, or measured on stored runs, and "
        "draws no verdict.\n")


def _decided(found: Mapping[str, Results]) -> str:
    """Say which results have claims that are decided, and how far these were predictions."""
    decided = {name: [claim for claim in result["claims"]
                      if claim["verdict"] in ("agrees", "differs")]
               for name, result in found.get("paper", {}).items()}
    names = [name for name, claims in decided.items() if claims]
    claims = [claim for name in names for claim in decided[name]]
    if not claims:
        return ""
    known = sum(bool(claim["seen"]) for claim in claims)
    return (f" Those that are decided belong to {', '.join(names)}; of {known} of these "
            f"{len(claims)} a number of ours was known when the rule was written.")


def _counted(found: Mapping[str, Results]) -> pd.DataFrame:
    """Return a row per result: what it shows, its verdicts, its runs."""
    rows = []
    for name in RESULTS:
        result = _newest(name, found)
        if result is None:
            continue
        claims = found.get("paper", {}).get(name, {}).get("claims", [])
        counts = Counter(claim["verdict"] for claim in claims)
        rows.append({"result": name, "shows": result["title"],
                     **{VERDICTS[verdict].strip("*"): counts[verdict] or ""
                        for verdict in VERDICTS},
                     "runs": len(found.get("paper", {}).get(name, {}).get("runs", []))})
    return pd.DataFrame(rows)


def _chapter(name: str, found: Mapping[str, Results], to: str) -> str:
    parts = [f"\n## {name}\n"]
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
    """Return claim -> what was tried, of the claims that differ."""
    return {claim["id"]: remarks()[claim["id"]] for claim in result["claims"]
            if claim["verdict"] == "differs" and claim["id"] in remarks()}


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
        said = f"{claim['claim']} ({claim['source']}; `{claim['id']}`)"
        if claim["reading"]:
            said += f" *Our reading: {claim['reading']}*"
        rows.append((said, rule(claim), published(claim), VERDICTS[claim["verdict"]],
                     why.replace("|", "\\|")))
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
