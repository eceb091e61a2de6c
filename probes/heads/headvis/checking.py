"""Is a folder what HeadVis and Neuronpedia can read? Every file, against the format.

See `tree` for the sources. Nothing of what writes the folder is used but the names of its files.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latentcode.errors import ArtifactError, check
from latentcode.files.storage import read_json
from latentcode.probes.heads.headvis.tree import (
    CONFIG,
    DECIMALS,
    MANIFEST,
    NEEDED,
    SCATTER,
    SERVER,
    TOP_TOKENS,
    entries,
    token_weights,
)

HALF = 0.5 * 10.0**-DECIMALS + 1e-9
"""What rounding moves a number by at most."""
CONFIG_KEYS: Mapping[str, type | tuple[type, ...]] = {
    "model_name": str, "heads": list, "n_layers": int, "n_heads": int, "n_intervals": int,
    "metrics": list, "metric_descriptions": dict, "head_data_pattern": str, "has_umap": bool,
    "umap_heads": list, "custom_plots": list, "custom_tables": list, "statistics_display": dict}
HEAD_KEYS: Mapping[str, type | tuple[type, ...]] = {
    "sequences": list, "qk_distance_histogram": dict, "top_query_tokens": list,
    "top_key_tokens": list, "histogram": dict, "statistics": dict}
SEQUENCE_KEYS: Mapping[str, type | tuple[type, ...]] = {
    "sequence_id": int, "interval": int, "tokens": list, "attention_indices": list,
    "attention_values": list, "seq_len": int, "max_activation": (int, float)}
Head = tuple[int, int]


@dataclass(frozen=True)
class HeadVisFolder:
    """What a folder was found to hold.

    metrics      their names
    n_sequences  texts that are shown, summed over heads
    """

    model_name: str
    heads: tuple[Head, ...]
    metrics: tuple[str, ...]
    n_sequences: int


def check_headvis(folder: str | Path, *, neuronpedia: bool = True) -> HeadVisFolder:
    """Read a HeadVis folder, and compare all that it says with what is said of the format.

    Types and required keys; that all numbers are finite, and of attention from 0 to 1 with four
    decimals; that every head has its row and its file, and there are no others; that indices lie in
    their text, no entry is there twice and rows sum to 1 at most; that a text has the same tokens
    for every head; that the maximum of a text is that of its entries, intervals follow each other,
    histograms and tables of tokens sum up what they are of.

    neuronpedia  also what Neuronpedia's loaders need of `pipeline_config`

    `ArtifactError` names the file, what is wrong and what was expected.
    """
    folder = Path(folder)
    config = _object(folder / CONFIG, CONFIG_KEYS)
    heads = _heads(folder / CONFIG, config)
    pipeline = config.get("pipeline_config", {})
    if neuronpedia:
        _check_run(folder / CONFIG, config)
    _check_scatter(folder / SCATTER, config, heads)
    for name in (SERVER, MANIFEST):
        _object(folder / name, {})
    files = {config["head_data_pattern"].format(layer=layer, head=head): (layer, head)
             for layer, head in heads}
    found = {path.name for path in (folder / "heads").glob("*")}
    _say(found == set(files), folder / "heads", f"has {_few(found ^ set(files))} too many or too "
         f"few; expected a file for each of the {len(heads)} heads of {CONFIG}")
    texts: dict[int, int] = {}
    n_sequences = 0
    for name in files:
        n_sequences += _check_head(folder / "heads" / name, config, pipeline, texts)
    return HeadVisFolder(config["model_name"], tuple(heads), tuple(config["metrics"]), n_sequences)


def _say(condition: bool, path: Path, message: str) -> None:
    check(condition, f"{path}: {message}", ArtifactError)


def _is(value: object, kind: type | tuple[type, ...]) -> bool:
    """Whether a value is of a type; true and false are no numbers, and numbers are finite."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, kind) and (not isinstance(value, float) or math.isfinite(value))


def _number(value: object) -> bool:
    return _is(value, (int, float))


