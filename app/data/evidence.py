"""What the paper claims and what was found: the results that come with the library."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from latentcode.config import RunConfig, from_dict
from latentcode.errors import ArtifactError, LatentCodeError
from latentcode.experiments.evidence.claim import RESULTS, Setting
from latentcode.experiments.paper.results import RESULT, read_result
from latentcode.experiments.paper.runs import signature
from latentcode.experiments.paper.wording import COUNTED, ours, published

PRESETS: Mapping[str, str] = {"paper": "published setting", "small": "scaled down"}
"""The sizes at which results come with the library; claims are judged at the first."""
Result = Mapping[str, Any]


OURS = "ours"
"""How the source of a claim begins that is not the paper's."""


@dataclass(frozen=True)
class Evidence:
    """The results of a folder, as `latentcode reproduce` writes them.

    folder   holds PRESET/NAME/result.json
    results  preset -> name -> result, in the order of the paper
    damaged  what is wrong with those that cannot be read
    """

    folder: Path
    results: Mapping[str, Mapping[str, Result]]
    damaged: tuple[str, ...]

    @cached_property
    def claims(self) -> Mapping[str, Mapping[str, Any]]:
        """Id -> claim, with its verdict; in the order of the paper."""
        return {claim["id"]: claim for result in self.results["paper"].values()
                for claim in result["claims"]}

    def counts(self, *, own: bool = False) -> Mapping[str, int]:
        """Verdict -> its number of claims, in the order of `COUNTED`.

        own  count those alone that are not the paper's but our own
        """
        found = Counter(claim["verdict"] for claim in self.claims.values()
                        if not own or str(claim["source"]).startswith(OURS))
        return {verdict: found[verdict] for verdict in COUNTED}

    @property
    def missing(self) -> list[str]:
        """The figures and tables whose claims are not here."""
        return [name for name in RESULTS if name not in self.results["paper"]]

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row per claim, its id as index: result, source, claim, published, ours, verdict, runs.

        runs  finished runs of the settings that the claim is about; none where it needs none
        """
        rows = []
        for name, result in self.results["paper"].items():
            runs = [signature(from_dict(RunConfig, run["config"], run["run"]))
                    for run in result["runs"]]
            for claim in result["claims"]:
                n_runs = _n_runs(claim["setting"], runs) if runs else 0
                rows.append({
                    "id": claim["id"], "result": name, "source": claim["source"],
                    "claim": claim["claim"], "published": published(claim), "ours": ours(claim),
                    "verdict": claim["verdict"],
                    # What was judged without a run is about the task or the settings.
                    "runs": n_runs if n_runs or claim["verdict"] == "not run" else None})
        return pd.DataFrame(rows, columns=["id", "result", "source", "claim", "published", "ours",
                                           "verdict", "runs"]).set_index("id").astype(
                                               {"runs": "Int64"})

    def files(self, preset: str, name: str) -> dict[str, bytes]:
        """Return name -> content of what lies behind a result: tables, figures, all numbers.

        A table that was left out is written again, of the digits that `result.json` keeps.
        """
        folder, result = self.folder / preset / name, self.results[preset][name]
        tables = {f"{table}.csv": pd.DataFrame(rows).to_csv(index=False).encode()
                  for table, rows in result["tables"].items() if rows}
        there = {path.name: path.read_bytes() for path in sorted(folder.glob("*"))
                 if path.suffix in (".csv", ".json", ".png", ".svg") and path.stat().st_size > 1}
        return {**tables, **there}

    def picture(self, preset: str, name: str) -> bytes | None:
        """Return the figure of a result as PNG; None where there is none, or it was left out."""
        paths = [self.folder / preset / name / f"{figure}.png"
                 for figure in self.results[preset][name]["figures"]]
        return paths[0].read_bytes() if paths and paths[0].is_file() else None


def _n_runs(setting: Mapping[str, Any], runs: list[str]) -> int:
    """Count the runs, by their signatures, that are of a setting."""
    members = from_dict(Setting, setting, "setting").grid.members().values()
    wanted = {signature(config) for config in members}
    return sum(run in wanted for run in runs)


def shipped() -> Path:
    """Return where the results lie that come with the library."""
    return Path(str(files("latentcode.experiments"))) / "results" / "reproduced"


def evidence(folder: Path | None = None) -> Evidence:
    """Return the results of a folder; default: of `shipped`. Read again when they change.

    `ArtifactError` where no claim was judged.
    """
    folder = shipped() if folder is None else folder
    times = tuple(path.stat().st_mtime_ns for path in sorted(folder.glob(f"*/*/{RESULT}")))
    found = _read(folder, times)
    if not found.claims:
        raise ArtifactError(
            f"{folder} holds no result whose claims were judged; expected what `latentcode "
            "reproduce all --preset paper` writes, which a checkout has in "
            "experiments/results/reproduced" + "".join(f"; {why}" for why in found.damaged))
    return found


@st.cache_resource(max_entries=2, show_spinner=False)
def _read(folder: Path, times: tuple[int, ...]) -> Evidence:
    results: dict[str, dict[str, Result]] = {preset: {} for preset in PRESETS}
    damaged = []
    for preset, found in results.items():
        for name in RESULTS:
            if (folder / preset / name / RESULT).exists():
                try:
                    found[name] = read_result(folder / preset / name)
                except (LatentCodeError, OSError) as error:
                    damaged.append(str(error))
    return Evidence(folder, results, tuple(damaged))


def titled(name: str) -> str:
    """Return the name of a result as the paper prints it: `Fig. 2B` for `fig2b`."""
    found = re.fullmatch(r"(fig|tab)(A?\d+)([a-z]*)", name)
    if found is None:
        return {"nonlinearity": "Nonlinearities", "causal": "Causes"}.get(name, name)
    return f"{'Fig.' if found[1] == 'fig' else 'Table'} {found[2]}{found[3].upper()}"


def compared(claim: Mapping[str, Any]) -> str:
    """Return what a claim's numbers are, and with what they are compared."""
    how = claim["rule"]
    match how["name"]:
        case "exact":
            return str(how["holds"])
        case "welch":
            told = "Compared with the published number"
        case "bound":
            told = f"It should be {how['side']} {how['bound']:g}"
        case "excess":
            told = (f"Compared with {'; '.join(how['controls'])}: it should be above in every run"
                    + (f", by {how['least']:g} on average" if how["least"] else ""))
        case _:
            told = "Compared between two sets of runs: " + (
                name_of_test(claim["parts"][0]) if len(claim["parts"]) == 1
                else "the first should be higher")
    return f"{how['quantity']}. {told}."


def own_number(claim: Mapping[str, Any]) -> str:
    """Return what our number is called: a difference, where it is one."""
    match claim["rule"]["name"]:
        case "excess":
            return "Ours, above the control"
        case "permutation" | "permutation_of_changes":
            return "Ours, difference"
    return "Ours"


def name_of_test(part: Mapping[str, Any]) -> str:
    """Return what one test of a claim is about, with spaces at which it can be broken."""
    return str(part["name"]).replace("kind=", "").replace(",", ", ").replace(",  ", ", ")


def _spelt(text: str) -> str:
    """Return a text in small letters, where "generalize" is "generalise"."""
    return text.lower().replace("iz", "is")


def matching(table: pd.DataFrame, words: str) -> pd.DataFrame:
    """Return the claims that have every word, in any of their texts and names."""
    texts = (table.index + " " + table["result"] + " " + table["result"].map(titled) + " "
             + table["source"] + " " + table["claim"] + " " + table["verdict"]).map(_spelt)
    for word in _spelt(words).split():
        texts = texts[texts.str.contains(word, regex=False)]
    return table.loc[texts.index]
