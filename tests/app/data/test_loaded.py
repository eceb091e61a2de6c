"""Are codes, projections and problems those that were asked for, and computed once?"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import streamlit as st
from places import EXAMPLE
from small_app import drawn_codes, open_folders

import latentcode as lc
from latentcode.app.data import loaded as data
from latentcode.app.data.catalog import Entry
from latentcode.app.data.problem import card, neighbours, problem
from latentcode.app.data.projections import laid_out
from latentcode.errors import ArtifactError, ConfigError, ProbeError
from latentcode.files.storage import default_cache
from latentcode.probes.projection import reduced_settings
from latentcode.probes.similarity import similarity
from latentcode.registry import import_file


@pytest.fixture(scope="module")
def run(
    smoke_run: Callable[[str, str], lc.Run], tmp_path_factory: pytest.TempPathFactory
) -> lc.Run:
    return smoke_run("sraven", "hyla").publish(tmp_path_factory.mktemp("data") / "runs" / "tiny")


@pytest.fixture
def source(run: lc.Run, monkeypatch: pytest.MonkeyPatch) -> Entry:
    open_folders(monkeypatch, [run.path.parent])
    return data.entry("runs/tiny")


@pytest.fixture
def extractions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many instances each extraction has read."""
    done: list[int] = []
    real = data.extract_to_cache

    def counted(run: lc.Run, split: str, n: int, *rest: Any) -> None:
        done.append(n)
        real(run, split, n, *rest)

    monkeypatch.setattr(data, "extract_to_cache", counted)
    return done


def test_codes_are_read_out_once(source: Entry, run: lc.Run, extractions: list[int]) -> None:
    codes = data.codes(source, "ood", 24)
    expected = lc.extract(run, split="ood", n=24,
                          problems=lc.make_task(run.config.task).probe_config)
    np.testing.assert_array_equal(codes.scores, expected.scores)
    pd.testing.assert_frame_equal(codes.labels, expected.labels)
    data.codes(source, "ood", 24)
    st.cache_resource.clear()
    data.codes(source, "ood", 24)
    assert extractions == [24]
    data.codes(source, "test", 24)
    data.codes(source, "ood", 30)
    assert extractions == [24, 24, 30]
    # Damaged ones of the cache are read again.
    st.cache_resource.clear()
    for labels in (default_cache() / "codes").glob("*/labels.parquet"):
        labels.write_bytes(b"damaged")
    np.testing.assert_array_equal(data.codes(source, "ood", 24).scores, expected.scores)
    assert extractions == [24, 24, 30, 24]


def test_stored_codes_are_used_as_far_as_they_go(
    run: lc.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extractions: list[int]
) -> None:
    entry = run.publish(tmp_path / "zoo" / "tiny")
    stored = lc.extract(entry, split="ood", n=20, pairs=["response->response"])
    stored.save(entry.path / "results" / "codes-ood")
    open_folders(monkeypatch, [])
    source = Entry("tiny", entry.path, "zoo")
    np.testing.assert_array_equal(data.codes(source, "ood", 12).scores, stored.scores[:12])
    assert extractions == []
    more = data.codes(source, "ood", 24)
    assert extractions == [24]
    # The same pairs, and the same instances first.
    assert [pair.name for pair in more.pairs] == ["response->response"]
    np.testing.assert_allclose(more.scores[:20], stored.scores, atol=1e-6)
    assert data.splits(source)[0] == "ood"


def test_codes_without_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_codes().save(tmp_path / "codes")
    open_folders(monkeypatch, [tmp_path])
    source = data.entry(f"{tmp_path.name}/codes")
    assert source.kind == "codes"
    assert data.splits(source) == ("ood",)
    assert len(data.codes(source, "ood", 50)) == 50
    assert len(data.codes(source, "ood", 5_000)) == 90
    with pytest.raises(ConfigError, match="do not say which task"):
        problem(source, data.codes(source, "ood", 50), 3)


def test_a_problem_is_the_instance_of_the_codes(source: Entry, run: lc.Run) -> None:
    codes = data.codes(source, "ood", 24)
    shown = problem(source, codes, 5)
    assert shown.answer.startswith("The model answers")
    for rule in ("rule_0", "rule_1"):
        assert str(codes.labels[rule].iloc[5]) in shown.html
    assert shown.right == bool(codes.labels["accuracy"].iloc[5] == 1.0)
    assert problem(source, codes[3:], 2) == shown
    small = card(source, codes, 5)
    assert shown.answer in small
    assert small.count(">?</span>") == 2
    with pytest.raises(IndexError):
        card(source, codes, 24)
    assert data.task_of(codes).config == lc.make_task(run.config.task).probe_config
    # One with other labels is not shown.
    other = replace(codes, labels=codes.labels.assign(rule_0="no such rule"),
                    meta={**codes.meta, "run_id": "another"})
    with pytest.raises(ArtifactError, match="instance 5 cannot be shown"):
        problem(source, other, 5)


