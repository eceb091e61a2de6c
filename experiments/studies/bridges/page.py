"""The tables of docs/architectures.md, from the results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from latentcode.figures.markdown import markdown_table, with_results
from latentcode.files.storage import read_json, write_text
from latentcode.probes.model_checks.questions import QUESTIONS, VERBS

FEW = 60
"""Letters of a note in a table."""


def tables(results: Mapping[str, Any]) -> str:
    """Return what was found as Markdown."""
    found = {kind: {name: of for name, of in results["architectures"].items()
                    if of["outcome"] == kind}
             for kind in ("supported", "partly", "refused", "not built")}
    supported = ", ".join(f"`{name}`" for name in found["supported"])
    return "\n\n".join([
        f"With TransformerLens {results['transformer_lens']} and transformers "
        f"{results['transformers']}, weights in float32:",
        f"**SUPPORTED** ({len(found['supported'])}): {supported}.",
        f"**In part** ({len(found['partly'])}); a dash says that something fails:",
        markdown_table(("architecture", *VERBS, "what fails"), [
            (f"`{name}`", *("yes" if of["float32"]["trusted"][verb] else "-" for verb in VERBS),
             _failing(of["float32"])) for name, of in found["partly"].items()]),
        f"**Refused** by `load_pretrained` ({len(found['refused'])}):",
        _by_reason(found["refused"]),
        f"**Not tried** ({len(found['not built'])}):",
        _by_reason(found["not built"]),
        "**In float64** the same models were checked again; what differs from float32:",
        _by_reason(_otherwise(results["architectures"]))])


def _failing(of: Mapping[str, Any]) -> str:
    told = []
    for name in QUESTIONS:
        row = of["worst"].get(name)
        if row is not None and row["outcome"] == "fails":
            note = re.split(r"[:(] ?(?=Multi)|\. ", row["note"])[0]
            told.append(f"{name} ({row['value'] if row['value'] != 'nan' else note[:FEW].strip()})")
    return ", ".join(told)


def _otherwise(architectures: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the architectures of which something else is true in float64, and what."""
    told = {}
    for name, of in architectures.items():
        if "float64" not in of:
            continue
        more = of["float64"].get("reason")
        if more is None:
            new = [check for check in of["float64"]["failed"]
                   if check not in of["float32"]["failed"]]
            more = f"fails: {', '.join(new)}" if new else None
        if more is not None:
            told[name] = {"reason": re.sub(r"a \w+ with", "the model with", more)}
    return told


def _by_reason(found: Mapping[str, Mapping[str, str]]) -> str:
    """Return a table of reasons, each with the architectures that it is given for."""
    reasons: dict[str, list[str]] = {}
    for name, of in found.items():
        kind = name.split(",")[0]
        text = of["reason"].replace(f"model is a {kind}, ", "").replace(f"model ({kind}) ", "")
        text = text.replace("which TransformerLens cannot open", "TransformerLens cannot open it")
        reasons.setdefault(text.replace("|", "\\|"), []).append(f"`{name}`")
    return markdown_table(("why", "architectures"), [
        (reason, ", ".join(of))
        for reason, of in sorted(reasons.items(), key=lambda item: -len(item[1]))])


def write_page(page: Path, results: Path) -> None:
    """Write the tables of a result into a page."""
    write_text(page, with_results(page.read_text(encoding="utf-8"), tables(read_json(results))))
