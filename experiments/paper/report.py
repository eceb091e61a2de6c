"""Everything that was reproduced on one page: each claim with its number, verdict and command.

First what the abstract says, then the paper's claims about trained models, then definitions and
counts of its tasks, then our own claims, counted apart (`grouping`). What the page says is in
`verdicts.md.jinja2`; here are its tables.

`README.md` holds results alone and no times: a reproduction that was interrupted and one that was
not write the same page. `report.html` is the same with the pictures inside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.errors import ArtifactError, check
from latentcode.experiments.evidence.claim import RESULTS, load_claims
from latentcode.experiments.evidence.html import write_html
from latentcode.experiments.evidence.pages import render
from latentcode.experiments.evidence.verdicts import can_agree, expected_false_differs
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
OURS = ("causal",)
"""Results that hold claims of ours alone."""
ORDER: tuple[str, ...] = (
    *(name for name in RESULTS if name not in DEFINITIONS and name not in OURS),
    *(name for name in RESULTS if name in DEFINITIONS), *OURS)
"""In which results stand on the page."""
COLUMNS = ("by", "id", "source", "kind", "verdict", "why", "needs", "group", "observation",
           "questioned", "superseded_by", "erratum_like")
"""Of the table of verdicts."""
Judged = Mapping[str, Any]
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
    text = page(found, results, out)
    write_text(out / README, text)
    html = write_html(out / HTML, text, pictures=out)
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
    claims, every = _claims(found), load_claims()
    numbers = [claim for claim in every if claim.kind == "number"]
    of_groups = {key: [claim for name, claim in claims if group(claim, name) == key]
                 for key in GROUPS}
    counts = {key: _counted(found, key) for key in GROUPS}
    decided = [(name, claim) for name, claim in claims
               if claim["verdict"] in ("agrees", "differs")
               and ((entry := known(claim)) is None or not entry.superseded_by)]
    return render(
        Path(__file__).with_name("verdicts.md.jinja2"), entries=len(every),
        entries_judged=len(claims), groups=GROUPS, of_group=of_groups.get, counted=counted,
        in_words=in_words, decided=decided,
        predicted=[claim["id"] for _, claim in decided if not claim["seen"]],
        false_differs=expected_false_differs(every), can_agree=sum(map(can_agree, numbers)),
        numbers=len(numbers), central=markdown_of(_central(found)), observed=_observed(claims),
        observation=_observation, shown=lambda key: len(counts[key]),
        unrun=_unrun, counts=lambda key: markdown_table(list(counts[key].columns), [
            (f"[{row[0]}](#{row[0].lower()})", *row[1:])
            for row in counts[key].itertuples(index=False, name=None)]),
        chapters=lambda key: [name for name in counts[key]["result"] if _home(name) == key],
        at_presets=lambda name: [(preset, found[preset][name]) for preset in N_SPLITS
                                 if name in found.get(preset, {})],
        to=to, by_kind=_by_kind, judged_by=_judged_by, said_of=_said_of, known=known,
        answers=answers(), remarks=remarks(), selection=_selection,
        others=list(_other_pages(out, to)))


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


def _observed(claims: Sequence[tuple[str, Judged]]) -> dict[str, list[Judged]]:
    """Return the paper's claims of each observation that several share, where one is decided."""
    return {name: of_it for name, of_it in observations(claim for _, claim in claims).items()
            if not all(claim["verdict"] == "not run" or str(claim["source"]).startswith("ours")
                       for claim in of_it)}


def _observation(claims: Sequence[Judged]) -> str:
    return markdown_table(["claim", "says", "verdict", "ours, over tests", "asked for"], [
        (f"`{claim['id']}`", claim["claim"], said(claim), ours(claim), least(claim))
        for claim in claims])


def _unrun(claims: Sequence[Judged]) -> int:
    """Return how many are undecided for want of runs, an observation counted once."""
    return sum(counted(claim for claim in claims if claim["verdict"] == "undecided"
                       and any(part["estimate"] is None for part in claim["parts"])).values())


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
    return markdown_table(columns, rows)


def _said_of(judged: Judged) -> bool:
    """Whether something is to be said of a claim below its table: under which reading it differs,
    what the authors could answer, what was tried, why its threshold is questioned."""
    claim = known(judged)
    return (judged["verdict"] == "differs" and judged["id"] in (*answers(), *remarks())) or (
        claim is not None and bool(claim.questioned))


def _selection(result: Mapping[str, Any]) -> str:
    """Return what was chosen from the grid of Table A3 on `test`, beside a choice on `ood`."""
    return markdown_of(pd.DataFrame(result["selection"]).round(3))


def _judged_by(claims: Sequence[Judged]) -> str:
    rows: list[tuple[str, ...]] = []
    for claim in claims:
        why = claim["why"] + by_test(claim["parts"])
        if claim["needs"]:
            why += f" Needed: {claim['needs']}."
        text = f"{claim['claim']} ({claim['source']}; `{claim['id']}`)"
        if claim["reading"]:
            text += f" *Our reading: {claim['reading']}*"
        entry = known(claim)
        if entry is not None and entry.superseded_by:
            why += f" Superseded by: {', '.join(f'`{name}`' for name in entry.superseded_by)}."
        cells = text, rule(claim), published(claim), said(claim), why
        rows.append(tuple(cell.replace("|", "\\|") for cell in cells))
    return markdown_table(["claim", "judged by", "published", "verdict", "what we have"], rows)


def _other_pages(out: Path, to: str) -> Iterator[tuple[str, str]]:
    """Yield (path, title) of pages in folders beside the results."""
    for path in sorted(out.glob("*/README.md")) + sorted(out.glob("*/*/README.md")):
        relative = path.relative_to(out).as_posix()
        if not relative.startswith(f"{to}/"):
            title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ").strip()
            yield relative, title
