"""Writes what heads attend to as the JSON tree that HeadVis and Neuronpedia show."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.arguments import as_tuple
from latentcode.errors import check
from latentcode.files.provenance import package_version
from latentcode.files.storage import check_free, replace_folder
from latentcode.models.layers import check_layer
from latentcode.models.pretrained import layout
from latentcode.models.read_out import look
from latentcode.probes.common.results import where
from latentcode.probes.heads.batches import TextBatch
from latentcode.probes.heads.direct import DIRECT
from latentcode.probes.heads.headvis.scanning import Scan, Shown
from latentcode.probes.heads.headvis.tree import (
    CONFIG,
    HEAD_FILE,
    INDUCTION_LEAST,
    MANIFEST,
    MAXIMA_BINS,
    METRICS,
    SCATTER,
    SERVER,
    distance_edges,
    distance_histogram,
    rounded,
    top_tokens,
)
from latentcode.probes.heads.result import HeadsResult
from latentcode.progress import Progress, watched
from latentcode.prompts import LanguageModel, as_language_model

RECORD_BYTES = 2**28
"""Bytes of attention that are held at a time; layers are written in groups of so many."""
PATTERN_BYTES = 2**24
"""Bytes of one layer's pattern beyond which a batch takes fewer texts, at least one."""

Entries = tuple[np.ndarray, np.ndarray, float]
"""Indices and values of the attention of a head to a text, and its maximum."""