def _object(path: Path, keys: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    data = read_json(path)
    _say(isinstance(data, dict), path, f"is {type(data).__name__}; expected an object")
    _check_keys(path, "", data, keys)
    return dict(data)


def _check_keys(
    path: Path, where: str, data: Any, keys: Mapping[str, type | tuple[type, ...]]
) -> None:
    _say(isinstance(data, dict), path, f"{where or 'it'} is {_short(data)}; expected an object")
    for name, kind in keys.items():
        kinds = kind if isinstance(kind, tuple) else (kind,)
        _say(name in data, path, f"{where}{name} is missing")
        _say(_is(data[name], kind), path, f"{where}{name} is {_short(data[name])}; expected "
             f"{' or '.join(one.__name__ for one in kinds)}")


def _heads(path: Path, config: Mapping[str, Any]) -> list[Head]:
    def are_heads(some: list[Any]) -> bool:
        return all(isinstance(of, list) and len(of) == 2 and all(_is(i, int) for i in of)
                   and 0 <= of[0] < config["n_layers"] and 0 <= of[1] < config["n_heads"]
                   for of in some)

    heads = [tuple(of) for of in config["heads"]] if are_heads(config["heads"]) else []
    _say(0 < len(heads) == len(set(heads)), path, f"heads is {_short(config['heads'])}; expected "
         f"different [layer, head] of {config['n_layers']} layers of {config['n_heads']} heads")
    umap = config["umap_heads"]
    _say(are_heads(umap) and {tuple(of) for of in umap} <= set(heads)
         and config["has_umap"] == bool(umap), path, f"umap_heads is {_short(umap)} and has_umap "
         f"{config['has_umap']}; expected some of heads, or none and false")
    for layer, head in umap:
        file = path.parent / "umap" / f"L{layer}H{head}.json"
        _say(file.is_file(), file, "is missing; umap_heads names it")
    _say(config["n_intervals"] >= 1, path, f"n_intervals is {config['n_intervals']}; expected at "
         "least 1")
    pattern = config["head_data_pattern"]
    _say("{layer}" in pattern and "{head}" in pattern and "/" not in pattern, path,
         f"head_data_pattern is {pattern!r}; expected a file name with {{layer}} and {{head}}")
    metrics, said = config["metrics"], config["metric_descriptions"]
    _say(all(_is(name, str) for name in metrics) and len(set(metrics)) == len(metrics) > 0, path,
         f"metrics is {_short(metrics)}; expected different names")
    _say(set(said) <= set(metrics) and all(_is(text, str) for text in said.values()), path,
         f"metric_descriptions describes {_few(set(said) - set(metrics))}; expected text about "
         "names of metrics")
    for name in ("custom_plots", "custom_tables"):
        for i, one in enumerate(config[name]):
            _check_keys(path, f"{name}[{i}].", one, {"key": str, "label": str})
    for name, one in config["statistics_display"].items():
        _check_keys(path, f"statistics_display.{name}.", one, {"label": str, "format": str})
    return heads


def _check_run(path: Path, config: Mapping[str, Any]) -> None:
    _check_keys(path, "", config, {"pipeline_config": dict})
    run = config["pipeline_config"]
    _check_keys(path, "pipeline_config.", run, NEEDED)
    for name in ("model_name", "dataset_name"):
        _say(run[name] == config.get(name, run[name]) != "", path, f"pipeline_config.{name} is "
             f"{run[name]!r} and {name} {config.get(name)!r}; expected one name")
    for name in ("n_sequences", "seq_len"):
        _say(run[name] >= 1, path, f"pipeline_config.{name} is {run[name]}; expected at least 1")


def _check_scatter(path: Path, config: Mapping[str, Any], heads: Sequence[Head]) -> None:
    rows = read_json(path)
    _say(isinstance(rows, list), path, f"is {type(rows).__name__}; expected a list of rows")
    for i, row in enumerate(rows):
        _check_keys(path, f"row {i}: ", row, {"layer": int, "head": int})
        for name in config["metrics"]:
            _say(name in row, path, f"row {i}: {name} is missing, which {CONFIG} names")
            _say(row[name] is None or _number(row[name]), path,
                 f"row {i}: {name} is {_short(row[name])}; expected a number or null")
        more = set(row) - {"layer", "head", *config["metrics"]}
        _say(not more, path, f"row {i} has {_few(more)}, which {CONFIG} does not name")
    found = Counter((row["layer"], row["head"]) for row in rows)
    _say(found == Counter(heads), path, f"has rows of heads {_few(found.elements())}; expected one "
         f"for each of {len(heads)}")


def _check_head(
    path: Path, config: Mapping[str, Any], pipeline: Mapping[str, Any], texts: dict[int, int]
) -> int:
    """Check the file of a head; `texts` says the hash of the tokens of those known so far."""
    head = _object(path, HEAD_KEYS)
    sequences = head["sequences"]
    for i, sequence in enumerate(sequences):
        where = f"sequences[{i}]."
        _check_keys(path, where, sequence, SEQUENCE_KEYS)
        _check_sequence(path, where, sequence, config, pipeline)
        known = texts.setdefault(sequence["sequence_id"], hash(tuple(sequence["tokens"])))
        _say(known == hash(tuple(sequence["tokens"])), path, f"{where}tokens are not those that "
             f"text {sequence['sequence_id']} has elsewhere")
    ids = [sequence["sequence_id"] for sequence in sequences]
    _say(len(set(ids)) == len(ids), path, "has a text twice")
    _check_intervals(path, sequences)
    for name in {"qk_distance_histogram", *(one["key"] for one in config["custom_plots"])}:
        _check_histogram(path, name, head.get(name))
    _check_maxima(path, head, pipeline)
    for name in {"top_query_tokens", "top_key_tokens",
                 *(one["key"] for one in config["custom_tables"])}:
        _check_tokens(path, name, head.get(name))
    for side in ("query", "key"):
        weights = token_weights(sequences, side)
        table = head[f"top_{side}_tokens"]
        slack = HALF + HALF * sum(len(one["attention_values"]) for one in sequences)
        largest = sorted(weights.values(), reverse=True)[:TOP_TOKENS]
        _say(len(table) == len(largest) and all(
            abs(row["weight"] - weights.get(row["token"], math.inf)) <= slack
            and abs(row["weight"] - weight) <= slack
            for row, weight in zip(table, largest, strict=True)), path,
            f"top_{side}_tokens are not the {len(largest)} largest sums over the sequences")
    _check_distances(path, sequences, head["qk_distance_histogram"])
    return len(sequences)


def _check_distances(
    path: Path, sequences: Sequence[Mapping[str, Any]], histogram: Mapping[str, list[Any]]
) -> None:
    """Check the histogram of distances bin by bin; it may count entries or their attention."""
    edges, stated = histogram["bin_edges"], np.asarray(histogram["bin_values"], dtype=np.float64)
    mass, number = np.zeros(len(stated)), np.zeros(len(stated))
    for sequence in sequences:
        q, k, value = entries(sequence)
        # The last bin of numpy's histogram has both its ends; none of ours has its upper one.
        place = np.searchsorted(edges, np.abs(q - k), side="right") - 1
        kept = (place >= 0) & (place < len(stated))
        mass += np.bincount(place[kept], value[kept], len(stated))
        number += np.bincount(place[kept], minlength=len(stated))
    _say(min(np.abs(stated - mass).max(), np.abs(stated - number).max()) <= 2 * HALF, path,
         f"qk_distance_histogram is {_short(stated.tolist())}; expected {_short(mass.tolist())}, "
         f"the attention of the sequences by distance, or {_short(number.tolist())}, their entries")


def _check_sequence(
    path: Path, where: str, sequence: Mapping[str, Any], config: Mapping[str, Any],
    pipeline: Mapping[str, Any],
) -> None:
    n, indices, values = (sequence[name] for name in (
        "seq_len", "attention_indices", "attention_values"))
    _say(1 <= sequence["interval"] <= config["n_intervals"], path, f"{where}interval is "
         f"{sequence['interval']}; expected 1 to {config['n_intervals']}")
    _say(len(sequence["tokens"]) == n >= 1, path, f"{where}seq_len is {n} and there are "
         f"{len(sequence['tokens'])} tokens")
    _say(n <= pipeline.get("seq_len", n), path, f"{where}seq_len is {n}; expected at most "
         f"{pipeline.get('seq_len')}, that of pipeline_config")
    _say(all(_is(token, str) for token in sequence["tokens"]), path, f"{where}tokens are not all "
         "text")
    _say(len(indices) == len(values), path, f"{where}attention_indices and attention_values have "
         f"{len(indices)} and {len(values)} entries; expected as many")
    _say(all(type(i) is int for i in indices) and all(0 <= i < n * n for i in indices), path,
         f"{where}attention_indices are not all whole numbers from 0 to {n * n - 1}, "
         "query * seq_len + key")
    _say(len(set(indices)) == len(indices), path, f"{where}attention_indices has one twice")
    _say(all(type(value) in (int, float) for value in values), path,
         f"{where}attention_values are not all numbers from 0 to 1")
    q, k, value = entries(sequence)
    _say(bool(((value >= 0.0) & (value <= 1.0)).all()), path,
         f"{where}attention_values are not all numbers from 0 to 1")
    # Rounded as float32, a number is not the shortest of its kind, but what was meant.
    _say(bool((np.abs(np.round(value, DECIMALS) - value) < 1e-7).all()), path,
         f"{where}attention_values are not rounded to {DECIMALS} decimals")
    least = pipeline.get("sparse_threshold", 0.0) - HALF
    _say(bool((value >= least).all()), path, f"{where}attention_values has "
         f"{value.min(initial=1.0)}; expected none below sparse_threshold")
    of_query = np.bincount(q, minlength=n)
    most = pipeline.get("sparse_topk_per_row", n)
    _say(int(of_query.max()) <= most, path, f"{where}a query has {of_query.max()} entries; "
         f"expected at most {most}")
    _say(bool((np.bincount(q, value, n) <= 1.0 + HALF * (1 + of_query)).all()), path,
         f"{where}attention_values of a query sum to more than 1")
    largest = float(value[(q > 0) & (k > 0)].max(initial=0.0))
    stated = sequence["max_activation"]
    _say(0.0 <= stated <= 1.0 and (abs(stated - largest) <= 2 * HALF or (
        largest == 0.0 and stated < pipeline.get("sparse_threshold", 0.0))), path,
        f"{where}max_activation is {stated}; expected {largest}, the largest of entries without "
        "the first query and the first key")


def _check_intervals(path: Path, sequences: Sequence[Mapping[str, Any]]) -> None:
    """Check that no text of a lower interval has a larger maximum than one of a higher."""
    ordered = sorted(sequences, key=lambda one: one["interval"])
    largest, until = -1.0, 0
    before = -1.0
    for sequence in ordered:
        if sequence["interval"] > until:
            before, until = largest, sequence["interval"]
        _say(sequence["max_activation"] >= before - 2 * HALF, path, f"text "
             f"{sequence['sequence_id']} of interval {sequence['interval']} has max_activation "
             f"{sequence['max_activation']}; expected at least {before}, that of a lower interval")
        largest = max(largest, sequence["max_activation"])


def _check_histogram(path: Path, name: str, data: Any) -> None:
    _check_keys(path, f"{name}.", data, {"bin_edges": list, "bin_values": list})
    edges, values = data["bin_edges"], data["bin_values"]
    _say(all(_number(edge) for edge in edges) and len(edges) >= 2
         and all(a < b for a, b in itertools.pairwise(edges)), path,
         f"{name}.bin_edges is {_short(edges)}; expected numbers that grow")
    _say(len(values) == len(edges) - 1 and all(_number(v) and v >= 0 for v in values), path,
         f"{name}.bin_values is {_short(values)}; expected {len(edges) - 1} numbers of at least 0")


def _check_maxima(path: Path, head: Mapping[str, Any], pipeline: Mapping[str, Any]) -> None:
    statistics, histogram = head["statistics"], head["histogram"]
    for name, value in statistics.items():
        _say(value is None or isinstance(value, str) or _number(value), path,
             f"statistics.{name} is {_short(value)}; expected a number, text or null")
    shown = statistics.get("n_samples", len(head["sequences"]))
    _say(shown == len(head["sequences"]), path, f"statistics.n_samples is {shown}; expected "
         f"{len(head['sequences'])}, the number of sequences")
    if histogram:
        _check_histogram(path, "histogram", histogram)
        expected = pipeline.get("actual_sequences_processed", sum(histogram["bin_values"]))
        _say(sum(histogram["bin_values"]) == expected, path, f"histogram counts "
             f"{sum(histogram['bin_values'])} texts; expected {expected}, all that were read")


def _check_tokens(path: Path, name: str, table: Any) -> None:
    _say(isinstance(table, list), path, f"{name} is {_short(table)}; expected a list")
    for i, row in enumerate(table):
        _check_keys(path, f"{name}[{i}].", row, {"token": str, "weight": (int, float)})
    weights = [row["weight"] for row in table]
    _say(all(weight >= 0 for weight in weights) and weights == sorted(weights, reverse=True), path,
         f"{name} has weights {_short(weights)}; expected the largest first, none below 0")
    _say(len({row["token"] for row in table}) == len(table), path, f"{name} has a token twice")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _few(names: Any) -> str:
    some = sorted(map(str, names))
    return ", ".join(some[:4]) + (f" and {len(some) - 4} more" if len(some) > 4 else "")


__all__ = ["HeadVisFolder", "check_headvis"]