def test_neighbours_are_those_among_the_codes() -> None:
    codes = drawn_codes()
    points = np.asarray(codes.select(layer=1, pair="response->response"))
    table = neighbours(points, codes.labels, 7, k=5)
    order = np.argsort(np.linalg.norm(points - points[7], axis=1))
    assert table["instance"].tolist() == [i for i in order if i != 7][:5]
    assert table["rule_0"].tolist() == codes.labels["rule_0"].iloc[table["instance"]].tolist()
    assert len(neighbours(points[:1], codes.labels[:1], 0)) == 0


def test_links_among_the_results_of_a_run_are_not_followed(
    run: lc.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = run.publish(tmp_path / "runs" / "tiny")
    results = published.path / "results"
    similarity(drawn_codes(), label="rule", controls=False, n_bootstrap=100).save(
        results / "own", figures=False)
    (results / "link").symlink_to(results / "own")
    open_folders(monkeypatch, [tmp_path / "runs"])
    assert set(data.saved_results(Entry("runs/tiny", published.path, "run"))) == {"own"}


@pytest.mark.slow
def test_few_codes_are_laid_out_as_far_as_they_allow(
    source: Entry, run: lc.Run
) -> None:
    codes = data.first(data.codes(source, "ood", 24), 20)
    plane = laid_out(codes.select(layer=codes.layers[-1], pair="response->response"), "tsne")
    assert plane.coordinates.shape == (20, 2)
    assert plane.settings["perplexity"] == 6.3
    with pytest.raises(ProbeError, match="3 codes are too few"):
        laid_out(codes.select(layer=codes.layers[-1], pair="response->response")[:3], "umap")
    for n in range(4, 90):
        (name, perplexity), = reduced_settings("tsne", n).items()
        assert name == "perplexity"
        # What t-SNE asks for, and hardly less than it allows.
        assert np.ceil(3 * perplexity) + 1 <= n < 3 * perplexity + 2
    assert reduced_settings("tsne", 91) == {}
    assert reduced_settings("umap", 15) == {"n_neighbors": 14}
    assert reduced_settings("umap", 16) == reduced_settings("pca", 3) == {}


def test_stored_codes_of_earlier_weights_are_not_shown(
    run: lc.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extractions: list[int]
) -> None:
    entry = run.publish(tmp_path / "runs" / "tiny")
    codes = lc.extract(entry, split="ood", n=20, pairs=["response->response"])
    earlier = replace(codes, scores=codes.scores + 1, meta={**codes.meta, "step": 1})
    folder = earlier.save(entry.path / "results" / "codes-ood")
    open_folders(monkeypatch, [tmp_path / "runs"])
    source = data.entry("runs/tiny")
    assert data.stored_codes(source, "ood") is None
    first = codes.select(layer=codes.layers[-1], pair="response->response")
    shown = data.codes(source, "ood", 20).select(layer=codes.layers[-1], pair="response->response")
    np.testing.assert_allclose(shown, first, atol=1e-6)
    assert extractions == [20]
    # Those of the newest weights are, as soon as they are there.
    codes.save(folder, overwrite=True)
    assert data.stored_codes(source, "ood") is not None
    data.codes(source, "ood", 20)
    assert extractions == [20]


def test_what_is_kept_of_an_own_task_is_made_again_when_its_file_has_changed(
    tmp_path: Path, own_names: Callable[[], None]
) -> None:
    file = tmp_path / "modadd.py"
    shutil.copy(EXAMPLE, file)
    folders = []
    for text in ("", "", "# another task"):
        file.write_text(file.read_text() + text)
        import_file(str(file))
        if not folders:
            config = lc.preset("smoke", "modadd")
            path = lc.train(replace(config, training=replace(
                config.training, steps=1, warmup_steps=0, eval_instances=8)), tmp_path / "run",
                progress=False).path
        folders.append(data.cache_folder("codes", lc.load_run(path)))
        own_names()
    assert folders[0] == folders[1] != folders[2]
