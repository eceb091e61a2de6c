"""An export is read back number by number, and damage to it is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from random_texts import batches
from small_language_models import SmallModels

from latentcode.errors import ArtifactError, ConfigError, ProbeError, RunError
from latentcode.probes.heads.headvis import check_headvis, write_headvis
from latentcode.probes.heads.headvis.scanning import Scan, Shown
from latentcode.prompts import LanguageModel, load_language_model

N = 60
SHOWN = Shown(n_intervals=4, per_interval=2, at_top=5)
Exported = tuple[LanguageModel, Path]


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def exported(
    request: pytest.FixtureRequest, small_models: SmallModels,
    tmp_path_factory: pytest.TempPathFactory,
) -> Exported:
    asked = load_language_model(small_models(request.param))
    ours = pd.DataFrame({"layer": [0, 0, 0, 0, 1, 1, 1, 1], "head": [0, 1, 2, 3] * 2,
                         "effect": np.linspace(-1.0, 1.0, 8)})
    folder = tmp_path_factory.mktemp("headvis") / "data"
    write_headvis(asked, batches(asked, N, 7), folder, dataset_name="random", metrics=ours,
                  descriptions={"effect": "made up"}, settings=SHOWN)
    return asked, folder


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def patterns(asked: LanguageModel) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return ids and pattern [L, H, T, T] of each text, one at a time and without padding."""
    found = []
    for batch in batches(asked, N, 1):
        _, cache = asked.model.run_with_cache(batch.tokens)
        found.append((batch.tokens[0].numpy(), np.stack([
            cache[f"blocks.{layer}.attn.hook_pattern"][0].detach().double().numpy()
            for layer in range(2)])))
    return found


def test_it_is_what_is_said_of_the_format(exported: Exported) -> None:
    found = check_headvis(exported[1])
    assert found.heads == tuple((layer, head) for layer in range(2) for head in range(4))
    assert found.metrics[-1] == "effect"
    assert len(found.metrics) == 7
    assert found.n_sequences >= 8 * (3 * 2 + 5) - 8


def test_rows_of_one_document_are_shown_apart(
    small_models: SmallModels, tmp_path: Path
) -> None:
    asked = load_language_model(small_models("gpt2"))
    apart, together = (
        write_headvis(asked, [replace(batch, text=batch.text // share, row=batch.text)
                              for batch in batches(asked, 20, 6)],
                      tmp_path / str(share), dataset_name="random", settings=SHOWN)
        for share in (1, 5))
    for layer, head in ((0, 0), (1, 3)):
        file = f"heads/L{layer}H{head}.json"
        assert read(apart, file) == read(together, file)


def test_attention_is_that_of_the_model(exported: Exported) -> None:
    asked, folder = exported
    known = patterns(asked)
    for layer in range(2):
        for head in range(4):
            for sequence in read(folder, f"heads/L{layer}H{head}.json")["sequences"]:
                ids, pattern = known[sequence["sequence_id"]]
                a, n = pattern[layer, head], len(ids)
                assert sequence["seq_len"] == n
                assert sequence["tokens"] == asked.texts(ids.tolist())
                shown = np.zeros(n * n)
                shown[sequence["attention_indices"]] = sequence["attention_values"]
                shown = shown.reshape(n, n)
                for q in range(n):
                    largest = np.argsort(-a[q])[:8]
                    for k in range(n):
                        kept = k in largest and a[q, k] >= 0.005
                        if kept or shown[q, k]:
                            assert abs(shown[q, k] - a[q, k]) < 0.6e-4
                assert sequence["max_activation"] == pytest.approx(a[1:, 1:].max(), abs=0.6e-4)


def test_metrics_are_those_of_loops_over_texts(exported: Exported) -> None:
    asked, folder = exported
    own, previous, entropy, distances, induction = (
        [[[] for _ in range(4)] for _ in range(2)] for _ in range(5))
    for ids, pattern in patterns(asked):
        n = len(ids)
        for layer in range(2):
            for head in range(4):
                a = pattern[layer, head]
                own[layer][head] += list(np.diag(a))
                previous[layer][head] += list(np.diag(a, -1))
                for q in range(n):
                    row = a[q, :q + 1]
                    entropy[layer][head].append(-(row * np.log(np.maximum(row, 1e-300))).sum())
                    distances[layer][head].append(
                        [(row * (q - np.arange(q + 1))**p).sum() for p in (1, 2)])
                    earlier = [j for j in range(q) if ids[j] == ids[q]]
                    if earlier:
                        values = [a[q, j + 1] for j in earlier]
                        induction[layer][head].append(sum(v for v in values if v >= 0.01))
    for i, row in enumerate(read(folder, "scatter_data.json")):
        layer, head = divmod(i, 4)
        assert (row["layer"], row["head"]) == (layer, head)
        one, two = np.mean(distances[layer][head], axis=0)
        expected = {
            "self_attention_score": np.mean(own[layer][head]),
            "prev_token_score": np.mean(previous[layer][head]),
            "pattern_entropy": np.mean(entropy[layer][head]), "qk_distance": one,
            "qk_distance_variance": two - one**2,
            "induction_score": np.mean(induction[layer][head]),
            "effect": np.linspace(-1, 1, 8)[i]}
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, abs=1.1e-4), name


