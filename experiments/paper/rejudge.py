"""Judge claims that came after their result.

    python -m latentcode.experiments.paper.rejudge fig2b

A claim whose runs do not exist has no value; one about numbers that a result keeps is judged from
its tables (`Reproduction.again`). Nothing is measured, and what was judged before stays as it was.
A claim whose runs are there and whose numbers are not kept is refused: `latentcode reproduce`
measures it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from latentcode.errors import ArtifactError, check
from latentcode.experiments.evidence.claim import Claim, load_claims
from latentcode.experiments.paper.reproduce import judged_claim
from latentcode.experiments.paper.reproduction import Work, needs_runs, reproduction
from latentcode.experiments.paper.results import RESULT, read_result
from latentcode.experiments.paper.runs import KnownRuns, default_folders, find_runs
from latentcode.files.storage import write_json

OUT = Path("experiments/results/reproduced")


def rejudge(name: str, out: Path, known: KnownRuns) -> list[str]:
    """Give a result at `paper` the verdicts of claims that it lacks; return their names."""
    folder, wanted = out / "paper" / name, reproduction(name)
    result = read_result(folder)
    there = {claim["id"]: claim for claim in result["claims"]}
    lacking = tuple(claim for claim in wanted.claims if claim.id not in there)
    tables = {key: pd.DataFrame(rows) for key, rows in result["tables"].items()}
    work = Work("paper", known, Path(), claims=lacking)
    evidence = wanted.again(work, tables) if wanted.again is not None and lacking else {}
    for claim in lacking:
        check(claim.id in evidence or not _has_runs(claim, known), f"claim {claim.id} has runs, "
              f"and {name} keeps no numbers of it; expected `latentcode reproduce {name}`",
              ArtifactError)
        there[claim.id] = judged_claim(claim, evidence, known)
    write_json(folder / RESULT, {**result, "claims": [there[claim.id] for claim in wanted.claims]})
    return [claim.id for claim in lacking]


def _has_runs(claim: Claim, known: KnownRuns) -> bool:
    return not needs_runs(claim) or any(known.of_setting(claim.setting).values())


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge claims that came after their result.")
    parser.add_argument("names", nargs="*", help="results; default: all")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the results")
    chosen = parser.parse_args()
    known = find_runs(default_folders())
    names = chosen.names or dict.fromkeys(claim.result for claim in load_claims())
    for name in names:
        new = rejudge(name, chosen.out, known)
        print(f"{name}: {', '.join(new) or 'no new claim'}")


if __name__ == "__main__":
    main()
