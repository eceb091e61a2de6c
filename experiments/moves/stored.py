"""What the studies' tables say of every move: rates, verdicts and criteria."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.answers import CLASSES
from latentcode.experiments.evidence.criteria import FOLDER, criteria
from latentcode.experiments.moves.states import BOTH, KINDS, MOVES, Move
from latentcode.files.storage import checksum
from latentcode.runs.named import zoo_folders
from latentcode.zoo.card import Card

RESULTS = Path(__file__).parents[1] / "results"
ROLES: Mapping[str, str] = {"sraven": "confirmatory", "logic": "exploratory"}
"""What the runs of a task are for (`experiments/evidence/claims/context.yaml`)."""
EARNED = re.compile(r"^# (A word is \*earned\*.*?)\n(?!#)", re.MULTILINE | re.DOTALL)
"""The paragraph of a file of criteria that says when one is met."""
FROM_WHERE = re.compile(r"^# (From where\?.*?)\n(?!#)", re.MULTILINE | re.DOTALL)


def model_of(task: str, kind: str) -> str:
    """Return the name of the zoo's model."""
    return f"{task}-{kind}"


def weights_of(name: str) -> dict[str, str]:
    """Return the file of the weights of a model of the zoo, and its SHA-256."""
    folder = zoo_folders()[name]
    (path,) = folder.glob("checkpoints/*/model.safetensors")
    return {"file": path.relative_to(folder).as_posix(), "sha256": checksum(path)}


def states() -> list[dict[str, Any]]:
    """Return what is stored of every move and kind, as JSON holds it.

    task, kind, move
    verdict   `met`, `not met`, `refuted`, `undecided`, `exploratory`, or `none` without a criterion
    expected  whether that was expected beforehand; None where nothing was
    seeds     of the runs that count
    rows      a source each: its `shares` of every class, mean over these runs; of the class that
              the move is about the smallest and largest run, `low` and `high`; `n`, the problems
    here      the same share of the zoo's model, and `n`; None where too few problems count
    """
    tables = {name: pd.read_csv(RESULTS / name, dtype={"layers": str}) for name in (
        "context/tables/rates.csv", "context/tables/statements.csv",
        "spans/tables/elsewhere_classes.csv", "spans/tables/places.csv")}
    context, said, spans, places = tables.values()
    return [
        _text(move, kind, spans, places) if move.task == "text" else
        _context(move, kind, context, said)
        for move in MOVES for kind in KINDS]


def criterion(move: Move) -> dict[str, Any]:
    """Return the criterion of a move's statement; empty where none was written.

    rule  as the file has it; `text` is its paragraph, `file` where it stands
    """
    name = "text" if move.task == "text" else "context"
    file = FOLDER / f"{name}.yaml"
    where = {"file": f"experiments/evidence/claims/{name}.yaml",
             "text": _paragraph(file, FROM_WHERE if name == "text" else EARNED)}
    if not move.statement:
        return {}
    if name == "text":
        asked = criteria("text")
        return {**where, "least": asked["least"], "fewest": asked["least_seeds"],
                "instances": asked["instances"]}
    asked = criteria("context")
    return {**where, "least": asked["least"], "fewest": asked["fewest"]}


def _paragraph(file: Path, pattern: re.Pattern[str]) -> str:
    found = pattern.search(file.read_text(encoding="utf-8"))
    assert found is not None, f"{file} has no paragraph {pattern.pattern}"
    text = " ".join(line.removeprefix("#").strip() for line in found[1].split("\n"))
    return text.replace("*", "").replace("`", "")


def _context(move: Move, kind: str, rates: pd.DataFrame, said: pd.DataFrame) -> dict[str, Any]:
    role = ROLES[move.task]
    at = rates[(rates["task"] == move.task) & (rates["kind"] == kind) & rates["counts"]]
    kept = at[at["role"] == role]
    rows = [_row(kept[_is(kept, source, site, scope, layers)], source, name, move.brings)
            for name, source, site, scope, layers in _asked(move)]
    one = at[(at["run"] == run_of(move.task, kind)) & _is(at, BOTH, move.site, move.scope,
                                                          move.written)]
    verdict, expected = "none", None
    if move.statement and role == "confirmatory":
        (found,) = said[(said["role"] == role) & (said["task"] == move.task)
                        & (said["kind"] == kind) & (said["statement"] == move.statement)
                        & said["primary"]].to_dict("records")
        assert found["layers"] == move.written
        verdict, expected = str(found["verdict"]), bool(found["expected"])
    elif role == "exploratory":
        verdict = "exploratory"
    return {**_name(move, kind), "verdict": verdict, "expected": expected,
            "seeds": sorted({int(seed) for seed in kept["seed"]}) if role == "confirmatory" else [],
            "runs": int(kept["run"].nunique()), "rows": rows,
            "here": _share(one[move.brings].mean(), one["n"].sum())}