@watched("writing HeadVis")
def write_headvis(
    model: Any, batches: Iterable[TextBatch], folder: str | Path, *, dataset_name: str,
    metrics: pd.DataFrame | None = None, descriptions: Mapping[str, str] | None = None,
    layers: Sequence[int] | int | None = None, settings: Shown | None = None,
    model_name: str | None = None, np_model_id: str | None = None, overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write a HeadVis folder of a model and texts, all or nothing: `data/` of the page.

    model         what `as_language_model` takes
    batches       of texts, each of which is read once, and those that are shown once more
    dataset_name  what the texts are called
    metrics       further metrics, a row per head: columns `layer`, `head` and numbers
    descriptions  name of a metric -> a sentence that says what it is
    layers        default: all
    settings      how many texts, and how much of their attention, are shown
    model_name    default: what the results call the model; Neuronpedia wants its name on the hub
    np_model_id   what Neuronpedia calls it; None: as Neuronpedia's folders lie, which is
                  <model>/headvis/<dataset>
    overwrite     replace a folder that holds such a tree

    The six metrics that Neuronpedia keeps are measured in the same pass; one that could not be
    measured is null, and the page offers no metric that the first head does not have. Memory does
    not grow with the number of texts. `ConfigError` for metrics that do not fit the heads, and for
    codes that are no attention from 0 to 1; `ProbeError` without a text of two tokens; `RunError`
    for a folder that holds something else.
    """
    asked, folder = as_language_model(model), Path(folder)
    check_free(folder, overwrite=overwrite, marker=SCATTER)
    shown = layout(asked.model)
    kept = shown.layers if layers is None else as_tuple(layers)
    for layer in kept:
        check_layer(asked.model, layer)
    name = str(asked.settings.get("run", "")) if model_name is None else model_name
    for what, given in (("model_name", name), ("dataset_name", dataset_name)):
        check(isinstance(given, str) and given.strip() != "", f"{what} is {given!r}, which HeadVis "
              f"shows and Neuronpedia files the texts under; expected a name")
    heads = [(layer, head) for layer in kept for head in range(shown.n_heads)]
    further = _further(metrics, descriptions or {}, heads)
    settings = Shown() if settings is None else settings
    scan = Scan(asked, shown, kept, settings)
    for batch in batches:
        scan.add(batch)
    chosen = {of: scan.chosen(kept.index(of[0]), of[1]) for of in heads}
    measured = scan.metrics()
    scatter = [{
        "layer": layer, "head": head,
        **{metric: rounded(values[kept.index(layer), head])
           for metric, values in measured.items()},
        **{metric: rounded(column[layer, head]) for metric, (column, _) in further.items()}}
        for layer, head in heads]
    edges = distance_edges(scan.longest)
    config = _config(scan, name, dataset_name, np_model_id, heads,
                     {**METRICS, **{metric: said for metric, (_, said) in further.items()}})
    with replace_folder(folder, overwrite=overwrite, marker=SCATTER) as temporary:
        (temporary / "heads").mkdir()
        (temporary / MANIFEST).parent.mkdir()
        for file, data in ((CONFIG, config), (SCATTER, scatter), (SERVER, {}), (MANIFEST, {})):
            _write(temporary / file, data)
        for of, sequences in _sequences(scan, chosen, progress):
            place = kept.index(of[0]), of[1]
            _write(temporary / "heads" / HEAD_FILE.format(layer=of[0], head=of[1]), {
                "sequences": sequences,
                "qk_distance_histogram": distance_histogram(sequences, edges),
                "top_query_tokens": top_tokens(sequences, "query"),
                "top_key_tokens": top_tokens(sequences, "key"),
                "histogram": {
                    "bin_edges": [rounded(i / MAXIMA_BINS) for i in range(MAXIMA_BINS + 1)],
                    "bin_values": scan.histogram[place].tolist()},
                "statistics": {
                    "n_samples": len(sequences),
                    "mean_max_activation": rounded(scan.sum_of_maxima[place] / scan.n_texts)}})
    return folder


def by_head(result: HeadsResult) -> pd.DataFrame:
    """Return what else a result has of each head, a row each: the direct logit attribution, and of
    each effect the first quantity and what it is above its control by."""
    keys = ["layer", "head"]
    found = where(result.heads, metric=DIRECT)[[*keys, "value"]].rename(columns={"value": DIRECT})
    for patch, rows in result.effects.groupby("patch", sort=False):
        first = str(rows["quantity"].iloc[0])
        name = f"{patch} {first}".replace(" ", "_")
        columns = {"value": name, **({"difference": f"{name}_above_control"}
                                     if rows["difference"].notna().any() else {})}
        found = found.merge(where(rows, quantity=first)[[*keys, *columns]].rename(columns=columns),
                            on=keys)
    return found.dropna(axis=1).reset_index(drop=True)


def _further(
    metrics: pd.DataFrame | None, descriptions: Mapping[str, str], heads: Sequence[tuple[int, int]]
) -> dict[str, tuple[Mapping[tuple[int, int], float], str]]:
    """Return name -> (layer, head) -> number, with what is said of it."""
    if metrics is None:
        return {}
    check({"layer", "head"} <= set(metrics), f"metrics have columns {list(metrics)}; expected "
          "layer, head and numbers")
    index = list(zip(metrics["layer"].tolist(), metrics["head"].tolist(), strict=True))
    check(len(index) == len(set(index)) and set(index) >= set(heads), f"metrics have rows of "
          f"{len(set(index))} heads, {len(index)} in all; expected one for each of {len(heads)}")
    found: dict[str, tuple[Mapping[tuple[int, int], float], str]] = {}
    for name in metrics.columns.drop(["layer", "head"]):
        check(name not in METRICS, f"metric {name!r} is one that HeadVis has already; expected "
              f"another name than {', '.join(METRICS)}")
        check(pd.api.types.is_numeric_dtype(metrics[name]), f"metric {name!r} has values of type "
              f"{metrics[name].dtype}; expected numbers")
        found[str(name)] = (dict(zip(index, metrics[name].astype(float), strict=True)),
                            descriptions.get(str(name), str(name).replace("_", " ")))
    return found


def _config(
    scan: Scan, name: str, dataset_name: str, np_model_id: str | None,
    heads: Sequence[tuple[int, int]], metrics: Mapping[str, str],
) -> dict[str, Any]:
    settings, model = scan.settings, scan.model
    weight = next(model.parameters())
    inner = getattr(getattr(model, "original_model", None), "config", None)
    known = {} if np_model_id is None else {"np_model_id": np_model_id}
    return {
        "model_name": name, **known, "dataset_name": dataset_name,
        "heads": [list(of) for of in heads], "n_layers": scan.layout.n_layers,
        "n_heads": scan.layout.n_heads, "n_intervals": settings.n_intervals,
        "metrics": list(metrics), "metric_descriptions": dict(metrics),
        "head_data_pattern": HEAD_FILE, "has_umap": False, "umap_heads": [],
        "custom_plots": [{"key": "qk_distance_histogram", "label": "Q-K distance"},
                         {"key": "histogram", "label": "Largest attention in a text"}],
        "custom_tables": [{"key": "top_query_tokens", "label": "Top query tokens"},
                          {"key": "top_key_tokens", "label": "Top key tokens"}],
        "statistics_display": {
            "n_samples": {"label": "Texts shown", "format": "default"},
            "mean_max_activation": {"label": "Mean of the largest attention",
                                    "format": "default"}},
        "pipeline_config": {
            "model_name": name, **known, "dataset_name": dataset_name,
            "n_sequences": scan.n_texts, "actual_sequences_processed": scan.n_texts,
            "seq_len": scan.longest, "dtype": str(weight.dtype).removeprefix("torch."),
            "device": weight.device.type,
            # Of our own models the pattern is computed openly, which transformers calls eager.
            "attn_implementation": getattr(inner, "_attn_implementation", "eager"),
            "num_hidden_layers": scan.layout.n_layers,
            "num_attention_heads": scan.layout.n_heads,
            "attention_layer_indices": list(scan.layers),
            "induction_attention_threshold": INDUCTION_LEAST,
            "n_intervals": settings.n_intervals, "samples_per_interval": settings.per_interval,
            "samples_per_top_interval": settings.at_top,
            "sparse_topk_per_row": settings.per_row, "sparse_threshold": settings.least,
            "sample_seed": settings.seed, "latentcode_version": package_version("latentcode")}}


def _sequences(
    scan: Scan, chosen: Mapping[tuple[int, int], Sequence[tuple[int, int]]],
    progress: Progress | None,
) -> Iterator[tuple[tuple[int, int], list[dict[str, Any]]]]:
    """Yield each head with its texts and its attention to them, layers in groups."""
    groups = list(_groups(scan, chosen))
    total = sum(len(rows) for _, rows in groups)
    done = 0
    texts: dict[int, list[str]] = {}
    for layers, rows in groups:
        found: dict[tuple[int, int, int], Entries] = {}
        wanted: dict[tuple[int, int], list[int]] = {
            (layer, row): [] for layer in layers for row in rows}
        for (layer, head), some in chosen.items():
            for _, row in some if layer in layers else ():
                wanted[layer, row].append(head)
        for batch in _in_batches(scan, rows):
            _attention(scan, layers, batch, wanted, found)
            done += len(batch)
            if progress is not None:
                progress(done, total)
        for row in rows:
            if row not in texts:
                texts[row] = scan.asked.texts(scan.tokens[row].tolist())
        for (layer, head), some in chosen.items():
            if layer not in layers:
                continue
            sequences = []
            for interval, row in some:
                indices, values, largest = found.pop((layer, head, row))
                sequences.append({
                    "sequence_id": row, "interval": interval, "tokens": texts[row],
                    "attention_indices": indices.tolist(),
                    "attention_values": np.round(values.astype(np.float64), 4).tolist(),
                    "seq_len": len(scan.tokens[row]), "max_activation": rounded(largest)})
            yield (layer, head), sequences


def _groups(
    scan: Scan, chosen: Mapping[tuple[int, int], Sequence[tuple[int, int]]]
) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    """Yield layers whose attention is held together, with the texts that they are shown with."""
    of_layer = {layer: [row for (own, _), some in chosen.items() if own == layer
                        for _, row in some] for layer in scan.layers}
    group: list[int] = []
    size = 0
    for layer, rows in of_layer.items():
        entry = 8 * sum(len(scan.tokens[row]) for row in rows) * scan.settings.per_row
        if group and size + entry > RECORD_BYTES:
            yield tuple(group), sorted({row for own in group for row in of_layer[own]})
            group, size = [], 0
        group.append(layer)
        size += entry
    yield tuple(group), sorted({row for own in group for row in of_layer[own]})


def _in_batches(scan: Scan, rows: Sequence[int]) -> Iterator[list[int]]:
    """Yield texts of similar length together, so many that a pattern is not too large."""
    batch: list[int] = []
    for row in sorted(rows, key=lambda one: (len(scan.tokens[one]), one)):
        size = 4 * scan.layout.n_heads * len(scan.tokens[row]) ** 2 * (len(batch) + 1)
        if batch and size > PATTERN_BYTES:
            yield batch
            batch = []
        batch.append(row)
    yield batch


def _attention(
    scan: Scan, layers: Sequence[int], rows: Sequence[int],
    wanted: Mapping[tuple[int, int], Sequence[int]], found: dict[tuple[int, int, int], Entries],
) -> None:
    """Put the largest entries of the attention of the heads that are shown with these texts into
    `found`."""
    asked: LanguageModel = scan.asked
    device = next(scan.model.parameters()).device
    ids = [torch.from_numpy(scan.tokens[row].astype(np.int64)) for row in rows]
    tokens = torch.nn.utils.rnn.pad_sequence(
        ids, batch_first=True, padding_value=asked.padding).to(device)
    lengths = torch.tensor([len(one) for one in ids], device=device)
    mask = torch.arange(tokens.shape[1], device=device) < lengths[:, None]

    def keep(layer: int) -> Callable[..., None]:
        def store(pattern: Tensor, hook: object) -> None:
            for b, row in enumerate(rows):
                n, heads = len(ids[b]), list(wanted[layer, row])
                if heads:
                    a = pattern[b, heads, :n, :n].float()
                    for head, one in zip(heads, a, strict=True):
                        found[layer, head, row] = _entries(one, scan.settings)
        return store

    look(scan.model, tokens, ((scan.layout.pattern_hooks[layer], keep(layer)) for layer in layers),
         asked.padded(mask))


def _entries(a: Tensor, settings: Shown) -> Entries:
    """Return the entries that are kept of the attention [T, T] of a head, and its maximum."""
    n = len(a)
    values, key = a.topk(min(settings.per_row, n), dim=-1)
    index = torch.arange(n, device=a.device)[:, None] * n + key
    kept = (values >= settings.least) & (values > 0.0)
    index, values = index[kept], values[kept]
    order = index.argsort()
    return (index[order].cpu().numpy().astype(np.int32), values[order].cpu().numpy(),
            float(a[1:, 1:].max()))


def _write(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, allow_nan=False, separators=(",", ":")) + "\n",
                    encoding="utf-8")


__all__ = ["by_head", "write_headvis"]
