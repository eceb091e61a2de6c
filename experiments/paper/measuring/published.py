"""Which numbers does the paper print, and what are ours beside them?"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from latentcode.experiments.evidence.claim import Claim, load_claims


def printed(result: str) -> tuple[Claim, ...]:
    """Return the claims of a figure or table that are numbers, in the order of the file."""
    return tuple(claim for claim in load_claims()
                 if claim.result == result and claim.kind == "number")


def in_points(values: pd.DataFrame) -> dict[str, float]:
    """Return 100 x the mean of `value` over splits, its standard error, and how many splits.

    Runs that share a split count as their mean, as the published seed draws the split too.
    """
    splits = 100.0 * values.groupby("split_seed")["value"].mean().to_numpy(np.float64)
    n = len(splits)
    return {"ours": float(splits.mean()) if n else float("nan"), "n": n,
            "ours_error": float(splits.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")}


def beside(
    claims: Iterable[tuple[str, Claim, pd.DataFrame]], *, comparable: bool
) -> pd.DataFrame:
    """Return a row per printed number, in points, with ours beside it.

    claims      (name of the row, claim, our scores)
    comparable  whether ours are of the published setting, so that a difference says something
    """
    rows = []
    for name, claim, values in claims:
        assert claim.published is not None
        ours = in_points(values)
        row = {"row": name, "task": claim.setting.task, "published": claim.published.value,
               "published_error": claim.published.error, **ours}
        if comparable:
            row["difference"] = ours["ours"] - claim.published.value
        rows.append({**row, "reading": claim.reading})
    return pd.DataFrame(rows)