def test_texts_are_the_largest_and_some_of_each_interval(exported: Exported) -> None:
    asked, folder = exported
    maxima = np.stack([p[:, :, 1:, 1:].max(axis=(2, 3)) for _, p in patterns(asked)])
    for layer in range(2):
        for head in range(4):
            mine = maxima[:, layer, head]
            edges = np.quantile(mine, [0.25, 0.5, 0.75])
            data = read(folder, f"heads/L{layer}H{head}.json")
            of = {i: [s["sequence_id"] for s in data["sequences"] if s["interval"] == i]
                  for i in range(1, 5)}
            assert mine[of[4]].tolist() == pytest.approx(sorted(mine, reverse=True)[:5], abs=1e-5)
            for i in range(1, 4):
                assert len(of[i]) == 2
                low, high = np.r_[0.0, edges][i - 1:i + 1]
                assert all(low - 1e-5 <= mine[row] <= high + 1e-5 for row in of[i])
            counts = np.histogram(mine, bins=50, range=(0, 1))[0]
            assert np.abs(np.array(data["histogram"]["bin_values"]) - counts).sum() <= 2
            assert data["statistics"]["mean_max_activation"] == pytest.approx(mine.mean(), abs=1e-4)


def test_it_does_not_depend_on_batches(exported: Exported, tmp_path: Path) -> None:
    asked, folder = exported
    again = write_headvis(asked, batches(asked, N, 60), tmp_path / "data", dataset_name="random",
                          settings=SHOWN)
    for layer in range(2):
        one, other = (read(f, f"heads/L{layer}H1.json") for f in (folder, again))
        assert [s["sequence_id"] for s in one["sequences"]] == [
            s["sequence_id"] for s in other["sequences"]]


