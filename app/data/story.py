"""What was claimed, and what holds: the central claims, told by the verdicts that are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from latentcode.app.data.evidence import OURS, Evidence
from latentcode.app.words import KINDS

STUDY, TABLE, FIGURE = "context", "tables/statements.csv", "figures/confirmatory_sraven.png"
"""The study of the context, what it found, and its picture."""
CARRIES = "codes at the context carry the operation"
OTHERS = ("codes at the operands carry the operands", "codes at the response carry the answer",
          "values at the context carry the operation")
SAME = {"met": "agrees", "refuted": "differs"}
"""A statement of a study is met or refuted where a claim agrees or differs."""


@dataclass(frozen=True)
class Chapter:
    """One of the central claims.

    verdicts  of what (an attention, a task), and which: (whose, verdict)
    claim     the id of the claim that says more; "" without one
    page      on which a visitor tries it, and in which words it is offered
    shows     a verdict whose claims are listed instead
    """

    title: str
    verdicts: tuple[tuple[str, str], ...]
    text: str
    picture: Path | None = None
    claim: str = ""
    page: tuple[str, str] | None = None
    shows: str = ""


def story(found: Evidence) -> list[Chapter]:
    """Return the central claims in the order in which they lead to each other.

    Those of which a result is missing, here or in this installation, are left out.
    """
    told = [_hypernetwork(found), _decoding(found), _generalisation(found), _pair(found),
            *_context(), _not_run(found)]
    return [chapter for chapter in told if chapter is not None]


def _of(found: Evidence, ids: Mapping[str, str]) -> tuple[tuple[str, str], ...] | None:
    """Return the verdicts of claims, id -> whose; None where one is missing."""
    if any(name not in found.claims for name in ids):
        return None
    return tuple((whose, str(found.claims[name]["verdict"])) for name, whose in ids.items())


def _picture(found: Evidence, name: str) -> Path | None:
    path = found.folder / "paper" / name / f"{name}.png"
    return path if path.is_file() else None


def _ends(claim: Mapping[str, Any]) -> str:
    """Return the smallest and the largest of a claim's differences from its controls."""
    values = [part["estimate"] for part in claim["parts"] if part["estimate"] is not None]
    return f"{min(values):+.2f} to {max(values):+.2f}"


def _hypernetwork(found: Evidence) -> Chapter | None:
    name = "figA1-attention-is-a-hypernetwork"
    verdicts = _of(found, {name: ""})
    if verdicts is None:
        return None
    claim = found.claims[name]
    return Chapter(
        "Attention is a hypernetwork", verdicts,
        f"{str(claim['claim']).rstrip('.')}. This is an identity, checked in "
        f"{len(claim['parts'])} layers. It does not say what codes tell or cause.",
        _picture(found, "figA1"), name, ("idea", "See it in numbers"))


def _decoding(found: Evidence) -> Chapter | None:
    name, other = "fig2b-terms-decodable", "fig2b-terms-decodable-fixed-query"
    verdicts = _of(found, {name: "one context", other: "one query",
                           "fig5f-rule-decodable": "SRAVEN"})
    if verdicts is None:
        return None
    return Chapter(
        "The paper's code tells the subtask", verdicts,
        "Probes look for the terms of held-out functions of fuzzy logic in the code query->query. "
        f"Their F1 minus that of controls is {_ends(found.claims[name])} where problems share "
        f"their context, and {_ends(found.claims[other])} where they share their query. The "
        f"criterion is {found.claims[name]['rule']['least']:g}.",
        _picture(found, "fig2b"), name, ("decode", "Decode a model"))


def _generalisation(found: Evidence) -> Chapter | None:
    name = "tabA1-logic-hyla-ahead"
    verdicts = _of(found, {name: "fuzzy logic", "tabA1-sraven-hyla-ahead": "SRAVEN"})
    if verdicts is None:
        return None
    parts = found.claims[name]["parts"]
    ahead = " and ".join(
        f"{part['estimate']:.2f} above {other}" for part, other in zip(
            parts, ("softmax", "linear attention"), strict=True) if part["estimate"] is not None)
    return Chapter(
        "HYLA generalises better to new compositions", verdicts,
        f"On held-out functions of fuzzy logic its R² is {ahead}, over "
        f"{parts[0]['n'][0]} runs of each kind.", _picture(found, "tabA1"), name)


def _pair(found: Evidence) -> Chapter | None:
    name = "causal-sraven-row-operation"
    verdicts = _of(found, {f"causal-{kind}-sraven-row-operation": word
                           for kind, word in KINDS.items()})
    if verdicts is None or name not in found.claims:
        return None
    claim = found.claims[name]
    return Chapter(
        "Codes of the response carry the operation", verdicts,
        "A flipped answer does not show that the operation arrived: the answer itself may have. "
        "Sources with other operands tell the two apart. From these, the response's row of codes "
        f"(the paper's pair among them) brings the source's rule at a rate {_ends(claim)} above "
        f"that of controls. The criterion is {claim['rule']['least']:g}.",
        _picture(found, "causal"), name, ("intervene", "Patch a problem"))


def _context() -> Sequence[Chapter]:
    """Our own finding: places of a problem, by the study's criteria."""
    folder = Path(str(files("latentcode.experiments"))) / "results" / STUDY
    if not (folder / TABLE).is_file():
        return []
    found = _statements(folder / TABLE, (folder / TABLE).stat().st_mtime_ns)
    if not {CARRIES, *OTHERS} <= {*found}:
        return []

    def of(statement: str) -> tuple[tuple[str, str], ...]:
        return tuple((word, found[statement][kind]) for kind, word in KINDS.items())

    picture = folder / FIGURE
    lines = "\n".join(
        f"- {statement[:1].upper() + statement[1:]}: "
        + ", ".join(f"{word} {verdict}" for word, verdict in of(statement)) + "."
        for statement in OTHERS)
    return [
        Chapter("Codes at the context carry the operation (our own finding)", of(CARRIES),
                "The rule can be inferred from SRAVEN's rows 1 and 2. The criterion, written down "
                "before the runs that decide: patched in there, codes of a problem with another "
                "rule and other operands bring that rule, applied to the base's own operands, more "
                "often than every control does, in both directions and in every run. In models of "
                "SRAVEN at the published size they bring next to nothing.",
                picture if picture.is_file() else None,
                page=("intervene", "Patch the context")),
        Chapter("Other places, other roles", (),
                f"By the same criterion, on the same runs (the picture above):\n\n{lines}")]


@st.cache_data(max_entries=2, show_spinner=False)
def _statements(path: Path, time: int) -> dict[str, dict[str, str]]:
    """Return statement -> kind -> verdict, of the runs and layers that decide."""
    table = pd.read_csv(path)
    table = table[(table["role"] == "confirmatory") & table["primary"]]
    return {str(statement): {str(row["kind"]): str(row["verdict"]) for _, row in block.iterrows()}
            for statement, block in table.groupby("statement")}


def _not_run(found: Evidence) -> Chapter:
    claims = found.claims.values()
    of_paper = [claim for claim in claims if not str(claim["source"]).startswith(OURS)]
    waiting = [claim for claim in of_paper if claim["verdict"] == "not run"]
    return Chapter(
        "What has not been run", (("", "not run"),),
        f"{len(waiting)} of the {len(of_paper)} claims of the paper and its reviews need runs of "
        "the published size. They have no verdict; each says which runs it needs.",
        shows="not run")