def _asked(move: Move) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the rows of a move: what it is called, and source, site, scope and layers of it."""
    here = move.site, move.scope, move.written
    yield "source", BOTH, *here
    if move.beside:
        yield "another problem", move.beside, *here
    for source in move.against:
        yield f"control {source}", source, *here
    if (move.site, move.place) == ("code", "context"):
        yield "another place", BOTH, "code", "outside context", move.written
        yield "frozen codes", "frozen", "residual", "context", "0"


def _is(table: pd.DataFrame, source: str, site: str, scope: str, layers: str) -> pd.Series[bool]:
    return ((table["source"] == source) & (table["site"] == site) & (table["scope"] == scope)
            & (table["layers"] == layers))


def _row(found: pd.DataFrame, source: str, name: str, brings: str) -> dict[str, Any]:
    """Return the row of a source: of every run the mean of both directions, then over runs."""
    assert len(found), f"the tables have no rates of {name}: {source}"
    by_run = found.groupby("run")[list(CLASSES)].mean()
    return _over(by_run, int(found["n"].sum()), name, brings)


def _over(by_run: pd.DataFrame, n: int, name: str, brings: str) -> dict[str, Any]:
    return {"name": name, "n": n,
            "shares": {key: round(float(by_run[key].mean()), 4) for key in CLASSES},
            "low": round(float(by_run[brings].min()), 4),
            "high": round(float(by_run[brings].max()), 4)}


def _text(move: Move, kind: str, spans: pd.DataFrame, places: pd.DataFrame) -> dict[str, Any]:
    fewest, least = criteria("text")["least_seeds"], criteria("text")["instances"]
    at = spans[(spans["kind"] == kind) & (spans["site"] == move.site)
               & (spans["scope"] == move.scope) & (spans["layers"] == move.written)]
    of_run = at[at["patch"] == BOTH].groupby("run")["n"].first()
    counted = [run for run, n in of_run.items() if n >= least]
    rows = []
    for name, source in (("source", BOTH), *((f"control {s}", s) for s in move.against)):
        found = at[(at["patch"] == source) & at["run"].isin(counted)]
        if len(found):
            by_run = found.pivot_table(index="run", columns="class", values="rate")
            n = int(found.groupby("run")["n"].first().sum())
            rows.append(_over(by_run, n, name, move.brings))
    (zoo,) = [run_of(move.task, kind)]
    one = at[(at["patch"] == BOTH) & (at["run"] == zoo) & (at["class"] == move.brings)]
    met = places[(places["kind"] == kind) & (places["site"] == move.site)
                 & (places["scope"] == move.scope) & (places["layers"] == move.written)
                 & (places["statement"] == move.statement)]["met"].tolist()
    verdict = "undecided" if len(counted) < fewest else "met" if met == [True] else "not met"
    return {**_name(move, kind), "verdict": verdict, "expected": None,
            "seeds": sorted(int(s) for s in at[at["run"].isin(counted)]["seed"].unique()),
            "runs": len(counted), "rows": rows,
            "here": _share(one["rate"].mean(), one["n"].sum()) if zoo in counted else None}


def _name(move: Move, kind: str) -> dict[str, str]:
    return {"task": move.task, "kind": kind, "move": move.name}


def _share(share: float, n: float) -> dict[str, float]:
    return {"share": round(float(share), 4), "n": int(n)}


def run_of(task: str, kind: str) -> str:
    """Return the name of the run that a model of the zoo was, as its card says."""
    command = Card.read(zoo_folders()[model_of(task, kind)]).commands["build"]
    return Path(command.split()[3]).name