def test_layers_are_written_in_groups(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from latentcode.probes.heads.headvis import writing

    asked, folder = exported
    monkeypatch.setattr(writing, "RECORD_BYTES", 1)
    monkeypatch.setattr(writing, "PATTERN_BYTES", 1)
    again = write_headvis(asked, batches(asked, N, 7), tmp_path / "data", dataset_name="random",
                          settings=SHOWN, layers=[1])
    assert check_headvis(again).heads == tuple((1, head) for head in range(4))
    one, other = (read(f, "heads/L1H2.json")["sequences"] for f in (folder, again))
    assert [s["attention_indices"] for s in one] == [s["attention_indices"] for s in other]


def test_memory_does_not_grow_with_texts(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    from latentcode.models.pretrained import layout
    from latentcode.probes.heads.headvis import scanning

    asked = exported[0]
    monkeypatch.setattr(scanning, "DRAWN", 20)
    scan = Scan(asked, layout(asked.model), (0, 1), Shown(at_top=3))
    for batch in batches(asked, 400, 20):
        scan.add(batch)
        assert len(scan.tokens) <= 20 + 8 * 3
        assert len(scan._drawn) <= 20
    assert scan.n_texts == 400


def put(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    data = read(folder, name)
    change(data)
    (folder / name).write_text(json.dumps(data), encoding="utf-8")


HEAD = "heads/L1H2.json"
DAMAGE: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "a key is missing": ("config.json", lambda d: d.pop("metrics"), "metrics is missing"),
    "a type is wrong": ("config.json", lambda d: d.update(n_layers="2"), "n_layers is '2'"),
    "a head is not there": ("config.json", lambda d: d["heads"].append([1, 4]), "heads is"),
    "a head is twice": ("config.json", lambda d: d["heads"].append([1, 3]), "heads is"),
    "a head is left out": ("config.json", lambda d: d["heads"].pop(), "has rows of heads"),
    "no run": ("config.json", lambda d: d["pipeline_config"].pop("dtype"), "dtype is missing"),
    "two names": ("config.json", lambda d: d.update(model_name="else"), "expected one name"),
    "a metric is unknown": ("config.json", lambda d: d["metrics"].append("x"), "x is missing"),
    "a plot is unknown": ("config.json", lambda d: d["custom_plots"].append(
        {"key": "x", "label": "x"}), "expected an object"),
    "clouds that are not there": ("config.json", lambda d: d.update(has_umap=True), "has_umap"),
    "no number": ("scatter_data.json", lambda d: d[3].update(qk_distance="far"), "row 3"),
    "no finite number": ("scatter_data.json", lambda d: d[3].update(effect=float("nan")), "row 3"),
    "a row is missing": ("scatter_data.json", lambda d: d.pop(), "has rows of heads"),
    "an interval": (HEAD, lambda d: d["sequences"][0].update(interval=5), "interval is 5"),
    "intervals are swapped": (HEAD, lambda d: [s.update(interval=5 - s["interval"])
                                               for s in d["sequences"]], "lower interval"),
    "an index": (HEAD, lambda d: d["sequences"][0]["attention_indices"].__setitem__(0, 9999),
                 "whole numbers from 0"),
    "an index is twice": (HEAD, lambda d: d["sequences"][0]["attention_indices"].__setitem__(
        0, d["sequences"][0]["attention_indices"][1]), "has one twice"),
    "a value is missing": (HEAD, lambda d: d["sequences"][1]["attention_values"].pop(),
                           "expected as many"),
    "a value is too large": (HEAD, lambda d: d["sequences"][1]["attention_values"].__setitem__(
        2, 1.5), "numbers from 0 to 1"),
    "a value is not rounded": (HEAD, lambda d: d["sequences"][1]["attention_values"].__setitem__(
        2, 0.123456), "not rounded"),
    "a row sums to more": (HEAD, lambda d: d["sequences"][1]["attention_values"].__setitem__(
        2, 1.0), "sum to more than 1"),
    "a token is lost": (HEAD, lambda d: d["sequences"][2]["tokens"].pop(), "seq_len is"),
    "another text": (HEAD, lambda d: [s["tokens"].__setitem__(0, "!") for s in d["sequences"]],
                     "not those that text"),
    "a maximum": (HEAD, lambda d: d["sequences"][2].update(max_activation=0.0),
                  "max_activation is 0.0"),
    "a text is twice": (HEAD, lambda d: d["sequences"].append(d["sequences"][0]), "a text twice"),
    "a text is lost": (HEAD, lambda d: d["sequences"].pop(), "n_samples"),
    "a bin is lost": (HEAD, lambda d: d["histogram"]["bin_values"].pop(), "bin_values"),
    "a count": (HEAD, lambda d: d["histogram"]["bin_values"].__setitem__(0, 999), "texts; expect"),
    "edges": (HEAD, lambda d: d["qk_distance_histogram"]["bin_edges"].reverse(), "that grow"),
    "a distance": (HEAD, lambda d: d["qk_distance_histogram"]["bin_values"].__setitem__(0, 0.5),
                   "qk_distance_histogram is"),
    "an order": (HEAD, lambda d: d["top_key_tokens"].reverse(), "largest first"),
    "a weight": (HEAD, lambda d: d["top_query_tokens"][0].update(weight=999.0), "largest sums"),
    "no text": (HEAD, lambda d: d["top_query_tokens"][0].update(token=7), "token is 7"),
    "no object": ("server_config.json", lambda d: d.update(context=None) or None, "")}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed(exported: Exported, tmp_path: Path, damage: str) -> None:
    import shutil

    folder = shutil.copytree(exported[1], tmp_path / "data")
    name, change, said = DAMAGE[damage]
    put(folder, name, change)
    if not said:
        check_headvis(folder)  # what a server is told is its own affair
        return
    with pytest.raises(ArtifactError, match=said) as error:
        check_headvis(folder)
    assert str(folder) in str(error.value)


def test_files_that_are_missing_or_too_many(exported: Exported, tmp_path: Path) -> None:
    import shutil

    for name in ("config.json", "scatter_data.json", "heads/L0H0.json", "server_config.json",
                 "attributions/manifest.json"):
        folder = shutil.copytree(exported[1], tmp_path / name.replace("/", "-"))
        (folder / name).unlink()
        with pytest.raises(ArtifactError, match=r"missing|too few"):
            check_headvis(folder)
    folder = shutil.copytree(exported[1], tmp_path / "more")
    (folder / "heads" / "L9H9.json").write_text("{}")
    with pytest.raises(ArtifactError, match="L9H9"):
        check_headvis(folder)


def test_what_cannot_be_written(exported: Exported, tmp_path: Path) -> None:
    asked = exported[0]
    some = list(batches(asked, 4, 4))
    with pytest.raises(ConfigError, match="dataset_name is ''"):
        write_headvis(asked, some, tmp_path / "a", dataset_name="")
    with pytest.raises(ProbeError, match="none of two tokens"):
        write_headvis(asked, batches(asked, 3, 3, least=1, most=1), tmp_path / "a",
                      dataset_name="x")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")  # a folder of transformers, for instance
    with pytest.raises(RunError, match="not one of ours"):
        write_headvis(asked, some, tmp_path / "model", dataset_name="x", overwrite=True)
    heads = pd.DataFrame({"layer": [0], "head": [0], "effect": [1.0]})
    with pytest.raises(ConfigError, match="expected one for each of 8"):
        write_headvis(asked, some, tmp_path / "a", dataset_name="x", metrics=heads)
    with pytest.raises(ConfigError, match="'qk_distance' is one that HeadVis has"):
        write_headvis(asked, some, tmp_path / "a", dataset_name="x", layers=0, metrics=pd.DataFrame(
            {"layer": 0, "head": range(4), "qk_distance": 1.0}))
    assert not (tmp_path / "a").exists()


def test_codes_that_are_no_attention_are_refused(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = exported[0]

    def double(pattern: torch.Tensor, hook: object) -> torch.Tensor:
        return 2.0 * pattern - 0.5

    with asked.model.hooks(fwd_hooks=[("blocks.1.attn.hook_pattern", double)]), pytest.raises(
            ConfigError, match=r"layer 1 .* HeadVis shows attention, from 0 to 1"):
        write_headvis(asked, batches(asked, 4, 4), tmp_path / "a", dataset_name="x")
    assert not (tmp_path / "a").exists()


def test_edges_double() -> None:
    from latentcode.probes.heads.headvis.tree import distance_edges

    for longest in (1, 2, 9, 512, 513):
        edges = distance_edges(longest)
        assert edges[:2] == [0, 1]
        assert all(b == 2 * a for a, b in pairwise(edges[1:]))
        assert edges[-1] >= longest
