"""Is a probe scored on what it was fitted on?"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.codes.rows import Rows
from latentcode.errors import ProbeError, check, check_choice

OVERLAPS: tuple[str, ...] = ("nothing", "combinations", "instances")
"""What training and held-out codes may share: `combinations` asks about new instances of the same
ones, as in the split `test`, `instances` about what the probe was fitted on itself."""


def shared_combinations(
    train: LatentCodes | Rows, heldout: LatentCodes | Rows, allow_overlap: str = "nothing"
) -> int:
    """Return how many held-out combinations occur in training.

    Only of codes it is known whether their instances are the same.

    `ProbeError` where training and held-out codes share more than `allow_overlap` allows,
    `UnknownNameError` unless that is one of `OVERLAPS`. See `shared_instances` for how instances
    are told apart.
    """
    check_choice("allow_overlap", allow_overlap, OVERLAPS)
    if not all("combination" in codes.labels for codes in (train, heldout)):
        return 0
    ours, theirs = (set(codes.labels["combination"].astype(str)) for codes in (train, heldout))
    common = sorted(ours & theirs)
    if not common or allow_overlap == "instances":
        return len(common)
    codes = [x.codes if isinstance(x, Rows) else x for x in (train, heldout)]
    same, known_by = (0, "") if None in codes else shared_instances(*codes)  # type: ignore[arg-type]
    check(same == 0, f"{same} of {len(heldout)} held-out instances are training instances, too "
          f"({known_by}); expected others, such as those of the splits train and ood, or "
          "allow_overlap='instances' to score a probe on what it was fitted on", ProbeError)
    check(allow_overlap == "combinations", f"{len(common)} of {len(theirs)} held-out combinations "
          f"occur in training, such as {common[0]!r}; expected others, such as those of the splits "
          "train and ood, or allow_overlap='combinations' for new instances of the same ones",
          ProbeError)
    return len(common)


def shared_instances(train: LatentCodes, heldout: LatentCodes) -> tuple[int, str]:
    """Return how many held-out instances are training instances, and by what they are known.

    Two extractions of one task, split and seed number the same instances, whatever model read
    them. Where codes do not say what they are of, those are the same whose labels and codes all
    are.
    """
    names = [name for name in train.labels if name in heldout.labels and name != "split"]
    _, of_train, of_heldout = np.intersect1d(train.instances(), heldout.instances(),
                                             return_indices=True)
    if of_train.size and all(_origin(train, key) == _origin(heldout, key) is not None
           for key in ("task", "split", "seed")):
        exact = [name for name in names if train.labels[name].dtype.kind != "f"]
        ours, theirs = (codes.labels[exact].iloc[rows].astype(str).to_numpy()
                        for codes, rows in ((train, of_train), (heldout, of_heldout)))
        if np.array_equal(ours, theirs):
            same = np.isin(heldout.instances(), train.instances())
            return int(same.sum()), (f"both are of split {train.meta['split']!r} with seed "
                                     f"{train.meta['seed']}")
    same = np.isin(_digests(heldout, names), _digests(train, names))
    return int(same.sum()), "their labels and codes are the same"


def shared_caveat(settings: Mapping[str, Any]) -> list[str]:
    """Return the caveat that what is held out was trained on, where it was allowed."""
    n = settings.get("shared_combinations", 0)
    if not n:
        return []
    what = "what the probe was fitted on" if settings.get("allow_overlap") == "instances" else (
        "new instances of known combinations")
    return [f"{n} held-out combinations occur in training: these are scores on {what}."]


def _origin(codes: LatentCodes, key: str) -> str | None:
    # As JSON, because codes that were saved have lists where others have tuples.
    return json.dumps(codes.meta[key], sort_keys=True, default=str) if key in codes.meta else None


def _digests(codes: LatentCodes, names: Sequence[Hashable]) -> np.ndarray:
    """Return a number for each instance that tells its labels and codes from others, uint64 [N]."""
    labels = codes.labels[list(names)].reset_index(drop=True)
    labels = labels.apply(lambda c: c if c.dtype.kind == "f" else c.astype(str).astype(object))
    scores = pd.DataFrame(codes.scores.reshape(len(codes), -1))
    rows = pd.concat([labels, scores], axis=1)
    return pd.util.hash_pandas_object(rows, index=False).to_numpy()
