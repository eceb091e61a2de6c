"""A HeadVis folder beside the model that it was written of: entry by entry."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from latentcode.files.storage import read_json
from latentcode.models.modes import evaluating
from latentcode.models.read_out import last_token, read_out_hook
from latentcode.probes.heads.batches import TextBatch
from latentcode.probes.heads.headvis import check_headvis
from latentcode.prompts import LanguageModel


def read_back(folder: Path, asked: LanguageModel, batches: Iterable[TextBatch]) -> dict[str, Any]:
    """Read a folder with `check_headvis`, and compare its attention with the model's patterns.

    batches  of the texts that it was written of

    Return how many heads, texts (summed over heads) and entries it has; the largest `difference` of
    an entry from the pattern; and the largest attention that is `left_out`, beside the number
    `least` below which it is, and of how many heads a query has more entries than are kept
    (`full`), so that more may be left out.
    """
    checked = check_headvis(folder)
    config = read_json(folder / "config.json")
    run = config["pipeline_config"]
    patterns = _patterns(asked, batches)
    n_entries, difference, left_out, full = 0, 0.0, 0.0, 0
    for layer, head in checked.heads:
        name = config["head_data_pattern"].format(layer=layer, head=head)
        is_full = False
        for sequence in read_json(folder / "heads" / name)["sequences"]:
            n = sequence["seq_len"]
            pattern = patterns[sequence["sequence_id"]][layer, head, :n, :n]
            indices = np.asarray(sequence["attention_indices"], dtype=np.int64)
            n_entries += len(indices)
            there = pattern.ravel()[indices]
            difference = max(difference, float(np.abs(
                there - sequence["attention_values"]).max(initial=0.0)))
            rest = pattern.copy()
            rest.ravel()[indices] = 0.0
            cut = np.bincount(indices // n, minlength=n) >= run["sparse_topk_per_row"]
            is_full |= bool(cut.any())
            left_out = max(left_out, float(rest[~cut].max(initial=0.0)))
        full += is_full
    return {"heads": len(checked.heads), "texts": checked.n_sequences, "entries": n_entries,
            "difference": difference, "left_out": left_out, "least": run["sparse_threshold"],
            "full": full}


def _patterns(asked: LanguageModel, batches: Iterable[TextBatch]) -> dict[int, np.ndarray]:
    """Return the patterns of every text, by its number, [L, H, T, T]."""
    found: dict[int, np.ndarray] = {}
    n_layers = asked.model.cfg.n_layers
    for batch in batches:
        of_layers: list[np.ndarray] = []

        def keep(pattern: Any, hook: object, into: list[np.ndarray] = of_layers) -> None:
            into.append(pattern.detach().double().numpy().copy())

        with evaluating(asked.model):
            asked.model.run_with_hooks(batch.tokens, **batch.padding, fwd_hooks=[
                *((f"blocks.{layer}.attn.hook_pattern", keep) for layer in range(n_layers)),
                (read_out_hook(asked.model), last_token)])
        together = np.stack(of_layers, 1)
        found |= {int(text): together[row] for row, text in enumerate(batch.text)}
    return found
