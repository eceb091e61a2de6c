"""`decode_prompts`: which labels of prompts can be read out of a language model's codes?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

from latentcode.codes import LatentCodes
from latentcode.probes.common.labels import label_names
from latentcode.probes.decoding.of_codes import decode_codes
from latentcode.probes.decoding.result import DecodingResult
from latentcode.progress import Progress, watched
from latentcode.prompts import Prompts, as_prompts, load_language_model
from latentcode.prompts.codes import extract_prompts
from latentcode.seeds import checked_seed


@watched("fitting probes")
def decode_prompts(
    name_or_folder: str | Path,
    prompts: Prompts | pd.DataFrame | str | Path,
    *,
    labels: Sequence[str] = ("label",),
    layers: Sequence[int] | int | None = None,
    heldout: float = 0.3,
    seed: int = 0,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    batch_size: int = 32,
    prepend_bos: bool | None = None,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> DecodingResult:
    """Do the codes at (query -> key) tell the label, on prompts that the probe was not fitted on?

    Logistic probes are fitted on prompts of the split `train` and scored on `ood`, beside the
    same model with fresh weights, shuffled labels and the residual stream at the query.

    name_or_folder  as for `load_language_model`
    heldout         share of the combinations to hold out, where the prompts have no column `split`
    seed            of the split, the fresh weights (of a run its initial ones), shuffling and
                    bootstrap
    progress        called with (probes done, probes in all)

    Raises what `load_language_model`, `extract_prompts`, `Prompts.split` and `decode_codes` raise.
    """
    seed = checked_seed(seed)
    labels, prompts = label_names(labels), as_prompts(prompts)
    if "split" not in prompts.labels:
        prompts = prompts.split(heldout, seed, labels[0] if labels else "label")
    trained, untrained = (
        _by_split(extract_prompts(
            load_language_model(name_or_folder, device=device, dtype=dtype, untrained=fresh,
                                seed=seed),
            prompts, layers=layers, residuals=not fresh, batch_size=batch_size,
            prepend_bos=prepend_bos, meta={"untrained": fresh, "seed": seed}))
        for fresh in (False, True))
    return decode_codes(*trained, labels, untrained=untrained, seed=seed, n_jobs=n_jobs,
                        progress=progress)


def _by_split(codes: LatentCodes) -> tuple[LatentCodes, LatentCodes]:
    split = codes.labels["split"].to_numpy()
    train, heldout = (
        replace(codes.subset(split == name), meta={**codes.meta, "split": name})
        for name in ("train", "ood"))
    return train, heldout
