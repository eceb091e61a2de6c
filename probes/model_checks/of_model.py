"""`check_model`: does a bridge compute, show and take what the model does?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from latentcode.arguments import as_tuple
from latentcode.errors import check, check_choice
from latentcode.files.provenance import package_version
from latentcode.models.gates import gates
from latentcode.models.layers import other_layers
from latentcode.models.pretrained import as_bridge, load_network
from latentcode.probes.model_checks.answers import Answer, answers
from latentcode.probes.model_checks.questions import QUESTIONS, TOLERANCES
from latentcode.probes.model_checks.reference import random_prompts, reference
from latentcode.probes.model_checks.result import ALL, ModelCheckResult
from latentcode.progress import Progress, watched

LENGTHS = (4, 9, 32)
"""Tokens of the prompts, fewer where the context of the model is shorter."""


@watched("comparing")
def check_model(
    name_or_folder: str | Path,
    *,
    lengths: Sequence[int] | int | None = None,
    dtype: str = "float32",
    seed: int = 0,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> ModelCheckResult:
    """Can the codes of a pretrained model be trusted? Its bridge against `transformers`.

    name_or_folder  as for `load_pretrained`; a folder needs no tokenizer
    lengths         of the prompts, two of each, of tokens drawn at random; default: `LENGTHS`
    dtype           of the weights: `float32`, as verbs use them, or `float64`, in which rounding
                    hides no mistake and for which the memory has to suffice
    seed            of the prompts and of the random codes
    progress        called with (prompts compared, prompts in all)

    The forward pass of the same weights by `transformers` is taken first; then the bridge has to
    give its logits (alone and padded into a batch), its hidden states and its attention weights;
    codes have to sum to 1, to be zero for later keys, and to give z from the values; the value
    networks have to give attention's output; codes written back have to leave every bit of the
    logits, and random codes to change them.

    Raises what `load_pretrained` raises, and `ConfigError` for lengths that the model cannot take.
    """
    check_choice("dtype", dtype, TOLERANCES)
    if lengths is not None:
        lengths = as_tuple(lengths)
        check(len(lengths) > 0 and min(lengths) >= 2, f"lengths are {lengths}; "
              "expected at least 2 tokens each")
    network, tokenizer = load_network(
        name_or_folder, device=device, dtype=getattr(torch, dtype), tokenized=False)
    config = network.config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None)
    lengths = lengths or tuple(min(length, limit or length) for length in LENGTHS)
    check(not limit or max(lengths) <= limit, f"the longest prompt has {max(lengths)} tokens; "
          f"expected at most {limit}, the context of the model")
    weight = next(network.parameters())
    commit = getattr(network.config, "_commit_hash", None)
    references = [reference(network, tokens) for tokens in random_prompts(
        config.vocab_size, lengths, seed, weight.device)]
    model = as_bridge(str(name_or_folder), network, tokenizer)
    found: list[Answer] = []
    for answer in answers(model, references, seed):
        found.append(answer)
        if progress is not None and answer[0] == "logits":
            progress(sum(a[0] == "logits" for a in found), len(references))
    name = str(name_or_folder)
    return ModelCheckResult(_worst(found, TOLERANCES[dtype]), settings={
        "model": Path(name).name if Path(name).is_dir() else name,
        **({"commit": commit} if commit else {}),
        "architecture": type(network).__name__, "dtype": dtype,
        "tolerance": TOLERANCES[dtype], "lengths": list(lengths), "seed": seed,
        "n_layers": model.cfg.n_layers, "n_heads": model.cfg.n_heads,
        "others": {str(layer): what for layer, what in other_layers(model).items()},
        "gates": sorted({gate.function for gate in gates(model).values()}),
        "sliding_window": getattr(config, "sliding_window", None),
        "transformer_lens": package_version("transformer-lens"),
        "transformers": package_version("transformers")})


def _worst(found: Sequence[Answer], tolerance: float) -> pd.DataFrame:
    """Return one row per question and layer: the worst of all prompts."""
    table: list[dict[str, Any]] = []
    frame = pd.DataFrame(found, columns=["check", "layer", "value", "note"])
    frame["layer"] = [ALL if pd.isna(layer) else str(int(layer)) for layer in frame["layer"]]
    for name, question in QUESTIONS.items():
        for layer, rows in frame[frame["check"] == name].groupby("layer", sort=False):
            values = rows["value"].to_numpy()
            # No change and one without bounds are both wrong.
            least = question.changes and not np.isinf(values).any()
            worst = float(values.min() if least else values.max())
            unknown = bool(np.isnan(values).any())
            told = next((note for note in rows["note"] if note), "")
            table.append({
                "check": name, "layer": layer, "value": worst,
                "bound": question.bound(tolerance),
                "outcome": _outcome(question.holds(worst, tolerance), unknown, told),
                "note": told})
    return pd.DataFrame(table)


def _outcome(holds: bool, unknown: bool, note: str) -> str:
    if unknown:
        return "not compared" if note.startswith("transformers") else "fails"
    return "holds" if holds else "fails"
